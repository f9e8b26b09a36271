"""Mutations of rounds, time and validity (R1–R4)."""

from __future__ import annotations

from .mutation import Edit, Mutation

MUTATIONS = (
    Mutation(
        rule="R1",
        name="a neighbour is waited for",
        edits=(
            Edit(
                "Outbox.drain",
                "not post(batches, replies, index)",
                "self.loop.call_later(0.001 * index, post, batches, replies, index) is None",
            ),
        ),
        test="unit/core/test_redlock_spec.py::test_all_masters_are_asked_at_the_same_time",
    ),
    Mutation(
        rule="R1",
        name="a majority is one too few",
        edits=(Edit("majority", "return size // 2 + 1", "return max(1, size // 2)"),),
        test="unit/core/test_quorum.py::test_any_two_majorities_share_a_node[2]",
    ),
    Mutation(
        rule="R1",
        name="a majority is one too many",
        edits=(Edit("majority", "return size // 2 + 1", "return min(size, size // 2 + 2)"),),
        test="unit/core/test_redlock_spec.py::test_a_majority_of_masters_is_enough[up7]",
    ),
    Mutation(
        rule="R1",
        name="the quorum is taken from the nodes that answer",
        edits=(
            Edit(
                "Tally.cast",
                "self.silent += 1",
                """
                self.silent += 1
                self.quorum = majority(max(1, self.size - self.silent))
                """,
            ),
        ),
        test="unit/core/test_quorum.py::test_a_verdict_is_given_as_soon_as_it_is_certain_and_not_before[2]",
    ),
    Mutation(
        rule="R1",
        name="silence counts as a refusal",
        edits=(Edit("Tally.cast", "vote is Vote.REFUSED", "vote is not Vote.GRANTED"),),
        test="unit/core/test_quorum.py::test_silence_is_neither_a_grant_nor_a_refusal",
    ),
    Mutation(
        rule="R1",
        name="silence counts as a grant",
        edits=(Edit("Tally.cast", "vote is Vote.GRANTED", "vote is not Vote.REFUSED"),),
        test="unit/core/test_quorum.py::test_silence_is_neither_a_grant_nor_a_refusal",
    ),
    Mutation(
        rule="R2",
        name="the wall clock tells how long a lock is valid",
        edits=(
            Edit(
                "SystemClock.now",
                "functools.partial(time.clock_gettime, _CLOCK)",
                "time.time",
            ),
        ),
        test="unit/test_rules_time.py::test_the_clock_is_the_suspend_safe_one",
    ),
    Mutation(
        rule="R2",
        name="validity stands still while the machine is suspended",
        edits=(
            Edit(
                "SystemClock.now",
                "functools.partial(time.clock_gettime, _CLOCK)",
                "time.monotonic",
            ),
        ),
        test="unit/test_rules_time.py::test_the_clock_is_the_suspend_safe_one",
    ),
    Mutation(
        rule="R2",
        name="the watchdog trusts the loop's timers over a suspend",
        edits=(
            Edit(
                "Watchdog._sleep",
                "delay = min(max(self._heap.next_due() - began, SHORTEST_TICK), TICK)",
                "delay = max(self._heap.next_due() - began, SHORTEST_TICK) if self._heap else TICK",
            ),
        ),
        test="unit/test_extension.py::test_a_suspended_machine_loses_by_the_suspend_safe_clock",
    ),
    Mutation(
        rule="R3",
        name="the time is read after the question was sent",
        edits=(
            Edit("Attempt._ask", "self.asked_at = turn.asked_at", ""),
            Edit(
                "Attempt.ask",
                "self._ask(timeout)",
                """
                self._ask(timeout)
                session.outbox.loop.call_soon(lambda: setattr(self, "asked_at", session.clock.now()))
                """,
            ),
        ),
        test="unit/core/test_redlock_spec.py::test_step_1_the_time_is_read_before_anything_is_sent",
    ),
    Mutation(
        rule="R3",
        name="validity counts from the answers",
        edits=(
            Edit(
                "Attempt.ask",
                "await asked.alarm(verdict_known)",
                """
                await asked.alarm(verdict_known)
                self.asked_at = session.clock.now()
                """,
            ),
        ),
        test=(
            "unit/core/test_redlock_spec.py"
            "::test_step_4_the_validity_is_what_is_left_of_the_ttl[latencies_ms0]"
        ),
    ),
    Mutation(
        rule="R3",
        name="there is no drift",
        edits=(Edit("drift", "return CLOCK_DRIFT_FACTOR * ttl + EXPIRY_PRECISION", "return 0.0"),),
        test="unit/core/test_validity.py::test_the_drift_is_the_pages[0.001-0.00201]",
    ),
    Mutation(
        rule="R3",
        name="a win is judged when the tally is won, not when the task goes on",
        edits=(
            Edit(
                "Attempt.ask",
                "await asked.alarm(verdict_known)",
                """
                asked.then(verdict_known, lambda: setattr(self, 'judged_at', session.clock.now()))
                await asked.alarm(verdict_known)
                """,
            ),
            Edit(
                "Acquisition._hold",
                "grant.valid_until - session.clock.now()",
                "grant.valid_until - attempt.judged_at",
            ),
        ),
        test="unit/test_rules_time.py::test_a_win_is_judged_when_the_task_goes_on",
    ),
    Mutation(
        rule="R3",
        name="validity begins again with the round that raises counters",
        edits=(
            Edit(
                "Attempt._raise",
                """
                round_ = self._raising = Round(session.outbox, won.kind.raise_.read)
                """,
                """
                self.asked_at = session.clock.now()
                round_ = self._raising = Round(session.outbox, won.kind.raise_.read)
                """,
            ),
        ),
        test="unit/test_fence.py::test_the_round_that_raises_takes_from_the_validity",
    ),
    Mutation(
        rule="R3",
        name="a win is worth having however little is left of it",
        edits=(
            Edit(
                "Acquisition._hold",
                "grant.valid_until - session.clock.now() <= request.least_validity",
                "grant.valid_until - session.clock.now() <= 0",
            ),
        ),
        test="unit/core/test_redlock_spec.py::test_step_3_the_time_it_took_must_leave_some_validity[500]",
    ),
    Mutation(
        rule="R4",
        name="a slow node delays a round that is decided",
        edits=(
            Edit(
                "Tally.cast",
                "self.granted == self.quorum",
                "self.granted >= self.quorum and not self.pending",
            ),
        ),
        test="unit/core/test_quorum.py::test_a_verdict_is_given_as_soon_as_it_is_certain_and_not_before[3]",
    ),
    Mutation(
        rule="R4",
        name="a tie is still pending",
        edits=(
            Edit(
                "Tally.cast",
                "self.granted + self.pending < self.quorum",
                "self.granted + self.pending < self.quorum - 1",
            ),
        ),
        test="unit/core/test_quorum.py::test_an_even_tie_is_lost[2]",
    ),
    Mutation(
        rule="R4",
        name="only a quorum of grants ends a wait",
        edits=(Edit("grant_all", "granted + round_.pending < round_.size", "False"),),
        test="unit/test_late_answers.py::"
        "test_a_body_leaves_when_a_majority_has_answered_and_no_majority_released[1]",
    ),
)
