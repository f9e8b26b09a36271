------------------------------ MODULE ReadWrite ------------------------------
(* Read-write locks on a quorum of Redis nodes: rules R20, R21 and R23.

   Semaphore.tla says how to read a model, how a connection is modelled
   (`line`), why answers are never lost here, and why there are no clocks: a
   key may end at any moment, and from then on its client neither wins nor
   believes to hold the lock (`late`).

   What is modelled.  Each node has the lock's key: a writer's owner value
   (`writer`), or the set of readers (`readers`), and beside it the counter F
   (`counter`).  A client asks all nodes for reading or for writing.
     - A writer gets in where there is neither a writer nor a reader.  Its
       grant sets F to the next even number.
     - A reader gets in where there is no writer.  Its grant makes F odd, by
       one at most.
     - A grant answers F.  Q grants with one number are a certificate.  If
       they differ, the client raises the nodes below the greatest of them
       (Raise), and wins when Q nodes stand there (R10, R21).
     - A writer may become a reader of the same fence (Downgrade, R23).

   What is left out.  Ballots: they let nodes agree sooner, and here each
   disagreement is walked through.  Waiting flags and turns (R22): exclusion
   never depends on them.  Nodes that forget: Redlock.tla.

   What must hold.
     Exclusion   a writer that believes in its lock is alone
     InOrder     a fence is greater than each that a writer had won when its
                 client asked, and not smaller than those of readers; a
                 writer's is greater than these, too
     Unique      no other lease has a writer's fence
     NoLeak      when all is over, no node has a key
   Fences need no timing assumption: a client may win although a key of its
   attempt has ended.  It believes in nothing then.  *)

EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Nodes,
    Clients,
    Attempts,           \* how many attempts each client makes
    ReadsFromOne,       \* wrong: one node is enough for a reader (R20)
    ExtendsTooLong,     \* wrong: the validity goes on when keys have ended (R3)
    DowngradeFrees,     \* wrong: a downgrade removes the writer and enters no reader (R23)
    RaisesNobody,       \* wrong: the greatest answer is a reader's fence, and no node is raised to it (R21)
    TakesTheLeast,      \* wrong: the least answer is a reader's fence, whichever nodes were above (R21)
    WritersMayBeOdd,    \* wrong: a writer adds one to F (R21)
    ReadersKeepFence,   \* wrong: a reader leaves F as it is (R21)
    RaisesOthers,       \* wrong: a raise does not look at the owner (R10)
    UndoesGrantsOnly    \* wrong: nodes that have not answered are not asked to undo (R5)

Free == <<"free">>
None == <<-1, -1>>
Unheard == -1
Refused == -2
Quorum == Cardinality(Nodes) \div 2 + 1

VARIABLES
    writer,    \* writer[n]: its owner value at node n, or Free
    readers,   \* readers[n]: the owner values of readers
    counter,   \* counter[n]: F
    line,      \* line[c][n]: commands under way
    heard,     \* heard[c][n]: F as the grant answered it, Refused or Unheard
    raised,    \* raised[c]: the nodes of the certificate
    fence,     \* fence[c]: T, while nodes are raised to it
    phase,     \* phase[c]: idle, asking, raising or holding
    mode,      \* mode[c]: read or write
    attempt,   \* attempt[c]: its number
    late,      \* late[c]: whether a key of the attempt has ended
    before,    \* before[c]: the greatest fences won when it asked: of writers, of readers
    won,       \* the greatest fences won so far: of writers, of readers
    written,   \* the fences of all writers
    wrong      \* what was wrong with a win: nothing, the order, or a number given twice

vars == <<writer, readers, counter, line, heard, raised, fence, phase, mode, attempt, late, before, won, written,
          wrong>>

Owner(c) == <<c, attempt[c]>>
Believes(c) == phase[c] = "holding" /\ (~late[c] \/ ExtendsTooLong)
Needed(c) == IF mode[c] = "read" /\ ReadsFromOne THEN 1 ELSE Quorum
Largest(a, b) == IF a > b THEN a ELSE b
Even(f) == f + (f % 2)
Odd(f) == f + 1 - (f % 2)

Init ==
    /\ writer = [n \in Nodes |-> Free]
    /\ readers = [n \in Nodes |-> {}]
    /\ counter = [n \in Nodes |-> 0]
    /\ line = [c \in Clients |-> [n \in Nodes |-> <<>>]]
    /\ heard = [c \in Clients |-> [n \in Nodes |-> Unheard]]
    /\ raised = [c \in Clients |-> {}]
    /\ fence = [c \in Clients |-> 0]
    /\ phase = [c \in Clients |-> "idle"]
    /\ mode = [c \in Clients |-> "read"]
    /\ attempt = [c \in Clients |-> 0]
    /\ late = [c \in Clients |-> FALSE]
    /\ before = [c \in Clients |-> None]
    /\ won = None
    /\ written = {}
    /\ wrong = "nothing"

Send(c, nodes, command) ==
    line' = [line EXCEPT ![c] = [n \in Nodes |-> IF n \in nodes THEN Append(@[n], command) ELSE @[n]]]

