------------------------------- MODULE Fence -------------------------------
(* Fences of a mutex on a quorum of Redis nodes: rules R10, R11 and R43.

   Semaphore.tla says what a reader needs to know of TLA+.

   What is modelled.
     - `key[n]` is the last owner value at node n, and `counter[n]` is F.
     - A client asks all nodes for a range of fences (Ask).  A node grants it
       at most once, at any moment (see Time): it sets F above every value that F ever
       had, by the size of the range at least (Grant).  A client wins with a
       certificate: Q nodes that granted at one number, or that it has raised
       to this number (Raise, Raised, Win).  It gives its fences out in order,
       each to one lease (HandOff), and may stop at any moment (Stop).
     - The ballot of an attempt is above all that any counter was when it
       began, and each node follows it or not.  A ballot is a hint: one that
       is too low, or too far ahead of a node's clock, is not followed.
     - The raise goes to nodes that have granted below the number, or have not
       answered: there it is executed behind the acquire.
     - A holder's extensions and repairs lengthen or set the key, and raise F
       to the fence (Keep).

   Time.  There is none.  Fences are correct whatever clocks do, so a key may
   end at any moment, whatever its client believes: it may go on to win, to
   extend and to hand off.  So no grant asks whether the key is free: if it
   was another one's, that one has just ended or was released.  A key that
   has ended and was not set again does no more than to let a raise fail, and
   a raise that fails is like one that has not arrived.  The end of an attempt
   or a lease may come as late as it likes: so a command that arrives after it
   is like one whose client has not stopped yet.

   A node that loses its memory (Lose) reads F as its floor, which is above
   all that F can have been.  A counter that has expired is read as the number
   that a missing one begins with, which is above it as well (R11).
   Either may be by any amount: one more is enough to tell them apart.  A
   quarantine is not needed here, since it is for exclusion: a node votes at
   once, which is more than it does.

   The bound.  No step leads to a counter above Top.  Numbers are compared,
   and nothing depends on how great they are: what is left out are longer
   runs of the same steps, not steps of another kind.

   What is left out.  Readers, whose fences are odd (R21); the cap on a raise,
   which has to do with clocks alone; the counters of slots (R25), each of
   which is one of these.

   What must hold.
     Unique    no fence is given out twice
     Ordered   a lease whose acquire began after another one had won has a
               greater fence than all of that one's range

   The wrong variants, each a constant that is FALSE in what ships.  *)

EXTENDS Naturals, FiniteSets

CONSTANTS
    Nodes,
    Clients,
    Sizes,         \* the sizes of ranges that clients ask for
    Attempts,      \* how many attempts all clients make together
    Losses,        \* how many counters are lost or expire
    Top,           \* no counter is greater
    AnyGreatest,   \* wrong: the greatest number of Q grants is the fence, without a certificate (R10)
    CountsAbove,   \* wrong: a node whose counter is above the fence counts for the certificate (R10)
    GrantsBelow,   \* wrong: a grant sets F to the ballot, even if F is above it (R10)
    RaisesOthers,  \* wrong: a raise does not look at the owner (R10)
    Moves,         \* wrong: while nodes are raised, the fence moves to a greater number that is granted (R10)
    SameOwner,     \* wrong: a client's attempts have one owner value (A5)
    NoFloor,       \* wrong: a counter that is missing begins at nothing (R11)
    AddsOne,       \* wrong: a node adds one for a range of any size (R43)
    UsesOn         \* wrong: a win first uses up what is left of the client's range before (R43)

Free == <<>>
Quorum == Cardinality(Nodes) \div 2 + 1
Numbers == 1..Top
None == [n \in Nodes |-> 0]
Max(i, j) == IF i > j THEN i ELSE j
Greatest(S) == CHOOSE i \in S : \A j \in S : j <= i

VARIABLES
    key,      \* key[n]: the last owner value at node n, or Free
    counter,  \* counter[n]: F
    phase,    \* phase[c]: idle, asking, raising or holding
    size,     \* size[c]: of the range that it asks for
    ballot,   \* ballot[c]: the fence that it proposes
    heard,    \* heard[c][n]: where the client knows its grant at node n to stand, or 0
    target,   \* target[c]: the number that nodes are raised to, or 0
    rising,   \* rising[c][n]: what the raise under way to node n says, or 0
    next,     \* next[c]: the fence of the lease of now
    last,     \* last[c]: the last fence of the range
    after,    \* after[c]: the greatest fence that was won before the attempt began
    times,    \* times[f]: how often fence f was given out
    won,      \* the greatest fence that was won so far
    used      \* how much of each bound is used up

