"""Mutations of the line of a fair lock: of its seats, head starts and notices (R28 to R30)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_UNIT = "unit/test_fair.py::"
_FAULTS = "unit/test_fair_faults.py::"
_SCRIPTS = "conformance/test_fair.py::"

MUTATIONS = (
    Mutation(
        rule="R28",
        name="a node's ticket is its time, whatever the last one was",
        edits=(
            TextEdit("_scripts/parts/seats.lua", "math.max(tonumber(last or 0) + 1, ms * 1024)", "ms * 1024"),
        ),
        test=f"{_SCRIPTS}test_a_refused_call_that_waits_takes_the_next_seat[memory]",
    ),
    Mutation(
        rule="R28",
        name="the smallest ticket of all answers is taken",
        edits=(
            Edit(
                "Attempt.seat",
                "max(proposed, default=0)",
                "min((each for each in proposed if each), default=0)",
            ),
        ),
        test=f"{_FAULTS}test_one_that_asks_later_stands_behind_whatever_clocks_say",
    ),
    Mutation(
        rule="R28",
        name="the undo settles nothing",
        edits=(
            TextEdit(
                "_scripts/fair_release.lua", "sit(tickets, seats, seat, ticket, ms, tonumber(ARGV[7]))", ""
            ),
        ),
        test=f"{_UNIT}test_all_nodes_come_to_the_same_order",
    ),
    Mutation(
        rule="R28",
        name="later tries carry no ticket",
        edits=(Edit("Acquisition._undo", "self._seat = attempt.seat", "pass"),),
        test=f"{_UNIT}test_a_seat_that_a_node_lost_comes_back_to_its_place",
    ),
    Mutation(
        rule="R28",
        name="a lost seat comes back behind all others",
        edits=(
            TextEdit(
                "_scripts/fair_acquire.lua",
                "if back then  -- its seat was lost",
                "if false then  -- its seat was lost",
            ),
        ),
        test=f"{_FAULTS}test_a_head_whose_seats_were_lost_has_the_lock_at_once",
    ),
    Mutation(
        rule="R28",
        name="a process hands a fair lock from task to task",
        edits=(Edit("Primitive.__init__", "kind.passes_on", "(kind.passes_on or kind.in_line)"),),
        test=f"{_UNIT}test_processes_are_served_in_the_order_in_which_they_asked",
    ),
    Mutation(
        rule="R28",
        name="a single try overtakes",
        edits=(TextEdit("_scripts/parts/seats.lua", "last and redis.call('ZRANK', tickets, last) + 1", "0"),),
        test=f"{_UNIT}test_a_single_try_does_not_overtake",
    ),
    Mutation(
        rule="R28",
        name="a call that gives up keeps its seat",
        edits=(Edit("Acquisition.run", "self._attempts and self._ticket.seat.name", "False"),),
        test=f"{_UNIT}test_a_call_that_gives_up_leaves_the_line",
    ),
    Mutation(
        rule="R28",
        name="one that has had the lock keeps its seat where it was refused",
        edits=(Edit("Holding._ask_release", "NO_SEAT if lost_place else ticket.seat", "NO_SEAT"),),
        test=f"{_FAULTS}test_one_that_had_the_lock_leaves_where_it_was_refused",
    ),
    Mutation(
        rule="R28",
        name="the release of a lost lease takes the next call's seat",
        edits=(Edit("Holding._ask_release", "NO_SEAT if lost_place else ticket.seat", "ticket.seat"),),
        test=f"{_FAULTS}test_a_late_release_leaves_the_next_calls_seat_alone",
    ),
    Mutation(
        rule="R28",
        name="one that lost the lock keeps its seat where it was refused",
        edits=(Edit("Holding.lose", "self._session.releases.stand_up(self._primitive, seat)", "pass"),),
        test=f"{_FAULTS}test_one_that_lost_the_lock_leaves_where_it_was_refused",
    ),
    Mutation(
        rule="R28",
        name="a repeated release speaks of seats",
        edits=(Edit("Ledger.record", "command = replace(command, args=command.repeated)", "pass"),),
        test=f"{_FAULTS}test_a_repeated_release_says_nothing_of_seats[True]",
    ),
    Mutation(
        rule="R28",
        name="a seat ends before three reminders were lost",
        edits=(Edit("seats:_REMINDERS", "3", "0"),),
        test=f"{_FAULTS}test_a_seat_outlives_reminders_that_do_not_arrive",
    ),
    Mutation(
        rule="R28",
        name="seats that have ended stay in the way",
        edits=(TextEdit("_scripts/parts/seats.lua", "if ends >= ms or first == seat then", "if true then"),),
        test=f"{_SCRIPTS}test_seats_that_have_ended_are_passed_by[memory]",
    ),
    Mutation(
        rule="R29",
        name="none in line has a head start",
        edits=(TextEdit("_scripts/parts/seats.lua", "since + ahead * start(seats, ms) - ms", "0"),),
        test=f"{_UNIT}test_a_single_try_does_not_overtake",
    ),
    Mutation(
        rule="R29",
        name="head starts of a lock that went without a word never end",
        edits=(
            TextEdit(
                "_scripts/parts/seats.lua",
                """
                since = ms
                free_since(seats, ms)
                """,
                """
                since = ms
                """,
            ),
        ),
        test=f"{_SCRIPTS}test_a_lock_that_went_without_a_word_is_free_from_now_on[memory-None]",
    ),
    Mutation(
        rule="R29",
        name="a clock that was set back makes a head start as long",
        edits=(TextEdit("_scripts/parts/seats.lua", "not since or since > ms", "not since"),),
        test=f"{_SCRIPTS}test_a_lock_that_went_without_a_word_is_free_from_now_on[memory--60.0]",
    ),
    Mutation(
        rule="R29",
        name="those passed over keep their seats",
        edits=(TextEdit("_scripts/fair_acquire.lua", "leave(tickets, seats, before)", ""),),
        test=f"{_UNIT}test_a_dead_waiter_costs_one_head_start_once",
    ),
    Mutation(
        rule="R29",
        name="one far away comes too late for ever",
        edits=(TextEdit("_scripts/fair_acquire.lua", "came_late(seats, ms)", ""),),
        test=f"{_FAULTS}test_one_far_away_is_served_in_turn",
    ),
    Mutation(
        rule="R30",
        name="all in line are told",
        edits=(TextEdit("_scripts/parts/seats.lua", "if told == TOLD then", "if false then"),),
        test=f"{_UNIT}test_a_release_wakes_the_first_two",
    ),
    Mutation(
        rule="R30",
        name="the second in line is not told",
        edits=(TextEdit("_scripts/parts/seats.lua", "= 50, 60, 1000, 64, 2, 8", "= 50, 60, 1000, 64, 1, 8"),),
        test=f"{_UNIT}test_the_second_in_line_asks_a_head_start_later",
    ),
    Mutation(
        rule="R30",
        name="one that does not hear counts as told",
        edits=(
            TextEdit("_scripts/parts/seats.lua", "told + math.min(heard, 1)", "told + math.max(heard, 1)"),
        ),
        test=f"{_UNIT}test_a_dead_process_is_passed_by_when_its_connections_are_gone",
    ),
    Mutation(
        rule="R30",
        name="all that are told ask at once",
        edits=(Edit("Waiting.for_next_try", "self._seat and (place := waiter.slot) > 0", "False"),),
        test=f"{_UNIT}test_the_second_in_line_asks_a_head_start_later",
    ),
    Mutation(
        rule="R30",
        name="a head that leaves a free lock has nothing told",
        edits=(TextEdit("_scripts/fair_release.lua", "(deleted > 0 or left)", "deleted > 0"),),
        test=f"{_UNIT}test_the_head_that_leaves_a_free_lock_has_the_next_one_told",
    ),
    Mutation(
        rule="R30",
        name="one far behind asks as often as the first",
        edits=(Edit("Waiting._before_asking_again", "crowd + self._ahead", "crowd"),),
        test=f"{_FAULTS}test_one_far_behind_asks_rarely",
    ),
    Mutation(
        rule="R30",
        name="a single node says how far behind a call is",
        edits=(Edit("Attempt.ahead", "ahead[: self.asked.quorum][-1]", "ahead[-1]"),),
        test=f"{_FAULTS}test_one_node_with_a_long_line_makes_no_call_ask_rarely",
    ),
)
