"""The guard: parent of the command that ``aioredlock-ng run`` runs; it ends the command in time.

A program of its own, started by its path as ``python -I -S``: it needs nothing but the standard
library, is there within some 10 ms, and goes on when the process that holds the lock is killed, frozen,
or busy.

Its arguments are the descriptors of two pipes, the moment until which the lock is valid, the seconds
of ``--kill-after`` and of the margin, the process group that started it, and the command.  Orders come
on the first pipe, a line each::

    until MOMENT     the lock is valid until then, on the clock that goes on while the machine sleeps
    signal NUMBER    pass a signal on to the command's process group
    lost             the lock is lost: end the command
    (end of file)    the process that held the lock is gone: likewise

Reports go out on the second::

    started PID      this process is about to execute the command, in a process group of the same number
    stopped          the user stopped it; it goes on, since its lock cannot be kept from running out
    waits            it is stopped until it gets the terminal, which another process group has
    left             it has ended, but processes that it started have not: they are being ended
    killed           SIGKILL was sent to its group
    denied           a signal to its group was not permitted
    late             it was not started: the lock was lost, or its time as good as over
    unable ERRNO     no process could be started for it
    failed ERRNO     it could not be executed
    ended CODE LOST GONE LENT   its exit code, below 0 for a signal; whether the loss came first (0 or 1);
                           when its group was seen to be gone; whether it had the terminal (0 or 1)
"""
