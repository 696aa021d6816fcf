---------------------------- MODULE floors_replay ----------------------------
(***************************************************************************)
(* Behaviours of floors.tla, for tests/sql/test_replays.py. Two things are *)
(* finer here. RECEIVE takes the oldest message that nobody holds; each is *)
(* of a group of its own. And a state says what each session sees that is  *)
(* not within raise_floors: its messages, and of the newest row number,    *)
(* floor, decided, horizon, and how many senders.                          *)
(***************************************************************************)
EXTENDS floors, behaviours, FiniteSets

RECURSIVE Marks(_, _)
Marks(ids, id) == IF id > LastId THEN "" ELSE (IF id \in ids THEN "1" ELSE "0") \o Marks(ids, id + 1)

Sight(who) ==
    LET row == Newest(who)
    IN Marks(Seen(who), 1) \o "," \o ToString(row.number) \o "," \o ToString(row.floor) \o "," \o ToString(row.decided)
        \o "," \o ToString(row.horizon) \o "," \o ToString(Cardinality(row.senders))
OfReader(r) == IF raiser[r].step = "idle" THEN Sight(r) ELSE "-"
State == ToString(lastId) \o " " \o Sight(None) \o " " \o OfReader("r1") \o " " \o OfReader("r2")

Takes(r) ==
    LET left == {id \in Seen(r) : place[id] = "here" /\ id >= Newest(r).floor}
    IN left /= {} /\ Receive(r) /\ place'[Lowest(left)] = "received" /\ Note("receive " \o r \o " " \o ToString(Lowest(left)), State')

ReplayNext ==
    \/ \E s \in Senders :
        \/ Send(s) /\ Note("send " \o s, State')
        \/ EndSend(s, TRUE) /\ Note("commit " \o s, State')
        \/ EndSend(s, FALSE) /\ Note("rollback " \o s, State')
    \/ Move /\ Note("move mover", State')
    \/ (Announce \/ Reset) /\ Note("step mover", State')
    \/ EndMove(TRUE) /\ Note("commit mover", State')
    \/ EndMove(FALSE) /\ Note("rollback mover", State')
    \/ \E r \in Readers :
        \/ Takes(r)
        \/ EndReceive(r, TRUE) /\ Note("commit " \o r, State')
        \/ EndReceive(r, FALSE) /\ Note("rollback " \o r, State')
        \/ Begin(r) /\ Note("raise " \o r, State')
        \/ (TakeNumber(r) \/ ReadLast(r) \/ Look(r) \/ ReadBase(r) \/ ReadAgain(r) \/ Search(r)) /\ Note("step " \o r, State')

ReplaySpec == Init /\ NothingNoted /\ [][ReplayNext]_<<vars, trace, actions>>
=============================================================================
