------------------------------ MODULE Semaphore ------------------------------
(* Permits of a semaphore on a quorum of Redis nodes: rules R24, R25 and R26.

   What a reader needs to know of TLA+.  A model is a set of variables, what
   they are at first (Init), and the steps that change them (Next).  An
   action such as Serve(c, n) is a step: its lines are conditions, and
   x' = ... says what x is after the step.  TLC, the model checker, takes
   every step in every order and checks the invariants in each state.
   [f EXCEPT ![c] = v] is f with another value for c.

   What is modelled.
     - `slots[n][s]` is the hash of node n: the owner of slot s, or Free.
       Every owner value is new for each attempt: <<client, attempt>>.
     - `line[c][n]` are the commands of client c that node n has not executed.
       A connection is first in, first out, so commands of one client do not
       overtake each other (R5).  A node may execute the next one at any time.
     - A client asks all nodes (Ask), hears grants and refusals, wins with Q
       grants of one slot (Win), or gives up (GiveUp), and releases (Release).
       Releases are never lost: the ledger repeats them (R5).

   Time.  There are no clocks.  A lock's keys are set after the client has
   read its clock, so no key ends before the validity of its lease does (R3,
   A1).  That is all that the rules use of time, and so it is all that is
   here: a key may end at any moment (Expire), but from then on its client
   neither wins nor believes to hold the permit (`late`).  A model with
   clocks has the same steps, and fewer orders of them.

   What is left out.  A node that forgets (Redlock.tla), fences
   (Fence.tla: each slot has a counter of its own), and the order in which
   processes ask.  Which slots an attempt may be given is left open: any free
   one, which includes every way to search.  The number of permits is part of
   each request, and may differ between clients (R26).

   What must hold.
     Exclusion   no two clients that believe in a permit have the same slot
     AtMost      no more holders than the greatest number of permits
     OneSlot     an owner has at most one slot at a node
     NoLeak      when all is over, no node has an entry left

   The wrong variants, each a constant that is FALSE in what ships.  *)

EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Nodes,
    Clients,
    Permits,        \* [Clients -> number of permits that its requests say]
    Attempts,       \* how many attempts each client makes
    AnySlotCounts,  \* wrong: Q grants of whichever slots are a permit (R24)
    KeepsOrphans,   \* wrong: no node is told which slot was won, and the release names that one alone (R25)
    KeepsBoth,      \* wrong: a repair leaves what else its owner has at the node (R25)
    ExtendsTooLong  \* wrong: the validity goes on when keys have ended (R3)

Free == <<"free">>
Unheard == 0
Refused == 99
Most == CHOOSE m \in {Permits[c] : c \in Clients} : \A c \in Clients : Permits[c] <= m
Slots == 1..Most
Quorum == Cardinality(Nodes) \div 2 + 1

VARIABLES
    slots,    \* slots[n][s]: the owner of slot s at node n
    line,     \* line[c][n]: commands under way
    heard,    \* heard[c][n]: the answer to the attempt of now
    phase,    \* phase[c]: idle, asking, holding or over
    attempt,  \* attempt[c]: its number
    won,      \* won[c]: the slot of the lease, or 0
    late      \* late[c]: whether a key of the attempt has ended

vars == <<slots, line, heard, phase, attempt, won, late>>

Owner(c) == <<c, attempt[c]>>
Believes(c) == phase[c] = "holding" /\ (~late[c] \/ ExtendsTooLong)

Init ==
    /\ slots = [n \in Nodes |-> [s \in Slots |-> Free]]
    /\ line = [c \in Clients |-> [n \in Nodes |-> <<>>]]
    /\ heard = [c \in Clients |-> [n \in Nodes |-> Unheard]]
    /\ phase = [c \in Clients |-> "idle"]
    /\ attempt = [c \in Clients |-> 0]
    /\ won = [c \in Clients |-> 0]
    /\ late = [c \in Clients |-> FALSE]

Send(c, command) == line' = [line EXCEPT ![c] = [n \in Nodes |-> Append(@[n], command)]]

(* R1: all nodes are asked at once, with an owner value that is new. *)
Ask(c) ==
    /\ phase[c] = "idle"
    /\ attempt[c] < Attempts
    /\ attempt' = [attempt EXCEPT ![c] = @ + 1]
    /\ Send(c, <<"acquire", <<c, attempt[c] + 1>>, 0>>)
    /\ phase' = [phase EXCEPT ![c] = "asking"]
    /\ heard' = [heard EXCEPT ![c] = [n \in Nodes |-> Unheard]]
    /\ late' = [late EXCEPT ![c] = FALSE]
    /\ UNCHANGED <<slots, won>>

Mine(n, owner) == {s \in Slots : slots[n][s] = owner}
Freed(n, owner) == [s \in Slots |-> IF slots[n][s] = owner THEN Free ELSE slots[n][s]]

(* What slots an acquire may be granted: any free one of those that the request knows. *)
Grantable(c, n) == {s \in 1..Permits[c] : slots[n][s] = Free}

