------------------------------ MODULE Election ------------------------------
(* What observers of an election report: rules R31 and R32, with R10 and R12.

   Semaphore.tla says what a reader needs to know of TLA+.

   What is modelled.
     - Candidates compete for a lock.  `key[n]` is its key at node n: of a
       candidate's attempt or leadership of now, or Free.  A node grants the
       free lock at any moment (Grant), and Q grants may win (Win).  An
       attempt is given up, and a leader resigns or is lost, at any moment
       (Stop), and has no key left: where a release is late, that is for all
       others like the key of a candidate that does not win.
     - `leaders[t]` won term t.  Terms are 1, 2 and so on, in the order in
       which they were won: that is all that R10 says of fences.
     - `announced[n]` is the announcement that node n keeps: a term and its
       leader.  It may receive that of any term that was won, at any moment
       since, again, or never (Announce).  So announcements that are lost,
       that are late, and that extensions repeat are all there.  Nodes keep
       the greatest, so the order of announcements is of no importance.
     - The observer looks at one node after the other, and each shows what it
       has at that moment (Look).  When Q nodes with a vote have answered, it
       may decide, or wait for one more (Decide).  A read begins with its
       first look and ends with its last one: what may happen between the
       question and the first look, or after the last one, is the same as if
       it happened before or after the read.  A read to which too few nodes
       answer is left out: it changes nothing.  `newest`, `ended` and `free`
       are those of `Seen` in _core/election.py.  A single call of `leader()`
       is like the first read.
     - A node may lose its memory (Lose).  It has no vote then, grants
       nothing, and takes repairs and announcements all the same, until the
       quarantine ends (Vouch, R12).

   The lock.  Redlock.tla shows, with extensions and their times, what is only
   said here.  A leader leads while Q nodes support it: nodes with a vote that
   have its key, and nodes in quarantine that had a vote and its key when they
   forgot (`ghosts`).  A key may end at any moment (Expire).  If fewer than Q
   nodes are left, the leader leads no more.  Else the others' keys were
   extended and this one was not.  Where its key is missing, a repair or a
   late acquire may set it (Repair).  A candidate that has not won extends
   nothing: when one of its keys ends, its attempt is over.  A leader that
   stands still past its validity does not lead.

   Time.  A node keeps an announcement for a ttl at least, and a leader
   announces again with each extension.  So what fades (Fade) is of a term
   that is over.  The quarantine is a ttl at least.  So a leader that leads
   when it ends has announced again since the node forgot; whether that has
   arrived is left open.  What R32 promises of a leader that is known holds
   for this one: when the read begins, Q nodes have its announcement, or had
   it and are in quarantine (`owes`).  Unless one of the latter comes back
   during the read without having received it again: then the Q nodes must
   all have it.  For a read is much shorter than a quarantine.

   Before the observer reports that there is no leader it reads twice within a
   ttl.  A node that shows no lock both times had none in between: a key that
   was set after the first look does not end before the second one, nor does a
   quarantine that began after it; and where a key is released, the term is
   over.  So a read here is the second one, and a node shows no lock if it has
   none now, and had a vote and none when the read began (`empty`).

   The bound.  Events is how many terms are won and memories are lost,
   together.  When they are used up, no node grants anything any more.

   What is left out.  The report that nothing is known, after a ttl without Q
   votes: it claims nothing, and terms grow across it.  Notifications: a read
   may begin at any moment.  A process that hands its lock off (R43) is like
   one candidate that wins again at once.  A candidate's command that arrives
   when its attempt is over is like one whose attempt is over a little later.
   A node whose answer is lost was not looked at.

   What must hold.
     Alone     the simple lock is one: nobody else can win while one leads
     Won       a leader that is reported has won that term
     Growing   reported terms never fall, and one after which "no leader" was
               reported is not reported again
     Over      a term that the observer takes for over has ended
     Vacant    when Q nodes with a vote showed no lock, no leader leads that
               led when the read began
     Known     a leader that was known when the read began, and leads when it
               ends, is reported, or a later one: so never "no leader"

   The wrong variants, each a constant that is FALSE in what ships.  *)

EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Nodes,
    Clients,         \* the candidates
    Events,          \* how many terms are won, and memories of nodes are lost, together
    FewWin,             \* wrong: half of the nodes are enough to win (R1)
    AnnouncesEarly,  \* wrong: a candidate announces the term that it will have when it wins (R31)
    AnnouncesOnce,   \* wrong: a node that has lost an announcement does not get it again (R31)
    KeepsLast,       \* wrong: a node keeps the last announcement, not the greatest (R31)
    BelievesOwners,  \* wrong: who has the key on Q nodes is believed to lead (R32)
    OneDecides,      \* wrong: the observer decides when one node with a vote has answered (R32)
    OneIsFree,       \* wrong: one node that shows no lock is enough for "no leader" (R32)
    MuteCount,       \* wrong: nodes in quarantine have a vote for the observer (R12)
    Forgets,         \* wrong: the observer goes by the announcements of its last read alone (R32)
    ForgetsEnd,      \* wrong: it does not remember which terms are over (R32)
    EndsUnread,      \* wrong: a term is over although Q nodes were looked at before it was won (R32)
    ReadsOnce        \* wrong: a node that shows no lock once is enough (R32)

Free == "free"
Nobody == "nobody"
Nothing == <<0, Nobody>>
Quorum == Cardinality(Nodes) \div 2 + 1
Numbers == 0..(Events + 1)
Max(i, j) == IF i > j THEN i ELSE j
Greatest(S) == CHOOSE i \in S : \A j \in S : j <= i
Later(x, y) == IF y[1] > x[1] THEN y ELSE x

VARIABLES
    key,        \* key[n]: a client, or Free
    waits,      \* waits[n]: whether node n is in quarantine
    ghosts,     \* ghosts[n]: the clients whose keys it has forgotten, until its quarantine ends
    leaders,    \* leaders[t]: the client that won term t
    lead,       \* the client that leads, of the last term; or Nobody
    announced,  \* announced[n]: <<term, client>>, or Nothing
    owes,       \* nodes in quarantine that have forgotten the announcement of the leader of now
    looks,      \* looks[n]: what node n has shown in the read of now
    empty,      \* the nodes with a vote that had no key when that read began
    hearing,    \* the greatest announcement of this read
    newest,     \* the greatest announcement that the observer has heard of
    ended,      \* terms up to this one are over, as it believes
    free,       \* whether Q nodes with a vote showed no lock in its last read
    least,      \* what it reports next may not be less
    since,      \* whether somebody led when the read of now began who leads still, and was known:
                \* "nothing", "led", "owed" (known unless a quarantine ends), or "known"
    broken,     \* what the last read should have shown, and has not
    losses      \* memories that were lost so far

lock == <<key, waits, ghosts, losses>>
election == <<leaders, lead, owes>>
seen == <<newest, ended, free, least, broken>>
read == <<looks, empty, hearing>>
vars == <<lock, election, announced, read, seen, since>>

Unheard == <<"unheard", 0>>
Unread == [n \in Nodes |-> Unheard]

Init ==
    /\ key = [n \in Nodes |-> Free]
    /\ waits = [n \in Nodes |-> FALSE]
    /\ ghosts = [n \in Nodes |-> {}]
    /\ leaders = <<>>
    /\ lead = Nobody
    /\ announced = [n \in Nodes |-> Nothing]
    /\ owes = {}
    /\ looks = Unread
    /\ empty = {}
    /\ hearing = Nothing
    /\ newest = Nothing
    /\ ended = 0
    /\ free = FALSE
    /\ least = 1
    /\ since = "nothing"
    /\ broken = {}
    /\ losses = 0

Term == Len(leaders)
More == Term + losses < Events
Support(c) == {n \in Nodes : (key[n] = c /\ ~waits[n]) \/ c \in ghosts[n]}

(* R12: a free node grants the lock, if it has a vote. *)
Grant(c, n) ==
    /\ lead /= c
    /\ More
    /\ key[n] = Free
    /\ ~waits[n]
    /\ key' = [key EXCEPT ![n] = c]
    /\ UNCHANGED <<waits, ghosts, losses, election, announced, read, seen, since>>

CanWin(c) == lead /= c /\ Cardinality(Support(c)) >= (IF FewWin THEN Quorum - 1 ELSE Quorum)

(* R1, R10: Q grants win, and the next term. *)
Win(c) ==
    /\ CanWin(c)
    /\ More
    /\ leaders' = Append(leaders, c)
    /\ lead' = c
    /\ UNCHANGED <<lock, owes, announced, read, seen, since>>

(* What follows when attempts and leaderships of clients are over. *)
End(who) ==
    /\ lead' = IF lead \in who THEN Nobody ELSE lead
    /\ since' = IF lead \in who THEN "nothing" ELSE since
Kept(keys, who) == [n \in Nodes |-> IF keys[n] \in who THEN Free ELSE keys[n]]

