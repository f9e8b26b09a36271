"""Mutations of releases: of what was not won, and of what was (R5, R6)."""

from __future__ import annotations

from .mutation import Edit, Mutation, TextEdit

_NO_LINGER = Edit(
    "Link.give_up", "sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)", "pass"
)
_RESET = (
    "nodes/test_connection_real.py::test_a_connection_is_reset_when_it_is_given_up_and_watched_by_the_kernel"
)

_UNDONE = """
    self._undone = self._session.releases.release(
        self.primitive,
        self.owner,
        keeps=self._request.ttl,
        fence=0,
        unsent=self.asked.unsent,
        timeout=timeout,
        seat=self.seat if self.primitive.kind.in_line else NO_SEAT,
    )
"""
_UNDONE_WHERE = """
    from .._round.outbox import NOT_HELD
    self._undone = Round(self._session.outbox, self.primitive.kind.release.read)
    spared = [node for node, answer in enumerate(self.asked.answers) if not ({})]
    release = self.primitive.release(self.owner, self._request.ttl)
    self._undone.ask(release, timeout, known=dict.fromkeys(spared, NOT_HELD))
"""
"""Releases go to some of the nodes only."""

MUTATIONS = (
    Mutation(
        rule="R5",
        name="a try that is no win is not undone",
        edits=(Edit("Attempt.undo", _UNDONE, _UNDONE_WHERE.format("False")),),
        test="unit/core/test_redlock_spec.py::test_step_5_a_failure_is_undone_on_all_masters[taken0]",
    ),
    Mutation(
        rule="R5",
        name="a try is undone only on the nodes that granted",
        edits=(
            Edit(
                "Attempt.undo",
                _UNDONE,
                _UNDONE_WHERE.format("answer is not None and answer.vote is Vote.GRANTED"),
            ),
        ),
        test=(
            "unit/core/test_redlock_spec.py::test_step_5_an_answer_that_comes_after_the_failure_is_undone_too"
        ),
    ),
    Mutation(
        rule="R5",
        name="a cancelled acquire is not undone",
        edits=(Edit("Attempt.ask", "BaseException", "Exception"),),
        test="unit/test_cancellation.py::test_cancelled_at_every_pause[acquire-healthy-asleep]",
    ),
    Mutation(
        rule="R5",
        name="a release can overtake its acquire",
        edits=(Edit("Attempt.undo", "self._session.outbox.drain()", ""),),
        test="unit/test_manager.py::test_aclose_in_any_turn_of_an_acquire[1]",
    ),
    Mutation(
        rule="R5",
        name="there is no release ledger",
        edits=(
            Edit(
                "Ledger.due",
                "[release for release in self._releases.values() if not release.sent][:REPEATED_AT_ONCE]",
                "[]",
            ),
        ),
        test=(
            "unit/node/test_redis_node.py"
            "::test_an_unacknowledged_release_is_the_first_thing_on_the_new_connection"
        ),
    ),
    Mutation(
        rule="R5",
        name="a new connection begins with something else than the ledger",
        edits=(Edit("RedisNode._serve", "self._repeat_releases(link)", ""),),
        test=(
            "unit/node/test_redis_node.py"
            "::test_an_unacknowledged_release_is_the_first_thing_on_the_new_connection"
        ),
    ),
    Mutation(
        rule="R5",
        name="'was not held' settles the release of an unanswered acquire",
        edits=(
            Edit(
                "PendingRelease.on_reply",
                "deleted_any(reply) or not self.unresolved",
                "deleted_any(reply) or True",
            ),
        ),
        test=(
            "unit/node/test_redis_node.py"
            "::test_the_release_of_an_unanswered_acquire_is_repeated_for_its_ttl[queued]"
        ),
    ),
    Mutation(
        rule="R5",
        name="an acquire that was under way when its connection ended is forgotten",
        edits=(Edit("RedisNode._fail_all", "command.purpose.creates", "False"),),
        test=(
            "unit/node/test_redis_node.py"
            "::test_the_release_of_an_unanswered_acquire_is_repeated_for_its_ttl[queued]"
        ),
    ),
    Mutation(
        rule="R5",
        name="a connection is given up by a plain close",
        edits=(
            Edit(
                "Link.give_up",
                """
                self._transport.abort()
                self._end(reason)
                """,
                """
                self._transport.close()
                self._end(reason)
                """,
            ),
            _NO_LINGER,
        ),
        test=_RESET,
    ),
    Mutation(
        rule="R5",
        name="a connection is given up without SO_LINGER",
        edits=(_NO_LINGER,),
        test=_RESET,
    ),
    Mutation(
        rule="R6",
        name="a release deletes without comparing the owner",
        edits=(TextEdit("_scripts/release.lua", "elseif holder == ARGV[1]", "elseif holder"),),
        test="conformance/test_scripts.py::test_every_command_in_every_state[memory-release-1]",
    ),
    Mutation(
        rule="R6",
        name="release_many.lua deletes without comparing the owner",
        edits=(TextEdit("_scripts/release_many.lua", "if holder == ARGV[i + 1] then", "if holder then"),),
        test="unit/core/test_redlock_spec.py::test_a_release_deletes_only_the_clients_own_key",
    ),
    Mutation(
        rule="R6",
        name="releases are queued behind an await of release()",
        edits=(
            Edit(
                "Lease.release",
                "round_ = self._holding.release()",
                """
                await asyncio.sleep(0)
                round_ = self._holding.release()
                """,
            ),
        ),
        test="unit/test_cancellation.py::test_a_cancelled_release_has_still_released",
    ),
    Mutation(
        rule="R6",
        name="releases are queued behind an await of the exit",
        edits=(
            Edit(
                "Lease.__aexit__",
                "round_ = holding.release()",
                """
                await asyncio.sleep(0)
                round_ = holding.release()
                """,
            ),
        ),
        test="unit/test_cancellation.py::test_cancelled_at_every_pause[queue-healthy-asleep]",
    ),
    Mutation(
        rule="R6",
        name="extensions go on behind the release",
        edits=(
            Edit(
                "Holding.release",
                """
                session.watchdog.forget(self)
                session.holdings.all.pop(self, None)
                """,
                "session.holdings.all.pop(self, None)",
            ),
            Edit(
                "Holding.over", "self._release is not None or self.loss is not None", "self.loss is not None"
            ),
            Edit(
                "Holding.extend", 'assert self._release is None, "nothing is sent after the release (R6)"', ""
            ),
        ),
        test="unit/test_extension.py::test_nothing_is_sent_with_the_owner_after_its_release",
    ),
)