vars == <<key, counter, phase, size, ballot, heard, target, rising, next, last, after, times, won, used>>

Init ==
    /\ key = [n \in Nodes |-> Free]
    /\ counter = None
    /\ phase = [c \in Clients |-> "idle"]
    /\ size = [c \in Clients |-> 0]
    /\ ballot = [c \in Clients |-> 0]
    /\ heard = [c \in Clients |-> None]
    /\ target = [c \in Clients |-> 0]
    /\ rising = [c \in Clients |-> None]
    /\ next = [c \in Clients |-> 0]
    /\ last = [c \in Clients |-> 0]
    /\ after = [c \in Clients |-> 0]
    /\ times = [f \in Numbers |-> 0]
    /\ won = 0
    /\ used = [attempts |-> 0, losses |-> 0]

(* The owner value of the attempt or lease of now (see Stop). *)
Owner(c) == <<c>>

(* R43: the size is part of the request. *)
Ask(c) ==
    /\ phase[c] = "idle"
    /\ used.attempts < Attempts
    /\ used' = [used EXCEPT !.attempts = @ + 1]
    /\ \E k \in Sizes : size' = [size EXCEPT ![c] = k]
    /\ ballot' = [ballot EXCEPT ![c] = Greatest({counter[n] : n \in Nodes}) + 1]
    /\ after' = [after EXCEPT ![c] = won]
    /\ phase' = [phase EXCEPT ![c] = "asking"]
    /\ UNCHANGED <<key, counter, heard, target, rising, next, last, times, won>>

(* R10, law 1: above all that F ever was, by the size of the range.  A node follows the ballot, or not. *)
Grant(c, n) ==
    /\ phase[c] \in {"asking", "raising"}
    /\ heard[c][n] = 0
    /\ \E proposed \in {0, ballot[c]} :
          LET first == IF GrantsBelow /\ proposed > 0 THEN proposed ELSE Max(counter[n] + 1, proposed)
              to == IF key[n] = Owner(c) THEN counter[n]  \* a repeated command, as the node sees it
                    ELSE IF AddsOne THEN first ELSE first + size[c] - 1
          IN
          /\ to \in Numbers
          /\ counter' = [counter EXCEPT ![n] = to]
          /\ heard' = [heard EXCEPT ![c][n] = to]
          /\ target' = [target EXCEPT ![c] = IF Moves /\ phase[c] = "raising" THEN Max(@, to) ELSE @]
    /\ key' = [key EXCEPT ![n] = Owner(c)]
    /\ UNCHANGED <<phase, size, ballot, rising, next, last, after, times, won, used>>

Granted(c) == {n \in Nodes : heard[c][n] > 0}
At(c, f) == {n \in Nodes : heard[c][n] = f \/ (CountsAbove /\ heard[c][n] > f)}

Certified(c, f) ==
    IF AnyGreatest
    THEN Cardinality(Granted(c)) >= Quorum /\ f = Greatest({heard[c][n] : n \in Nodes})
    ELSE Cardinality(At(c, f)) >= Quorum

(* One more round: nodes are raised to a number that one of them has granted.  Which one does not matter. *)
Raise(c) ==
    /\ phase[c] = "asking"
    /\ Cardinality(Granted(c)) >= Quorum
    /\ \E f \in {heard[c][n] : n \in Granted(c)} :
          /\ target' = [target EXCEPT ![c] = f]
          /\ rising' = [rising EXCEPT ![c] = [n \in Nodes |-> IF heard[c][n] < f THEN f ELSE 0]]
    /\ phase' = [phase EXCEPT ![c] = "raising"]
    /\ UNCHANGED <<key, counter, size, ballot, heard, next, last, after, times, won, used>>