Ask(c, m) ==
    /\ phase[c] = "idle"
    /\ attempt[c] < Attempts
    /\ attempt' = [attempt EXCEPT ![c] = @ + 1]
    /\ mode' = [mode EXCEPT ![c] = m]
    /\ phase' = [phase EXCEPT ![c] = "asking"]
    /\ Send(c, Nodes, <<m, <<c, attempt[c] + 1>>, 0>>)
    /\ before' = [before EXCEPT ![c] = won]
    /\ UNCHANGED <<writer, readers, counter, heard, raised, fence, late, won, written, wrong>>

(* -- the nodes ------------------------------------------------------------- *)

Answer(c, n, owner, answer) ==
    /\ heard' = IF owner = Owner(c) /\ phase[c] = "asking" THEN [heard EXCEPT ![c][n] = answer] ELSE heard
    /\ UNCHANGED raised

(* R20: a reader keeps writers out, and a writer all others. *)
GrantRead(c, n, owner) ==
    IF writer[n] = Free
    THEN LET f == IF ReadersKeepFence THEN counter[n] ELSE Odd(counter[n]) IN
         /\ readers' = [readers EXCEPT ![n] = @ \cup {owner}]
         /\ counter' = [counter EXCEPT ![n] = f]
         /\ Answer(c, n, owner, f)
         /\ UNCHANGED writer
    ELSE Answer(c, n, owner, Refused) /\ UNCHANGED <<writer, readers, counter>>

GrantWrite(c, n, owner) ==
    IF writer[n] = Free /\ readers[n] = {}
    THEN LET f == IF WritersMayBeOdd THEN counter[n] + 1 ELSE Even(counter[n] + 1) IN
         /\ writer' = [writer EXCEPT ![n] = owner]
         /\ counter' = [counter EXCEPT ![n] = f]
         /\ Answer(c, n, owner, f)
         /\ UNCHANGED readers
    ELSE Answer(c, n, owner, Refused) /\ UNCHANGED <<writer, readers, counter>>

(* R10: while a writer has the name, only the writer raises F.  R21: a reader's
   certificate takes nodes that stand at T or above while its entry lives. *)
Raise(c, n, owner, t) ==
    LET able == \/ RaisesOthers
                \/ writer[n] = owner /\ counter[n] <= t
                \/ owner \in readers[n]
    IN
    /\ counter' = [counter EXCEPT ![n] = IF able THEN Largest(@, t) ELSE @]
    /\ raised' = IF able /\ owner = Owner(c) /\ phase[c] = "raising"
                 THEN [raised EXCEPT ![c] = @ \cup {n}]
                 ELSE raised
    /\ UNCHANGED <<writer, readers, heard>>

(* R23: one command, so no other writer gets in between. *)
Weaken(n, owner) ==
    /\ writer' = [writer EXCEPT ![n] = IF @ = owner THEN Free ELSE @]
    /\ readers' = [readers EXCEPT ![n] = IF writer[n] = owner /\ ~DowngradeFrees THEN @ \cup {owner} ELSE @]
    /\ UNCHANGED <<counter, heard, raised>>

Remove(n, owner) ==
    /\ writer' = [writer EXCEPT ![n] = IF @ = owner THEN Free ELSE @]
    /\ readers' = [readers EXCEPT ![n] = @ \ {owner}]
    /\ UNCHANGED <<counter, heard, raised>>

Serve(c, n) ==
    /\ line[c][n] /= <<>>
    /\ line' = [line EXCEPT ![c][n] = Tail(@)]
    /\ LET command == Head(line[c][n])
           owner == command[2]
       IN CASE command[1] = "read" -> GrantRead(c, n, owner)
            [] command[1] = "write" -> GrantWrite(c, n, owner)
            [] command[1] = "raise" -> Raise(c, n, owner, command[3])
            [] command[1] = "weaken" -> Weaken(n, owner)
            [] OTHER -> Remove(n, owner)
    /\ UNCHANGED <<fence, phase, mode, attempt, late, before, won, written, wrong>>

(* -- the verdict ----------------------------------------------------------- *)

Granted(c) == {n \in Nodes : heard[c][n] >= 0}
Fences(c) == {heard[c][n] : n \in Granted(c)}
Top(c) == CHOOSE f \in Fences(c) : \A g \in Fences(c) : g <= f
Bottom(c) == CHOOSE f \in Fences(c) : \A g \in Fences(c) : g >= f
At(c, t) == {n \in Granted(c) : heard[c][n] = t}

(* What is not needed any more is forgotten: fewer states differ. *)
Forget(c) ==
    /\ heard' = [heard EXCEPT ![c] = [n \in Nodes |-> Unheard]]
    /\ raised' = [raised EXCEPT ![c] = {}]
    /\ fence' = [fence EXCEPT ![c] = 0]
    /\ before' = [before EXCEPT ![c] = None]

