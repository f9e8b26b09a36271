"""Mutations of what goes beyond the plain mutex (R34)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R20",
        name="a survey counts the readers of several nodes for one",
        edits=(
            Edit(
                "_Reader._unlike",
                "(holder.owner, holder.slot)",
                '(b"" if holder.reads else holder.owner, holder.slot)',
            ),
        ),
        test="unit/test_readers_seen.py::test_a_lock_is_held_if_a_majority_has_one_of_its_readers",
    ),
    Mutation(
        rule="R20",
        name="readers that were not shown are deleted, too",
        edits=(Edit("Agreed.covers", "self.readers.issuperset(map(_one, now.readers))", "True"),),
        test="cli/test_release.py::test_readers_that_were_not_shown_are_left_alone[others-1]",
    ),
    Mutation(
        rule="R42",
        name="what an answer leaves out is not asked for again",
        edits=(Edit("survey:_inspect", "len(locks) < len(keys)", "keys and not locks"),),
        test="unit/test_survey_batches.py::test_what_an_answer_leaves_out_is_asked_for_again",
    ),
    Mutation(
        rule="R42",
        name="a key that is forbidden hides others from a survey",
        edits=(Edit("_may_be_of_one_key", "denied(reason)", "False"),),
        test="unit/test_survey_batches.py::test_a_forbidden_key_is_no_reason_to_tell_nothing_of_the_others",
    ),
    Mutation(
        rule="R10",
        name="a single node's counter is shown as the fence",
        edits=(Edit("LockInspection.highest_fence", "majority(len(self.nodes))", "1"),),
        test="unit/test_fences_seen.py::test_a_node_that_is_ahead_or_behind_is_in_the_minority",
    ),
    Mutation(
        rule="R19",
        name="a name that is something else's is waited for",
        edits=(Edit("Acquisition._undo", "misuse is not None", "False"),),
        test="unit/test_other_kind.py::test_what_costs_the_quorum_is_named[mutex-fenced]",
    ),
    Mutation(
        rule="R19",
        name="what was something else's is not waited for",
        edits=(
            Edit(
                "other_kind",
                "sum(found is None or bool(found) for found in seen) <= spared",
                "False",
            ),
        ),
        test="unit/test_other_kind.py::test_what_is_gone_when_it_is_looked_at_is_waited_for",
    ),
    Mutation(
        rule="R19",
        name="readers are something else than a lock",
        edits=(
            TextEdit("_scripts/parts/owner.lua", "type(redis.pcall('ZSCORE', key, '')) ~= 'table'", "false"),
        ),
        test="unit/test_other_kind.py::test_readers_and_writers_are_no_other_kind",
    ),
    Mutation(
        rule="R34",
        name="a release before the time is one as ever",
        edits=(Edit("Holding._ask_release", "self.stays", "0.0"),),
        test="unit/test_at_least.py::test_the_name_stays_taken_when_the_body_ends_sooner[fenced]",
    ),
    Mutation(
        rule="R34",
        name="the keys live for the ttl only, if that is shorter",
        edits=(
            Edit(
                "_checked_request",
                "max(least, options.ttl if ttl is None else options.checked_ttl(ttl))",
                "options.ttl if ttl is None else options.checked_ttl(ttl)",
            ),
        ),
        test="unit/test_at_least.py::test_a_holder_that_dies_leaves_the_name_for_as_long",
    ),
    Mutation(
        rule="R34",
        name="a name may stay taken for longer than the quarantine",
        edits=(
            Edit(
                "Options.checked_at_least",
                'refuse_longer(at_least, self.restart_quarantine, what="at_least")',
                "",
            ),
        ),
        test="unit/test_at_least.py::test_bad_values_are_refused_at_the_call[60.5-ValueError-longer]",
    ),
    Mutation(
        rule="R34",
        name="a try that did not win leaves its keys, too",
        edits=(
            Edit(
                "Attempt.undo",
                """
                self._session.releases.release(
                    self.primitive,
                    self.owner,
                    keeps=self._request.ttl,
                    fence=0,
                    unsent=self.asked.unsent,
                    timeout=timeout,
                    seat=self.seat if self.primitive.kind.in_line else NO_SEAT,
                )
                """,
                """
                self._session.releases.release(
                    self.primitive,
                    self.owner,
                    keeps=self._request.ttl,
                    fence=0,
                    stays=self._request.ttl,
                    unsent=self.asked.unsent,
                    timeout=timeout,
                    seat=self.seat if self.primitive.kind.in_line else NO_SEAT,
                )
                """,
            ),
        ),
        test="unit/test_at_least.py::test_a_try_that_did_not_win_leaves_nothing[fenced]",
    ),
    Mutation(
        rule="R34",
        name="the other tasks of the process ask the nodes meanwhile",
        edits=(
            Edit("Holding._give_back", "queue.cooldowns.begin(ticket.names, self.taken_until, now)", "pass"),
        ),
        test="unit/test_at_least.py::test_tasks_of_this_process_wait_without_io_and_in_order",
    ),
    Mutation(
        rule="R34",
        name="what is not free yet is published",
        edits=(Edit("Primitive.release", 'b"" if quiet or stay else b"1"', 'b"" if quiet else b"1"'),),
        test="unit/test_kinds.py::test_a_release_of_what_stays_says_for_how_long_and_is_quiet[one name]",
    ),
    Mutation(
        rule="R34",
        name="a repeated release lets a key live longer",
        edits=(
            TextEdit("_scripts/release.lua", "if left < 0 or left > tonumber(ARGV[5]) then", "if true then"),
        ),
        test="conformance/test_scripts.py::test_every_command_in_every_state[memory-stay-1]",
    ),
    Mutation(
        rule="R34",
        name="a process believes for hours that a name it gave back stays taken",
        edits=(Edit("Cooldowns.begin", "until, min(until, now + KNOWN_FOR)", "until, until"),),
        test="unit/test_at_least.py::test_what_another_process_frees_is_free_here_within_a_minute",
    ),
)
