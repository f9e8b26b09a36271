"""Mutations of the lease as the body's deadline (R7)."""

from __future__ import annotations

from .mutation import Edit, Mutation

MUTATIONS = (
    Mutation(
        rule="R7",
        name="a lease that was just won does not wake the watchdog",
        edits=(Edit("Holding.__init__", "watchdog.wake()", "pass"),),
        test="unit/test_watchdog.py::test_the_shortest_leases_are_extended_in_time[0.005]",
    ),
    Mutation(
        rule="R7",
        name="leases that were just won are never looked at",
        edits=(Edit("Watchdog._sleep", "self._heap.push(watched, watched.due)", "pass"),),
        test="unit/test_watchdog.py::test_the_shortest_leases_are_extended_in_time[0.005]",
    ),
    Mutation(
        rule="R7",
        name="each lease that comes and goes wakes the watchdog",
        edits=(Edit("Watchdog.forget", "self._lately = True", "pass"),),
        test="unit/test_watchdog.py::test_leases_that_come_and_go_do_not_wake_the_watchdog",
    ),
    Mutation(
        rule="R7",
        name="the body is not cancelled at its deadline",
        edits=(Edit("Body.stop", "self._cancels and self._armed", "False"),),
        test="unit/test_deadline.py::test_the_body_is_cancelled_at_its_deadline",
    ),
    Mutation(
        rule="R7",
        name="the deadline has no grace",
        edits=(
            Edit(
                "Holding.deadline",
                "return self.valid_until - self._request.extension.grace * self._ttl",
                "return self.valid_until",
            ),
        ),
        test="unit/test_deadline.py::test_the_body_is_cancelled_at_its_deadline",
    ),
    Mutation(
        rule="R7",
        name="the body is cancelled again and again",
        edits=(
            Edit(
                "Body._strike",
                """
                if self._armed and not self._struck and not self.task.done():
                    self._struck = True
                    self.task.cancel("the lock was lost")
                """,
                """
                if self._armed and not self.task.done():
                    self._struck = True
                    self._loop.call_later(0.01, self._strike)
                    self.task.cancel("the lock was lost")
                """,
            ),
        ),
        test="unit/test_deadline.py::test_the_body_is_cancelled_once",
    ),
    Mutation(
        rule="R7",
        name="the running task is cancelled synchronously",
        edits=(Edit("Body.stop", "self._loop.call_soon(self._strike)", "self._strike()"),),
        test="unit/test_deadline.py::test_a_body_that_ends_as_its_deadline_passes[0]",
    ),
    Mutation(
        rule="R7",
        name="earlier cancellations are taken for ours",
        edits=(Edit("Body.__init__", "self._baseline = task.cancelling()", "self._baseline = 0"),),
        test="unit/test_deadline.py::test_an_earlier_cancellation_count_is_the_baseline",
    ),
    Mutation(
        rule="R7",
        name="our cancellation is taken back after the first await",
        edits=(
            Edit("Lease.__aexit__", "ours = body.disarm(exc) if body is not None else False", "ours = False"),
            Edit(
                "Lease.__aexit__",
                """
                if ours or (lost and exc is None):
                    raise holding.error() from exc
                """,
                """
                ours = body.disarm(exc) if body is not None else False
                if ours or (lost and exc is None):
                    raise holding.error() from exc
                """,
            ),
        ),
        test="unit/test_deadline.py::test_a_foreign_cancellation_at_the_moment_of_the_loss[1]",
    ),
    Mutation(
        rule="R7",
        name="the body's own exception is replaced",
        edits=(Edit("Lease.__aexit__", "ours or (lost and exc is None)", "ours or lost"),),
        test="unit/test_deadline.py::test_an_exception_of_a_body_that_was_cancelled_gets_a_note",
    ),
    Mutation(
        rule="R7",
        name="a foreign cancellation is taken for ours",
        edits=(
            Edit(
                "Body.disarm",
                "return self.task.uncancel() <= self._baseline and isinstance(exc, asyncio.CancelledError)",
                """
                self.task.uncancel()
                return isinstance(exc, asyncio.CancelledError)
                """,
            ),
        ),
        test="unit/test_deadline.py::test_a_foreign_cancellation_at_the_moment_of_the_loss[-1]",
    ),
    Mutation(
        rule="R7",
        name="an exit in another task takes a cancellation back",
        edits=(
            Edit(
                "Body.disarm",
                "not self._struck or asyncio.current_task() is not self.task",
                "not self._struck",
            ),
        ),
        test="unit/test_deadline.py::test_an_exit_in_another_task_takes_nothing_back[True]",
    ),
    Mutation(
        rule="R7",
        name="on_lost='raise' cancels all the same",
        edits=(Edit("Body.stop", "self._cancels and self._armed", "self._armed"),),
        test="unit/test_deadline.py::test_on_lost_raise_of_the_manager_is_the_default_of_its_locks",
    ),
    Mutation(
        rule="R7",
        name="a body that outlived its lock ends as if nothing had happened",
        edits=(Edit("Lease.__aexit__", "ours or (lost and exc is None)", "ours"),),
        test="unit/test_deadline.py::test_a_body_that_outlives_validity_without_a_pause[True]",
    ),
    Mutation(
        rule="R7",
        name="a lease is held until it is told otherwise",
        edits=(
            Edit(
                "Holding.held",
                "self._session.clock.now() < self.valid_until",
                "True",
            ),
        ),
        test="unit/test_deadline.py::test_a_body_that_outlives_validity_without_a_pause[True]",
    ),
)
