------------------------------ MODULE Redlock ------------------------------
(* A mutex on a quorum of Redis nodes: rules R1, R3, R5, R6, R8, R9 and R12.

   Semaphore.tla says what a reader needs to know of TLA+.

   What is modelled.
     - `key[n]` is the lock's key at node n: the owner value, which is new for
       each attempt, and a generation (see Time); or Free.
     - `line[c][n]` are the commands of client c that node n has not executed.
       A connection is first in, first out, so a release does not overtake its
       acquire (R5).  A node may execute the next command at any time.
     - A client asks all nodes (Ask), hears grants and refusals, wins with Q
       grants (Win), extends (Extend, Win), and releases (Release), at any
       moment: so an attempt that is given up, one that is cancelled, and a
       lease that is lost are all there.
     - A connection may be lost with all that is under way on it (Cut).  Then
       `stray[c][n]` are commands that left on it.  Each may still be executed,
       however late, in any order, and without an answer (Stray), or never
       (Vanish).  On the next connection the ledger sends the open releases
       first.  It repeats a release of an owner whose acquire or repair is
       stray until that is gone (R5).
     - A node may lose its memory (Lose).  It is in quarantine then, votes for
       nothing, and takes repairs and releases all the same (R12).  A plain
       SET may set its key there, although its answer does not count (R42).

   Time.  There are no clocks, but generations.  The acquire is generation 1
   of its attempt, and each round of extension is the next one.  A key has the
   greatest generation of the commands that set or lengthened it.  The client
   believes up to generation `valid`: the last round that it won.

   A client reads its clock before it sends a round.  So a key that a round
   has set or lengthened does not end before the validity that this round
   would give, nor that of any round before it (R3, R8, A1).  That is all that
   the rules use of time, and so it is all that is here: a key may end at any
   moment (Expire), but from then on the validity of its generation, and of
   all before it, has ended (`ended`).  A client with no greater generation
   that it has won neither believes nor wins.  Real clients stop earlier than
   that, and real keys end later: a model with clocks has the same steps, and
   fewer orders of them.

   The quarantine lasts as long as the longest ttl, from the loss on.  A key
   that the node had then would have ended by then, if no command had
   lengthened it meanwhile.  So the end of the quarantine (Vouch) is the end
   of all keys that the node has forgotten (`ghosts`), with the generations
   that they had; a second loss adds to them.  What other nodes have granted
   since is of a greater generation, and rests on them.

   What is left out.  Nodes that cannot be reached are nodes that do not
   execute anything for a while, or lose connections.  Fences are in
   Fence.tla.  A release that a node answers by an error, a ledger that is
   full, evictions (A2), and clients with another list of nodes (R12a, R12c)
   are not here.  The time after which the ledger stops is the moment when
   nothing is stray: a command that arrives later than a ttl after its
   connection was lost leaves its key for a ttl.  R9 asks for a round that was
   won before anything is repaired.  No invariant here needs that: a client
   that believes has a majority of keys or ghosts, so that nothing it repairs
   can be another one's.  It is for nodes that forget without a quarantine.

   What must hold.
     Exclusion   no two clients believe in the lock
     Undone      a key of an owner that was released is at a node only while a
                 release of it is on its way there: so what was undone does
                 not come back, and nothing is left undone
     NoLeak      when all is over, no node has a key left, although none ended
     Settles     (temporal) all comes to that end, if each client that has the
                 lock or asks for it stops, and each node goes on executing

   The wrong variants, each a constant that is FALSE in what ships.  *)

EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Nodes,
    Clients,
    Attempts,         \* how many attempts all clients make together
    Extensions,       \* how many rounds of extension they ask for together
    Faults,           \* how many connections are lost, and memories of nodes, together
    AnswersDecide,    \* wrong: a majority of those that answered is enough (R1)
    ExtendsTooLong,   \* wrong: the validity goes on when keys have ended (R3)
    UndoesGrantsOnly, \* wrong: the undo goes only to nodes that granted (R5)
    UndoOvertakes,    \* wrong: the undo goes by another connection, and may come first (R5)
    LedgerForgets,    \* wrong: a release that is lost with its connection is not sent again (R5)
    LedgerTrusts,     \* wrong: "was not held" settles a release although the acquire may still come (R5)
    DeletionSettles,  \* wrong: a repetition that deleted a key settles, although a repair set that key (R5)
    ReleasesAny,      \* wrong: a release does not compare the owner value (R6)
    RepairsReleased,  \* wrong: an answer that comes after the release still causes a repair (R6)
    ExtensionCreates, \* wrong: an extension sets a key that is missing (R8)
    FewExtend,        \* wrong: one node's grant extends the lease (R8)
    NoQuarantine,     \* wrong: a node that has lost its memory votes at once (R12)
    ShortQuarantine   \* wrong: it votes before what it has forgotten has ended (R12)