(* The lease begins, with fence t. *)
Begins(c, t) ==
    /\ phase' = [phase EXCEPT ![c] = "holding"]
    /\ Forget(c)
    /\ IF mode[c] = "write"
       THEN /\ won' = <<Largest(won[1], t), won[2]>>
            /\ written' = written \cup {t}
       ELSE /\ won' = <<won[1], Largest(won[2], t)>>
            /\ UNCHANGED written
    /\ wrong' = CASE t \in written -> "twice"
                  [] t <= before[c][1] -> "order"
                  [] t < before[c][2] -> "order"
                  [] mode[c] = "write" /\ t = before[c][2] -> "order"
                  [] OTHER -> wrong

(* All is as in the usual case: Q nodes granted with one number. *)
Win(c) ==
    /\ phase[c] = "asking"
    /\ Cardinality(Granted(c)) >= Needed(c)
    /\ LET t == IF mode[c] = "read" /\ TakesTheLeast THEN Bottom(c) ELSE Top(c)
           enough == mode[c] = "read" /\ (RaisesNobody \/ TakesTheLeast \/ ReadsFromOne)
       IN /\ enough \/ Cardinality(At(c, t)) >= Needed(c)
          /\ Begins(c, t)
    /\ UNCHANGED <<writer, readers, counter, line, mode, attempt, late>>

(* The numbers differ: raise the nodes below the greatest.  A writer also
   raises those that have not answered, since it is queued behind the grant
   (R15); a reader cannot count these (R21). *)
Disagree(c) ==
    /\ phase[c] = "asking"
    /\ Cardinality(Granted(c)) >= Quorum
    /\ Cardinality(At(c, Top(c))) < Quorum
    /\ phase' = [phase EXCEPT ![c] = "raising"]
    /\ fence' = [fence EXCEPT ![c] = Top(c)]
    /\ raised' = [raised EXCEPT ![c] = At(c, Top(c))]
    /\ LET below == Granted(c) \ At(c, Top(c))
           silent == IF mode[c] = "write" THEN {n \in Nodes : heard[c][n] = Unheard} ELSE {}
       IN Send(c, below \cup silent, <<"raise", Owner(c), Top(c)>>)
    /\ UNCHANGED <<writer, readers, counter, heard, mode, attempt, late, before, won, written, wrong>>

WinRaised(c) ==
    /\ phase[c] = "raising"
    /\ Cardinality(raised[c]) >= Quorum
    /\ Begins(c, fence[c])
    /\ UNCHANGED <<writer, readers, counter, line, mode, attempt, late>>

(* R23: at once in this process, on the nodes when they execute it. *)
Downgrade(c) ==
    /\ phase[c] = "holding"
    /\ mode[c] = "write"
    /\ mode' = [mode EXCEPT ![c] = "read"]
    /\ Send(c, Nodes, <<"weaken", Owner(c), 0>>)
    /\ UNCHANGED <<writer, readers, counter, heard, raised, fence, phase, attempt, late, before, won, written, wrong>>

(* R5, R6: an attempt that did not win is undone everywhere, as a lease is released. *)
Leave(c) ==
    /\ phase[c] /= "idle"
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ mode' = [mode EXCEPT ![c] = "read"]
    /\ late' = [late EXCEPT ![c] = FALSE]
    /\ Forget(c)
    /\ Send(c, IF UndoesGrantsOnly THEN {n \in Nodes : heard[c][n] /= Unheard} ELSE Nodes, <<"release", Owner(c), 0>>)
    /\ UNCHANGED <<writer, readers, counter, attempt, won, written, wrong>>

(* R3, A1: a key, or a reader's entry, ends (R20: each reader's by itself). *)
Expire(n, owner) ==
    /\ writer[n] = owner \/ owner \in readers[n]
    /\ writer' = [writer EXCEPT ![n] = IF @ = owner THEN Free ELSE @]
    /\ readers' = [readers EXCEPT ![n] = @ \ {owner}]
    /\ late' = [late EXCEPT ![owner[1]] = @ \/ (owner = Owner(owner[1]) /\ phase[owner[1]] /= "idle")]
    /\ UNCHANGED <<counter, line, heard, raised, fence, phase, mode, attempt, before, won, written, wrong>>

Next ==
    \/ \E c \in Clients, m \in {"read", "write"} : Ask(c, m)
    \/ \E c \in Clients, n \in Nodes : Serve(c, n)
    \/ \E c \in Clients : Win(c) \/ Disagree(c) \/ WinRaised(c) \/ Downgrade(c) \/ Leave(c)
    \/ \E n \in Nodes, c \in Clients, k \in 1..Attempts : Expire(n, <<c, k>>)

Spec == Init /\ [][Next]_vars

Exclusion ==
    \A a, b \in Clients : a /= b /\ Believes(a) /\ Believes(b) => mode[a] = "read" /\ mode[b] = "read"

InOrder == wrong /= "order"
Unique == wrong /= "twice"

Quiet == \A c \in Clients : phase[c] = "idle" /\ \A n \in Nodes : line[c][n] = <<>>
NoLeak == Quiet => \A n \in Nodes : writer[n] = Free /\ readers[n] = {}

==============================================================================