(* R10, law 2: while a key has an owner, only this one raises F. *)
Raised(c, n) ==
    /\ phase[c] = "raising"
    /\ rising[c][n] > 0
    /\ heard[c][n] > 0
    /\ rising' = [rising EXCEPT ![c][n] = 0]
    /\ IF key[n] = Owner(c) \/ RaisesOthers
       THEN /\ counter' = [counter EXCEPT ![n] = Max(@, rising[c][n])]
            /\ heard' = IF counter[n] <= rising[c][n] THEN [heard EXCEPT ![c][n] = target[c]] ELSE heard
       ELSE UNCHANGED <<counter, heard>>
    /\ UNCHANGED <<key, phase, size, ballot, target, next, last, after, times, won, used>>

Give(f) == times' = [times EXCEPT ![f] = @ + 1]

(* R10: Q nodes at one number are a certificate of its range.  R43: the least one is given out first. *)
Win(c) ==
    /\ phase[c] \in {"asking", "raising"}
    /\ \E f \in Numbers :
          LET left == UsesOn /\ next[c] < last[c]
              first == IF left THEN next[c] + 1 ELSE f - size[c] + 1
          IN
          /\ Certified(c, f)
          /\ first \in Numbers
          /\ next' = [next EXCEPT ![c] = first]
          /\ last' = [last EXCEPT ![c] = IF left THEN @ ELSE f]
          /\ won' = Max(won, f)
          /\ Give(first)
    /\ phase' = [phase EXCEPT ![c] = "holding"]
    /\ heard' = [heard EXCEPT ![c] = None]
    /\ target' = [target EXCEPT ![c] = 0]
    /\ rising' = [rising EXCEPT ![c] = None]
    /\ ballot' = [ballot EXCEPT ![c] = 0]
    /\ UNCHANGED <<key, counter, size, after, used>>

(* R43: the next lease of the process gets the next fence. *)
HandOff(c) ==
    /\ phase[c] = "holding"
    /\ next[c] < last[c]
    /\ next' = [next EXCEPT ![c] = @ + 1]
    /\ Give(next[c] + 1)
    /\ UNCHANGED <<key, counter, phase, size, ballot, heard, target, rising, last, after, won, used>>

(* R8, R9: an extension or a repair of the holder, with its fence. *)
Keep(c, n) ==
    /\ phase[c] = "holding"
    /\ key' = [key EXCEPT ![n] = Owner(c)]
    /\ counter' = [counter EXCEPT ![n] = Max(@, last[c])]
    /\ UNCHANGED <<phase, size, ballot, heard, target, rising, next, last, after, times, won, used>>

(* An attempt or a lease ends.  The next one has a new owner value (A5), so its keys do not matter any
   more. *)
Stop(c) ==
    /\ phase[c] /= "idle"
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ heard' = [heard EXCEPT ![c] = None]
    /\ target' = [target EXCEPT ![c] = 0]
    /\ rising' = [rising EXCEPT ![c] = None]
    /\ ballot' = [ballot EXCEPT ![c] = 0]
    /\ size' = [size EXCEPT ![c] = 0]
    /\ after' = [after EXCEPT ![c] = 0]
    /\ next' = [next EXCEPT ![c] = IF UsesOn THEN @ ELSE 0]
    /\ last' = [last EXCEPT ![c] = IF UsesOn THEN @ ELSE 0]
    /\ key' = [n \in Nodes |-> IF key[n] = Owner(c) /\ ~SameOwner THEN Free ELSE key[n]]
    /\ UNCHANGED <<counter, times, won, used>>

(* R11: a node loses its memory, and has a floor then; or its counter has expired, and a new one begins
   above it. *)
Lose(n) ==
    /\ used.losses < Losses
    /\ used' = [used EXCEPT !.losses = @ + 1]
    /\ counter[n] < Top
    /\ key' = [key EXCEPT ![n] = Free]
    /\ counter' = [counter EXCEPT ![n] = IF NoFloor THEN 0 ELSE @ + 1]
    /\ UNCHANGED <<phase, size, ballot, heard, target, rising, next, last, after, times, won>>

Next ==
    \/ \E c \in Clients : Ask(c) \/ Raise(c) \/ Win(c) \/ HandOff(c) \/ Stop(c)
    \/ \E c \in Clients, n \in Nodes : Grant(c, n) \/ Raised(c, n) \/ Keep(c, n)
    \/ \E n \in Nodes : Lose(n)

Spec == Init /\ [][Next]_vars

(* Without deadlock as an error: all attempts end. *)

Unique == \A f \in Numbers : times[f] <= 1

Ordered == \A c \in Clients : phase[c] = "holding" => next[c] > after[c]

==============================================================================
