"""Mutations of who may read and write, and of their fences (R19 to R21, R23)."""

from __future__ import annotations

from .mutation import Edit, Mutation

_UNIT = "unit/test_read_write.py::"

MUTATIONS = (
    Mutation(
        rule="R20",
        name="readers do not keep a writer out",
        edits=(Edit("ReadWriteEntry.taken", "reads and writer is None and left != -1", "writer is None"),),
        test=f"{_UNIT}test_a_single_try_leaves_no_mark",
    ),
    Mutation(
        rule="R20",
        name="a reader that has ended is extended",
        edits=(Edit("ReadWriteEntry.reads_until", "ends if ends >= self.now else None", "ends or None"),),
        test="conformance/test_read_write.py::test_an_extension_never_creates[memory]",
    ),
    Mutation(
        rule="R21",
        name="a reader's fence is that of the writer before it",
        edits=(
            Edit(
                "shared",
                "(max(before, min(proposed, at(now_ms))) if missing else before) | 1",
                "max(before, min(proposed, at(now_ms))) if missing else before",
            ),
        ),
        test=f"{_UNIT}test_readers_share_an_odd_fence_and_writers_have_even_ones",
    ),
    Mutation(
        rule="R21",
        name="a writer's fence may be odd",
        edits=(Edit("block_end", "last + (last & 1)", "last"),),
        test="conformance/test_read_write.py::test_a_counter_is_even_after_each_who_was_alone[memory]",
    ),
    Mutation(
        rule="R21",
        name="a node counts for a reader that has not told where it granted",
        edits=(Edit("Attempt._raise", "not self._primitive.kind.exact", "False"),),
        test=f"{_UNIT}test_a_silent_node_is_not_raised_for_a_reader",
    ),
    Mutation(
        rule="R23",
        name="a writer is told that nothing has changed, whatever has",
        edits=(Edit("unchanged", "before <= fence | 1", "True"),),
        test=f"{_UNIT}test_unchanged_is_true_only_if_no_writer_came_between",
    ),
    Mutation(
        rule="R23",
        name="one node tells that nothing has changed",
        edits=(
            Edit(
                "unchanged",
                "sum(before <= fence | 1 for before in befores) >= quorum",
                "any(before <= fence | 1 for before in befores)",
            ),
        ),
        test=f"{_UNIT}test_one_node_does_not_tell_that_nothing_has_changed",
    ),
    Mutation(
        rule="R23",
        name="a downgraded writer stays one for its own process",
        edits=(Edit("Ticket.becomes", "self.primitive = weaker", "pass"),),
        test=f"{_UNIT}test_a_downgrade_lets_readers_in_and_no_writer",
    ),
)
