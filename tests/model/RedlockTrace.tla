---------------------------- MODULE RedlockTrace ----------------------------
(* Whether what was recorded of one name is a behaviour of Redlock.tla.

   A trace is what clients did and what nodes executed, in their order; each
   line is a step of Redlock that has these very values, or says what must be
   true by then.  A trace is accepted if TLC can read all of it.

     <<"ask", c>>       client c asks all nodes, with a new owner value
     <<"extend", c>>    it asks for an extension
     <<"unsent", c, n>> the extension was not sent to node n, which is out of reach
     <<"win", c>>       it has won what it asked for last
     <<"until", c>>     so far it has believed that it has the lock
     <<"release", c>>   it queues its releases: of a lease, or as an undo
     <<"forget", c, n>> the time is over for which it repeats its release at n
     <<"done", c>>      nothing that concerns this attempt comes any more
     <<what, c, n, h>>  node n has executed a command that c sent: "acquire",
                        "extended", "repair" or "released"; the key is client
                        h's then, 0: it is free, -1: unknown
     <<"expire", n>>    the key has ended at node n
     <<"lose", n>>      node n has lost its memory
     <<"restart", n>>   node n has kept it, and is in quarantine all the same
     <<"vouch", n>>     its quarantine has ended

   What is not recorded is done when a line needs it, so that there is hardly
   a choice, and TLC goes straight through a trace:

     Lost    A node executes what is not the next command of that client's
             line.  On one connection nothing is skipped, so what comes before
             it left on a connection that is lost, or never left: it becomes
             stray.  That is Redlock's Cut, at the moment when the command was
             the last of its line.  Its answer counts for no later round.
     Stray   A node executes what is not in the line at all.

   A client of Redlock that has no attempt left begins another one.  Here each
   attempt of a process is a client, since a process may ask again while its
   lost lease waits for its release; it is used again after "done".

   A restart with all data is no step of Redlock.  It only takes a vote away.
   A release that finds no key of its owner changes nothing, so that it is no
   step at all: a client repeats one whose answer it did not hear. *)

EXTENDS Redlock, TLC

CONSTANT Texts  \* a sequence of traces: strings with four characters for each line, see Line

Words == [a |-> "ask", e |-> "extend", n |-> "unsent", w |-> "win", u |-> "until", r |-> "release", f |-> "forget", d |-> "done",
          A |-> "acquire", E |-> "extended", P |-> "repair", R |-> "released",
          X |-> "expire", L |-> "lose", S |-> "restart", V |-> "vouch"]

Digits == "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
Number == [d \in {SubSeq(Digits, i, i) : i \in 1..Len(Digits)} |->
              (CHOOSE i \in 1..Len(Digits) : SubSeq(Digits, i, i) = d) - 1]

(* A word, client, node and holder; strings, since TLC takes a millisecond to parse a line of another form.
   And it evaluates a definition once, but what stands for a constant each time. *)
Traces == Texts
Line(t, i) ==
    LET char(k) == SubSeq(Traces[t], 4 * i - 4 + k, 4 * i - 4 + k)
    IN [what |-> Words[char(1)], c |-> Number[char(2)], n |-> Number[char(3)], holder |-> Number[char(4)]]
Lines(t) == Len(Traces[t]) \div 4

VARIABLES
    trace,  \* the number of the trace
    at,     \* the number of the next line
    owed    \* pairs of a client and a node that has executed an acquire or repair, and no release behind it (R5)

ours == <<trace, at, owed>>
all == <<vars, ours>>

TraceInit ==
    /\ Init
    /\ trace \in 1..Len(Traces)
    /\ at = 1
    /\ owed = {}

Read ==
    /\ at' = at + 1
    /\ IF at = Lines(trace) THEN PrintT(<<"accepted", trace>>) ELSE TRUE
    /\ UNCHANGED trace

Unknown == Number["Z"]
HolderOf(k) == IF k = Free THEN 0 ELSE k[1]

Lost(c, n) ==
    /\ Head(line[c][n])[1] /= "release"
    /\ stray' = [stray EXCEPT ![c][n] = @ \cup {Head(line[c][n])}]
    /\ line' = [line EXCEPT ![c][n] = Tail(@)]
    /\ UNCHANGED <<key, waits, ghosts, heard, phase, attempt, round, valid, ended, used, ours>>

