"""Mutations of waiting and of the clock watch (R13, R14)."""

from __future__ import annotations

from .mutation import Edit, Mutation

MUTATIONS = (
    Mutation(
        rule="R13",
        name="the gate lets the last in line through first",
        edits=(Edit("_gate.py", "gate.queue.popitem(last=False)", "gate.queue.popitem(last=True)"),),
        test="unit/test_waiting.py::test_tasks_of_one_process_get_the_lock_in_the_order_of_their_calls",
    ),
    Mutation(
        rule="R13",
        name="the gate opens at the body's exit, not at the loss",
        edits=(
            Edit(
                "_holding.py",
                """
                self._way.open()
                if self._lost is not None:
                """,
                """
                if self._lost is not None:
                """,
            ),
        ),
        test="unit/test_waiting.py::test_the_gate_opens_at_loss_by_the_clock",
    ),
    Mutation(
        rule="R13",
        name="there is no gate",
        edits=(
            Edit(
                "_gate.py",
                """
                if name in self._gates:
                    return False
                """,
                "",
            ),
        ),
        test="unit/test_waiting.py::test_one_contender_per_process_and_name_reaches_the_nodes",
    ),
    Mutation(
        rule="R13",
        name="several names take their gates in the caller's order",
        edits=(
            Edit("_options.py", "unique = tuple(sorted(set(names)))", "unique = tuple(dict.fromkeys(names))"),
        ),
        test="unit/test_waiting.py::test_locks_over_several_names_in_opposite_orders",
    ),
    Mutation(
        rule="R13",
        name="blocking_timeout=0 tries twice",
        edits=(
            Edit(
                "_acquire.py",
                "if hopeless or (left is not None and left <= 0):",
                "if hopeless or (left is not None and left <= 0 and self._attempts > 1):",
            ),
        ),
        test="unit/test_waiting.py::test_zero_tries_exactly_once[timeout]",
    ),
    Mutation(
        rule="R13",
        name="there is a sleep after the last try",
        edits=(
            Edit(
                "_acquire.py",
                """
                if hopeless or (left is not None and left <= 0):
                """,
                """
                if hopeless or (left is not None and left <= 0):
                    await runtime.sleep(runtime.options.retry.cap)
                """,
            ),
        ),
        test="unit/test_waiting.py::test_the_wait_ends_at_most_one_node_timeout_late[3-tttt-0]",
    ),
    Mutation(
        rule="R13",
        name="back-off has no jitter",
        edits=(Edit("_core/policy.py", "share = least + (1 - least) * chance", "share = 1.0"),),
        test="unit/core/test_policy.py::test_jitter_is_full",
    ),
    Mutation(
        rule="R13",
        name="the end of the keys' lives does not end a wait",
        edits=(
            Edit("_waiting.py", "if isinstance(error, LockTakenError) and error.retry_after:", "if False:"),
        ),
        test="unit/test_waiting.py::test_the_expiry_of_the_keys_ends_the_wait[0]",
    ),
    Mutation(
        rule="R13",
        name="a minority of notices wakes a waiter",
        edits=(Edit("_wakeup.py", "len(self._free) >= self._quorum:", "self._free:"),),
        test="unit/test_wakeup.py::test_a_minority_of_notices_wakes_nobody",
    ),
    Mutation(
        rule="R14",
        name="the clock watch never drops a vote",
        edits=(Edit("_core/clock_watch.py", "return node not in self._ahead", "return True"),),
        test="unit/test_clock_steps.py::test_the_vote_is_not_back_before_the_push[one does not]",
    ),
    Mutation(
        rule="R14",
        name="a grant with a time that is ahead is part of a certificate",
        edits=(
            Edit(
                "_core/clock_watch.py",
                "return node_time - heard_at > known.high + slack + self._limit",
                "return False",
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
            Edit("_background.py", "self._nodes[step.node].push(floor_at(int(time * 1_000_000)))", "pass"),
        ),
        test="unit/test_clock_steps.py::test_a_node_that_jumps_ahead_loses_its_vote[fenced]",
    ),
    Mutation(
        rule="R14",
        name="a push does not look whether somebody else has pushed",
        edits=(
            Edit("_core/quarantine.py", "if stored == push:", "if push:"),
            Edit("_scripts/greet.lua", "if stored == ARGV[4] then", "if ARGV[4] ~= '' then"),
        ),
        test="conformance/test_sentinel_scripts.py::test_a_push_begins_the_wait_anew[memory-passed]",
    ),
    Mutation(
        rule="R14",
        name="nodes are blamed when our own clock jumps",
        edits=(
            Edit(
                "_core/clock_watch.py",
                "if 2 * _alike(suspicion.seconds, pending) >= self._size:",
                "if False:",
            ),
        ),
        test=(
            "unit/test_clock_steps.py::test_when_half_of_the_nodes_jump_alike_our_own_clock_did[3600.0-3-3]"
        ),
    ),
)