(* An answer that is lost, or comes too late, is as good as a command that is
   executed after the verdict: what follows it on the connection is the same. *)
Hears(c, n, owner, answer) ==
    heard' = IF owner = Owner(c) /\ phase[c] = "asking"
             THEN [heard EXCEPT ![c][n] = answer]
             ELSE heard

(* A node executes the next command of a client. *)
Serve(c, n) ==
    /\ line[c][n] /= <<>>
    /\ LET command == Head(line[c][n])
           owner == command[2]
       IN
       /\ line' = [line EXCEPT ![c][n] = Tail(@)]
       /\ CASE command[1] = "acquire" ->
                 LET able == Grantable(c, n) IN
                 \/ /\ able = {}
                    /\ UNCHANGED slots
                    /\ Hears(c, n, owner, Refused)
                 \/ \E s \in able :
                    /\ slots' = [slots EXCEPT ![n][s] = owner]
                    /\ Hears(c, n, owner, s)
            (* R25: hold what a majority does, if that is free here, and drop any other slot. *)
            [] command[1] = "repair" ->
                 LET s == command[3]
                     rest == IF KeepsBoth THEN slots[n] ELSE Freed(n, owner)
                 IN
                 /\ slots' = [slots EXCEPT ![n] =
                        IF rest[s] = Free THEN [rest EXCEPT ![s] = owner] ELSE rest]
                 /\ UNCHANGED heard
            [] OTHER ->
                 /\ slots' = [slots EXCEPT ![n] =
                        IF KeepsOrphans /\ command[3] /= 0
                        THEN [s \in Slots |-> IF s = command[3] /\ @[s] = owner THEN Free ELSE @[s]]
                        ELSE Freed(n, owner)]
                 /\ UNCHANGED heard
    /\ UNCHANGED <<phase, attempt, won, late>>

Voters(c, s) == {n \in Nodes : heard[c][n] = s}
Granted(c) == {n \in Nodes : heard[c][n] \in Slots}

(* R24: Q grants of the same slot.  R25: nodes that granted another one, or
   have not answered, are told at once which slot it is. *)
Win(c) ==
    /\ phase[c] = "asking"
    /\ ~late[c]
    /\ \E s \in Slots :
        /\ IF AnySlotCounts
           THEN Cardinality(Granted(c)) >= Quorum /\ Voters(c, s) /= {}
           ELSE Cardinality(Voters(c, s)) >= Quorum
        /\ won' = [won EXCEPT ![c] = s]
        /\ line' = [line EXCEPT ![c] = [n \in Nodes |->
              IF n \in Voters(c, s) \/ heard[c][n] = Refused \/ KeepsOrphans THEN @[n]
              ELSE Append(@[n], <<"repair", Owner(c), s>>)]]
    /\ phase' = [phase EXCEPT ![c] = "holding"]
    /\ UNCHANGED <<slots, heard, attempt, late>>

(* R5: what is not a win is undone on all nodes. *)
GiveUp(c) ==
    /\ phase[c] = "asking"
    /\ Send(c, <<"release", Owner(c), 0>>)
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ UNCHANGED <<slots, heard, attempt, won, late>>

(* R6: a release goes to all nodes, and removes everything of its owner. *)
Release(c) ==
    /\ phase[c] = "holding"
    /\ Send(c, <<"release", Owner(c), won[c]>>)
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ won' = [won EXCEPT ![c] = 0]
    /\ UNCHANGED <<slots, heard, attempt, late>>

(* R3, A1: a key ends.  Its client, if it is of the attempt of now, has no validity left. *)
Expire(n, s) ==
    /\ slots[n][s] /= Free
    /\ LET owner == slots[n][s]
           c == owner[1]
       IN
       /\ late' = [late EXCEPT ![c] = @ \/ owner = Owner(c)]
       /\ slots' = [slots EXCEPT ![n][s] = Free]
    /\ UNCHANGED <<line, heard, phase, attempt, won>>

Next ==
    \/ \E c \in Clients : Ask(c) \/ Win(c) \/ GiveUp(c) \/ Release(c)
    \/ \E c \in Clients, n \in Nodes : Serve(c, n)
    \/ \E n \in Nodes, s \in Slots : Expire(n, s)

Spec == Init /\ [][Next]_vars

(* Without deadlock as an error: all attempts end. *)

Exclusion ==
    \A a, b \in Clients : a /= b /\ Believes(a) /\ Believes(b) => won[a] /= won[b]

AtMost == Cardinality({c \in Clients : Believes(c)}) <= Most

OneSlot == \A n \in Nodes, c \in Clients, k \in 1..Attempts : Cardinality(Mine(n, <<c, k>>)) <= 1

Quiet == \A c \in Clients : phase[c] = "idle" /\ \A n \in Nodes : line[c][n] = <<>>

NoLeak == Quiet => \A n \in Nodes, s \in Slots : slots[n][s] = Free

==============================================================================
