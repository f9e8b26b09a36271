"""Mutations of batches: many single locks in one script (R42)."""

from __future__ import annotations

from .mutation import Mutation, TextEdit

_ALONE = "conformance/test_batches.py::"

MUTATIONS = (
    Mutation(
        rule="R42",
        name="a batch sets counters to the ballot, whatever they were",
        edits=(TextEdit("_scripts/acquire_many.lua", "if before >= first then", "if false then"),),
        test=f"{_ALONE}test_where_a_fence_comes_from[memory-False-a counter above the ballot]",
    ),
    Mutation(
        rule="R42",
        name="a batch grants a counter at the ballot again",
        edits=(TextEdit("_scripts/acquire_many.lua", "if before >= first then", "if before > first then"),),
        test=f"{_ALONE}test_where_a_fence_comes_from[memory-False-a counter at the ballot]",
    ),
    Mutation(
        rule="R42",
        name="a batch does not lift a counter above the ballot",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "answer = even(before + block)",
                "answer = even(before + block - 1)",
            ),
        ),
        test="unit/test_fence.py::test_a_thousand_in_a_millisecond_do_not_run_away",
    ),
    Mutation(
        rule="R42",
        name="in a batch a block begins where one before it ended",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "answer = even(before + block)",
                "answer = even(before + block - 2)",
            ),
        ),
        test=f"{_ALONE}test_a_block_ends_where_its_counter_stands[memory-2]",
    ),
    Mutation(
        rule="R42",
        name="a repeated command in a batch gets another fence",
        edits=(TextEdit("_scripts/acquire_many.lua", "if holder == owner then", "if false then"),),
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
        ),
        test=f"{_ALONE}test_nothing_is_granted_without_a_vote[memory-another]",
    ),
    Mutation(
        rule="R42",
        name="a lock of another type fails the others of its batch",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "local holder = pcall('GET', lock)",
                "local holder = call('GET', lock)",
            ),
        ),
        test=f"{_ALONE}test_each_lock_has_an_answer_of_its_own[memory]",
    ),
    Mutation(
        rule="R42",
        name="a batch replaces a counter of another type",
        edits=(TextEdit("_scripts/parts/replaced.lua", "if type(before) ~= 'table' then", "if true then"),),
        test=f"{_ALONE}test_each_lock_has_an_answer_of_its_own[memory]",
    ),
    Mutation(
        rule="R42",
        name="a batch extends what is another's",
        edits=(TextEdit("_scripts/extend_many.lua", "if holder == ARGV[i + 2] then", "if holder then"),),
        test=f"{_ALONE}test_each_lock_is_extended_alone[memory-True-True]",
    ),
    Mutation(
        rule="R42",
        name="a batch of extensions shortens keys' lives",
        edits=(TextEdit("_scripts/extend_many.lua", "if call('PTTL', lock) < ttl then", "if true then"),),
        test=f"{_ALONE}test_each_lock_is_extended_alone[memory-True-True]",
    ),
    Mutation(
        rule="R42",
        name="a batch of extensions adds to the keys' lives",
        edits=(
            TextEdit(
                "_scripts/extend_many.lua",
                """
                if call('PTTL', lock) < ttl then
                  call('PEXPIRE', lock, ARGV[1])
                end
                """,
                "call('PEXPIRE', lock, ttl + call('PTTL', lock))",
            ),
        ),
        test="unit/test_extension.py::test_extend_never_shortens",
    ),
    Mutation(
        rule="R42",
        name="a batch of extensions creates a key that is gone",
        edits=(
            TextEdit(
                "_scripts/extend_many.lua",
                """
                elseif not holder then
                  answer = vote
                """,
                """
                elseif not holder then
                  call('SET', lock, ARGV[i + 2], 'PX', ARGV[1])
                  answer = vote + 1
                """,
            ),
        ),
        test="unit/test_extension.py::test_a_refusal_by_a_majority_loses_at_once",
    ),
    Mutation(
        rule="R42",
        name="a batch of extensions leaves stragglers behind",
        edits=(
            TextEdit(
                "_scripts/extend_many.lua",
                "answer = fenced and lift(KEYS[i + 1], ARGV[i + 3]) or vote + 1",
                "answer = vote + 1",
            ),
        ),
        test="unit/test_fence.py::test_a_node_that_is_late_is_raised_in_passing[None-_extend]",
    ),
    Mutation(
        rule="R42",
        name="a batch of extensions leaves a counter below the floor",
        edits=(
            TextEdit("_scripts/extend_many.lua", "before == stored and fence >= floor", "before == stored"),
        ),
        test=f"{_ALONE}test_an_extension_lifts_stragglers_as_far_as_it_may[memory-True]",
    ),
    Mutation(
        rule="R42",
        name="a node without a vote counts for a batch of extensions",
        edits=(TextEdit("_scripts/extend_many.lua", "vote = 10", "vote = 0"),),
        test=f"{_ALONE}test_nothing_is_granted_without_a_vote[memory-another]",
    ),
    Mutation(
        rule="R42",
        name="in a batch of releases each lock tells the listeners of the first",
        edits=(TextEdit("_scripts/release_many.lua", "told = counts[2 * i]", "told = counts[2]"),),
        test="conformance/test_notices.py::test_a_batch_of_releases_tells_each_channel[memory]",
    ),
    Mutation(
        rule="R42",
        name="a batch of releases does not compare owners",
        edits=(TextEdit("_scripts/release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),),
        test=f"{_ALONE}test_each_lock_is_released_alone[memory-]",
    ),
)
