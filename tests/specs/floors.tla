------------------------------- MODULE floors -------------------------------
(***************************************************************************)
(* Floors of a queue: message ids below which nothing is left, where a     *)
(* search may begin. It stands for sql/queue/raise_floors.sql,      *)
(* reset_floors.sql and floors_of.sql, at one precedence.                  *)
(*                                                                         *)
(* Senders take ids and commit or roll back in any order. Readers receive, *)
(* raise the floor in the same transaction, and commit or roll back. A     *)
(* mover puts one message with an old id into the queue.                   *)
(*                                                                         *)
(* Each action is one statement, in READ COMMITTED: it sees what has       *)
(* committed, and what its own transaction has done.                       *)
(***************************************************************************)
EXTENDS Integers, TLC

CONSTANTS
    Senders,
    Readers,
    LastId,       \* how many messages there are; the first is in another queue
    LastNumber,   \* how many rows of floors may be numbered
    Mutant        \* the mistake to make, or "none"

VARIABLES
    lastId,       \* the sequence queuing_order
    lastNumber,   \* the sequence floor_numbers
    place,        \* of each message: none, sent, away, moved, here, received, gone
    by,           \* of each message: who sent, moved or received it, and has not committed
    transaction,  \* of each sender: how many it has ended
    isSending,    \* of each sender: whether it keeps its lock on queuing_order
    moverAt,      \* idle, moved, announced, reset, over
    rows,         \* of queue_floors
    raiser        \* of each reader: how far it is in raising, and what it saw

vars == <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows, raiser>>

Ids == 1..LastId
Old == 1
None == "nobody"
Mover == "mover"

Lowest(set) == CHOOSE x \in set : \A y \in set : x <= y
Lower(x, y) == IF x < y THEN x ELSE y

NoFloor == [number |-> 0, floor |-> 0, decided |-> 0, horizon |-> 0, senders |-> {}, of |-> None]
Idle == [step |-> "idle", number |-> 0, last |-> 0, senders |-> {}, isReset |-> FALSE, base |-> NoFloor]

(* What a statement of this session sees.                                  *)
SeenRows(who) == {row \in rows : row.of \in {None, who}}
Newest(who) ==
    IF SeenRows(who) = {} THEN NoFloor
    ELSE CHOOSE row \in SeenRows(who) : \A other \in SeenRows(who) : other.number <= row.number
Seen(who) ==
    {id \in Ids :
        \/ place[id] = "here"
        \/ place[id] = "received" /\ by[id] /= who
        \/ place[id] = "moved" /\ by[id] = who}

Init ==
    /\ lastId = Old
    /\ lastNumber = 0
    /\ place = [id \in Ids |-> IF id = Old THEN "away" ELSE "none"]
    /\ by = [id \in Ids |-> None]
    /\ transaction = [s \in Senders |-> 0]
    /\ isSending = [s \in Senders |-> FALSE]
    /\ moverAt = "idle"
    /\ rows = {}
    /\ raiser = [r \in Readers |-> Idle]

-----------------------------------------------------------------------------
(* SEND: nextval keeps a lock on the sequence to the end of the            *)
(* transaction.                                                            *)
Send(s) ==
    /\ lastId < LastId
    /\ lastId' = lastId + 1
    /\ place' = [place EXCEPT ![lastId + 1] = "sent"]
    /\ by' = [by EXCEPT ![lastId + 1] = s]
    /\ isSending' = [isSending EXCEPT ![s] = TRUE]
    /\ UNCHANGED <<lastNumber, transaction, moverAt, rows, raiser>>

EndSend(s, commits) ==
    /\ isSending[s]
    /\ place' = [id \in Ids |-> IF by[id] = s THEN (IF commits THEN "here" ELSE "gone") ELSE place[id]]
    /\ by' = [id \in Ids |-> IF by[id] = s THEN None ELSE by[id]]
    /\ isSending' = [isSending EXCEPT ![s] = FALSE]
    /\ transaction' = [transaction EXCEPT ![s] = @ + 1]
    /\ UNCHANGED <<lastId, lastNumber, moverAt, rows, raiser>>

