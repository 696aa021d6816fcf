-------------------------- MODULE sleeping_replay --------------------------
(***************************************************************************)
(* Behaviours of sleeping.tla, for tests/sql/test_replays.py. COMMIT is    *)
(* one action here, as nobody stops PostgreSQL within it. A sleeper that   *)
(* looks where messages wait is an action too: it finds them.              *)
(***************************************************************************)
EXTENDS sleeping, behaviours

Bit(holds) == IF holds THEN "1" ELSE "0"
\* Of a session at a gate nobody knows what has arrived.
OfSleeper(r) == IF sleeper[r] \in {"looked", "locked"} THEN "-" ELSE Bit(listens[r]) \o Bit(isNotified[r])
State ==
    ToString(waiting) \o " " \o heldBy \o " " \o Bit("s1" \in sharedBy) \o Bit("s2" \in sharedBy)
        \o " " \o OfSleeper("r1") \o " " \o OfSleeper("r2")

CommitAtOnce(s) ==
    /\ sender[s] = "tried"
    /\ sender' = [sender EXCEPT ![s] = "idle"]
    /\ sent' = [sent EXCEPT ![s] = @ + 1]
    /\ waiting' = waiting + 1
    /\ sharedBy' = sharedBy \ {s}
    /\ notifies' = [notifies EXCEPT ![s] = FALSE]
    /\ isNotified' = [r \in Sleepers |-> isNotified[r] \/ (notifies[s] /\ listens[r])]
    /\ UNCHANGED <<heldBy, sleeper, listens, crashes>>

Finds(r) == sleeper[r] = "awake" /\ listens[r] /\ waiting > 0 /\ UNCHANGED vars

ReplayNext ==
    \/ \E s \in Senders :
        \/ Insert(s) /\ Note("insert " \o s, State')
        \/ NoteArrival(s) /\ Note("step " \o s, State')
        \/ CommitAtOnce(s) /\ Note("commit " \o s, State')
        \/ RollBack(s) /\ Note("rollback " \o s, State')
    \/ \E r \in Sleepers :
        \/ Listen(r) /\ Note("sleep " \o r \o " awake", State')
        \/ Look(r) /\ Note("sleep " \o r \o " looked", State')
        \/ Finds(r) /\ Note("sleep " \o r \o " awake", State')
        \/ TryLock(r) /\ Note("step " \o r \o " " \o sleeper'[r], State')
        \/ LookAgain(r) /\ Note("step " \o r \o " " \o sleeper'[r], State')
        \/ WakeUp(r) /\ Note("wake " \o r, State')
        \/ Receive(r) /\ Note("receive " \o r, State')
        \/ Crash(r) /\ Note("crash " \o r, State')

ReplaySpec == Init /\ NothingNoted /\ [][ReplayNext]_<<vars, trace, actions>>
=============================================================================
