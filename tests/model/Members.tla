------------------------------ MODULE Members ------------------------------
(* Clients whose lists of nodes disagree: rule R12c.

   Semaphore.tla says what a reader needs to know of TLA+.

   Clients with the lists a, b, x and a, b, y do not exclude each other by
   majorities alone: x and b may grant a lock to one of them, and a and y the
   same lock to the other.  So clients tell the nodes which servers they use,
   hear there what others use, and count.  The model asks whether two of them
   can hold one lock all the same.

   What is modelled.
     - Places and servers are numbers.  The server at place p is p at first.
       One that loses its memory (Lose), by a restart, say, is another server
       from then on, with a new identity: p + Width, p + 2 * Width, and so on.
       It has heard nothing, and has no vote for a quarantine (R12).
     - A client reaches the nodes up[c].  A link comes (LinkUp) and is lost
       (LinkDown) at any time, for each client by itself.
     - own[c] are the servers that had a vote in a majority of c: what its
       locks may rest on.  Each is remembered for Life after the last moment
       at which a majority voted with it among them.
     - lines[n] is what node n has been told, and heard[c] what c has heard of
       all clients.  It outlives the link to the node that said so.
     - A client votes with what Judge says, the rule itself.  Any Q of these
       servers may grant it a lock at any moment.

   Time.  It goes in ticks.  A tick (Tick) is a heartbeat: each client
   exchanges a greeting with each node that it reaches, in either order of the
   clients.  Life is the quarantine, the longest life of a lock, and the time
   for which all else is remembered.  Everything that ends is a number of
   ticks that are left: Life if it is of now, 0 if it has ended.  So what is
   told of later or twice is the greater number, and "with its age" means that
   the number is passed on as it is.

   Locks.  held[c] are the sets of Q servers that may have granted a lock to c
   which is still alive: all of them that c could have got within Life.
   Nothing in the rule depends on which of them c did get.  A node that has
   granted a lock to one client refuses the other; so two clients hold it at
   once if two such sets share no server.  A server that has lost its memory
   has lost its grants, and is in no set by its new identity.  Releases and
   extensions are in this, too: a lock that ends earlier, or is extended by
   the servers that have granted it, is one of the locks of now.

   What is left out.
     - Servers that are reached and were never used are told to nodes as such,
       for messages and refusals; no vote depends on them.
     - How a client tells a server of another list from one that was replaced:
       by the times at which they were there.  Here it sees the places.
     - Clients that stand still, or have another heartbeat than others, since
       each client greets with each tick; `init`, which states that no lock is
       alive; and how many servers are remembered.
     - The part of a heartbeat.  A lock that is won just before a link is lost
       ends up to a heartbeat later than what was told there last.  Here both
       end with the same tick, so what is told has to be kept longer than locks
       live, by a heartbeat at least.
     - Owners, rounds and validities (Redlock.tla), quorums of another size
       (R12a), and the first use that is dated back (R12b).

   What is assumed.
     InTouch    two clients with different lists that use servers have, within
                Life, told one node of them: of servers that had a vote in a
                majority at that time.  So a client begins where the other has
                told something, or where it is alone; and both are never cut
                off from the nodes that the other one reaches for so long.
     At once    greetings are exchanged with all nodes that are reached in the
                step in which a client gets a majority, or one more server
                into it.  In truth that takes a moment: two clients that begin
                within it are noticed later (and see TellsLater).

   What must hold.
     Exclusion  no two clients can hold the lock
     Few        all clients together use 2Q - 1 servers at most, so any two
                majorities among them share one: the reason for Exclusion
     Alone      a client beside which nobody uses anything may lock as soon as
                a majority of its list can vote: also if a node is down
     GoesOn     a client that uses all servers of its list, and reaches them,
                keeps their votes, whoever comes
     Refused    a client that begins, reaches its whole list, and hears that
                another one uses a server in the place of one of these is
                refused

   The small bounds are two faults, one of them a loss of memory.  The large
   ones are four, without refusals.  Three clients are another bound to try:
   Lists <- [c |-> {1, 2, 3}, d |-> {1, 2, 4}, e |-> {1, 2, 3}], and Linked.

   The wrong variants, each a constant that is FALSE in what ships.  *)

EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Lists,              \* Lists[c]: the places in the list of client c
    Linked,             \* Linked[c]: the nodes that c reaches at first, and greets with the first heartbeat
    Life,               \* in ticks
    Faults,             \* how many links and memories are lost, together
    Losses,             \* how many memories of them
    Refuses,            \* whether a client with disputed servers is refused; if not, it has what votes are left
    IgnoresUnmet,       \* wrong: a place of the list that is not reached counts for nothing
    CountsKnownOnce,    \* wrong: it counts for nothing if a server of that place is counted by its identity
    IgnoresWaiting,     \* wrong: a server in quarantine counts for nothing
    TellsReached,       \* wrong: a client tells only of servers that it reaches
    TellsNoAge,         \* wrong: it tells of all that it remembers as if that were of now
    TellsLater,         \* wrong: it tells the node of a new link alone, and the others with the next heartbeat
    KeepsRank,          \* wrong: a server stays in use for as long as it is reached, also without a majority
    ForgetsOwn,         \* wrong: what a client uses itself is not among the servers that are used
    RefusesNobody,      \* wrong: a client that begins beside another list goes on with the servers of both
    RefusesUnmet,       \* wrong: a client that does not reach a node is refused
    OutOfTouch          \* wrong: clients need not be in touch, an assumption

Clients == DOMAIN Lists
Places == UNION {Lists[c] : c \in Clients}  \* 1..Width
Width == Cardinality(Places)
Servers == 1..(Width * (Losses + 1))
Place(i) == ((i - 1) % Width) + 1
Q == 2

VARIABLES
    up,     \* up[c]: the places that client c reaches
    gen,    \* gen[p]: how often the server at p has lost its memory
    wait,   \* wait[p]: ticks of its quarantine that are left
    own,    \* own[c][i]: ticks for which c remembers to have used server i
    heard,  \* heard[c][i]: and to have heard that others use it
    lines,  \* lines[p][i]: ticks for which the node at p remembers that i is used
    told,   \* told[c][p]: ticks for which c is in touch with the node at p, by what it has told it (InTouch)
    held,   \* held[c]: sets of Q servers that may have granted c a lock, and ticks that are left of it
    faults  \* how many there were

vars == <<up, gen, wait, own, heard, lines, told, held, faults>>

Nothing == [i \in Servers |-> 0]
Max(m, n) == IF m > n THEN m ELSE n
Most(f) == CHOOSE m \in 0..Life : (\E i \in DOMAIN f : f[i] = m) /\ \A i \in DOMAIN f : f[i] <= m
Number(S) == Cardinality(S)

(* The parts of the state that greetings change or need, as a record: a step is
   made of several exchanges, one after the other. *)
Now == [up |-> up, gen |-> gen, wait |-> wait, own |-> own, heard |-> heard, lines |-> lines,
        told |-> told, held |-> held]

Reached(s, c) == {p + Width * s.gen[p] : p \in s.up[c]}

(* Which servers vote for c.  It counts the servers that it or others use, the
   servers of its list that would vote, and an unknown one for each place of
   its list that it does not reach, or that waits: who knows which server has
   granted a lock there.  If they are 2Q or more, those that are used so far
   vote, and no other.  A client that uses none so far is refused if another
   one uses a server now that is not in its list. *)
Judge(s, c) ==
    LET would == {i \in Reached(s, c) : s.wait[Place(i)] = 0}
        used == {i \in Servers : (s.own[c][i] > 0 /\ ~ForgetsOwn) \/ s.heard[c][i] > 0}
        waiting == {p \in s.up[c] : s.wait[p] > 0}
        away == Lists[c] \ s.up[c]
        places == IF IgnoresUnmet THEN {}
                  ELSE (IF CountsKnownOnce THEN away \ {Place(i) : i \in used} ELSE away)
                       \cup (IF IgnoresWaiting THEN {} ELSE waiting)
        late == IF Number(used \cup would) + Number(places) < 2 * Q THEN {} ELSE would \ used
        rivals == {i \in used : Place(i) \notin Lists[c] /\ s.heard[c][i] = Life}
        refused == /\ Refuses /\ ~RefusesNobody
                   /\ s.own[c] = Nothing
                   /\ (rivals /= {} /\ late /= {}) \/ (RefusesUnmet /\ away /= {})
    IN
    [refused |-> refused, votes |-> IF refused THEN {} ELSE would \ late]