(* R6: a leader resigns or is lost, or an attempt is given up. *)
Stop(c) ==
    /\ Support(c) /= {}
    /\ End({c})
    /\ key' = Kept(key, {c})
    /\ ghosts' = [n \in Nodes |-> ghosts[n] \ {c}]
    /\ owes' = IF lead = c THEN {} ELSE owes
    /\ UNCHANGED <<waits, losses, leaders, announced, read, seen>>

(* R9: the key of a leader is set where it is missing. *)
Repair(n) ==
    /\ lead /= Nobody
    /\ key[n] = Free
    /\ key' = [key EXCEPT ![n] = lead]
    /\ UNCHANGED <<waits, ghosts, losses, election, announced, read, seen, since>>

(* R3: who is over when a key or a ghost at node n ends, of which `left` is left. *)
Losers(c, left) == IF c = lead /\ Cardinality(left) >= Quorum THEN {} ELSE {c}

(* What node n has in this read, and did not have when it began, lasts longer: see Time. *)
Timely(n) == ReadsOnce \/ looks = Unread \/ n \notin empty

(* A key ends. *)
Expire(n) ==
    /\ key[n] /= Free
    /\ Timely(n)
    /\ LET c == key[n]
           who == Losers(c, Support(c) \ (IF c \in ghosts[n] THEN {} ELSE {n}))
       IN
       /\ End(who)
       /\ key' = Kept([key EXCEPT ![n] = Free], who)
       /\ ghosts' = [m \in Nodes |-> ghosts[m] \ who]
       /\ owes' = IF lead \in who THEN {} ELSE owes
    /\ UNCHANGED <<waits, losses, leaders, announced, read, seen>>

(* R12: a node loses its memory. *)
Lose(n) ==
    /\ More
    /\ losses' = losses + 1
    /\ key' = [key EXCEPT ![n] = Free]
    /\ ghosts' = [ghosts EXCEPT ![n] = @ \cup IF waits[n] THEN {} ELSE {key[n]} \cap Clients]
    /\ waits' = [waits EXCEPT ![n] = TRUE]
    /\ announced' = [announced EXCEPT ![n] = Nothing]
    /\ LET had == lead /= Nobody /\ announced[n][1] >= Term IN
       /\ owes' = IF had THEN owes \cup {n} ELSE owes
       /\ since' = IF had /\ since = "known" THEN "owed" ELSE since
    /\ UNCHANGED <<leaders, lead, read, seen>>

(* R12: the quarantine ends, when all has ended that the node has forgotten. *)
Vouch(n) ==
    /\ waits[n]
    /\ Timely(n)
    /\ LET who == UNION {Losers(c, {m \in Support(c) : m /= n \/ key[n] = c}) : c \in ghosts[n]} IN
       /\ waits' = [waits EXCEPT ![n] = FALSE]
       /\ key' = Kept(key, who)
       /\ ghosts' = [m \in Nodes |-> IF m = n THEN {} ELSE ghosts[m] \ who]
       /\ lead' = IF lead \in who THEN Nobody ELSE lead
       /\ owes' = IF lead \in who THEN {} ELSE IF AnnouncesOnce THEN owes ELSE owes \ {n}
       /\ since' = CASE lead \in who -> "nothing"
                   [] since = "owed" /\ n \in owes /\ ~AnnouncesOnce -> "led"
                   [] OTHER -> since
    /\ UNCHANGED <<losses, leaders, announced, read, seen>>

(* R31: what leaders announce, when they have won. *)
Announcements ==
    {<<t, leaders[t]>> : t \in 1..Term}
    \cup IF AnnouncesEarly
         THEN {<<Term + 1, c>> : c \in {d \in Clients : d /= lead /\ Support(d) /= {}}}
         ELSE {}

(* R31: a node receives an announcement. *)
Announce(n) ==
    \E a \in Announcements :
        /\ a[1] > announced[n][1] \/ (KeepsLast /\ a /= announced[n])
        /\ ~(AnnouncesOnce /\ n \in owes)
        /\ announced' = [announced EXCEPT ![n] = a]
        /\ owes' = IF a[1] >= Term THEN owes \ {n} ELSE owes
        /\ UNCHANGED <<lock, leaders, lead, read, seen, since>>

(* R31: an announcement is not kept for ever. *)
Fade(n) ==
    /\ announced[n] /= Nothing
    /\ lead = Nobody \/ announced[n][1] < Term
    /\ announced' = [announced EXCEPT ![n] = Nothing]
    /\ UNCHANGED <<lock, election, read, seen, since>>

Knows == {n \in Nodes : announced[n][1] >= Term}

