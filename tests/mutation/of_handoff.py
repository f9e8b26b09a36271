"""Mutations of locks that go from task to task without the nodes (R43)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_TESTS = "unit/test_handing_on.py::"

MUTATIONS = (
    # -- fences ----------------------------------------------------------------------------------
    Mutation(
        rule="R43",
        name="an acquire of a block lifts the counter by one",
        edits=(
            TextEdit(
                "_scripts/acquire.lua",
                "fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)) + ARGV[4] - 1)",
                "fence = even(math.max(fence + 1, math.min(ballot, ms * 1024)))",
            ),
        ),
        test="conformance/test_fenced_acquire.py::test_a_block_is_above_all_before_it[memory-2-a]",
    ),
    Mutation(
        rule="R43",
        name="nodes are asked for another block than the one that is used",
        edits=(
            Edit(
                "Attempt.__init__",
                "AcquireRound(session.outbox, primitive, request.ttl, block=block)",
                "AcquireRound(session.outbox, primitive, request.ttl, block=1)",
            ),
        ),
        test=_TESTS + "test_whatever_happens_there_is_one_holder_with_a_fence_of_its_own[0]",
    ),
    Mutation(
        rule="R43",
        name="the first lease of a block has its last number",
        edits=(
            Edit("Holding.__init__", "self.fence = grant.fence - grant.left", "self.fence = grant.fence"),
        ),
        test=_TESTS + "test_each_lease_has_a_fence_of_the_block",
    ),
    Mutation(
        rule="R43",
        name="the number of an heir that was cancelled is given again",
        edits=(
            Edit(
                "Succession.decline",
                "self.take(grant)",
                """
                self.take(grant)
                grant = grant._replace(left=grant.left + (grant.fence > 0))
                """,
            ),
        ),
        test=_TESTS + "test_an_heir_that_is_cancelled_passes_it_on[fenced-1]",
    ),
    Mutation(
        rule="R43",
        name="all leases of a block have one number",
        edits=(
            Edit(
                "Succession.hand_on",
                """
                if grant.fence:
                    grant = grant._replace(left=grant.left - 1)
                """,
                "",
            ),
        ),
        test=_TESTS + "test_a_lock_is_handed_on_without_a_word_to_the_nodes[fenced]",
    ),
    Mutation(
        rule="R43",
        name="numbers go on beyond the block",
        edits=(
            Edit(
                "Succession.hand_on",
                """
                if grant.fence and not grant.left:
                    return False
                """,
                "",
            ),
        ),
        test=_TESTS + "test_each_lease_has_a_fence_of_the_block",
    ),
    Mutation(
        rule="R43",
        name="the nodes are told the fence of a lease, not the block's last",
        edits=(
            Edit(
                "Holding._ask_to_extend",
                "ExtendRound(outbox, primitive, self.owner, ttl, fence=self._top, heed=heed)",
                "ExtendRound(outbox, primitive, self.owner, ttl, fence=self.fence, heed=heed)",
            ),
        ),
        test=_TESTS + "test_an_heir_extends_by_its_own_policy",
    ),
    Mutation(
        rule="R43",
        name="a block is used on after the lock was lost and won again",
        edits=(
            Edit(
                "Holding.__init__",
                "self.fence = grant.fence - grant.left",
                """
                last, end = getattr(Grant, "given", (0, 0))
                self.fence = last + 1 if last < end else grant.fence - grant.left
                Grant.given = self.fence, end if last < end else grant.fence
                """,
            ),
        ),
        test=_TESTS + "test_whatever_happens_there_is_one_holder_with_a_fence_of_its_own[0]",
    ),
    Mutation(
        rule="R43",
        name="a block for every name",
        edits=(
            Edit(
                "Acquisition._prepare",
                "self._primitive.block if followed else 1",
                "self._primitive.block",
            ),
        ),
        test=_TESTS + "test_fences_are_asked_for_where_they_may_be_needed",
    ),
    # -- when a lock may be handed on ------------------------------------------------------------
    Mutation(
        rule="R43",
        name="an heir after the loss",
        edits=(
            Edit(
                "Holding._hand_on",
                "self.loss is not None or self._extending is not None",
                "self._extending is not None",
            ),
            Edit("Holding.lose", "self._ticket.leave()", ""),
        ),
        test=_TESTS + "test_a_lock_that_was_lost_is_not_handed_on",
    ),
    Mutation(
        rule="R43",
        name="an heir while the nodes are asked for an extension",
        edits=(
            Edit(
                "Holding._hand_on",
                "self.loss is not None or self._extending is not None",
                "self.loss is not None",
            ),
        ),
        test=_TESTS + "test_an_extension_under_way_is_waited_for_by_none",
    ),
    Mutation(
        rule="R43",
        name="an heir when the window is over",
        edits=(
            Edit(
                "Holding.release",
                "not over and ticket.followed",
                "ticket.followed",
            ),
        ),
        test=_TESTS + "test_a_window_ends_with_a_release_that_is_told",
    ),
    Mutation(
        rule="R43",
        name="an heir with another ttl",
        edits=(
            Edit(
                "Succession.hand_on",
                "wanted.ttl != grant.ttl or wanted.at_least",
                "wanted.at_least",
            ),
        ),
        test=_TESTS + "test_an_heir_wants_the_same_ttl[fenced-20.0]",
    ),
    Mutation(
        rule="R43",
        name="an heir of keys that were to live for longer",
        edits=(
            Edit(
                "Holding._hand_on",
                "self.wanted != self._ttl or self.taken_until > self._since",
                "self.taken_until > self._since",
            ),
        ),
        test=_TESTS + "test_a_ttl_that_may_have_been_prolonged_is_not_handed_on",
    ),
    Mutation(
        rule="R43",
        name="an heir of what stays taken",
        edits=(
            Edit(
                "Holding._hand_on",
                "self.wanted != self._ttl or self.taken_until > self._since",
                "self.wanted != self._ttl",
            ),
        ),
        test=_TESTS + "test_what_stays_taken_is_not_handed_on[the lease before]",
    ),
    Mutation(
        rule="R43",
        name="an heir whose name is to stay taken",
        edits=(
            Edit(
                "Succession.hand_on",
                "wanted.ttl != grant.ttl or wanted.at_least",
                "wanted.ttl != grant.ttl",
            ),
        ),
        test=_TESTS + "test_what_stays_taken_is_not_handed_on[the heir]",
    ),
    Mutation(
        rule="R43",
        name="an heir with less than seven eighths of the ttl left",
        edits=(Edit("LEFT_TO_HAND_ON", "7 / 8", "1 / 2"),),
        test=_TESTS + "test_much_validity_must_be_left[plain]",
    ),
    Mutation(
        rule="R43",
        name="an heir of nodes that cannot be one quorum",
        edits=(
            Edit(
                "Succession.hand_on",
                "self._availability.closing or self._availability.conflict is not None",
                "self._availability.closing",
            ),
        ),
        test=_TESTS + "test_a_manager_that_cannot_lock_hands_nothing_on",
    ),
    Mutation(
        rule="R43",
        name="the next in line is passed over when it wants other names, too",
        edits=(
            Edit(
                "Ticket.heir",
                "place = self.queue.entries[self.names[0]].next_in_line()",
                """
                line = self.queue.entries[self.names[0]].queue or ()
                place = next((place for place in line if place.alone and not place.future.done()), None)
                """,
            ),
            Edit(
                "LocalQueue._admit",
                "place = next(iter(entry.queue))",
                "place = next((one for one in entry.queue if one.alone), next(iter(entry.queue)))",
            ),
        ),
        test=_TESTS + "test_the_next_in_line_wants_this_name_alone",
    ),
    # -- what becomes of it ----------------------------------------------------------------------
    Mutation(
        rule="R43",
        name="a lease that is handed on is released on the nodes all the same",
        edits=(
            Edit(
                "Holding.release",
                "session.releases.handed_on if self.handed_on else self._ask_release(over)",
                "self._ask_release(over)",
            ),
        ),
        test=_TESTS + "test_a_lock_is_handed_on_without_a_word_to_the_nodes[plain]",
    ),
    Mutation(
        rule="R43",
        name="an undo releases under an heir",
        edits=(
            Edit(
                "Succession.decline",
                """
                if not self.hand_on(grant, ticket, ticket.heir(), now):
                    ticket.leave()
                    self.give_back(grant)
                """,
                """
                if not self.hand_on(grant, ticket, ticket.heir(), now):
                    ticket.leave()
                self.give_back(grant)
                """,
            ),
        ),
        test=_TESTS + "test_an_heir_that_is_cancelled_passes_it_on[plain-1]",
    ),
    Mutation(
        rule="R43",
        name="an heir that is cancelled keeps the lock",
        edits=(
            Edit(
                "Acquisition.run",
                "session.succession.decline(grant, self._ticket, session.clock.now())",
                "pass",
            ),
        ),
        test=_TESTS + "test_an_heir_that_is_cancelled_passes_it_on[plain-0]",
    ),
    Mutation(
        rule="R43",
        name="an heir that comes too late leaves the lock where it is",
        edits=(Edit("Acquisition._adopt", "session.succession.give_back(grant)", "pass"),),
        test=_TESTS + "test_an_heir_that_wakes_late_judges_what_it_was_given[9.5]",
    ),
    Mutation(
        rule="R43",
        name="closing forgets what no task has taken",
        edits=(Edit("Background._shut_down", "session.succession.end()", "pass"),),
        test=_TESTS + "test_a_manager_that_closes_releases_what_no_task_has_taken",
    ),
    Mutation(
        rule="R43",
        name="a window begins anew with an heir that wakes late",
        edits=(Edit("Holding.__init__", "self._since = grant.since", "self._since = session.clock.now()"),),
        test=_TESTS + "test_a_stall_does_not_begin_a_window_anew",
    ),
    Mutation(
        rule="R43",
        name="an heir has held the lock since its process asked",
        edits=(
            Edit(
                "Holding.__init__",
                "self._since = grant.since",
                "self._since = grant.asked_at",
            ),
        ),
        test=_TESTS + "test_what_is_told_of_it",
    ),
)
