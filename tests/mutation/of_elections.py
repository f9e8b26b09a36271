"""Mutations of leader election (R31, R32)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_TESTS = "unit/test_election.py::"
_CORE = "unit/core/test_election.py::"
_SCRIPTS = "conformance/test_election.py::"

_SHOWS_THE_OWNER = TextEdit(
    "_scripts/observe.lua",
    "string.sub(redis.call('GET', KEYS[2]) or '', 1, 1024)",
    "held == 1 and '7:owner' or ''",
)
"""A node tells of the owner under the lock's key as if that were announced."""

_BY_A_MAJORITY = Edit(
    "seen",
    """
    if _term(look.announced) > _term(newest):
        newest = look.announced
    """,
    """
    agreed = sum(other.announced == look.announced for other in looks) >= quorum
    if agreed and _term(look.announced) > _term(newest):
        newest = look.announced
    """,
)

MUTATIONS = (
    # -- announcements ---------------------------------------------------------------------------
    Mutation(
        rule="R31",
        name="a term is announced with the acquire",
        edits=(
            TextEdit(
                "_scripts/acquire.lua",
                """
                call('SET', KEYS[n + i], stored, 'PX', kept(fence, ms, ARGV[5]))
                """,
                """
                call('SET', KEYS[n + i], stored, 'PX', kept(fence, ms, ARGV[5]))
                local early = string.gsub(KEYS[n + i], 'fence:', 'leader:', 1)
                call('SET', early, stored .. ':early', 'PX', 600000)
                """,
            ),
        ),
        test=_TESTS + "test_a_candidate_without_a_certificate_announces_nothing",
    ),
    Mutation(
        rule="R31",
        name="a leader announces once, at its win",
        edits=(Edit("Election._inaugurated", "holding.on_extended = announcement.repeat", ""),),
        test=_TESTS + "test_each_extension_announces_again",
    ),
    Mutation(
        rule="R31",
        name="a leader announces with its first extension, not at its win",
        edits=(Edit("Election._inaugurated", "announcement.repeat()", ""),),
        test=_TESTS + "test_a_leader_announces_after_its_win",
    ),
    Mutation(
        rule="R31",
        name="the last announcement stays, not the greatest",
        edits=(TextEdit("_scripts/announce.lua", "if known > term then", "if false then"),),
        test=_TESTS + "test_an_older_leader_that_comes_late_changes_nothing",
    ),
    Mutation(
        rule="R31",
        name="terms are compared by their digits' number",
        edits=(
            TextEdit(
                "_scripts/announce.lua",
                "tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):')) or 0",
                "term + #(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):') or '') - #ARGV[1]",
            ),
        ),
        test=_SCRIPTS + "test_the_greatest_term_stays[memory]",
    ),
    Mutation(
        rule="R31",
        name="only a node with a vote keeps an announcement",
        edits=(
            Edit(
                "Announcement.repeat",
                "node.submit(command, self, index)",
                """
                if node.standing.state == "up":
                    node.submit(command, self, index)
                """,
            ),
        ),
        test=_TESTS + "test_a_node_in_quarantine_is_told_too",
    ),
    Mutation(
        rule="R31",
        name="each repetition is told to observers as if it were news",
        edits=(TextEdit("_scripts/announce.lua", "if known < term then", "if true then"),),
        test=_SCRIPTS + "test_new_terms_are_published_and_no_others[memory]",
    ),
    Mutation(
        rule="R31",
        name="a server that has forgotten the script is not told it",
        edits=(Edit("Announcement.awaited", "True", "False"),),
        test=_TESTS + "test_a_server_that_forgets_the_script_is_told_once_more",
    ),
    Mutation(
        rule="R31",
        name="a leader's extensions have a limit",
        edits=(
            Edit(
                "unbounded",
                "replace(default if extension is None else extension, max_extensions=None)",
                "default if extension is None else extension",
            ),
        ),
        test=_TESTS + "test_a_leader_is_extended_without_a_limit",
    ),
    Mutation(
        rule="R31",
        name="an announcement is taken for a lock",
        edits=(
            Edit(
                "MARKS",
                "(COUNTER, SLOTS, QUEUE, TICKETS, SEATS, LEADER)",
                "(COUNTER, SLOTS, QUEUE, TICKETS, SEATS)",
            ),
        ),
        test=_TESTS + "test_an_announcement_is_no_lock",
    ),
    Mutation(
        rule="R31",
        name="a node that is taken back waits for the announcements on it",
        edits=(Edit("Greeting.command", "MARKS", "MARKS[:-1]"),),
        test="unit/test_stray_clients.py::test_what_outlives_a_stray_lock_is_not_waited_for",
    ),
    Mutation(
        rule="R12a",
        name="a node that is taken back waits for hints",
        edits=(Edit("Greeting.command", "MARKS", "(*MARKS[:2], *MARKS[3:])"),),
        test="unit/test_stray_clients.py::test_what_outlives_a_stray_lock_is_not_waited_for",
    ),
    Mutation(
        rule="R31",
        name="take_back.lua waits for announcements",
        edits=(TextEdit("_scripts/take_back.lua", "for i = 7, #ARGV - 1 do", "for i = 7, #ARGV - 2 do"),),
        test="conformance/test_sentinel_scripts.py::test_the_longest_lock_is_waited_for[memory-30-60000]",
    ),
    Mutation(
        rule="R31",
        name="a candidate's label does not stand in its owner value",
        edits=(Edit("Attempt._ask", "signed(owner, letter, self._request.holder)", "signed(owner, letter)"),),
        test=_TESTS + "test_a_look_at_the_lock_shows_what_the_candidate_calls_itself",
    ),
    Mutation(
        rule="R43",
        name="a leadership is handed on to a candidate of another label",
        edits=(Edit("Succession.hand_on", "wanted.holder != grant.holder", "False"),),
        test=_TESTS + "test_a_look_at_the_lock_shows_what_the_candidate_calls_itself",
    ),
    # -- what observers make of their looks ------------------------------------------------------
    Mutation(
        rule="R32",
        name="the owner that one node shows leads",
        edits=(_SHOWS_THE_OWNER,),
        test=_TESTS + "test_a_lock_without_an_announcement_is_no_leader",
    ),
    Mutation(
        rule="R32",
        name="the owner that Q nodes show leads",
        edits=(_SHOWS_THE_OWNER, _BY_A_MAJORITY),
        test=_TESTS + "test_a_lock_without_an_announcement_is_no_leader",
    ),
    Mutation(
        rule="R32",
        name="a term is told of when Q nodes have it",
        edits=(_BY_A_MAJORITY,),
        test=_TESTS + "test_what_only_one_node_tells_of_was_won_all_the_same",
    ),
    Mutation(
        rule="R32",
        name="the first answer counts",
        edits=(Edit("seen", "sum(look.votes for look in looks) < quorum", "not looks"),),
        test=_CORE + "test_too_few_votes_tell_nothing[held A]",
    ),
    Mutation(
        rule="R32",
        name="what was heard before is forgotten",
        edits=(Edit("seen", "newest = before.newest", "newest: Leader | None = None"),),
        test=_CORE + "test_terms_and_ends_never_go_back",
    ),
    Mutation(
        rule="R32",
        name="a node counts that has lost its memory",
        edits=(Edit("read_look", "votes == 1", "True"),),
        test=_TESTS + "test_nodes_without_a_vote_are_not_enough",
    ),
    Mutation(
        rule="R32",
        name="observe.lua lets a node count that has lost its memory",
        edits=(
            TextEdit(
                "_scripts/observe.lua",
                "sentinel_matches(KEYS[3], ARGV[1], ARGV[3]) and 1 or 0",
                "1",
            ),
        ),
        test=_SCRIPTS + "test_what_an_observer_sees[memory]",
    ),
    Mutation(
        rule="R32",
        name="a free node shows that there is no leader, vote or not",
        edits=(Edit("seen", "look.votes and not look.held", "not look.held"),),
        test=_CORE + "test_the_rule_and_its_dumb_twin_agree",
    ),
    Mutation(
        rule="R32",
        name="one free node shows that there is no leader",
        edits=(Edit("seen", "len(free) >= quorum", "bool(free)"), Edit("seen", "free[-quorum]", "free[0]")),
        test=_CORE + "test_the_rule_and_its_dumb_twin_agree",
    ),
    Mutation(
        rule="R32",
        name="a term that is over is told of again",
        edits=(
            Edit("seen", "max(before.ended, free[-quorum]) if is_free else before.ended", "before.ended"),
        ),
        test=_TESTS + "test_a_term_that_is_over_does_not_come_back",
    ),
    Mutation(
        rule="R32",
        name="a term that was won while the nodes were asked counts as over",
        edits=(Edit("seen", "max(known, _term(look.announced))", "_term(newest)"),),
        test=_CORE + "test_the_rule_and_its_dumb_twin_agree",
    ),
    # -- observers -------------------------------------------------------------------------------
    Mutation(
        rule="R32",
        name="an observer is told what others saw before it came",
        edits=(
            Edit(
                "Observer.next",
                "observation.looked >= self._from and observation.seen.tells",
                "observation.seen.tells",
            ),
        ),
        test=_TESTS + "test_an_observer_that_joins_is_told_what_a_look_of_its_own_has_shown",
    ),
    Mutation(
        rule="R32",
        name="news during a look is forgotten",
        edits=(Edit("Observation.look", "self._again = True", "pass"),),
        test=_TESTS + "test_news_during_a_look_brings_another_one",
    ),
    Mutation(
        rule="R32",
        name="observers look when they are told, and never else",
        edits=(Edit("Observation._answered", "0.0 if self._again else pause", "3600.0"),),
        test=_TESTS + "test_a_leader_that_is_gone_is_noticed_without_a_notice",
    ),
    Mutation(
        rule="R32",
        name="observers are not told, and look from time to time",
        edits=(Edit("Notices.watch", "node.subscribe(channel)", "pass"),),
        test=_TESTS + "test_observers_are_told_of_each_leader",
    ),
    Mutation(
        rule="R32",
        name="a leader that resigns says nothing",
        edits=(Edit("Leadership._say_goodbye", "self._announcement.say_goodbye()", "pass"),),
        test=_TESTS + "test_observers_are_told_of_each_leader",
    ),
    Mutation(
        rule="R32",
        name="the last observer leaves its subscription behind",
        edits=(Edit("Observation.leave", "self._session.notices.unwatch(self.subject.announced)", "pass"),),
        test=_TESTS + "test_observers_of_a_process_share_subscription_and_looks",
    ),
    Mutation(
        rule="R32",
        name="observers wait for their next look when their manager is closed",
        edits=(Edit("Elections.close", "observation.wake()", "pass"),),
        test=_TESTS + "test_observers_end_at_once_where_no_node_is_left",
    ),
    # -- run -------------------------------------------------------------------------------------
    Mutation(
        rule="R31",
        name="a lost leadership ends `run`",
        edits=(Edit("Election.run", "not self._was_lost(leadership, error)", "True"),),
        test=_TESTS + "test_run_leads_once_per_term",
    ),
    Mutation(
        rule="R31",
        name="`run` takes the loss of any lock for that of its leadership",
        edits=(Edit("Election._is_loss", "error.names == self._primitive.names", "True"),),
        test=_TESTS + "test_what_lead_raises_leaves_run",
    ),
)
