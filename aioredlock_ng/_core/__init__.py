"""Redlock in a page: what the rest of this package does, without any I/O.

**The idea.** N independent Redis masters, no replication between them.  A client holds the lock
`name` while a *majority* of the masters, Q = N // 2 + 1, hold the key `name` with that client's
own random value, the *owner*.  Two majorities of the same N always share a master, and a master
holds one value per key, so two clients cannot hold the lock at once.

**One round.**  To acquire, a client makes up a fresh owner and sends
``SET name owner NX PX ttl``, or a script that does the same and makes a fence, to all N masters
in the same moment.  Every master answers with one `Vote`: GRANTED (it stored our owner), REFUSED
(another holder's key is there), or SILENT (anything else: no answer in time, an error, no
connection).  A `Tally` counts the votes into a `Verdict` as early as it is certain: WON with the
Q-th grant, LOST as soon as Q grants can no longer be reached.  A slow master never delays a decided
round; an even tie is LOST.

**Time.**  A key lives `ttl` from the moment its master stored it, which cannot be before the
client read its clock and began to send.  So the lock is good until ``asked_at + ttl - drift``,
where the drift pays for clocks that do not run at exactly the same rate (`validity`).  A win that
arrives when too little of that time is left is not a win.

**Clean-up.**  Whatever is not a win (lost, too late, an error, a cancelled task) is undone on all
N masters, those believed refused included, since a refusal and a lost reply look the same from here.
The release deletes the key only if it still holds our owner, so it can never free another holder's
lock.  On each connection it stands behind the acquire in one first-in-first-out stream and cannot
overtake it.

**Extension.**  While the lock is held, rounds of an owner-checked ``PEXPIRE`` ask the masters to
let the key live longer.  Q grants move the validity; Q refusals mean that the lock is lost now;
anything in between is unknown and tried again until the clock decides (`extension_verdict`).
Extensions never create a key and never shorten its life, so a late one does no harm.

**Waiting.**  A refused client asks again when a release is published, when enough of the keys in its way
have run out, or after a random wait, whichever comes first (`policy`).  What is published is a hint and
never a vote; without it the wait is longer.  It says how many are notified: of a crowd only a few ask.

**Loss.**  The validity is the deadline of the code that runs under the lock: when it passes
without a won extension, that code is cancelled a little before another client could get in.
Silence needs no code of its own: the deadline simply arrives.

**Fence.**  Beside the lock each master keeps a counter, which every granted acquire raises.  A number at
which a majority stands, with the lock ours, is the lease's *fence*: unique, and greater than that of every
earlier lease.  The proof (`fencing`) uses no clock, so that fences are right even when all that follows is
not; a resource that refuses smaller fences is then what keeps the late ones out.

**Memory.**  A master that has lost its data has forgotten locks.  It is known by its *record*, and has no
vote until every lock that it may have forgotten has ended (`quarantine`).  The record also says whose the
node is: a client writes nothing before it has seen that a majority is its own (`quorum_view`).

**Members.**  The argument of the first paragraph needs one list of nodes.  So each client tells the masters
which servers it uses, and a server that others do not know gets no vote beside theirs (`members`).

**Clocks.**  Masters expire keys by their time of day.  Their answers tell it, and a master whose clock jumps
ahead is noticed, reported and quarantined (`clock_watch`).

`RULES.md`, in this folder, says it rule by rule, by the numbers that code and tests cite, and names tests.

All of this rests on assumptions, which docs/explanation/guarantees.md explains with what breaks them:

- A1: the clocks of nodes and clients advance at nearly the same rate for one ttl, and no node's jumps ahead.
- A2: a node that granted a vote remembers it for the ttl, or is known to have forgotten it (`quarantine`).
- A3: a holder stops using the resource when its validity ends.
- A4: the N nodes are N different servers, and every client is configured with the same N.
- A5: owner values are unguessable and fresh for every attempt.

Source: "Distributed Locks with Redis" in the Redis documentation, called *the Redlock page*.
Nothing in `_core` imports asyncio or redis, or reads a clock: `now` is always an argument.

Read on in this order: `quorum`, `validity`, `policy`, `command`, `fencing`, `quarantine`, `quorum_view`,
`members`, `clock_watch`.
"""
