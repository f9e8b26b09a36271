"""Mutations of the turns of readers and writers (R22)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R22",
        name="readers overtake a writer that waits",
        edits=(TextEdit("_scripts/parts/queue.lua", "return ends - ms + 1", "return 0"),),
        test="unit/test_read_write.py::test_a_waiting_writer_keeps_new_readers_out",
    ),
    Mutation(
        rule="R22",
        name="readers have no turn after a writer",
        edits=(TextEdit("_scripts/parts/turn.lua", "if marked(queue, 'r', ms) > 0 then", "if false then"),),
        test="conformance/test_read_turns.py::"
        "test_a_turn_waits_for_its_first_reader_and_ends_soon_after_it[memory]",
    ),
    Mutation(
        rule="R22",
        name="a turn is over before readers from afar can come",
        edits=(
            TextEdit(
                "_scripts/parts/turn.lua", "mark, queue, 'turn', ms, AWAITED", "mark, queue, 'turn', ms, TURN"
            ),
        ),
        test="conformance/test_read_turns.py::"
        "test_a_turn_waits_for_its_first_reader_and_ends_soon_after_it[memory]",
    ),
    Mutation(
        rule="R22",
        name="a turn goes on though its readers have come",
        edits=(
            TextEdit(
                "_scripts/parts/queue.lua", "if marked(queue, 'turn', ms) > TURN + 1 then", "if false then"
            ),
        ),
        test="unit/test_read_write_turns.py::test_a_turn_ends_soon_after_its_first_reader",
    ),
    Mutation(
        rule="R22",
        name="readers do not follow a writer's release together",
        edits=(
            Edit(
                "Waiting.for_next_try",
                "self._together or follows(crowd, session.random.random())",
                "follows(crowd, session.random.random())",
            ),
        ),
        test="unit/test_read_write_turns.py::test_readers_and_writers_come_in_turn[8-2-0.5]",
    ),
    Mutation(
        rule="R22",
        name="each reader that leaves wakes the writers, not the last one alone",
        edits=(
            TextEdit(
                "_scripts/rw_release.lua", "loud and not others and tell(queue)", "loud and tell(queue)"
            ),
        ),
        test="unit/test_read_write_turns.py::test_readers_and_writers_come_in_turn[8-2-0.5]",
    ),
    Mutation(
        rule="R22",
        name="the reader that waits for all is forgotten when another wins",
        edits=(Edit("Ticket.now_held", "entry.speaker is self", "True"),),
        test="unit/test_local_queue.py::test_a_speaker_goes_on_when_another_wins",
    ),
    Mutation(
        rule="R22",
        name="a call that gives up leaves its mark",
        edits=(
            Edit(
                "Acquisition.run",
                "self._attempts and self._ticket.seat.name",
                "False",
            ),
        ),
        test="unit/test_read_write.py::test_a_single_try_leaves_no_mark",
    ),
    Mutation(
        rule="R22",
        name="a single try leaves a mark",
        edits=(
            Edit(
                "Acquisition.__init__",
                "primitive.kind.seats and not self._budget.single_try",
                "primitive.kind.seats",
            ),
        ),
        test="unit/test_read_write.py::test_a_single_try_leaves_no_mark",
    ),
    Mutation(
        rule="R22",
        name="marks of calls that died are kept",
        edits=(
            TextEdit("_scripts/parts/queue.lua", "redis.call('ZREMRANGEBYSCORE', queue, '-inf', ms - 1)", ""),
        ),
        test="unit/test_read_write_turns.py::test_marks_of_calls_that_died_are_dropped",
    ),
    Mutation(
        rule="R20",
        name="a decorator reads where it should write",
        edits=(Edit("lock_of", 'mode == "read"', "True"),),
        test="unit/test_decorator.py::test_calls_in_mode_read_run_together_and_one_in_mode_write_alone",
    ),
)