Free == <<>>
Ended == 0     \* as a generation: of an attempt that is over
Repeated == 1  \* as the generation of a release: one that the ledger sends
Quorum == Cardinality(Nodes) \div 2 + 1

VARIABLES
    key,      \* key[n]: <<client, attempt, generation>>, or Free
    waits,    \* waits[n]: whether node n is in quarantine
    ghosts,   \* ghosts[n]: the keys that it has forgotten, until its quarantine ends
    line,     \* line[c][n]: commands under way, <<what, attempt, generation>>
    stray,    \* stray[c][n]: commands that were under way on a connection that is lost
    heard,    \* heard[c][n]: the answer in the round of now
    phase,    \* phase[c]: idle, asking or holding
    attempt,  \* attempt[c]: its number
    round,    \* round[c]: generation of the last round that was asked
    valid,    \* valid[c]: generation of the last round that was won, or 0
    ended,    \* ended[c]: the greatest generation of which a key has ended, or 0
    used      \* how much of each bound is used up

vars == <<key, waits, ghosts, line, stray, heard, phase, attempt, round, valid, ended, used>>

Silent == [n \in Nodes |-> "silent"]
Max(i, j) == IF i > j THEN i ELSE j

Init ==
    /\ key = [n \in Nodes |-> Free]
    /\ waits = [n \in Nodes |-> FALSE]
    /\ ghosts = [n \in Nodes |-> {}]
    /\ line = [c \in Clients |-> [n \in Nodes |-> <<>>]]
    /\ stray = [c \in Clients |-> [n \in Nodes |-> {}]]
    /\ heard = [c \in Clients |-> Silent]
    /\ phase = [c \in Clients |-> "idle"]
    /\ attempt = [c \in Clients |-> 0]
    /\ round = [c \in Clients |-> 0]
    /\ valid = [c \in Clients |-> 0]
    /\ ended = [c \in Clients |-> 0]
    /\ used = [attempts |-> 0, extensions |-> 0, faults |-> 0]

Believes(c) == phase[c] = "holding" /\ (valid[c] > ended[c] \/ ExtendsTooLong)

Mine(k, c, i) == k /= Free /\ k[1] = c /\ k[2] = i
Current(k) == phase[k[1]] /= "idle" /\ k[2] = attempt[k[1]]

(* R1: all nodes are asked at once, with an owner value that is new. *)
Ask(c) ==
    /\ phase[c] = "idle"
    /\ used.attempts < Attempts
    /\ used' = [used EXCEPT !.attempts = @ + 1]
    /\ attempt' = [attempt EXCEPT ![c] = @ + 1]
    /\ round' = [round EXCEPT ![c] = 1]
    /\ phase' = [phase EXCEPT ![c] = "asking"]
    /\ line' = [line EXCEPT ![c] = [n \in Nodes |-> Append(@[n], <<"acquire", attempt[c] + 1, 1>>)]]
    /\ UNCHANGED <<key, waits, ghosts, stray, heard, valid, ended>>

(* R8: so does an extension, while the lease is believed in. *)
Extend(c) ==
    /\ Believes(c)
    /\ used.extensions < Extensions
    /\ used' = [used EXCEPT !.extensions = @ + 1]
    /\ round' = [round EXCEPT ![c] = @ + 1]
    /\ heard' = [heard EXCEPT ![c] = Silent]
    /\ line' = [line EXCEPT ![c] = [n \in Nodes |-> Append(@[n], <<"extend", attempt[c], round[c] + 1>>)]]
    /\ UNCHANGED <<key, waits, ghosts, stray, phase, attempt, valid, ended>>

(* What node n may have under the key after a command. *)
Results(c, n, command) ==
    LET k == key[n]
        mine == <<c, command[2], command[3]>>
        longer == IF Mine(k, c, command[2]) THEN <<c, command[2], Max(k[3], command[3])>> ELSE k
    IN
    CASE command[1] = "acquire" ->
            IF k /= Free THEN {k} ELSE IF waits[n] THEN {k, mine} ELSE {mine}
    [] command[1] = "extend" ->
            IF k = Free /\ ExtensionCreates THEN {mine} ELSE {longer}
    [] command[1] = "repair" ->
            IF k = Free THEN {mine} ELSE {longer}
    [] OTHER ->
            IF Mine(k, c, command[2]) \/ ReleasesAny THEN {Free} ELSE {k}

(* Its vote on an acquire or an extension, by what is under the key then. *)
Vote(c, n, command, k) ==
    IF Mine(k, c, command[2])
    THEN IF waits[n] THEN "silent" ELSE "granted"
    ELSE IF k = Free THEN "missing" ELSE "refused"