Oldest(c, n, what) ==
    {s \in stray[c][n] : s[1] = what /\ \A other \in stray[c][n] : other[1] = what => s[3] <= other[3]}

(* Of several extensions in the line, some may be lost.  What is executed now
   lives for as long as the last of them would give it, and so it is taken for
   that one, and those that follow it for strays.  Only where the key is
   missing it matters which one asks: each may cause a repair.  Of an attempt
   that is over, all are alike. *)
Execute(what, c, n, holder) ==
    LET places == {i \in DOMAIN line[c][n] : line[c][n][i][1] = what}
        alike == phase[c] = "idle"
    IN
    \/ places \ {1} /= {} /\ (alike => 1 \notin places) /\ Lost(c, n)
    \/ /\ \/ 1 \in places /\ (key[n] /= Free /\ ~alike => places = {1}) /\ Serve(c, n)
          \/ /\ places = {}
             /\ \E s \in Oldest(c, n, what) : Stray(c, n) /\ s \notin stray'[c][n]
          \/ /\ places = {} /\ alike  \* several strays of an attempt that is over are one in the model
             /\ what = "extend" /\ Oldest(c, n, what) /= {}
             /\ UNCHANGED vars
          \/ /\ places = {}
             /\ what = "release" /\ phase[c] = "idle"
             /\ HolderOf(key[n]) /= c
             /\ UNCHANGED vars
       /\ holder \in {Unknown, HolderOf(key'[n])}
       /\ owed' = CASE what \in Creates -> owed \cup {<<c, n>>}
                    [] what = "release" -> owed \ {<<c, n>>}
                    [] OTHER -> owed
       /\ Read

(* As in Lost: a command that the node never gets. *)
Unsent(c, n) ==
    LET places == {i \in DOMAIN line[c][n] : line[c][n][i][1] = "extend"}
        last == CHOOSE i \in places : \A j \in places : j <= i
    IN
    /\ line' = IF places = {} THEN line ELSE [line EXCEPT ![c][n] =
            SubSeq(@, 1, last - 1) \o SubSeq(@, last + 1, Len(@))]
    /\ UNCHANGED <<key, waits, ghosts, stray, heard, phase, attempt, round, valid, ended, used>>

(* R5: all that was undone is undone.  What is stray vanishes, and releases that are repeated find nothing. *)
Done(c) ==
    /\ phase[c] = "idle"
    /\ \A n \in Nodes : <<c, n>> \notin owed /\ HolderOf(key[n]) /= c
    /\ line' = [line EXCEPT ![c] = [n \in Nodes |-> <<>>]]
    /\ stray' = [stray EXCEPT ![c] = [n \in Nodes |-> {}]]
    /\ UNCHANGED <<key, waits, ghosts, heard, phase, attempt, round, valid, ended, used>>

Restart(n) ==
    /\ waits' = [waits EXCEPT ![n] = TRUE]
    /\ UNCHANGED <<key, ghosts, line, stray, heard, phase, attempt, round, valid, ended, used>>

Step(now) ==
    CASE now.what = "ask" -> Ask(now.c)
      [] now.what = "extend" -> Extend(now.c)
      [] now.what = "unsent" -> Unsent(now.c, now.n)
      [] now.what = "win" -> Win(now.c)
      [] now.what = "until" -> Believes(now.c) /\ UNCHANGED vars
      [] now.what = "release" -> Release(now.c)
      [] now.what = "forget" -> HolderOf(key[now.n]) /= now.c /\ UNCHANGED vars  \* R5: its key has ended
      [] now.what = "done" -> Done(now.c)
      [] now.what = "expire" -> Expire(now.n)
      [] now.what = "lose" -> Lose(now.n)
      [] now.what = "restart" -> Restart(now.n)
      [] now.what = "vouch" -> Vouch(now.n)

Commands == [acquire |-> "acquire", extended |-> "extend", repair |-> "repair", released |-> "release"]

TraceNext ==
    /\ at <= Lines(trace)
    /\ LET now == Line(trace, at) IN
       IF now.what \in DOMAIN Commands
       THEN Execute(Commands[now.what], now.c, now.n, now.holder)
       ELSE
           /\ Step(now)
           /\ owed' = IF now.what = "forget" THEN owed \ {<<now.c, now.n>>} ELSE owed
           /\ Read

TraceSpec == TraceInit /\ [][TraceNext]_all

==============================================================================