Votes(s, c) == Judge(s, c).votes

RECURSIVE Greatest(_, _, _, _)
Greatest(n, s, P, i) ==
    IF P = {} THEN n
    ELSE LET p == CHOOSE p \in P : TRUE IN Greatest(Max(n, s.lines[p][i]), s, P \ {p}, i)

(* Client c exchanges greetings with the nodes P.  It hears what they have been
   told, judges, and tells them what it uses, with ages. *)
Greet(s, c, P) ==
    LET said == TLCEval([i \in Servers |-> Greatest(s.heard[c][i], s, P, i)])
        found == TLCEval(Judge([s EXCEPT !.heard[c] = said], c))
        votes == found.votes
        locks == {S \in SUBSET votes : Number(S) = Q}
        mine == TLCEval([i \in Servers |->
            IF i \in votes /\ locks /= {} THEN Life
            ELSE IF KeepsRank /\ s.own[c][i] > 0 /\ i \in Reached(s, c) THEN Life
            ELSE s.own[c][i]])
        tells == TLCEval([i \in Servers |->
            IF TellsReached /\ i \notin Reached(s, c) THEN 0
            ELSE IF TellsNoAge /\ mine[i] > 0 THEN Life
            ELSE mine[i]])
        last == Most(mine)
    IN
    TLCEval([s EXCEPT
        !.own[c] = mine,
        \* What it uses itself counts in any case: so this is all that others have to say.
        !.heard[c] = TLCEval([i \in Servers |-> IF mine[i] >= said[i] THEN 0 ELSE said[i]]),
        !.lines = TLCEval([p \in Places |->
            IF p \in P THEN TLCEval([i \in Servers |-> Max(s.lines[p][i], tells[i])]) ELSE s.lines[p]]),
        !.told[c] = TLCEval([p \in Lists[c] |-> IF p \in P THEN Max(s.told[c][p], last) ELSE s.told[c][p]]),
        !.held[c] = IF found.refused THEN {}
                    ELSE {<<S, Life>> : S \in locks} \cup {h \in s.held[c] : h[1] \notin locks}])

(* Whether c has a majority that it has not told of: more servers, or one that it had lost. *)
HasMore(s, c) ==
    LET votes == Votes(s, c) IN Number(votes) >= Q /\ \E i \in votes : s.own[c][i] < Life

(* What follows an event: some clients exchange greetings with all nodes that
   they reach, one client after the other.  With a heartbeat or a new link they
   do so in any case, and after a loss those that have a majority to tell of. *)
RECURSIVE GreetInOrder(_, _, _)
GreetInOrder(s, order, anyway) ==
    IF order = <<>> THEN s
    ELSE LET c == Head(order) IN
         GreetInOrder(IF anyway \/ HasMore(s, c) THEN Greet(s, c, s.up[c]) ELSE s, Tail(order), anyway)

Orders == {f \in [1..Number(Clients) -> Clients] : \A j, k \in DOMAIN f : f[j] = f[k] => j = k}
First == CHOOSE order \in Orders : TRUE

Uses(s, c) == \E i \in Servers : s.own[c][i] > 0
InTouch(s) ==
    \A c, d \in Clients :
        Lists[c] /= Lists[d] /\ Uses(s, c) /\ Uses(s, d) =>
            \E p \in Lists[c] \cap Lists[d] : s.told[c][p] > 0 /\ s.told[d][p] > 0

(* The state that a step ends in, if the assumption holds there. *)
Become(states) ==
    \E s \in states :
        /\ OutOfTouch \/ InTouch(s)
        /\ up' = s.up
        /\ gen' = s.gen
        /\ wait' = s.wait
        /\ own' = s.own
        /\ heard' = s.heard
        /\ lines' = s.lines
        /\ told' = s.told
        /\ held' = s.held

