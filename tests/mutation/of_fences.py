"""Mutations of fences, their counters, and owner values (R10, R11, A5)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R10",
        name="the greatest counter is the fence, certificate or not",
        edits=(
            Edit(
                "certified",
                """
                for fence in set(standing):
                    if standing.count(fence) >= quorum:
                        return fence
                return None
                """,
                "return max(standing) if len(standing) >= quorum else None",
            ),
        ),
        test="unit/test_fence.py::test_nodes_that_disagree_are_raised_to_the_greatest",
    ),
    Mutation(
        rule="R10",
        name="a try without a certificate is a win",
        edits=(Edit("Attempt.ask", "won = await self._certify(timeout)", "await self._certify(timeout)"),),
        test="unit/test_fence.py::test_without_a_certificate_the_try_is_lost",
    ),
    Mutation(
        rule="R10",
        name="a raise does not compare the owner",
        edits=(TextEdit("_scripts/raise.lua", "elseif holder ~= ARGV[1] then", "elseif false then"),),
        test="conformance/test_fenced_acquire.py::test_a_raise_needs_every_lock[memory-None]",
    ),
    Mutation(
        rule="R10",
        name="a raise lets a counter fall",
        edits=(TextEdit("_scripts/parts/raise.lua", "math.max(before, fence)", "fence"),),
        test=(
            "conformance/test_fenced_acquire.py"
            "::test_a_raise_below_a_counter_makes_no_certificate[memory-counter]"
        ),
    ),
    Mutation(
        rule="R10",
        name="a raise has no cap",
        edits=(
            TextEdit("_scripts/raise.lua", "if fence > (ms + 10000) * 1024 then", "if false then"),
            TextEdit(
                "_scripts/parts/raise.lua",
                "if before < fence and fence > (ms + 10000) * 1024 then",
                "if false then",
            ),
        ),
        test="conformance/test_fenced_acquire.py::test_a_raise_too_far_ahead_is_refused[memory]",
    ),
    Mutation(
        rule="R10",
        name="an acquire does not lift the counter",
        edits=(
            TextEdit(
                "_scripts/acquire.lua",
                "fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)) + ARGV[4] - 1)",
                "fence = even(math.max(fence, math.min(ballot, ms * 1024)) + ARGV[4] - 1)",
            ),
        ),
        test=(
            "conformance/test_fenced_acquire.py"
            "::test_where_a_fence_comes_from[memory-False-a counter beyond the node's time grows by one]"
        ),
    ),
    Mutation(
        rule="R10",
        name="a repeated acquire lifts the counter again",
        edits=(TextEdit("_scripts/acquire.lua", "if mine < n then", "if true then"),),
        test="conformance/test_fenced_acquire.py::test_a_repeated_acquire_changes_nothing[memory-a]",
    ),
    Mutation(
        rule="R10",
        name="an extension leaves stragglers behind",
        edits=(
            TextEdit(
                "_scripts/extend.lua",
                """
                raise_all(n, fence, floor, select(2, clock()), ARGV[4])
                """,
                "",
            ),
        ),
        test="conformance/test_fenced_lease.py::test_stragglers_are_raised_in_passing[memory-extend]",
    ),
    Mutation(
        rule="R10",
        name="of several names those that are free are taken",
        edits=(
            TextEdit(
                "_scripts/acquire.lua",
                """
                if wait ~= 0 then
                """,
                """
                if wait ~= 0 then
                  for i = 1, n do call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
                """,
            ),
        ),
        test=(
            "conformance/test_fenced_acquire.py::test_what_is_taken_stays_as_it_is[memory-{'a': 30.0}-30000]"
        ),
    ),
    Mutation(
        rule="A5",
        name="two tries have one owner value",
        edits=(
            Edit(
                "Attempt._ask",
                "self.owner = owner = session.owners.new() + turn.owner_ends",
                """
                self.owner = owner = getattr(Attempt, "one", None) or session.owners.new() + turn.owner_ends
                Attempt.one = owner
                """,
            ),
        ),
        test="unit/test_waiting.py::test_every_try_has_an_owner_of_its_own",
    ),
    Mutation(
        rule="A5",
        name="two tries share their random bits",
        edits=(Edit("Owners.new", "self._digits.pop()", "self._digits[0]"),),
        test="security/test_owner_values.py::test_a_lost_attempt_uses_up_its_value",
    ),
    Mutation(
        rule="A5",
        name="owner values can be guessed",
        edits=(Edit("LockManager.__init__", "secrets.SystemRandom()", "Random(0)"),),
        test="security/test_owner_values.py::test_the_source_is_the_systems",
    ),
    Mutation(
        rule="A5",
        name="owner values have 32 random bits",
        edits=(Edit("OWNER_BITS", "160", "32"),),
        test="unit/core/test_redlock_spec.py::test_the_value_has_twenty_random_bytes",
    ),
    Mutation(
        rule="R11",
        name="a missing counter starts at zero",
        edits=(
            TextEdit(
                "_scripts/parts/counter.lua",
                "return math.max(tonumber(stored) or (ms - 288000) * 1024, floor)",
                "return math.max(tonumber(stored) or 0, floor)",
            ),
        ),
        test=(
            "conformance/test_fenced_acquire.py"
            "::test_where_a_fence_comes_from[memory-False-a missing counter starts behind the node's time]"
        ),
    ),
    Mutation(
        rule="R11",
        name="the floor does not count",
        edits=(
            TextEdit(
                "_scripts/parts/counter.lua",
                "return math.max(tonumber(stored) or (ms - 288000) * 1024, floor)",
                "return tonumber(stored) or (ms - 288000) * 1024",
            ),
        ),
        test=(
            "conformance/test_fenced_acquire.py"
            "::test_where_a_fence_comes_from[memory-False-nothing is below the floor]"
        ),
    ),
    Mutation(
        rule="R11",
        name="a counter ends before what it would start at has passed it",
        edits=(
            TextEdit(
                "_scripts/parts/counter.lua",
                "return needed > tonumber(keep_ms) and needed or keep_ms",
                "return keep_ms",
            ),
        ),
        test="unit/test_fence.py::test_a_counter_outlives_a_clock_that_was_ahead[1]",
    ),
    Mutation(
        rule="R11",
        name="counters may live for less than 300 s",
        edits=(Edit("MIN_FENCE_TTL", "300.0", "30.0"),),
        test="unit/test_options.py::test_a_wrong_setting_is_named_at_once[fence_ttl-299.9-ValueError]",
    ),
)