(* What may set a key, so that the ledger repeats its release. *)
Creates == {"acquire", "repair"}
Unresolved(c, n, i) == \E s \in stray[c][n] : s[1] \in Creates /\ s[2] = i

(* R9: an answer to an earlier round causes a repair, too, if that round was won. *)
Late(c, command) ==
    phase[c] = "holding" /\ command[2] = attempt[c] /\ 1 < command[3] /\ command[3] < round[c] /\ command[3] <= valid[c]

(* A node executes the next command of a client.  An answer that is lost is as
   good as a command that is stray. *)
Serve(c, n) ==
    /\ line[c][n] /= <<>>
    /\ LET command == Head(line[c][n])
           i == command[2]
           rest == Tail(line[c][n])
           counts == phase[c] /= "idle" /\ i = attempt[c] /\ command[3] = round[c]
       IN
       \E k \in Results(c, n, command), repairs \in IF Late(c, command) THEN BOOLEAN ELSE {FALSE} :
          LET vote == Vote(c, n, command, k)
              won == counts /\ round[c] = valid[c]
              open == /\ Unresolved(c, n, i)
                      /\ ~LedgerTrusts
                      /\ ~(DeletionSettles /\ command[3] = Repeated /\ k /= key[n])
          IN
          /\ key' = [key EXCEPT ![n] = k]
          /\ line' = [line EXCEPT ![c][n] =
                CASE command[1] = "release" /\ open -> Append(rest, <<"release", i, Repeated>>)
                [] command[1] = "extend" /\ vote = "missing" /\ (won \/ repairs \/ RepairsReleased) ->
                      Append(rest, <<"repair", i, command[3]>>)
                [] OTHER -> rest]
          /\ heard' = [heard EXCEPT ![c][n] =
                IF command[1] \in {"acquire", "extend"} /\ counts /\ ~won THEN vote ELSE @]
    /\ UNCHANGED <<waits, ghosts, stray, phase, attempt, round, valid, ended, used>>

Granted(c) == {n \in Nodes : heard[c][n] = "granted"}
Answered(c) == {n \in Nodes : heard[c][n] /= "silent"}

Enough(c) ==
    \/ Cardinality(Granted(c)) >= Quorum
    \/ AnswersDecide /\ 2 * Cardinality(Granted(c)) > Cardinality(Answered(c))
    \/ FewExtend /\ round[c] > 1 /\ Granted(c) /= {}

(* R1, R8: Q grants win a round.  R3: it is judged now, not when they came.
   R9: the nodes that have answered that the key is missing get it again;
   those that answer later get it in Serve. *)
Win(c) ==
    /\ round[c] > valid[c]
    /\ Enough(c)
    /\ \/ phase[c] = "asking" /\ ended[c] = 0
       \/ Believes(c)
    /\ phase' = [phase EXCEPT ![c] = "holding"]
    /\ valid' = [valid EXCEPT ![c] = round[c]]
    /\ line' = [line EXCEPT ![c] = [n \in Nodes |->
          IF round[c] > 1 /\ heard[c][n] = "missing"
          THEN Append(@[n], <<"repair", attempt[c], round[c]>>)
          ELSE @[n]]]
    /\ heard' = [heard EXCEPT ![c] = Silent]
    /\ UNCHANGED <<key, waits, ghosts, stray, attempt, round, ended, used>>

(* A generation says nothing once its attempt is over: this keeps states few. *)
Past(command) == IF command[1] = "release" THEN command ELSE <<command[1], command[2], Ended>>

(* R5, R6: an attempt that is not a win, and a lease at its end, are released on all nodes. *)
Release(c) ==
    /\ phase[c] /= "idle"
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ LET command == <<"release", attempt[c], Ended>> IN
       line' = [line EXCEPT ![c] = [n \in Nodes |->
          LET old == [i \in DOMAIN @[n] |-> Past(@[n][i])] IN
          CASE UndoesGrantsOnly /\ phase[c] = "asking" /\ n \notin Granted(c) -> old
          [] UndoOvertakes -> <<command>> \o old
          [] OTHER -> Append(old, command)]]
    /\ stray' = [stray EXCEPT ![c] = [n \in Nodes |-> {Past(s) : s \in @[n]}]]
    /\ key' = [n \in Nodes |->
          IF key[n] /= Free /\ key[n][1] = c THEN <<c, key[n][2], Ended>> ELSE key[n]]
    /\ heard' = [heard EXCEPT ![c] = Silent]
    /\ round' = [round EXCEPT ![c] = 0]
    /\ valid' = [valid EXCEPT ![c] = 0]
    /\ ended' = [ended EXCEPT ![c] = 0]
    /\ ghosts' = [n \in Nodes |-> {g \in ghosts[n] : g[1] /= c}]
    /\ UNCHANGED <<waits, attempt, used>>

