------------------------------- MODULE History -------------------------------
(* Whether histories of one lock can be explained by a lock that is a single
   thing in a single place: the question that checkers of linearizability ask.

   A history is what an observer with the right time has seen of the leases of
   one name, or of one slot of a semaphore: when each was asked for ("ask"),
   when its client learned that it has it ("won"), and when the client ceased
   to believe so ("end").  Some moment between the first two is that at which
   the lease takes the lock (Take).  TLC tries all of them.  A history is
   explained if there is a choice with which all of its events happen in their
   order: no two have the lock at once, except readers (R20), and fences grow
   in the order in which the lock is taken (R10, R21).

   Of an election leases are terms, and observers hear of them ("reported"): of
   such as have been taken by then, and never of a smaller one than before
   (R31, R32).

   A writer that becomes a reader is two leases with one fence (R23): `from`
   names the first one.  A fence of 0 stands for none.  *)

EXTENDS Integers, Sequences, TLC

CONSTANT
    Histories  \* a sequence of [events |-> <<<<kind, lease, observer>>, ...>>, leases |-> <<[fence, alone, from], ...>>]

VARIABLES
    h,        \* the number of the history
    at,       \* the number of the next event
    wanting,  \* leases that were asked for and have not taken the lock
    inside,   \* leases that have it
    written,  \* the greatest fence so far of a lease that was alone
    read,     \* the greatest fence so far of a reader
    known     \* the greatest term that was reported to each observer

vars == <<h, at, wanting, inside, written, read, known>>

Lease(i) == Histories[h].leases[i]
Largest(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ h \in 1..Len(Histories)
    /\ at = 1
    /\ wanting = {}
    /\ inside = {}
    /\ written = 0
    /\ read = 0
    /\ known = [observer \in {} |-> 0]

(* R10, R21, R23 *)
InOrder(i) ==
    \/ Lease(i).fence = 0
    \/ Lease(i).from /= 0 /\ Lease(i).fence = Lease(Lease(i).from).fence
    \/ Lease(i).fence > written /\ (IF Lease(i).alone THEN Lease(i).fence > read ELSE Lease(i).fence >= read)

Take(i) ==
    (* The least fence first: with another one the order could not hold. *)
    /\ \A other \in wanting : Lease(i).fence <= Lease(other).fence
    /\ \A other \in inside : ~Lease(i).alone /\ ~Lease(other).alone
    /\ InOrder(i)
    /\ wanting' = wanting \ {i}
    /\ inside' = inside \cup {i}
    /\ written' = IF Lease(i).alone THEN Largest(written, Lease(i).fence) ELSE written
    /\ read' = IF Lease(i).alone THEN read ELSE Largest(read, Lease(i).fence)
    /\ UNCHANGED <<h, at, known>>

Asked(i) == \E k \in 1..(at - 1) : Histories[h].events[k][1] = "ask" /\ Histories[h].events[k][2] = i

(* R32 *)
Tell(i, observer) ==
    /\ Asked(i) /\ i \notin wanting
    /\ observer \in DOMAIN known => Lease(i).fence >= known[observer]
    /\ known' = (observer :> Lease(i).fence) @@ known

Happen ==
    /\ at <= Len(Histories[h].events)
    /\ LET event == Histories[h].events[at]
           i == event[2]
       IN CASE event[1] = "ask" -> wanting' = wanting \cup {i} /\ UNCHANGED <<inside, known>>
            [] event[1] = "won" -> i \in inside /\ UNCHANGED <<wanting, inside, known>>
            [] event[1] = "end" -> i \in inside /\ inside' = inside \ {i} /\ UNCHANGED <<wanting, known>>
            [] event[1] = "reported" -> Tell(i, event[3]) /\ UNCHANGED <<wanting, inside>>
    /\ at' = at + 1
    /\ IF at = Len(Histories[h].events) THEN PrintT(<<"explained", h>>) ELSE TRUE
    /\ UNCHANGED <<h, written, read>>

Next == Happen \/ \E i \in wanting : Take(i)

Spec == Init /\ [][Next]_vars

==============================================================================
