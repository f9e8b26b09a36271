"""Mutations of connections, names, clients and the end (R15–R18), and of what concerns them all."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

MUTATIONS = (
    Mutation(
        rule="R15",
        name="a process that stood still keeps connections that do not answer",
        edits=(Edit("RedisNode._watch", "away >= GIVE_UP_AFTER * pause", "False"),),
        test="unit/test_after_pause.py::test_the_first_call_after_a_pause_finds_new_connections[0.0]",
    ),
    Mutation(
        rule="R12",
        name="a server that answers again after another one is not noticed",
        edits=(
            Edit(
                "ServersSeen.returns",
                "identity in self._seen and identity != next(reversed(self._seen))",
                "False",
            ),
        ),
        test="unit/core/test_servers_seen.py::test_a_server_that_answers_again_after_another_was_alive[aba-a]",
    ),
    Mutation(
        rule="R15",
        name="a caller that stops waiting takes its command out of the queue",
        edits=(
            Edit(
                "Pipe.feed",
                "entry = entries.popleft()",
                """
                while len(entries) > 1 and not entries[0][1].awaited:
                    entries.popleft()
                entry = entries.popleft()
                """,
            ),
        ),
        test="unit/node/test_pipe.py::test_a_late_reply_goes_to_its_own_sink_and_not_to_the_next",
    ),
    Mutation(
        rule="R15",
        name="an answer that cannot belong to its request is taken",
        edits=(
            Edit(
                "Pipe.feed",
                "answer is not MISFIT and type(answer) is not _ERROR and command.fits(answer)",
                "answer is not MISFIT and type(answer) is not _ERROR",
            ),
        ),
        test="unit/node/test_pipe.py::test_a_reply_of_the_wrong_shape_counts_nothing[set-int]",
    ),
    Mutation(
        rule="R15",
        name="the tag is not compared",
        edits=(
            Edit(
                "untagged",
                "type(reply) is not list or not reply or reply[0] != tag",
                "type(reply) is not list or not reply",
            ),
        ),
        test="unit/node/test_missing_reply.py::test_nothing_behind_a_missing_reply_counts[1-1]",
    ),
    Mutation(
        rule="R15",
        name="all tags of a connection are alike",
        edits=(
            Edit(
                "Pipe.put",
                "out.append(_TAG_ARGUMENTS[(self.answered + len(entries)) % len(TAGS)])",
                "out.append(_TAG_ARGUMENTS[1])",
            ),
            Edit("Pipe.feed", "untagged(reply, TAGS[self.answered % len(TAGS)])", "untagged(reply, TAGS[1])"),
        ),
        test="unit/node/test_missing_reply.py::test_nothing_behind_a_missing_reply_counts[1-1]",
    ),
    Mutation(
        rule="R15",
        name="the answer to a SET is taken for a sentinel",
        edits=(
            Edit("_fits_sentinel", 'isinstance(reply, bytes) and reply != b"OK"', "isinstance(reply, bytes)"),
        ),
        test="unit/node/test_missing_reply.py::test_a_plain_vote_rests_on_the_look_behind_it[6]",
    ),
    Mutation(
        rule="R15",
        name="an acquire that met NOSCRIPT goes again behind its release",
        edits=(
            Edit(
                "Pipe._may_go_again",
                "all(sink.awaited for _, sink, _ in others)",
                "True",
            ),
        ),
        test=(
            "unit/node/test_pipe.py"
            "::test_anything_else_goes_again_only_while_it_is_waited_for[nothing-False-acquire]"
        ),
    ),
    Mutation(
        rule="R15",
        name="commands in flight are not bounded",
        edits=(
            Edit("Pipe.put", "len(entries) >= self._room and not self._has_room(command)", "not self._room"),
        ),
        test="unit/node/test_pipe.py::test_commands_in_flight_are_bounded",
    ),
    Mutation(
        rule="R15",
        name="releases have no room of their own",
        edits=(Edit("limit_for", "_RESERVED.get(purpose, 0)", "0"),),
        test="unit/node/test_pipe.py::test_commands_in_flight_are_bounded",
    ),
    Mutation(
        rule="R15",
        name="commands are not written at the end of the turn",
        edits=(
            Edit(
                "Flusher.soon",
                "loop.call_soon(self._flush, loop)",
                "loop.call_later(0.001, self._flush, loop)",
            ),
        ),
        test="unit/node/test_redis_node.py::test_commands_of_one_turn_leave_in_one_write",
    ),
    Mutation(
        rule="R16",
        name="the prefix is left out",
        edits=(Edit("lock_key", "return prefix + name.encode()", "return name.encode()"),),
        test="unit/test_manager.py::test_managers_of_different_prefixes_do_not_meet",
    ),
    Mutation(
        rule="R16",
        name="a hostile name leaves the prefix",
        edits=(
            Edit(
                "lock_key",
                "return prefix + name.encode()",
                'return name.encode().partition(b"../")[2] or prefix + name.encode()',
            ),
        ),
        test="security/test_names.py::test_names_that_look_alike_are_held_at_once",
    ),
    Mutation(
        rule="R16",
        name="reserved names are accepted",
        edits=(Edit("_check_name", "name.startswith(RESERVED_NAMES)", "False"),),
        test="unit/test_options.py::test_a_wrong_name_is_shown",
    ),
    Mutation(
        rule="R16",
        name="a key without expiry counts as free",
        edits=(
            TextEdit(
                "_scripts/acquire.lua",
                """
                  if left == -1 then
                    wait = -1
                  elseif wait >= 0 then
                """,
                """
                  if left ~= -1 then
                """,
            ),
        ),
        test=(
            "conformance/test_fenced_acquire.py"
            "::test_what_is_taken_stays_as_it_is[memory-{'a': 30.0, 'b': None}--1]"
        ),
    ),
    Mutation(
        rule="R16",
        name="a key without expiry counts as free for a batch",
        edits=(
            TextEdit(
                "_scripts/acquire_many.lua",
                "if call('SET', lock, owner, 'NX', 'PX', ttl) then",
                "if call('SET', lock, owner, 'NX', 'PX', ttl) or call('PTTL', lock) == -1 then",
            ),
        ),
        test="conformance/test_lock.py::test_a_key_without_expiry_is_a_holder_like_any[memory]",
    ),
    Mutation(
        rule="R16",
        name="a wrong type is waited for",
        edits=(Edit("other_kind", "len(wrong) <= spared", "True"),),
        test="unit/test_waiting.py::test_a_wrong_type_fails_at_once_if_it_costs_the_quorum[wrong0-True]",
    ),
    Mutation(
        rule="R17",
        name="a client's release does not wait for its acquire",
        edits=(
            Edit(
                "Calls.start",
                "self._make(command, self._last.get(owner) if owner else None)",
                "self._make(command, None)",
            ),
        ),
        test="unit/test_rules_client.py::test_a_release_never_overtakes_its_acquire[times out]",
    ),
    Mutation(
        rule="R17",
        name="of a client's calls acquires go before what a lease rests on",
        edits=(Edit("Calls._make", "command.purpose in _URGENT", "False"),),
        test="unit/node/test_calls.py::test_what_a_lease_rests_on_goes_first",
    ),
    Mutation(
        rule="R17",
        name="a call that came too late for its turn is spared though its owner's before it is under way",
        edits=(Edit("Calls.cancel_if_queued", "queued = call in self._queued", "queued = not call.done()"),),
        test="unit/node/test_calls.py::test_a_call_that_waits_for_a_place_can_be_spared",
    ),
    Mutation(
        rule="R17",
        name="a client's call is cancelled when its caller stops waiting",
        edits=(
            Edit(
                "ClientNode._answer",
                "asyncio.wait_for(asyncio.shield(call), self.env.node_timeout)",
                "asyncio.wait_for(call, self.env.node_timeout)",
            ),
        ),
        test="unit/test_rules_client.py::test_a_release_never_overtakes_its_acquire[times out]",
    ),
    Mutation(
        rule="R18",
        name="closing does not release",
        edits=(
            Edit("Background._shut_down", "holding.release()", "pass"),
            Edit("Background._end_bodies", "holding.release()", "pass"),
        ),
        test="unit/test_manager.py::test_aclose_releases_every_lease",
    ),
    Mutation(
        rule="R18",
        name="closing does not stop bodies",
        edits=(Edit("Background._end_bodies", "others if stop else ()", "()"),),
        test="unit/test_manager.py::test_aclose_waits_for_bodies",
    ),
    Mutation(
        rule="R18",
        name="a forked child may use its parent's manager",
        edits=(Edit("Session.inherited", "return self._generation != generation()", "return False"),),
        test="unit/test_manager.py::test_another_process_is_refused",
    ),
    Mutation(
        rule="R18",
        name="a manager that closes has its session at hand",
        edits=(
            Edit(
                "Lifecycle.at_hand",
                "availability.closing or availability.conflict is not None",
                "availability.conflict is not None",
            ),
        ),
        test="unit/test_manager.py::test_aclose_refuses_new_acquires",
    ),
    Mutation(
        rule="R18",
        name="another loop has the session at hand",
        edits=(Edit("Lifecycle.at_hand", "session.loop is not asyncio._get_running_loop()", "False"),),
        test="unit/test_manager.py::test_another_loop_is_refused",
    ),
    Mutation(
        rule="R18",
        name="nodes that no call has waited for to the end are taken for connected",
        edits=(Edit("Lifecycle.ready", "not read_only and background.usable.is_set()", "not read_only"),),
        test="unit/test_manager.py::test_a_second_call_waits_for_the_nodes_as_the_first_did",
    ),
    Mutation(
        rule="R18",
        name="a forked child has its parent's manager at hand",
        edits=(Edit("Lifecycle.close", "self._ready_session = None", "pass"),),
        test="unit/test_manager.py::test_a_forked_child_that_goes_on_with_its_parents_loop_is_refused",
    ),
    Mutation(
        rule="hooks",
        name="a hook's exception affects the lock",
        edits=(Edit("HookList._call", "(KeyboardInterrupt, SystemExit)", "Exception"),),
        test="unit/test_manager.py::test_a_raising_hook_is_logged_once_and_affects_nothing",
    ),
    Mutation(
        rule="secrets",
        name="a node's name shows the password",
        edits=(Edit("masked", 'host = parts.netloc.rpartition("@")[2]', "host = parts.netloc"),),
        test="unit/node/test_masked.py::test_a_password_with_special_characters[user-redis]",
    ),
    Mutation(
        rule="secrets",
        name="a server's error message shows the owner value",
        edits=(
            Edit(
                "without_secrets",
                'message = message.replace(value.decode(errors="replace"), "<owner>")',
                "pass",
            ),
        ),
        test="unit/node/test_pipe.py::test_an_error_message_never_holds_an_owner_value",
    ),
)
