"""Mutations of who may read and write, and of their fences (R19 to R21, R23)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_UNIT = "unit/test_read_write.py::"
_RULES = "unit/test_read_write_rules.py::"

MUTATIONS = (
    Mutation(
        rule="R20",
        name="readers do not keep a writer out",
        edits=(
            TextEdit(
                "_scripts/parts/taken.lua",
                "if reads and type(holder) == 'table' and left ~= -1 then",
                "if type(holder) == 'table' then",
            ),
        ),
        test=f"{_UNIT}test_a_single_try_leaves_no_mark",
    ),
    Mutation(
        rule="R20",
        name="a majority of the nodes that answer is enough",
        edits=(
            Edit(
                "Tally.cast",
                "self.silent += 1",
                """
                self.silent += 1
                self.quorum = majority(max(1, self.size - self.silent))
                if self.granted >= self.quorum:
                    self.verdict = Verdict.WON
                """,
            ),
        ),
        test=f"{_RULES}test_r20_what_has_a_majority_keeps_the_other_mode_out[read-write-5-2]",
    ),
    Mutation(
        rule="R20",
        name="a node that has forgotten its readers votes at once",
        edits=(Edit("_eligible_by", "left_ms > 0", "False"),),
        test=f"{_RULES}test_r20_a_node_that_came_back_empty_lets_none_in[read-write-restart]",
    ),
    Mutation(
        rule="R20",
        name="a reader's late answer revives it",
        edits=(
            Edit("Holding._extended", "if self.over: return", "self.loss = None"),
            Edit("Holding._extended", "now >= self.deadline", "False"),
        ),
        test=f"{_RULES}test_r20_an_extension_that_comes_too_late_counts_for_nothing[replies]",
    ),
    Mutation(
        rule="R20",
        name="one node is enough to read",
        edits=(
            Edit(
                "Attempt.ask",
                "won = asked.verdict is Verdict.WON",
                """
                shared_grant = not self.primitive.kind.exact and asked.granted > 0
                won = shared_grant or asked.verdict is Verdict.WON
                """,
            ),
            Edit("certified", "standing.count(fence) >= quorum", "True"),
        ),
        test=f"{_RULES}test_r20_what_has_a_majority_keeps_the_other_mode_out[write-read-3-0]",
    ),
    Mutation(
        rule="R20",
        name="all readers have one end",
        edits=(
            TextEdit(
                "_scripts/read.lua",
                """
                if left < tonumber(ttl) then
                  call('PEXPIRE', key, ttl)
                end
                """,
                """
                for _, each in ipairs(call('ZRANGE', key, 0, -1)) do
                  call('ZADD', key, ends, each)
                end
                call('PEXPIRE', key, ttl)
                """,
            ),
        ),
        test="conformance/test_read_write.py::test_readers_come_beside_readers[memory-a-fenced]",
    ),
    Mutation(
        rule="R20",
        name="an extension gives all readers one end",
        edits=(
            TextEdit(
                "_scripts/rw_extend.lua",
                "    call('ZADD', key, math.max(ends[i], ms + ttl), owner)\n",
                """
                for _, each in ipairs(call('ZREVRANGE', key, 0, -1)) do
                  call('ZADD', key, math.max(ends[i], ms + ttl), each)
                end
                """,
            ),
        ),
        test="conformance/test_read_write.py::test_a_reader_is_extended_alone[memory-fenced]",
    ),
    Mutation(
        rule="R20",
        name="a reader that has ended is extended",
        edits=(TextEdit("_scripts/parts/readers.lua", "ends and ends >= ms and ends or nil", "ends or nil"),),
        test="conformance/test_read_write.py::test_an_extension_never_creates[memory]",
    ),
    Mutation(
        rule="R21",
        name="a reader's fence is that of the writer before it",
        edits=(TextEdit("_scripts/read.lua", "even(fence + 1) - 1", "fence"),),
        test=f"{_UNIT}test_readers_share_an_odd_fence_and_writers_have_even_ones",
    ),
    Mutation(
        rule="R21",
        name="a writer's fence may be odd",
        edits=(TextEdit("_scripts/parts/counter.lua", "return value + value % 2", "return value"),),
        test="conformance/test_read_write.py::test_a_counter_is_even_after_each_who_was_alone[memory]",
    ),
    Mutation(
        rule="R21",
        name="a node counts for a reader that has not told where it granted",
        edits=(Edit("Attempt._raise", "not self.primitive.kind.exact", "False"),),
        test=f"{_UNIT}test_a_silent_node_is_not_raised_for_a_reader",
    ),
    Mutation(
        rule="R21",
        name="a node that granted above a reader's fence counts for it",
        edits=(Edit("Attempt._raise", "GRANTED if grants[node].fence == fence else ABOVE_FENCE", "GRANTED"),),
        test=f"{_RULES}test_r21_a_node_that_granted_above_a_readers_fence_is_no_witness",
    ),
    Mutation(
        rule="R21",
        name="a node counts for a reader that it has no entry of any more",
        edits=(TextEdit("_scripts/rw_raise.lua", " or reads and not reads_until(KEYS[i], ARGV[1], ms)", ""),),
        test=f"{_RULES}test_r21_a_node_where_the_reader_is_no_more_is_no_witness",
    ),
    Mutation(
        rule="R21",
        name="a raise does not compare the writer",
        edits=(
            TextEdit(
                "_scripts/rw_raise.lua",
                "not reads and redis.pcall('GET', KEYS[i]) ~= ARGV[1] or ",
                "",
            ),
        ),
        test="conformance/test_read_write.py::test_a_writer_raises_counters[memory]",
    ),
    Mutation(
        rule="R21",
        name="a reader has the greatest fence that was answered, and raises no node to it",
        edits=(
            Edit(
                "Attempt._certified",
                "certified(fences, self.asked.quorum) or 0",
                """
                (
                    certified(fences, self.asked.quorum) or 0
                    if self.primitive.kind.exact
                    else max((answer.fence for answer in self._grants().values()), default=0)
                )
                """,
            ),
        ),
        test=f"{_RULES}test_r21_fences_grow_whichever_majorities_grant[3]",
    ),
    Mutation(
        rule="R21",
        name="a reader has the Q-th greatest fence that was answered",
        edits=(
            Edit(
                "Attempt._certified",
                "certified(fences, self.asked.quorum) or 0",
                """
                (
                    certified(fences, self.asked.quorum) or 0
                    if self.primitive.kind.exact
                    else sorted((answer.fence for answer in self._grants().values()), reverse=True)[
                        self.asked.quorum - 1
                    ]
                )
                """,
            ),
        ),
        test=f"{_RULES}test_r21_fences_grow_whichever_majorities_grant[3]",
    ),
    Mutation(
        rule="R21",
        name="a reader has the least fence that was answered",
        edits=(
            Edit(
                "Attempt._certified",
                "certified(fences, self.asked.quorum) or 0",
                """
                (
                    certified(fences, self.asked.quorum) or 0
                    if self.primitive.kind.exact
                    else min((answer.fence for answer in self._grants().values()), default=0)
                )
                """,
            ),
        ),
        test=f"{_RULES}test_r21_fences_grow_whichever_majorities_grant[3]",
    ),
    Mutation(
        rule="R23",
        name="a write with since is let through where no counters are looked at",
        edits=(
            Edit(
                "ReadWriteLock.write", "since.fence is None or not self._write.fenced", "since.fence is None"
            ),
        ),
        test=f"{_UNIT}test_since_is_a_read_lease_of_the_same_names",
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
        name="one node less than a majority tells that nothing has changed",
        edits=(
            Edit(
                "unchanged",
                "sum(before <= fence | 1 for before in befores) >= quorum",
                "sum(before <= fence | 1 for before in befores) >= quorum - 1",
            ),
        ),
        test=f"{_RULES}test_r23_a_writer_on_any_majority_is_told_of[5]",
    ),
    Mutation(
        rule="R23",
        name="a downgrade lets the name go, and takes it as a reader with the next extension",
        edits=(TextEdit("_scripts/rw_extend.lua", "call('ZADD', key, ms + left, owner)", ""),),
        test=f"{_RULES}test_r23_no_writer_comes_between_a_writer_and_the_reader_it_becomes[3-()]",
    ),
    Mutation(
        rule="R23",
        name="a downgraded writer stays one for its own process",
        edits=(Edit("Ticket.becomes", "self.primitive = weaker", "pass"),),
        test=f"{_UNIT}test_a_downgrade_lets_readers_in_and_no_writer",
    ),
)