(* What `since` is in the read of now: with the first look, it is found out. *)
Found ==
    CASE looks /= Unread -> since
    [] lead = Nobody -> "nothing"
    [] Cardinality(Knows) >= Quorum -> "known"
    [] Cardinality(Knows \cup owes) >= Quorum -> "owed"
    [] OTHER -> "led"

(* R32, R12: nodes with a vote that had no key in the reading before. *)
Empty == CASE ReadsOnce -> Nodes
         [] looks /= Unread -> empty
         [] OTHER -> {n \in Nodes : key[n] = Free /\ (~waits[n] \/ MuteCount)}

(* What node n shows.  If it shows no lock: terms up to which one had been won by then, for certain. *)
Shown(n) ==
    CASE waits[n] /\ ~MuteCount -> <<"mute", 0>>
    [] key[n] = Free /\ n \in Empty -> <<"free", Max(newest[1], announced[n][1])>>
    [] OTHER -> <<"held", IF BelievesOwners /\ key[n] /= Free THEN key[n] ELSE 0>>
Looked(n) == [looks EXCEPT ![n] = Shown(n)]
Hears(n) == Later(hearing, announced[n])

(* R32: the observer looks at a node, and waits for others. *)
Look(n) ==
    /\ looks[n] = Unheard
    /\ looks' = Looked(n)
    /\ empty' = Empty \ {n}  \* what becomes of it later does not matter
    /\ \E m \in Nodes : looks'[m] = Unheard
    /\ hearing' = Hears(n)
    /\ since' = Found
    /\ UNCHANGED <<lock, election, announced, seen>>

Report(heard, over, vacant) == IF vacant \/ heard[1] <= over THEN Nothing ELSE heard
Told == Report(newest, ended, free)

Voters(shown) == {n \in Nodes : shown[n][1] \in {"free", "held"}}
Owners(shown) == {c \in Clients : Cardinality({n \in Nodes : shown[n] = <<"held", c>>}) >= Quorum}
UpTo(shown, t) == {n \in Nodes : shown[n][1] = "free" /\ shown[n][2] >= t}

(* R32: with the answer of node n, Q nodes with a vote have answered, and it
   waits for no more.  What it makes of the answers. *)
Decide(n) ==
    /\ looks[n] = Unheard
    /\ Cardinality(Voters(Looked(n))) >= IF OneDecides THEN 1 ELSE Quorum
    /\ LET shown == Looked(n)
           few == IF OneIsFree THEN 1 ELSE Quorum
           vacant == Cardinality(UpTo(shown, 0)) >= few
           heard == CASE BelievesOwners /\ Owners(shown) /= {} ->
                           LET c == CHOOSE o \in Owners(shown) : TRUE IN
                           <<IF c = lead THEN Term ELSE Term + 1, c>>
                    [] Forgets -> Hears(n)
                    [] OTHER -> Later(newest, Hears(n))
           over == CASE ~vacant -> 0
                   [] EndsUnread -> heard[1]
                   [] OTHER -> Greatest({t \in Numbers : Cardinality(UpTo(shown, t)) >= few})
           past == IF ForgetsEnd THEN 0 ELSE Max(ended, over)
           told == Report(heard, past, vacant)
       IN
       /\ newest' = heard
       /\ ended' = past
       /\ free' = vacant
       /\ least' = CASE told /= Nothing -> Max(least, told[1])
                   [] Told /= Nothing -> Max(least, Told[1] + 1)
                   [] OTHER -> least
       /\ broken' = (IF vacant /\ Found /= "nothing" THEN {"Vacant"} ELSE {})
              \cup IF told[1] < Term /\ Found \in {"known", "owed"} THEN {"Known"} ELSE {}
    /\ looks' = Unread
    /\ empty' = {}
    /\ hearing' = Nothing
    /\ since' = "nothing"
    /\ UNCHANGED <<lock, election, announced>>

Next ==
    \/ \E c \in Clients : Win(c) \/ Stop(c)
    \/ \E c \in Clients, n \in Nodes : Grant(c, n)
    \/ \E n \in Nodes : Repair(n) \/ Expire(n) \/ Lose(n) \/ Vouch(n)
    \/ \E n \in Nodes : Announce(n) \/ Fade(n) \/ Look(n) \/ Decide(n)

Spec == Init /\ [][Next]_vars

(* Without deadlock as an error: all terms end. *)

Alone == \A c \in Clients : CanWin(c) => lead = Nobody

Won == Told /= Nothing => Told[1] <= Term /\ Told[2] = leaders[Told[1]]

Growing == Told /= Nothing => Told[1] >= least

Over == lead /= Nobody => ended < Term

Vacant == "Vacant" \notin broken

Known == "Known" \notin broken

==============================================================================
