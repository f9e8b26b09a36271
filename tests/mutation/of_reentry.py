"""Mutations of reentrant locks (R27)."""

from __future__ import annotations

from .mutation import Edit, Mutation

TESTS = "unit/test_reentrant.py::"

MUTATIONS = (
    Mutation(
        rule="R27",
        name="the right is the context's, which the block's tasks inherit",
        edits=(
            Edit(
                "_inside",
                "[each for each in (*held, *lost) if isinstance(each, Holding) and each.task in runners]",
                """
                [
                    each
                    for each in (*held, *lost)
                    if isinstance(each, Holding) and any(
                        one() is each
                        for one in __import__("aioredlock_ng._hold.ancestors", fromlist=[""]).ACQUIRED.get()
                    )
                ]
                """,
            ),
        ),
        test=TESTS + "test_the_right_is_the_task_s_and_not_the_context_s",
    ),
    Mutation(
        rule="R27",
        name="the right is every task's of the process",
        edits=(
            Edit(
                "_inside",
                "[each for each in (*held, *lost) if isinstance(each, Holding) and each.task in runners]",
                "[each for each in (*held, *lost) if isinstance(each, Holding)]",
            ),
        ),
        test=TESTS + "test_the_right_is_the_task_s_and_not_the_context_s",
    ),
    Mutation(
        rule="R27",
        name="a lease that no task has entered is any task's",
        edits=(
            Edit(
                "_inside",
                "[each for each in (*held, *lost) if isinstance(each, Holding) and each.task in runners]",
                """
                [
                    each
                    for each in (*held, *lost)
                    if isinstance(each, Holding) and each.task in (None, *runners)
                ]
                """,
            ),
        ),
        test=TESTS + "test_a_lease_that_no_task_has_entered_is_not_reentrant",
    ),
    Mutation(
        rule="R27",
        name="code is inside of all blocks of its manager",
        edits=(Edit("Entry.around", "self.frame in stack", "True"),),
        test="behaviour/test_sync_blocks.py::test_a_thread_that_began_a_generator_is_not_inside[reentrant]",
    ),
    Mutation(
        rule="R27",
        name="a worker that has entered a block for another is inside",
        edits=(Edit("Entry.around", "ref(self) in _ENTERED.get()", "True"),),
        test="behaviour/test_sync_blocks.py::test_a_worker_that_enters_for_another_is_not_inside[by_generator]",
    ),
    Mutation(
        rule="R27",
        name="the first release releases the lock",
        edits=(
            Edit(
                "View.release",
                "self._releases.still_held if count.asked and not holding.released else holding.release()",
                "holding.release()",
            ),
        ),
        test=TESTS + "test_an_inner_acquire_asks_no_node_and_has_the_same_lease[lock]",
    ),
    Mutation(
        rule="R27",
        name="a release that is repeated counts twice",
        edits=(Edit("View.release", "self._open = False", "pass"),),
        test=TESTS + "test_the_last_release_releases_whatever_the_order[order0]",
    ),
    Mutation(
        rule="R27",
        name="the lease that came first releases for all",
        edits=(
            Edit(
                "View.release",
                "self._releases.still_held if count.asked and not holding.released else holding.release()",
                """
                self._releases.still_held
                if len(count.asked) != 2 and count.asked and not holding.released
                else holding.release()
                """,
            ),
        ),
        test=TESTS + "test_the_last_release_releases_whatever_the_order[order0]",
    ),
    Mutation(
        rule="R27",
        name="an inner block converts the cancellation",
        edits=(
            Edit(
                "Block.disarm",
                "if count.blocks and (outermost is not self or holding.loss is None):\n    return False",
                "",
            ),
        ),
        test=TESTS + "test_the_outermost_block_alone_converts_the_cancellation",
    ),
    Mutation(
        rule="R27",
        name="the outermost block takes the deadline along when it ends first",
        edits=(
            Edit(
                "Block.disarm",
                "count.blocks and (outermost is not self or holding.loss is None)",
                "count.blocks and outermost is not self",
            ),
        ),
        test=TESTS + "test_an_inner_block_may_end_last[lost]",
    ),
    Mutation(
        rule="R27",
        name="a cancellation is left to the block that ends last",
        edits=(
            Edit(
                "Block.disarm",
                "count.blocks and (outermost is not self or holding.loss is None)",
                "count.blocks",
            ),
        ),
        test=TESTS + "test_the_outermost_block_converts_though_an_inner_one_is_open",
    ),
    Mutation(
        rule="R27",
        name="a lease that is over admits an inner block",
        edits=(Edit("reenter", "not holding.held", "False"),),
        test=TESTS + "test_a_lease_that_is_over_admits_no_inner_block[reentrant outside-not noticed]",
    ),
    Mutation(
        rule="R27",
        name="a lease that was lost is forgotten at once",
        edits=(Edit("Holding.lose", "self._session.holdings.lost.add(self)", "pass"),),
        test=TESTS + "test_a_lease_that_is_over_admits_no_inner_block[plain outside-refused]",
    ),
    Mutation(
        rule="R27",
        name="an inner block in the grace is cancelled again",
        edits=(Edit("Block.__init__", "cancels and outer is None", "cancels"),),
        test=TESTS + "test_a_clean_up_in_the_grace_goes_in_again",
    ),
    Mutation(
        rule="R27",
        name="read covers write",
        edits=(Edit("_covers", "primitive.kind in (kind, kind.weaker)", "bool(kind)"),),
        test=TESTS + "test_write_covers_read_and_read_does_not_cover_write",
    ),
    Mutation(
        rule="R27",
        name="one name covers several",
        edits=(Edit("_covers", "set(primitive.names) <= set(holding.names)", "True"),),
        test=TESTS + "test_one_lease_has_to_cover_all_of_the_names",
    ),
    Mutation(
        rule="R27",
        name="a task goes in without an end",
        edits=(Edit("Count.full", "len(self.asked) >= MAX_DEPTH", "False"),),
        test=TESTS + "test_so_deep_and_no_deeper",
    ),
    Mutation(
        rule="R27",
        name="a downgrade takes the lock from an inner writer",
        edits=(Edit("Count.weaken", "any(kind is not weaker for kind in others)", "False"),),
        test=TESTS + "test_after_a_downgrade_the_task_reads",
    ),
    Mutation(
        rule="R27",
        name="an inner writer is told what the outermost one was",
        edits=(Edit("reenter", "None if since is None else False", "holding.unchanged"),),
        test=TESTS + "test_an_inner_writer_cannot_tell_that_nothing_was_written",
    ),
    Mutation(
        rule="R27",
        name="a shorter inner ttl shortens",
        edits=(Edit("Holding.also", "max(self.wanted, request.ttl)", "request.ttl"),),
        test=TESTS + "test_a_longer_inner_ttl_counts_from_the_next_extension",
    ),
    Mutation(
        rule="R27",
        name="an inner acquire is told as one",
        edits=(
            Edit(
                "Lock._reenter",
                "return Lease(session, view)",
                "session.counters.acquired += 1\nreturn Lease(session, view)",
            ),
        ),
        test=TESTS + "test_hooks_and_statistics_know_the_outermost_lease_alone",
    ),
)