Init ==
    /\ up = Linked
    /\ gen = [p \in Places |-> 0]
    /\ wait = [p \in Places |-> 0]
    /\ own = [c \in Clients |-> Nothing]
    /\ heard = [c \in Clients |-> Nothing]
    /\ lines = [p \in Places |-> Nothing]
    /\ told = [c \in Clients |-> [p \in Lists[c] |-> 0]]
    /\ held = [c \in Clients |-> {}]
    /\ faults = 0

LinkUp(c, p) ==
    /\ p \in Lists[c] \ up[c]
    /\ LET s == [Now EXCEPT !.up[c] = @ \cup {p}] IN
       Become({Greet(s, c, IF TellsLater THEN {p} ELSE s.up[c])})
    /\ UNCHANGED faults

LinkDown(c, p) ==
    /\ p \in up[c]
    /\ faults < Faults
    /\ faults' = faults + 1
    /\ Become({GreetInOrder([Now EXCEPT !.up[c] = @ \ {p}], <<c>>, FALSE)})

RECURSIVE Sum(_)
Sum(P) == IF P = {} THEN 0 ELSE LET p == CHOOSE p \in P : TRUE IN gen[p] + Sum(P \ {p})

(* All links to the server are lost with its memory. *)
Lose(p) ==
    /\ faults < Faults
    /\ Sum(Places) < Losses
    /\ faults' = faults + 1
    /\ LET s == [Now EXCEPT
               !.up = [c \in Clients |-> @[c] \ {p}],
               !.gen[p] = @ + 1,
               !.wait[p] = Life,
               !.lines[p] = Nothing,
               !.told = [c \in Clients |-> [q \in Lists[c] |-> IF q = p THEN 0 ELSE @[c][q]]]]
       IN
       Become({GreetInOrder(s, First, FALSE)})

Less(n) == IF n > 0 THEN n - 1 ELSE 0

Tick ==
    /\ LET s == TLCEval([Now EXCEPT
               !.wait = [p \in Places |-> Less(@[p])],
               !.own = [c \in Clients |-> [i \in Servers |-> Less(@[c][i])]],
               !.heard = [c \in Clients |-> [i \in Servers |-> Less(@[c][i])]],
               !.lines = [p \in Places |-> [i \in Servers |-> Less(@[p][i])]],
               !.told = [c \in Clients |-> [p \in Lists[c] |-> Less(@[c][p])]],
               !.held = [c \in Clients |-> {<<h[1], h[2] - 1>> : h \in {k \in @[c] : k[2] > 1}}]])
       IN
       Become({GreetInOrder(s, order, TRUE) : order \in Orders})
    /\ UNCHANGED faults

Next ==
    \/ \E c \in Clients, p \in Places : LinkUp(c, p) \/ LinkDown(c, p)
    \/ \E p \in Places : Lose(p)
    \/ Tick

Spec == Init /\ [][Next]_vars

Exclusion ==
    \A c, d \in Clients : c /= d => \A h \in held[c], k \in held[d] : h[1] \cap k[1] /= {}

Few == Number({i \in Servers : \E c \in Clients : own[c][i] > 0}) <= 2 * Q - 1

CanVote(c) == {i \in Reached(Now, c) : wait[Place(i)] = 0}

Alone ==
    \A c \in Clients :
        /\ \A d \in Clients : own[d] = Nothing
        /\ heard[c] = Nothing
        /\ Number(CanVote(c)) >= Q
        => Number(Votes(Now, c)) >= Q

GoesOn ==
    \A c \in Clients :
        /\ Number(CanVote(c)) = Number(Lists[c])
        /\ \A i \in CanVote(c) : own[c][i] > 0
        => Votes(Now, c) = CanVote(c)

Refused ==
    Refuses =>
        \A c \in Clients :
            /\ own[c] = Nothing
            /\ Number(CanVote(c)) = Number(Lists[c])
            /\ \E i \in CanVote(c) : heard[c][i] = 0
            /\ \E i \in Servers : Place(i) \notin Lists[c] /\ heard[c][i] = Life
            => Votes(Now, c) = {}

==============================================================================
