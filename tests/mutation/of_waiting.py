"""Mutations of waiting and of the clock watch (R13, R14)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R13",
        name="the local queue lets the last in line in first",
        edits=(
            Edit("LocalQueue._admit", "next(iter(entry.queue))", "next(reversed(entry.queue))"),
            Edit("NameEntry.next_in_line", "self.queue or ()", "reversed(self.queue or ())"),
        ),
        test="unit/test_waiting.py::test_tasks_of_one_process_get_the_lock_in_the_order_of_their_calls",
    ),
    Mutation(
        rule="R13",
        name="the next task is let in at the body's exit, not at the loss",
        edits=(Edit("Holding.lose", "self._ticket.leave()", ""),),
        test="unit/test_waiting.py::test_the_gate_opens_at_loss_by_the_clock",
    ),
    Mutation(
        rule="R13",
        name="there is no local queue",
        edits=(
            Edit(
                "LocalQueue.enter",
                "entry.queue or not entry.admits(ticket.primitive)",
                "False",
            ),
        ),
        test="unit/test_waiting.py::test_one_contender_per_process_and_name_reaches_the_nodes",
    ),
    Mutation(
        rule="R13",
        name="a call that ends between the line and its try keeps its place",
        edits=(
            Edit(
                "Acquisition.run",
                """
                if self._has_place:
                    self._leave_place()
                """,
                "",
            ),
        ),
        test="unit/test_admission.py::"
        "test_a_call_that_comes_first_when_no_lock_can_be_trusted_gives_its_place_back",
    ),
    Mutation(
        rule="R13",
        name="a call keeps its place while a name cools down",
        edits=(Edit("Acquisition._cool_down", "self._leave_place()", "pass"),),
        test="unit/test_admission.py::test_a_call_that_lets_a_name_cool_down_takes_no_place",
    ),
    Mutation(
        rule="R13",
        name="a task overtakes those that wait before it and exclude it",
        edits=(
            Edit(
                "LocalQueue.enter",
                "entry.queue or not entry.admits(ticket.primitive)",
                "not entry.admits(ticket.primitive)",
            ),
        ),
        test="unit/test_local_queue.py::test_a_waiting_writer_is_not_overtaken",
    ),
    Mutation(
        rule="R13",
        name="a task that gives up its place lets none of those behind it in",
        edits=(Edit("LocalQueue.step_out", "self._admit(name, entry)", "pass"),),
        test="unit/test_local_queue.py::test_a_writer_that_gives_up_lets_the_readers_behind_it_in",
    ),
    Mutation(
        rule="R13",
        name="the place that was kept for a task that has gone is never given back",
        edits=(Edit("LocalQueue.leave", "self.admission.leave()", "pass"),),
        test="unit/test_local_queue.py::test_a_notice_that_no_task_makes_up_for_is_published_once",
    ),
    Mutation(
        rule="R13",
        name="a quiet release that no task followed is never announced",
        edits=(Edit("LocalQueue.leave", "self._announce(name)", "pass"),),
        test="unit/test_local_queue.py::test_a_notice_that_no_task_makes_up_for_is_published_once",
    ),
    Mutation(
        rule="R13",
        name="a subscription stays when the last that waits gives up",
        edits=(Edit("LocalQueue.step_out", "self.idle(name, entry)", "pass"),),
        test="unit/test_local_queue.py::test_listening_ends_when_the_last_that_waits_gives_up",
    ),
    Mutation(
        rule="R13",
        name="a holder ends listening for all that share the name",
        edits=(Edit("LocalQueue.idle", "all(ticket.held is not None for ticket in entry.inside)", "True"),),
        test="unit/test_local_queue.py::test_releases_are_listened_to_while_a_task_contends",
    ),
    Mutation(
        rule="R13",
        name="a process has a name for as long as its tasks want it",
        edits=(Edit("HandoffWindows.give_back", "now - window.began >= WINDOW", "False"),),
        test="unit/test_turns.py::test_a_turn_ends_with_a_pause[False]",
    ),
    Mutation(
        rule="R13",
        name="a process asks again at once when it has had a name for long",
        edits=(Edit("HandoffWindows.take", "None if now - window.used >= YIELD else window", "None"),),
        test="unit/test_turns.py::test_a_turn_ends_with_a_pause[False]",
    ),
    Mutation(
        rule="R13",
        name="several names take their gates in the caller's order",
        edits=(
            Edit(
                "checked_names", "unique = tuple(sorted(set(names)))", "unique = tuple(dict.fromkeys(names))"
            ),
        ),
        test="unit/test_waiting.py::test_locks_over_several_names_in_opposite_orders",
    ),
    Mutation(
        rule="R13",
        name="blocking_timeout=0 tries twice",
        edits=(
            Edit(
                "Acquisition._acquire",
                "left is not None and left <= 0",
                "left is not None and left <= 0 and self._attempts > 1",
            ),
        ),
        test="unit/test_waiting.py::test_zero_tries_exactly_once[timeout]",
    ),
    Mutation(
        rule="R13",
        name="there is a sleep after the last try",
        edits=(
            Edit(
                "Acquisition._acquire",
                """
                if left is not None and left <= 0:
                    raise error
                """,
                """
                if left is not None and left <= 0:
                    await session.pauses.sleep(session.retry.cap)
                    raise error
                """,
            ),
        ),
        test="unit/test_waiting.py::test_the_wait_ends_at_most_one_node_timeout_late[3-tttt-0]",
    ),
    Mutation(
        rule="R13",
        name="back-off has no jitter",
        edits=(Edit("RetryPolicy.backoff", "share = least + (1 - least) * chance", "share = 1.0"),),
        test="unit/core/test_policy.py::test_jitter_is_full",
    ),
    Mutation(
        rule="R13",
        name="the end of the keys' lives does not end a wait",
        edits=(
            Edit(
                "Waiting._before_asking_again",
                "expiry = error.retry_after if isinstance(error, LockTakenError) else None",
                "expiry = None",
            ),
        ),
        test="unit/test_waiting.py::test_the_expiry_of_the_keys_ends_the_wait[0]",
    ),
    Mutation(
        rule="R13",
        name="a minority of notices wakes a waiter",
        edits=(Edit("ReleaseWaiter.free", "len(self._told(each)) >= self._quorum", "self._told(each)"),),
        test="unit/test_wakeup.py::test_a_minority_of_notices_wakes_no_waiter",
    ),
    Mutation(
        rule="R13",
        name="another program's key is taken for one of ours",
        edits=(TextEdit("_scripts/parts/holder.lua", "== 41 and 0 or 1", "== 41 and 0 or 0"),),
        test="unit/test_foreign_holders.py::test_a_foreign_holder_is_polled_from_the_first_refusal",
    ),
    Mutation(
        rule="R13",
        name="a lock that changes hands is polled ever more rarely",
        edits=(Edit("Waiting._seen_before", "self._expires, self._polls = expires, 0", "self._polls += 1"),),
        test="unit/test_foreign_holders.py::test_ours_get_half_of_a_fair_share_and_leave_enough[1-1-1]",
    ),
    Mutation(
        rule="R13",
        name="a minority of foreign keys has the others polled",
        edits=(
            Edit("Notices.hears", "return sum(tell) >= self._quorum", "return sum(tell) >= len(self._nodes)"),
        ),
        test="unit/test_foreign_holders.py::test_a_minority_of_foreign_keys_is_not_polled",
    ),
    Mutation(
        rule="R33",
        name="all of a crowd follow every notice",
        edits=(Edit("follows", "return chance * min(crowd, MAX_CROWD) < FOLLOWERS", "return True"),),
        test="unit/test_crowds.py::test_ten_processes_are_no_slower_and_ask_less",
    ),
    Mutation(
        rule="R33",
        name="none of a crowd of unknown size follows",
        edits=(
            Edit(
                "follows",
                "return chance * min(crowd, MAX_CROWD) < FOLLOWERS",
                "return chance * min(crowd or MAX_CROWD, MAX_CROWD) < FOLLOWERS",
            ),
        ),
        test="unit/core/test_policy.py::test_three_of_a_crowd_follow_a_notice[0-1]",
    ),
    Mutation(
        rule="R33",
        name="a crowd is reminded as often as one is",
        edits=(
            Edit(
                "reminder",
                "longest = max(policy.cap, min(crowd, MAX_CROWD) * REMINDED_APART)",
                "longest = policy.cap",
            ),
        ),
        test="unit/test_crowds.py::test_a_crowd_reminds_itself_as_often_as_a_few_do",
    ),
    Mutation(
        rule="R33",
        name="a waiter that let a notice pass asks no sooner",
        edits=(
            Edit("Waiting.for_next_try", "until = min(until, now() + unfollowed(chance, crowd))", "pass"),
        ),
        test="unit/test_crowds.py::test_a_crowd_that_goes_home_is_not_waited_for[2]",
    ),
    Mutation(
        rule="R33",
        name="what a notice says of the crowd is not heard",
        edits=(Edit("Waiting.for_next_try", "crowd = waiter.crowd or self._crowd", "crowd = self._crowd"),),
        test="unit/test_crowds.py::test_a_crowd_that_goes_home_is_not_waited_for[2]",
    ),
    Mutation(
        rule="R33",
        name="what is told late of one release counts for the next",
        edits=(
            Edit(
                "ReleaseWaiter.pass_by",
                "self._late.update((self.slot, node) for node in self._nodes if node not in told)",
                "pass",
            ),
        ),
        test=("unit/test_crowds.py::test_what_comes_late_of_a_release_that_was_let_pass_is_not_the_next_one"),
    ),
    Mutation(
        rule="R33",
        name="a crowd asks at once when its holder's key expires",
        edits=(
            Edit(
                "after_expiry",
                "return chance * max(policy.base, min(crowd, MAX_CROWD) * round_trip)",
                "return chance * policy.base",
            ),
        ),
        test="unit/test_crowds.py::test_a_crowd_comes_apart_when_its_holder_dies",
    ),
    Mutation(
        rule="R33",
        name="a release that deletes nothing counts no listeners",
        edits=(
            TextEdit(
                "_scripts/release.lua",
                "told = math.max(told, listeners(KEYS[i]) or 0)",
                "told = math.max(told, 0)",
            ),
        ),
        test="conformance/test_notices.py::test_a_release_that_deletes_nothing_publishes_nothing[memory-plain]",
    ),
    Mutation(
        rule="R33",
        name="a batch of releases counts no listeners of what it does not delete",
        edits=(
            TextEdit("_scripts/release_many.lua", "{0, 0, told or 0}", "{0, 0, 0}"),
            TextEdit("_scripts/release_many.lua", "math.max(left, 1), told or 0,", "math.max(left, 1), 0,"),
        ),
        test="unit/test_crowds.py::test_a_crowd_reminds_itself_as_often_as_a_few_do",
    ),
    Mutation(
        rule="R14",
        name="the clock watch never drops a vote",
        edits=(Edit("ClockWatch.trusted", "return node not in self._ahead", "return True"),),
        test="unit/test_clock_steps.py::test_the_vote_is_not_back_before_the_restart[one does not]",
    ),
    Mutation(
        rule="R14",
        name="a grant with a time that is ahead is part of a certificate",
        edits=(
            Edit(
                "ClockWatch.believes",
                "return node_time - heard_at <= known.high + slack + self._limit",
                "return True",
            ),
        ),
        test=(
            "unit/test_clock_steps.py"
            "::test_a_grant_with_a_time_that_is_ahead_is_no_part_of_a_certificate[they agree]"
        ),
    ),
    Mutation(
        rule="R14",
        name="a node whose clock has jumped begins no quarantine",
        edits=(
            Edit(
                "Background._told_time",
                "self._nodes[step.node].restart_quarantine(floor_at(int(time * 1_000_000)))",
                "pass",
            ),
        ),
        test="unit/test_clock_steps.py::test_a_node_that_jumps_ahead_loses_its_vote[fenced]",
    ),
    Mutation(
        rule="R14",
        name="a quarantine restarts although another client has restarted it",
        edits=(TextEdit("_scripts/greet.lua", "if stored == ARGV[4] then", "if ARGV[4] ~= '' then"),),
        test="conformance/test_sentinel_scripts.py::test_a_quarantine_begins_anew[memory-passed]",
    ),
    Mutation(
        rule="R14",
        name="nodes are blamed when our own clock jumps",
        edits=(
            Edit("ClockWatch._attribute", "2 * _alike(suspicion.seconds, pending) >= self._size", "False"),
        ),
        test=(
            "unit/test_clock_steps.py::test_when_half_of_the_nodes_jump_alike_our_own_clock_did[3600.0-3-3]"
        ),
    ),
)
