---------------------------- MODULE ends_replay ----------------------------
(***************************************************************************)
(* Behaviours of ends.tla, for tests/sql/test_replays.py. Some actions are *)
(* added that change nothing: a SEND that is refused, a message that waits *)
(* for an END of its own side, a message that opens nothing. RECEIVE is    *)
(* one more: it returns what a side was given and its END has not removed. *)
(***************************************************************************)
EXTENDS ends, behaviours

VARIABLES
    unread,
    looked  \* what was refused, or waited, since an end changed anything

RECURSIVE Joined(_)
Joined(kinds) == IF kinds = <<>> THEN "" ELSE Head(kinds) \o Joined(Tail(kinds))
\* An Error comes first.
Read(kinds) ==
    IF kinds /= <<>> /\ kinds[Len(kinds)] = "X" THEN "X" \o Joined(SubSeq(kinds, 1, Len(kinds) - 1)) ELSE Joined(kinds)

Place(s, row) == Cardinality({r \in rows[s] : r.id < row.id})
Name(batch) ==
    batch.from \o ToString(batch.id) \o batch.kind \o ToString(batch.number) \o "," \o ToString(batch.acked)

Event(s, kind) == IF kind \in far[s] THEN kind ELSE ""
Closing(s) == IF closed[s] /= "no" THEN closed[s] ELSE IF IsClosed(s) THEN "acknowledged" ELSE "no"
OfSide(s) ==
    IF is[s] /= "here" THEN "-"
    ELSE localEnd[s] \o "," \o Event(s, "E") \o Event(s, "X") \o "," \o Closing(s) \o "," \o ToString(acked[s])
        \o "," \o ToString(next[s]) \o "," \o ToString(Cardinality(rows[s])) \o "," \o ToString(Len(unread[s]))
        \o "," \o (IF s = "T" /\ confirmed THEN "confirmed" ELSE "")
State == OfSide("I") \o " " \o OfSide("T")

OpensNothing(batch) ==
    LET s == Other(batch.from)
    IN is[s] /= "here" /\ ~Refused(batch, s) /\ batch.number > 0 /\ UNCHANGED vars

\* With what becomes of the messages in the queues.
Step(action, text) ==
    /\ action
    /\ looked' = IF UNCHANGED <<ends, far>> THEN looked ELSE {}
    /\ unread' = [s \in Sides |->
        IF localEnd'[s] \notin {"none", localEnd[s]} THEN <<>>
        ELSE unread[s] \o SubSeq(got'[s], Len(got[s]) + 1, Len(got'[s]))]
    /\ Note(text, State')
Look(text) == text \notin looked /\ looked' = looked \cup {text} /\ UNCHANGED <<vars, unread>> /\ Note(text, State)

\* Some only now and then: else most behaviours would soon be over.
Does ==
    \/ \E s \in Sides :
        \/ Step(BeginSend(s), "send " \o s)
        \/ Step(CommitSend(s), "commit " \o s)
        \/ net /= {} /\ Step(SendEnd(s, "E"), "end " \o s)
        \/ actions % 3 = 0 /\ Step(SendEnd(s, "X"), "error " \o s)
        \/ (s = "T" \/ sent[s] > 0) /\ Step(CloseSide(s), "end " \o s)
        \/ actions > 12 /\ actions % 4 = 0 /\ Step(CleanUp(s), "cleanup " \o s)
        \/ Step(Close(s), "close " \o s)
        \/ Step(Sweep(s), "sweep " \o s)
        \/ \E row \in rows[s] :
            /\ Batch(s, row) \notin net
            /\ Step(Take(s) /\ net' = net \cup {Batch(s, row)}, "take " \o s \o " " \o ToString(Place(s, row)) \o " " \o Name(Batch(s, row)))
        \/ /\ rows[s] /= {} /\ ~MayLeave(s)
           /\ Look("wait " \o s)
        \/ /\ is[s] /= "none" /\ ~IsOpen(s) /\ ~sending[s]
           /\ Look("refuse " \o s)
        \/ /\ unread[s] /= <<>> /\ ~sending[s]
           /\ unread' = [unread EXCEPT ![s] = <<>>]
           /\ UNCHANGED <<vars, looked>>
           /\ Note("receive " \o s \o " " \o Read(unread[s]), State')
    \/ \E batch \in net :
        \/ Step(Arrive(batch), "arrive " \o Name(batch) \o " " \o
               (IF Refused(batch, Other(batch.from)) THEN "gone"
                ELSE IF Torn(batch, Other(batch.from)) THEN "torn" ELSE ToString(next'[Other(batch.from)])))
        \/ Step(OpensNothing(batch), "arrive " \o Name(batch) \o " 0")
    \/ \E answer \in answers :
        Step(Settle(answer), "settle " \o Name(answer.batch) \o " " \o
            (IF answer.next = Gone THEN "gone" ELSE ToString(answer.next)))

\* No further than a second conversation; or nothing is on its way any more, and nobody is there to begin.
IsOver ==
    \/ openings > 1 \/ actions = Actions - 1
    \/ is["I"] /= "here" /\ net = {} /\ answers = {} /\ rows["T"] = {}
Rest ==
    /\ actions < Actions /\ actions' = Actions
    /\ trace' = trace \o "rest: " \o State \o ";"
    /\ UNCHANGED <<vars, unread, looked>>
ReplayNext == IF IsOver THEN Rest ELSE Does

ReplaySpec == Init /\ unread = Each(<<>>) /\ looked = {} /\ NothingNoted /\ [][ReplayNext]_<<vars, unread, looked, trace, actions>>
=============================================================================