-----------------------------------------------------------------------------
(* Who puts a message with an old id into the queue, then resets.          *)
Move ==
    /\ moverAt = "idle"
    /\ place' = [place EXCEPT ![Old] = "moved"]
    /\ by' = [by EXCEPT ![Old] = Mover]
    /\ moverAt' = "moved"
    /\ UNCHANGED <<lastId, lastNumber, transaction, isSending, rows, raiser>>

\* nextval('floor_resets'): pg_locks shows it to the end of the transaction.
Announce ==
    /\ moverAt = "moved"
    /\ moverAt' = "announced"
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, rows, raiser>>

Reset ==
    /\ moverAt = "announced"
    /\ lastNumber < LastNumber
    /\ moverAt' = "reset"
    /\ lastNumber' = lastNumber + 1
    /\ rows' =
        IF Mutant = "a move resets nothing" THEN rows
        ELSE rows \cup {[NoFloor EXCEPT !.number = lastNumber + 1, !.of = Mover]}
    /\ UNCHANGED <<lastId, place, by, transaction, isSending, raiser>>

Committed(set, who) == {[row EXCEPT !.of = IF @ = who THEN None ELSE @] : row \in set}
Without(set, who) == {row \in set : row.of /= who}

EndMove(commits) ==
    /\ moverAt = "reset"
    /\ moverAt' = "over"
    /\ place' = [place EXCEPT ![Old] = IF commits THEN "here" ELSE "away"]
    /\ by' = [by EXCEPT ![Old] = None]
    /\ rows' = IF commits THEN Committed(rows, Mover) ELSE Without(rows, Mover)
    /\ UNCHANGED <<lastId, lastNumber, transaction, isSending, raiser>>

-----------------------------------------------------------------------------
(* RECEIVE takes any message from its floor on that nobody else holds.     *)
Receive(r) ==
    /\ raiser[r].step = "idle"
    /\ \E id \in Seen(r) :
        /\ place[id] = "here"
        /\ id >= Newest(r).floor
        /\ place' = [place EXCEPT ![id] = "received"]
        /\ by' = [by EXCEPT ![id] = r]
    /\ UNCHANGED <<lastId, lastNumber, transaction, isSending, moverAt, rows, raiser>>

EndReceive(r, commits) ==
    /\ raiser[r].step = "idle"
    /\ \/ \E id \in Ids : by[id] = r
       \/ \E row \in rows : row.of = r
    /\ place' = [id \in Ids |-> IF by[id] = r THEN (IF commits THEN "gone" ELSE "here") ELSE place[id]]
    /\ by' = [id \in Ids |-> IF by[id] = r THEN None ELSE by[id]]
    /\ rows' = IF commits THEN Committed(rows, r) ELSE Without(rows, r)
    /\ UNCHANGED <<lastId, lastNumber, transaction, isSending, moverAt, raiser>>

-----------------------------------------------------------------------------
(* raise_floors: its statements in their order.                            *)
Steps ==
    CASE Mutant = "the number is taken after the look" -> <<"idle", "base", "last", "look", "number", "again", "search">>
      [] Mutant = "the last id is read after the look" -> <<"idle", "number", "base", "look", "last", "again", "search">>
      [] Mutant = "the floors are read after the look" -> <<"idle", "number", "last", "look", "base", "again", "search">>
      [] OTHER -> <<"idle", "number", "base", "last", "look", "again", "search">>

After(step) ==
    LET at == CHOOSE at \in 1..7 : Steps[at] = step
    IN IF at = 7 THEN "idle" ELSE Steps[at + 1]

Begin(r) ==
    /\ raiser[r].step = "idle"
    /\ lastNumber < LastNumber
    /\ raiser' = [raiser EXCEPT ![r] = [Idle EXCEPT !.step = After("idle")]]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows>>

