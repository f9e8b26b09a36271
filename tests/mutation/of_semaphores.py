"""Mutations of slots, of their fences, and of the number of permits (R24 to R26)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_UNIT = "unit/test_semaphore.py::"
_SCRIPTS = "conformance/test_semaphore.py::"

MUTATIONS = (
    Mutation(
        rule="R24",
        name="grants of any slots are a permit",
        edits=(Edit("most_granted", "-slot, most", "-slot, sum(counted.values())"),),
        test=f"{_UNIT}test_grants_of_several_slots_are_no_permit[False]",
    ),
    Mutation(
        rule="R24",
        name="a node counts holders, and grants what is held",
        edits=(
            TextEdit(
                "_scripts/slots_acquire.lua",
                "if not ends[next_one] then",
                "if all_taken(ends, permits, ms) == 0 then",
            ),
        ),
        test=f"{_SCRIPTS}test_the_first_free_slot_from_the_start_on_is_granted[memory-True]",
    ),
    Mutation(
        rule="R24",
        name="a slot that is held is granted",
        edits=(TextEdit("_scripts/slots_acquire.lua", "if not ends[next_one] then", "if true then"),),
        test=f"{_SCRIPTS}test_the_first_free_slot_from_the_start_on_is_granted[memory-True]",
    ),
    Mutation(
        rule="R24",
        name="an owner may have several slots at a node",
        edits=(
            TextEdit("_scripts/slots_acquire.lua", "for held in pairs(mine) do", "for held in pairs({}) do"),
        ),
        test=f"{_SCRIPTS}test_an_owner_has_one_slot[memory]",
    ),
    Mutation(
        rule="R24",
        name="the first try looks at one slot, too",
        edits=(
            Edit("slots:look", "named is None", "False"),
            Edit("slots:look", "0 <= named < permits", "named is not None and 0 <= named < permits"),
        ),
        test=f"{_UNIT}test_one_round_trip_finds_the_last_free_slot",
    ),
    Mutation(
        rule="R24",
        name="a later try goes on walking",
        edits=(Edit("slots:look", "named is None", "True"),),
        test="unit/core/test_slots.py::test_a_later_try_looks_at_one_slot",
    ),
    Mutation(
        rule="R24",
        name="the slot that a release names is not heeded",
        edits=(Edit("Waiting.asks", "slot = waiter.slot", "pass"),),
        test=f"{_UNIT}test_a_release_names_the_slot_and_a_waiter_goes_straight_for_it",
    ),
    Mutation(
        rule="R24",
        name="a process asks although its tasks hold all permits",
        edits=(Edit("NameEntry.admits", "not contenders and holders < permits", "not contenders"),),
        test=f"{_UNIT}test_tasks_of_a_process_hold_at_the_same_time_in_their_order",
    ),
    Mutation(
        rule="R24",
        name="a busy process never lets others ask",
        edits=(Edit("Holding._give_back", "self._primitive.kind.seats", "self._primitive.kind.shares_with"),),
        test=f"{_UNIT}test_a_busy_process_lets_others_ask",
    ),
    Mutation(
        rule="R25",
        name="stray slots are kept",
        edits=(
            Edit(
                "SlotRound.settle",
                "give_back([node for node, answer in enumerate(self.answers) if answer is STRAY])",
                "pass",
            ),
        ),
        test=f"{_UNIT}test_stray_slots_go_back_at_once[elsewhere0]",
    ),
    Mutation(
        rule="R25",
        name="a straggler keeps its stray slot",
        edits=(Edit("SlotRound.take", "self._give_back is not None", "False"),),
        test=f"{_UNIT}test_a_straggler_gives_its_stray_slot_back",
    ),
    Mutation(
        rule="R25",
        name="an extension leaves other slots of its owner alone",
        edits=(TextEdit("_scripts/slots_extend.lua", "strays(ends, mine, slot, dropped)", ""),),
        test=f"{_UNIT}test_a_slot_whose_answer_was_lost_goes_back_with_the_next_extension",
    ),
    Mutation(
        rule="R25",
        name="one counter for all slots",
        edits=(
            TextEdit(
                "_scripts/slots_acquire.lua",
                "redis.call('HGET', KEYS[2], field)",
                "redis.call('HGET', KEYS[2], 0)",
            ),
            TextEdit(
                "_scripts/parts/slot_counter.lua",
                "redis.call('HGET', counters, slot)",
                "redis.call('HGET', counters, 0)",
            ),
            TextEdit(
                "_scripts/parts/slot_counter.lua",
                "redis.call('HSET', counters, slot, value)",
                "redis.call('HSET', counters, 0, value)",
            ),
        ),
        test=f"{_SCRIPTS}test_each_slot_has_a_counter_of_its_own[memory]",
    ),
    Mutation(
        rule="R25",
        name="the nodes are raised for whatever slot they have granted",
        edits=(Edit("SlotRound._is_stray", "answer.slot != self.slot", "False"),),
        test=f"{_UNIT}test_stray_slots_go_back_at_once[elsewhere0]",
    ),
    Mutation(
        rule="R26",
        name="a slot beyond the permits that were asked for counts",
        edits=(
            TextEdit("_scripts/parts/slots.lua", "for slot = 0, permits - 1 do", "for slot = 0, permits do"),
        ),
        test=f"{_SCRIPTS}test_a_refusal_tells_when_the_first_slot_ends[memory]",
    ),
    Mutation(
        rule="R26",
        name="any number of permits may be asked for",
        edits=(Edit("checked_permits", "1 <= permits <= MAX_PERMITS", "True"),),
        test=f"{_UNIT}test_a_bad_number_of_permits_is_refused[257]",
    ),
    Mutation(
        rule="R19",
        name="a semaphore waits for a mutex",
        edits=(Edit("other_kind:_look", "primitive.kind.permits", "False"),),
        test=f"{_UNIT}test_a_name_of_another_kind_ends_the_acquire_with_both_named[True]",
    ),
)