(* R5: a connection is lost, with all that is under way on it. *)
Cut(c, n) ==
    /\ line[c][n] /= <<>>
    /\ used.faults < Faults
    /\ used' = [used EXCEPT !.faults = @ + 1]
    /\ stray' = [stray EXCEPT ![c][n] =
          @ \cup {s \in {line[c][n][i] : i \in DOMAIN line[c][n]} : s[1] /= "release"}]
    /\ line' = [line EXCEPT ![c][n] =
          IF LedgerForgets THEN <<>>
          ELSE LET open == SelectSeq(@, LAMBDA s : s[1] = "release") IN
               [i \in DOMAIN open |-> <<"release", open[i][2], Repeated>>]]
    /\ UNCHANGED <<key, waits, ghosts, heard, phase, attempt, round, valid, ended>>

(* What was under way is executed all the same, and its answer is lost. *)
Stray(c, n) ==
    \E s \in stray[c][n] :
        /\ \E k \in Results(c, n, s) : key' = [key EXCEPT ![n] = k]
        /\ stray' = [stray EXCEPT ![c][n] = @ \ {s}]
        /\ UNCHANGED <<waits, ghosts, line, heard, phase, attempt, round, valid, ended, used>>

(* Or it never arrives. *)
Vanish(c, n) ==
    \E s \in stray[c][n] :
        /\ stray' = [stray EXCEPT ![c][n] = @ \ {s}]
        /\ UNCHANGED <<key, waits, ghosts, line, heard, phase, attempt, round, valid, ended, used>>

Ends(keys) ==
    ended' = [c \in Clients |->
        LET mine == {k[3] : k \in {g \in keys : g[1] = c /\ Current(g)}} IN
        CHOOSE i \in mine \cup {ended[c]} : \A j \in mine \cup {ended[c]} : j <= i]

(* R3, A1: a key ends, and with it the validity of its generation. *)
Expire(n) ==
    /\ key[n] /= Free
    /\ Ends({key[n]})
    /\ key' = [key EXCEPT ![n] = Free]
    /\ UNCHANGED <<waits, ghosts, line, stray, heard, phase, attempt, round, valid, used>>

(* R12: a node loses its memory. *)
Lose(n) ==
    /\ used.faults < Faults
    /\ used' = [used EXCEPT !.faults = @ + 1]
    /\ key' = [key EXCEPT ![n] = Free]
    /\ waits' = [waits EXCEPT ![n] = ~NoQuarantine]
    /\ ghosts' = [ghosts EXCEPT ![n] =
          IF NoQuarantine THEN {} ELSE @ \cup {k \in {key[n]} : k /= Free /\ Current(k)}]
    /\ UNCHANGED <<line, stray, heard, phase, attempt, round, valid, ended>>

(* R12: the quarantine ends when all that the node has forgotten has ended. *)
Vouch(n) ==
    /\ waits[n]
    /\ IF ShortQuarantine THEN UNCHANGED ended ELSE Ends(ghosts[n])
    /\ waits' = [waits EXCEPT ![n] = FALSE]
    /\ ghosts' = [ghosts EXCEPT ![n] = {}]
    /\ UNCHANGED <<key, line, stray, heard, phase, attempt, round, valid, used>>

Next ==
    \/ \E c \in Clients : Ask(c) \/ Extend(c) \/ Win(c) \/ Release(c)
    \/ \E c \in Clients, n \in Nodes : Serve(c, n) \/ Cut(c, n) \/ Stray(c, n) \/ Vanish(c, n)
    \/ \E n \in Nodes : Expire(n) \/ Lose(n) \/ Vouch(n)

(* No key has to end, no connection to be lost, no lock to be asked for or extended. *)
Fair ==
    /\ \A c \in Clients : WF_vars(Release(c))
    /\ \A c \in Clients, n \in Nodes : WF_vars(Serve(c, n)) /\ WF_vars(Stray(c, n) \/ Vanish(c, n))

Spec == Init /\ [][Next]_vars /\ Fair

(* Without deadlock as an error: all attempts end. *)

Exclusion == \A a, b \in Clients : a /= b => ~(Believes(a) /\ Believes(b))

OnItsWay(c, n, i) == \E j \in DOMAIN line[c][n] : line[c][n][j][1] = "release" /\ line[c][n][j][2] = i

Undone ==
    \A n \in Nodes :
        LET k == key[n] IN k /= Free => Current(k) \/ OnItsWay(k[1], n, k[2])

Quiet ==
    \A c \in Clients : phase[c] = "idle" /\ \A n \in Nodes : line[c][n] = <<>> /\ stray[c][n] = {}

NoLeak == Quiet => \A n \in Nodes : key[n] = Free

Settles == <>[](Quiet /\ \A n \in Nodes : key[n] = Free)

==============================================================================