TakeNumber(r) ==
    /\ raiser[r].step = "number"
    /\ lastNumber < LastNumber
    /\ lastNumber' = lastNumber + 1
    /\ raiser' = [raiser EXCEPT ![r].number = lastNumber + 1, ![r].step = After("number")]
    /\ UNCHANGED <<lastId, place, by, transaction, isSending, moverAt, rows>>

ReadLast(r) ==
    /\ raiser[r].step = "last"
    /\ raiser' = [raiser EXCEPT ![r].last = lastId, ![r].step = After("last")]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows>>

\* pg_locks: who is sending, and whether anybody resets.
Look(r) ==
    /\ raiser[r].step = "look"
    /\ LET isReset == moverAt \in {"announced", "reset"} /\ Mutant /= "who resets is not looked for"
           seen == {<<s, transaction[s]>> : s \in {x \in Senders : isSending[x]}}
       IN raiser' = [raiser EXCEPT
            ![r] = IF isReset THEN Idle ELSE [@ EXCEPT !.senders = seen, !.step = After("look")]]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows>>

\* The row that this one replaces.
ReadBase(r) ==
    /\ raiser[r].step = "base"
    /\ raiser' = [raiser EXCEPT ![r].base = Newest(r), ![r].step = After("base")]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows>>

\* It must still be the newest: who reset meanwhile, and was over before the look, has left one.
\* Once all who were sending at its horizon have ended, every id up to there is decided.
ReadAgain(r) ==
    /\ raiser[r].step = "again"
    /\ LET me == raiser[r]
           old == me.base
           isReplaced == old.number /= Newest(r).number /\ Mutant /= "the floors are not read again"
           waited ==
               IF old.senders \cap me.senders = {}
               THEN [old EXCEPT
                   !.decided = IF Mutant = "the horizon is new" THEN me.last ELSE old.horizon,
                   !.horizon = me.last,
                   !.senders = me.senders]
               ELSE old
           base ==
               IF me.senders = {} \/ Mutant = "senders are not waited for"
               THEN [waited EXCEPT !.decided = me.last]
               ELSE waited
       IN raiser' = [raiser EXCEPT
            ![r] = IF isReplaced \/ old.number > me.number THEN Idle
                   ELSE [@ EXCEPT !.base = base, !.step = After("again")]]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt, rows>>

Search(r) ==
    /\ raiser[r].step = "search"
    /\ LET me == raiser[r]
           left == {id \in Seen(r) : id >= me.base.floor}
           above == me.base.decided + 1
           floor == IF left = {} THEN above ELSE Lower(Lowest(left), above)
           of == IF Mutant = "the floor outlives a rollback" THEN None ELSE r
       IN rows' = rows \cup {[me.base EXCEPT !.number = me.number, !.floor = floor, !.of = of]}
    /\ raiser' = [raiser EXCEPT ![r] = Idle]
    /\ UNCHANGED <<lastId, lastNumber, place, by, transaction, isSending, moverAt>>

-----------------------------------------------------------------------------
Next ==
    \/ \E s \in Senders : Send(s) \/ EndSend(s, TRUE) \/ EndSend(s, FALSE)
    \/ Move \/ Announce \/ Reset \/ EndMove(TRUE) \/ EndMove(FALSE)
    \/ \E r \in Readers :
        \/ Receive(r) \/ EndReceive(r, TRUE) \/ EndReceive(r, FALSE)
        \/ Begin(r) \/ TakeNumber(r) \/ ReadLast(r) \/ Look(r) \/ ReadBase(r) \/ ReadAgain(r) \/ Search(r)

Spec == Init /\ [][Next]_vars

\* Which of two readers does what makes no difference.
Symmetry == Permutations(Senders) \cup Permutations(Readers)

(* Whoever looks finds nothing below his floor: no message is lost, and    *)
(* none is overtaken by one that follows it.                               *)
NothingLeftBelow ==
    \A who \in Readers \cup {None} \cup (IF moverAt = "reset" THEN {Mover} ELSE {}) :
        \A id \in Seen(who) : id >= Newest(who).floor

(* To be violated: else the model would prove nothing.                     *)
NoFloorRises == \A row \in rows : row.floor <= Old
=============================================================================
