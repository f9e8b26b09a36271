"""Mutations of the restart quarantine, and of lists of nodes (R12, A4)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R12",
        name="the acquire script does not look at the sentinel",
        edits=(
            TextEdit(
                "_scripts/parts/sentinel_matches.lua",
                "return expected ~= '' and",
                "return true or expected ~= '' and",
            ),
        ),
        test="unit/test_quarantine.py::test_a_flush_is_noticed_by_the_next_acquire[fenced]",
    ),
    Mutation(
        rule="R12",
        name="it is enough for the scripts that there is a sentinel",
        edits=(
            TextEdit(
                "_scripts/parts/sentinel_matches.lua",
                "redis.call('GET', key) == expected",
                "redis.call('GET', key)",
            ),
        ),
        test="conformance/test_fenced_acquire.py::test_nothing_is_granted_without_a_vote[memory-another]",
    ),
    Mutation(
        rule="R12",
        name="plain locks do not look at the sentinel",
        edits=(
            Edit(
                "Probe.on_reply",
                """
                if isinstance(reply, Silence):
                    first = reply
                elif reply != self._expected.sentinel:
                    first = CHANGED
                """,
                """
                if isinstance(reply, Silence):
                    first = reply
                """,
            ),
            Edit("PlainAcquires._why_not", "found == self._expected.get(node)", "True"),
        ),
        test="unit/test_quarantine.py::test_a_flush_is_noticed_by_the_next_acquire[plain]",
    ),
    Mutation(
        rule="R12",
        name="a node that has lost its memory votes at once",
        edits=(Edit("_eligible_by", "left_ms > 0", "False"),),
        test="unit/test_quarantine.py::test_a_node_that_may_have_forgotten_has_no_vote[_empty-fenced]",
    ),
    Mutation(
        rule="R12",
        name="a restart with old data goes unnoticed",
        edits=(TextEdit("_scripts/greet.lua", "if me ~= '-' and me ~= server then", "if false then"),),
        test="conformance/test_sentinel_scripts.py::test_another_servers_sentinel_is_replaced[memory-older]",
    ),
    Mutation(
        rule="R12",
        name="a node that has lost its memory has no floor",
        edits=(
            TextEdit(
                "_scripts/greet.lua",
                "return written(me, new_floor, ms + wait(quarantine), quarantine,",
                "return written(me, 0, ms + wait(quarantine), quarantine,",
            ),
        ),
        test="unit/test_fence.py::test_fences_grow_whatever_is_lost[_counters_vanish]",
    ),
    Mutation(
        rule="R12",
        name="a node without a vote refuses releases",
        edits=(
            Edit(
                "RedisNode.submit",
                "self._state is not NodeState.UP and not release",
                "self._state is not NodeState.UP",
            ),
            Edit(
                "BaseNode._why_not",
                "command.purpose.needs_vote",
                'command.purpose.needs_vote or command.purpose.value == "release"',
            ),
        ),
        test=(
            "unit/test_quarantine.py"
            "::test_an_extension_goes_on_with_the_others_and_gives_the_key_back[fenced]"
        ),
    ),
    Mutation(
        rule="R12",
        name="a replica has a vote",
        edits=(Edit("RedisNode.run", 'identity.role in (None, "master")', "True"),),
        test="unit/node/test_redis_node.py::test_a_replica_has_no_vote",
    ),
    Mutation(
        rule="R12",
        name="a ttl may be longer than the quarantine",
        edits=(Edit("refuse_longer", "0 < quarantine < value", "False"),),
        test="unit/test_options.py::test_no_ttl_may_outlive_the_quarantine",
    ),
    Mutation(
        rule="R12",
        name="three nodes have no quarantine by default",
        edits=(Edit("QUARANTINE_FROM", "3", "4"),),
        test="unit/test_options.py::test_the_default_quarantine[3-10-60]",
    ),
    Mutation(
        rule="R12",
        name="clients with another number of nodes take part",
        edits=(Edit("_eligible_by", "known.size != size", "False"),),
        test="unit/test_quarantine.py::test_clients_with_another_number_of_nodes_have_no_business_here",
    ),
    Mutation(
        rule="A4",
        name="one server may be given twice",
        edits=(Edit("make_nodes", "address in seen", "False"),),
        test="unit/test_options.py::test_one_server_given_twice_is_named[redis://h-redis://h]",
    ),
    Mutation(
        rule="A4",
        name="one server under two addresses has two votes",
        edits=(Edit("same_server", "run_id in seen", "False"),),
        test="unit/test_manager.py::test_two_addresses_of_one_server_are_found_at_the_start",
    ),
    Mutation(
        rule="R12a",
        name="a stray use closes the quorum only if its node answers last",
        edits=(
            Edit(
                "QuorumView._reassess",
                "view.closed_until = max(view.closed_until, view.heard_at + wait_ms(longest_ms) / 1000)",
                "pass",
            ),
        ),
        test="unit/core/test_quorum_view.py::test_a_stray_that_went_before_the_majority_came",
    ),
    Mutation(
        rule="R12a",
        name="what a node forgets opens the quorum again",
        edits=(
            Edit(
                "QuorumView.hear",
                "before is not None and not view.initialised_since(before.time_ms)",
                "before is not None and view.claim == before.claim",
            ),
        ),
        test="unit/core/test_quorum_view.py::test_what_a_node_forgets_stays_true[after it was taken back]",
    ),
    Mutation(
        rule="R12a",
        name="a wait that is over can begin again",
        edits=(TextEdit("_scripts/greet.lua", "if tonumber(closed) <= ms then", "if false then"),),
        test=(
            "conformance/test_sentinel_scripts.py::"
            "test_what_was_closed_is_forgotten_when_it_is_over[memory--1000]"
        ),
    ),
    Mutation(
        rule="R12a",
        name="what a node that is out of reach has said is forgotten",
        edits=(
            Edit(
                "QuorumView._reassess",
                """
                self.conflict = any(
                    not self._may_be_ours(view) for view in self._views.values() if self._strays(view)
                )
                """,
                """
                self.conflict = any(
                    not self._may_be_ours(view) for view in self._reached() if self._strays(view)
                )
                """,
            ),
        ),
        test="unit/core/test_quorum_view.py::test_a_conflict_lasts_while_the_node_is_out_of_reach[False]",
    ),
    Mutation(
        rule="R12",
        name="an init is content with one node too few that remembers",
        edits=(
            Edit(
                "_unseen",
                "needed = len(session.nodes) - majority(len(session.nodes)) + 1",
                "needed = len(session.nodes) - majority(len(session.nodes))",
            ),
        ),
        test="unit/test_stray_clients.py::test_init_wants_enough_nodes_that_remember",
    ),
    Mutation(
        rule="R12",
        name="a plain vote over a client is proven by any server that has the sentinel",
        edits=(
            Edit(
                "Greeting.still_matches",
                "return identity == known.identity or identity == UNKNOWN_IDENTITY == self._identity",
                "return identity == self._identity",
            ),
        ),
        test="unit/node/test_greeting.py::test_a_copy_of_the_sentinel_is_no_proof[the other server]",
    ),
    Mutation(
        rule="R12a",
        name="a client that was refused is inside as soon as the older quorum's node is emptied",
        edits=(Edit("QuorumView.hear", "heard_at - view.emptied_at < TAKING_BACK_MS / 1000", "False"),),
        test="unit/test_stray_clients.py::test_a_refused_client_is_not_inside_when_the_node_is_emptied",
    ),
)
