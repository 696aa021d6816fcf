------------------------------ MODULE sleeping ------------------------------
(***************************************************************************)
(* A sleeping sentinel misses no message. It stands for                    *)
(* conversation/sleep_on.sql and wake_up.sql, foundation/note_arrival.sql  *)
(* and wake_sleepers.sql, wake_ups/has_arrivals.sql, on one queue.       *)
(*                                                                         *)
(* A sender's transaction puts a message into the queue, tries the queue's *)
(* advisory lock, shared, and keeps it; if it can't have it, it notifies.  *)
(* COMMIT is three steps, as in PostgreSQL: what was written is visible,   *)
(* then locks are free, then notifications arrive.                         *)
(* A sleeper listens, looks, tries the lock exclusively, looks again.      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Senders,
    Sleepers,
    Sends,     \* how many messages each sender sends
    Crashes,   \* how many sessions may be lost
    Mutant     \* the mistake to make, or "none"

VARIABLES
    sender,     \* of each: idle, inserted, tried, visible, unlocked
    notifies,   \* of each: whether its transaction will notify
    sent,       \* of each: how many transactions it has ended
    sharedBy,   \* senders that hold the lock, shared
    heldBy,     \* the sleeper that holds it exclusively, or nobody
    waiting,    \* how many committed messages are in the queue
    sleeper,    \* of each: awake, looked, locked, asleep
    listens,    \* of each: whether its LISTEN has committed
    isNotified, \* of each: a notification has arrived, and was not read
    crashes

vars == <<sender, notifies, sent, sharedBy, heldBy, waiting, sleeper, listens, isNotified, crashes>>

Nobody == "nobody"

Init ==
    /\ sender = [s \in Senders |-> "idle"]
    /\ notifies = [s \in Senders |-> FALSE]
    /\ sent = [s \in Senders |-> 0]
    /\ sharedBy = {}
    /\ heldBy = Nobody
    /\ waiting = 0
    /\ sleeper = [r \in Sleepers |-> "awake"]
    /\ listens = [r \in Sleepers |-> FALSE]
    /\ isNotified = [r \in Sleepers |-> FALSE]
    /\ crashes = 0

-----------------------------------------------------------------------------
(* send.sql, deliver.sql: the INSERT.                                      *)
Insert(s) ==
    /\ sender[s] = "idle" /\ sent[s] < Sends
    /\ sender' = [sender EXCEPT ![s] = "inserted"]
    /\ UNCHANGED <<notifies, sent, sharedBy, heldBy, waiting, sleeper, listens, isNotified, crashes>>

(* note_arrival: pg_try_advisory_xact_lock_shared, else pg_notify.         *)
NoteArrival(s) ==
    /\ sender[s] = "inserted"
    /\ sender' = [sender EXCEPT ![s] = "tried"]
    /\ IF heldBy = Nobody
       THEN /\ sharedBy' = IF Mutant = "the sender gives its lock back before its commit" THEN sharedBy ELSE sharedBy \cup {s}
            /\ UNCHANGED notifies
       ELSE /\ notifies' = [notifies EXCEPT ![s] = Mutant /= "a sender that finds the lock taken tells nobody"]
            /\ UNCHANGED sharedBy
    /\ UNCHANGED <<sent, heldBy, waiting, sleeper, listens, isNotified, crashes>>

(* A sender that asks first and writes after it has given the lock back.   *)
NoteBeforeInsert(s) ==
    /\ Mutant = "the lock is looked at in a transaction before"
    /\ sender[s] = "idle" /\ sent[s] < Sends
    /\ sender' = [sender EXCEPT ![s] = "tried"]
    /\ notifies' = [notifies EXCEPT ![s] = heldBy /= Nobody]
    /\ UNCHANGED <<sent, sharedBy, heldBy, waiting, sleeper, listens, isNotified, crashes>>

Commit(s) ==
    /\ sender[s] = "tried"
    /\ sender' = [sender EXCEPT ![s] = "visible"]
    /\ waiting' = waiting + 1
    /\ UNCHANGED <<notifies, sent, sharedBy, heldBy, sleeper, listens, isNotified, crashes>>

\* What frees locks before others see what was written: what no server does, and the protocol rests on.
UnlockEarly(s) ==
    /\ Mutant = "locks are free before the commit is visible"
    /\ sender[s] = "tried" /\ s \in sharedBy
    /\ sharedBy' = sharedBy \ {s}
    /\ UNCHANGED <<sender, notifies, sent, heldBy, waiting, sleeper, listens, isNotified, crashes>>

Unlock(s) ==
    /\ sender[s] = "visible"
    /\ sender' = [sender EXCEPT ![s] = "unlocked"]
    /\ sharedBy' = sharedBy \ {s}
    /\ UNCHANGED <<notifies, sent, heldBy, waiting, sleeper, listens, isNotified, crashes>>

Notify(s) ==
    /\ sender[s] = "unlocked"
    /\ sender' = [sender EXCEPT ![s] = "idle"]
    /\ sent' = [sent EXCEPT ![s] = @ + 1]
    /\ notifies' = [notifies EXCEPT ![s] = FALSE]
    /\ isNotified' = [r \in Sleepers |-> isNotified[r] \/ (notifies[s] /\ listens[r])]
    /\ UNCHANGED <<sharedBy, heldBy, waiting, sleeper, listens, crashes>>

(* ROLLBACK, or a session that is lost: it notifies nobody.                *)
RollBack(s) ==
    /\ sender[s] \in {"inserted", "tried"}
    /\ sender' = [sender EXCEPT ![s] = "idle"]
    /\ sent' = [sent EXCEPT ![s] = @ + 1]
    /\ notifies' = [notifies EXCEPT ![s] = FALSE]
    /\ sharedBy' = sharedBy \ {s}
    /\ UNCHANGED <<heldBy, waiting, sleeper, listens, isNotified, crashes>>

-----------------------------------------------------------------------------
(* sleep_on, called the first time: LISTEN, and false.                     *)
Listen(r) ==
    /\ sleeper[r] = "awake" /\ ~listens[r]
    /\ listens' = [listens EXCEPT ![r] = TRUE]
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, heldBy, waiting, sleeper, isNotified, crashes>>

(* sleep_on: has_arrivals, before the lock.                                *)
Look(r) ==
    /\ sleeper[r] = "awake"
    /\ listens[r] \/ Mutant = "the sleeper does not listen first"
    /\ waiting = 0
    /\ sleeper' = [sleeper EXCEPT ![r] = "looked"]
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, heldBy, waiting, listens, isNotified, crashes>>

(* sleep_on: pg_try_advisory_lock; false if somebody has it.               *)
TryLock(r) ==
    /\ sleeper[r] = "looked"
    /\ LET isFree == heldBy = Nobody /\ (sharedBy = {} \/ Mutant = "the sleeper passes by those who send")
       IN /\ sleeper' = [sleeper EXCEPT ![r] = IF isFree THEN "locked" ELSE "awake"]
          /\ heldBy' = IF isFree THEN r ELSE heldBy
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, waiting, listens, isNotified, crashes>>

(* sleep_on: has_arrivals once more, then true, or the lock goes back.     *)
LookAgain(r) ==
    /\ sleeper[r] = "locked"
    /\ LET sleeps == waiting = 0 \/ Mutant = "the sleeper looks only before the lock"
       IN /\ sleeper' = [sleeper EXCEPT ![r] = IF sleeps THEN "asleep" ELSE "awake"]
          /\ heldBy' = IF sleeps THEN r ELSE Nobody
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, waiting, listens, isNotified, crashes>>

(* connection.py: it reads a notification, and wake_up gives the lock back.*)
WakeUp(r) ==
    /\ sleeper[r] = "asleep" /\ isNotified[r]
    /\ sleeper' = [sleeper EXCEPT ![r] = "awake"]
    /\ isNotified' = [isNotified EXCEPT ![r] = FALSE]
    /\ heldBy' = Nobody
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, waiting, listens, crashes>>

(* RECEIVE, by whoever is awake.                                           *)
Receive(r) ==
    /\ sleeper[r] = "awake" /\ waiting > 0
    /\ waiting' = waiting - 1
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, heldBy, sleeper, listens, isNotified, crashes>>

(* The sleeper's session ends; another begins in its place.                *)
Crash(r) ==
    /\ crashes < Crashes /\ listens[r]
    /\ crashes' = crashes + 1
    /\ sleeper' = [sleeper EXCEPT ![r] = "awake"]
    /\ listens' = [listens EXCEPT ![r] = FALSE]
    /\ isNotified' = [isNotified EXCEPT ![r] = FALSE]
    /\ heldBy' = IF heldBy = r THEN Nobody ELSE heldBy
    /\ UNCHANGED <<sender, notifies, sent, sharedBy, waiting>>

-----------------------------------------------------------------------------
Next ==
    \/ \E s \in Senders :
        Insert(s) \/ NoteArrival(s) \/ NoteBeforeInsert(s) \/ Commit(s) \/ UnlockEarly(s) \/ Unlock(s) \/ Notify(s) \/ RollBack(s)
    \/ \E r \in Sleepers :
        Listen(r) \/ Look(r) \/ TryLock(r) \/ LookAgain(r) \/ WakeUp(r) \/ Receive(r) \/ Crash(r)

Spec == Init /\ [][Next]_vars

(* Nobody sleeps beside a message that nothing will wake him for.          *)
NoLostWakeUp ==
    \A r \in Sleepers :
        sleeper[r] = "asleep" /\ waiting > 0 =>
            isNotified[r] \/ \E s \in Senders : notifies[s] /\ sender[s] \in {"visible", "unlocked"}

(* The lock is what PostgreSQL's is: the specification, not the protocol.  *)
LockIsExclusive ==
    heldBy /= Nobody => sharedBy = {} \/ Mutant = "the sleeper passes by those who send"

(* To be violated: else nobody would ever sleep, or ever be woken.         *)
NobodyIsWoken == \A r \in Sleepers : ~(sleeper[r] = "asleep" /\ isNotified[r])
=============================================================================
