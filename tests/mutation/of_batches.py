"""Mutations of batches: many single locks in one script (R42)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_ALONE = "conformance/test_batches.py::"

MUTATIONS = (
    Mutation(
        rule="R42",
        name="a batch sets counters to the ballot, whatever they were",
        edits=(
            TextEdit("_scripts/acquire_many.lua", "if before >= first then", "if false then"),
            Edit(
                "_acquire_many",
                "granted(counted(server, counter, floor), int(ballot), now_ms, int(block))",
                "granted(0, int(ballot), now_ms, int(block))",
            ),
        ),
        test=f"{_ALONE}test_where_a_fence_comes_from[memory-False-a counter above the ballot]",
    ),
    Mutation(
        rule="R42",
        name="acquire_many.lua alone: a counter at the ballot is granted again",
        edits=(TextEdit("_scripts/acquire_many.lua", "if before >= first then", "if before > first then"),),
        test=f"{_ALONE}test_where_a_fence_comes_from[path-False-a counter at the ballot]",
    ),
    Mutation(
        rule="R42",
        name="acquire_many.lua alone: a block begins where one before it ended",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "answer = even(before + block)",
                "answer = even(before + block - 2)",
            ),
        ),
        test=f"{_ALONE}test_a_block_ends_where_its_counter_stands[path-2]",
    ),
    Mutation(
        rule="R42",
        name="a repeated command in a batch gets another fence",
        edits=(
            TextEdit("_scripts/acquire_many.lua", "if holder == owner then", "if false then"),
            Edit("_acquire_many", "holder == owner", "False"),
        ),
        test=f"{_ALONE}test_one_name_twice_is_granted_once[memory]",
    ),
    Mutation(
        rule="R42",
        name="a batch is granted without a vote",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "if not sentinel_matches(KEYS[#KEYS], ARGV[last_arg - 3], ARGV[last_arg - 1]) then",
                "if false then",
            ),
            Edit("_acquire_many", "not sentinel_matches(server, sentinel, stamp)", "False"),
        ),
        test=f"{_ALONE}test_nothing_is_granted_without_a_vote[memory-another]",
    ),
    Mutation(
        rule="R42",
        name="acquire_many.lua alone: a lock of another type fails the others",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "local holder = pcall('GET', lock)",
                "local holder = call('GET', lock)",
            ),
        ),
        test=f"{_ALONE}test_each_lock_has_an_answer_of_its_own[path]",
    ),
    Mutation(
        rule="R42",
        name="acquire_many.lua alone: a counter of another type is replaced",
        edits=(TextEdit("_scripts/parts/replaced.lua", "if type(before) ~= 'table' then", "if true then"),),
        test=f"{_ALONE}test_each_lock_has_an_answer_of_its_own[path]",
    ),
    Mutation(
        rule="R42",
        name="extend_many.lua alone: what is another's is extended",
        edits=(TextEdit("_scripts/extend_many.lua", "if holder == ARGV[i + 2] then", "if holder then"),),
        test=f"{_ALONE}test_each_lock_is_extended_alone[path-True-True]",
    ),
    Mutation(
        rule="R42",
        name="extend_many.lua alone: keys' lives are shortened",
        edits=(TextEdit("_scripts/extend_many.lua", "if call('PTTL', lock) < ttl then", "if true then"),),
        test=f"{_ALONE}test_each_lock_is_extended_alone[path-True-True]",
    ),
    Mutation(
        rule="R42",
        name="extend_many.lua alone: a counter below the floor stays there",
        edits=(
            TextEdit("_scripts/extend_many.lua", "before == stored and fence >= floor", "before == stored"),
        ),
        test=f"{_ALONE}test_an_extension_lifts_stragglers_as_far_as_it_may[path-True]",
    ),
    Mutation(
        rule="R42",
        name="extend_many.lua alone: a node without a vote counts",
        edits=(TextEdit("_scripts/extend_many.lua", "vote = 10", "vote = 0"),),
        test=f"{_ALONE}test_nothing_is_granted_without_a_vote[path-another]",
    ),
    Mutation(
        rule="R42",
        name="release_many.lua alone: owners are not compared",
        edits=(TextEdit("_scripts/release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),),
        test=f"{_ALONE}test_each_lock_is_released_alone[path-]",
    ),
    Mutation(
        rule="R42",
        name="release_many.lua alone: each lock tells the listeners of the first",
        edits=(TextEdit("_scripts/release_many.lua", "told = counts[2 * i]", "told = counts[2]"),),
        test="conformance/test_notices.py::test_a_batch_of_releases_tells_each_channel[path]",
    ),
    Mutation(
        rule="R42",
        name="a batch of releases does not compare owners",
        edits=(
            TextEdit("_scripts/release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),
            Edit(
                "_memory_scripts:_release",
                "owner_at(server, key) == owner",
                "owner_at(server, key) is not None",
            ),
        ),
        test=f"{_ALONE}test_each_lock_is_released_alone[memory-]",
    ),
)
