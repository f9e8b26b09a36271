"""Mutations of what a client does with batches: what leaves when, and which reply is whose (R42)."""

from __future__ import annotations

from .mutation import Edit, Mutation

_OUTBOX = "unit/test_outbox.py::"
_BATCHES = "unit/test_batches.py::"
_NOT_NOW = "link is None or self._state is not NodeState.UP or self._ledger.unresolved or self._in_slots"

MUTATIONS = (
    Mutation(
        rule="R42",
        name="a nil among plain replies counts as a grant",
        edits=(Edit("PlainAcquires._hand_out", "got.count(_SET) == len(got)", "_SET in got"),),
        test=f"{_BATCHES}test_a_nil_is_a_refusal",
    ),
    Mutation(
        rule="R42",
        name="the answers of a batch are one lock off",
        edits=(
            Edit(
                "ScriptBatch._hand_out",
                "zip(self.rounds, answers, strict=True)",
                "zip(self.rounds, [*answers[1:], answers[0]], strict=True)",
            ),
        ),
        test=f"{_BATCHES}test_each_lock_has_its_own_answer",
    ),
    Mutation(
        rule="R42",
        name="a grant by a clock that is not believed agrees",
        edits=(
            Edit(
                "FencedAcquires.take",
                "time - now <= self._clocks.limits[node] or self._clocks.believes(node, now, time)",
                "True",
            ),
        ),
        test=f"{_BATCHES}test_a_grant_by_a_clock_that_jumped_does_not_agree",
    ),
    Mutation(
        rule="R42",
        name="whatever fence a node grants, it agrees",
        edits=(
            Edit(
                "FencedAcquires.take",
                "said == self._proposed and round_.answers[node] is None",
                "type(said) is int and said > 0 and round_.answers[node] is None",
            ),
        ),
        test=f"{_BATCHES}test_each_lock_has_its_own_answer",
    ),
    Mutation(
        rule="R42",
        name="a grant that comes late agrees",
        edits=(
            Edit(
                "FencedAcquires.take", "round_.agreed += round_.answers[node] is None", "round_.agreed += 1"
            ),
        ),
        test=f"{_BATCHES}test_a_grant_after_the_time_counts_for_nothing",
    ),
    Mutation(
        rule="R42",
        name="a late grant among others agrees",
        edits=(
            Edit(
                "FencedAcquires.take",
                "said == self._proposed and round_.answers[node] is None",
                "said == self._proposed",
            ),
        ),
        test=f"{_BATCHES}test_a_grant_after_the_time_counts_for_nothing",
    ),
    Mutation(
        rule="R42",
        name="late grants of a whole batch are counted again",
        edits=(Edit("grant_all", "answers[node] is not None", "False"),),
        test=f"{_BATCHES}test_a_grant_after_the_time_counts_for_nothing",
    ),
    Mutation(
        rule="R42",
        name="acquires leave before releases",
        edits=(
            Edit(
                "Outbox._batches",
                "batches += map(Releases, _alike(releases, _QUIET))",
                """
                later = [*map(Releases, _alike(releases, _QUIET))]
                if not acquires:
                    return batches + later
                for alike in _alike(acquires, _TTL_AND_FENCES):
                    batches.append(
                        FencedAcquires(alike, self._clocks, self._now)
                        if acquires[0].primitive.fenced
                        else PlainAcquires(alike)
                    )
                return batches + later
                """,
            ),
        ),
        test=f"{_OUTBOX}test_extensions_leave_before_releases_and_these_before_acquires",
    ),
    Mutation(
        rule="R42",
        name="an undo overtakes the try that it undoes",
        edits=(Edit("Attempt.undo", "self._session.outbox.drain()", ""),),
        test=f"{_OUTBOX}test_what_is_undone_in_its_own_turn_leaves_first",
    ),
    Mutation(
        rule="R42",
        name="a command of its own overtakes what waits in the outbox",
        edits=(Edit("Round.ask", "outbox.drain()", ""),),
        test=f"{_OUTBOX}test_a_command_of_its_own_comes_behind_what_was_asked_before",
    ),
    Mutation(
        rule="R42",
        name="of plain acquires on a connection that ends only the first is unanswered",
        edits=(
            Edit(
                "Pipe.abandon",
                "[one for entry in self._each_once() for one in self._singles(entry)]",
                "[next(self._singles(entry)) for entry in self._each_once()]",
            ),
        ),
        test=f"{_BATCHES}test_an_ended_connection_leaves_every_lock_unanswered[0]",
    ),
    Mutation(
        rule="R42",
        name="plain acquires whose replies have begun to come are no longer unanswered",
        edits=(
            Edit(
                "Pipe.abandon",
                "self._each_once()",
                """
                (
                    each
                    for each in self._each_once()
                    if isinstance(each, tuple) or self._entries.count(each) == each.replies
                )
                """,
            ),
        ),
        test=f"{_OUTBOX}test_half_of_the_plain_answers_were_read[1-0]",
    ),
    *(
        Mutation(
            rule="R15",
            name=f"the tag of {what} is not looked at",
            edits=(Edit(f"{batch}.take", "reply[0] != tag", "False"),),
            test=f"{_BATCHES}test_what_is_no_answer_to_{what}[another's tag]",
        )
        for batch, what in (
            ("FencedAcquires", "acquires"),
            ("OneAnswerEach", "releases"),
            ("OneAnswerEach", "extensions"),
        )
    ),
    Mutation(
        rule="R12",
        name="plain acquires count without the sentinel behind them",
        edits=(
            Edit(
                "PlainAcquires._why_not",
                "found == self._expected.get(node)",
                "found is not None or not found",
            ),
        ),
        test=f"{_BATCHES}test_a_node_without_an_expected_sentinel_has_no_vote",
    ),
    Mutation(
        rule="R12",
        name="plain acquires are sent without a look at the sentinel",
        edits=(
            Edit("PlainAcquires.__init__", "bool(sentinel)", "False"),
            Edit(
                "PlainAcquires.__init__",
                'if sentinel:\n    words.append(b"*2\\r\\n$3\\r\\nGET\\r\\n" + sentinel)',
                "",
            ),
        ),
        test=f"{_OUTBOX}test_plain_acquires_are_plain_commands",
    ),
    Mutation(
        rule="R15",
        name="an OK in the sentinel's place is taken for a changed sentinel",
        edits=(Edit("PlainAcquires.take", "reply != _SET", "True"),),
        test=f"{_BATCHES}test_what_is_no_answer_to_plain_acquires[an OK too many]",
    ),
    Mutation(
        rule="R1",
        name="the time of batches never ends",
        edits=(
            Edit(
                "Outbox._begin_their_time",
                "self._timer = self.loop.call_at(under_way[0][0], self._ring)",
                "pass",
            ),
        ),
        test=f"{_OUTBOX}test_the_time_of_a_turn_begins_at_its_end",
    ),
    Mutation(
        rule="R1",
        name="only the first turn's batches end in time",
        edits=(Edit("Outbox._ring", "self._timer = self.loop.call_at(under_way[0][0], self._ring)", "pass"),),
        test=f"{_OUTBOX}test_every_turn_has_its_own_end",
    ),
    Mutation(
        rule="R1",
        name="a batch that is counted as silent is let go before its locks are",
        edits=(
            Edit("Outbox._ring", "under_way[0][1].rounds", "under_way.popleft()[1].rounds"),
            Edit("Outbox._ring", "under_way.popleft()\n", ""),
        ),
        test=f"{_OUTBOX}test_an_error_at_the_end_of_the_time_ends_no_other",
    ),
    Mutation(
        rule="R42",
        name="an error while a turn is put keeps the rest of it from leaving",
        edits=(Edit("Outbox._ask_one_by_one", "self._ask_one_by_one(questions)", ""),),
        test=f"{_OUTBOX}test_an_error_while_a_turn_is_put_keeps_nothing_from_leaving",
    ),
    Mutation(
        rule="R42",
        name="an error while a turn is put keeps its time from beginning",
        edits=(
            Edit(
                "Outbox.flush",
                """
                try:
                    self.drain()
                finally:
                    self._begin_their_time()
                """,
                """
                self.drain()
                self._begin_their_time()
                """,
            ),
        ),
        test=f"{_OUTBOX}test_an_error_while_a_turn_is_put_keeps_nothing_from_leaving",
    ),
    Mutation(
        rule="R5",
        name="batches go to a node that may still execute an acquire",
        edits=(
            Edit(
                "RedisNode.post",
                _NOT_NOW,
                "link is None or self._state is not NodeState.UP or self._in_slots",
            ),
        ),
        test=f"{_OUTBOX}test_a_node_whose_answers_were_lost_is_asked_one_by_one",
    ),
    Mutation(
        rule="R12",
        name="batches go to a node without a vote",
        edits=(
            Edit(
                "RedisNode.post",
                _NOT_NOW,
                "link is None or self._ledger.unresolved or self._in_slots",
            ),
        ),
        test=f"{_OUTBOX}test_a_node_in_quarantine_is_told_of_releases",
    ),
    Mutation(
        rule="R42",
        name="keys of different slots go into one script",
        edits=(
            Edit(
                "RedisNode.post",
                _NOT_NOW,
                "link is None or self._state is not NodeState.UP or self._ledger.unresolved",
            ),
        ),
        test=f"{_OUTBOX}test_keys_in_different_slots_are_asked_for_one_by_one[redlock:-False]",
    ),
    Mutation(
        rule="R10",
        name="no release raises what is behind",
        edits=(Edit("AcquireRound.stragglers", "not self.ballot or self.agreed == self.granted", "True"),),
        test=f"{_OUTBOX}test_a_fence_that_nodes_do_not_agree_on_is_raised_at_the_release",
    ),
    Mutation(
        rule="R15",
        name="batches are put without room",
        edits=(Edit("Pipe.post", "len(entries) + replies > self._room", "not self._room"),),
        test=f"{_BATCHES}test_without_room_nothing_of_a_turn_is_put",
    ),
    Mutation(
        rule="R42",
        name="scripts are as long as a turn is",
        edits=(Edit("outbox:_alike", "alike[first : first + MAX_BATCH]", "alike[first:]"),),
        test=f"{_OUTBOX}test_at_most_so_many_locks_are_in_one_script",
    ),
    Mutation(
        rule="R3",
        name="the clock's reading is used for later turns",
        edits=(Edit("Outbox.drain", "self.turn = None", ""),),
        test=f"{_OUTBOX}test_a_turns_reading_of_the_clock_is_used_for_no_other",
    ),
    Mutation(
        rule="R15",
        name="a batch that a server does not know goes again behind a release",
        edits=(Edit("Pipe._released", "one[0].purpose is Purpose.RELEASE", "False"),),
        test=f"{_BATCHES}test_an_unknown_script_does_not_go_again_behind_a_release",
    ),
    Mutation(
        rule="A5",
        name="an error that ends a batch shows each lock the others' owners",
        edits=(Edit("Pipe._misfit_of_all", "message = without_secrets(message, command)", "pass"),),
        test=f"{_BATCHES}test_an_error_of_the_whole_is_an_error_of_each_lock",
    ),
)
