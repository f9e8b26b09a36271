"""Mutations of extensions and top-ups (R8, R9)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_EXTEND_LUA_CREATES = TextEdit(
    "_scripts/extend.lua",
    """
    if missing then
      return {ARGV[#ARGV], vote}
    end
    for i = 1, n do
    """,
    """
    for i = 1, n do
      redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2])
    """,
)

MUTATIONS = (
    Mutation(
        rule="R8",
        name="one refused vote loses the lease",
        edits=(Edit("extension_verdict", "tally.refused >= tally.quorum", "tally.refused"),),
        test=(
            "unit/core/test_quorum.py"
            "::test_an_extension_is_decided_as_soon_as_it_is_certain_and_not_before[2]"
        ),
    ),
    Mutation(
        rule="R8",
        name="an extension round without answers loses the lease",
        edits=(Edit("extension_verdict", "return Extension.UNKNOWN", "return Extension.LOST"),),
        test="unit/test_extension.py::test_an_unknown_round_is_tried_again_until_the_deadline",
    ),
    Mutation(
        rule="R8",
        name="a failed extension releases",
        edits=(
            Edit(
                "Holding._extended",
                "self.lose(LossReason.REFUSED)",
                """
                self.lose(LossReason.REFUSED)
                self.release()
                """,
            ),
        ),
        test="unit/test_extension.py::test_a_failed_extension_never_releases",
    ),
    Mutation(
        rule="R8",
        name="the watchdog extends without bound",
        edits=(
            Edit(
                "ExtensionPolicy.exhausted",
                "return self.max_extensions is not None and extensions >= self.max_extensions",
                "return self.max_extensions == 0",
            ),
        ),
        test="unit/test_extension.py::test_extensions_are_bounded",
    ),
    Mutation(
        rule="R8",
        name="an extended validity counts from the answers",
        edits=(Edit("Holding._extended", "self._won(round_, asked_at, ttl)", "self._won(round_, now, ttl)"),),
        test="unit/test_extension.py::test_validity_after_an_extension_counts_from_its_asking",
    ),
    Mutation(
        rule="R8",
        name="an answer that waited past the deadline extends",
        edits=(Edit("Holding._extended", "now >= self.deadline", "False"),),
        test="unit/test_extension.py::test_an_answer_that_waited_past_the_deadline_revives_nothing",
    ),
    Mutation(
        rule="R8",
        name="an extension shortens the validity",
        edits=(
            Edit(
                "Holding._won",
                "(gained := valid_until(asked_at, ttl)) > self.valid_until",
                "(gained := valid_until(asked_at, ttl)) != self.valid_until",
            ),
        ),
        test="unit/test_extension.py::test_extend_never_shortens",
    ),
    Mutation(
        rule="R8",
        name="an extension shortens the keys' lives",
        edits=(
            TextEdit(
                "_scripts/extend.lua",
                "if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then",
                "if true then",
            ),
        ),
        test="conformance/test_fenced_lease.py::test_nothing_is_shortened[memory-extend]",
    ),
    Mutation(
        rule="R8",
        name="an extension adds to the keys' lives",
        edits=(
            TextEdit(
                "_scripts/extend.lua",
                """
                if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
                  redis.call('PEXPIRE', KEYS[i], ARGV[2])
                """,
                """
                if true then
                  redis.call('PEXPIRE', KEYS[i], ARGV[2] + redis.call('PTTL', KEYS[i]))
                """,
            ),
        ),
        test="conformance/test_fenced_lease.py::test_nothing_is_shortened[memory-extend]",
    ),
    Mutation(
        rule="R8",
        name="an extension creates a key that is gone",
        edits=(_EXTEND_LUA_CREATES,),
        test="conformance/test_fenced_lease.py::test_what_an_extension_answers[memory-True]",
    ),
    Mutation(
        rule="R8",
        name="an extension does not compare the owner",
        edits=(TextEdit("_scripts/extend.lua", "elseif holder ~= ARGV[1] then", "elseif false then"),),
        test="conformance/test_fenced_lease.py::test_what_an_extension_answers[memory-True]",
    ),
    Mutation(
        rule="R9",
        name="no node is topped up",
        edits=(Edit("Holding.give", "not nodes or self.loss is not None or not self.held", "True"),),
        test="unit/test_extension.py::test_a_node_that_lost_the_key_gets_it_back_in_a_won_round",
    ),
    Mutation(
        rule="R9",
        name="nodes are topped up before the round is won",
        edits=(
            Edit(
                "Holding.extend.heed",
                "answer.missing and extension_verdict(round_) is Extension.EXTENDED",
                "answer.missing",
            ),
        ),
        test="unit/test_extension.py::test_a_lost_majority_is_never_resurrected[gone0]",
    ),
    Mutation(
        rule="R9",
        name="nodes are topped up after the release or the loss",
        edits=(Edit("Holding.give", "not nodes or self.loss is not None or not self.held", "not nodes"),),
        test="unit/test_extension.py::test_a_missing_key_that_is_heard_of_too_late_is_not_set_again[True]",
    ),
    Mutation(
        rule="R9",
        name="a top-up takes a key from another owner",
        edits=(
            TextEdit(
                "_scripts/top_up.lua",
                """
                elseif holder and holder ~= ARGV[1] then
                  return {ARGV[5], -1}
                end
                """,
                """
                elseif holder ~= ARGV[1] then
                  redis.call('DEL', KEYS[i])
                end
                """,
            ),
        ),
        test="conformance/test_scripts.py::test_every_command_in_every_state[memory-top_up-1]",
    ),
    Mutation(
        rule="R9",
        name="a quarantined node is not topped up",
        edits=(
            Edit(
                "read_extend",
                "return Answer(Vote.SILENT, NO_VOTE.reason, missing=name_free)",
                "return NO_VOTE",
            ),
        ),
        test=(
            "unit/test_quarantine.py"
            "::test_an_extension_goes_on_with_the_others_and_gives_the_key_back[fenced]"
        ),
    ),
)
