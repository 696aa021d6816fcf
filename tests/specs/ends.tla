------------------------------- MODULE ends --------------------------------
(***************************************************************************)
(* How a dialog between two databases ends: END and END WITH ERROR of both *)
(* sides cross, with cleanup, late SENDs, and what is owed an              *)
(* acknowledgement. It stands for conversation/send.sql,                   *)
(* end_conversation.sql, send_end.sql, close_side.sql, closing_time.sql,   *)
(* delivery/take.sql, deliver.sql, open_dialog.sql, torn_dialogs.sql,      *)
(* acknowledge.sql, fail_dialogs.sql, fail_torn_dialogs.sql, sweep.sql.    *)
(*                                                                         *)
(* A batch has one message: what several do together is in numbering.tla.  *)
(* Half an hour is longer than any transaction and than any batch is on    *)
(* its way.                                                                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Sends,       \* how many messages each side sends
    Leaving,     \* how many messages are on their way at most before half an hour ends
    WithCleanup, \* whether a side may be cleaned up
    Mutant       \* the mistake to make, or "none"

VARIABLES
    is,        \* of each side: none (not begun), here, gone (swept)
    localEnd,  \* endpoints.local_end: none, E, X, C
    far,       \* far_events
    closed,    \* closed_at: no, soon (30 minutes), late (the end of the lifetime)
    sending,   \* of each side: a SEND has seen it open, holds its group, and has not committed
    sent,      \* how many rows each side has written
    rows,      \* transmission_messages: id and kind
    acked,     \* sequence_counters A
    next,      \* sequence_counters I
    last,      \* sent_at there: which row had the number before
    confirmed, \* is_confirmed of the target's
    got,       \* what each side was given, as kinds
    openings,  \* how often the target's side was made
    net,       \* batches that may arrive, also again
    answers,   \* answers that may be settled
    hasAlarm   \* fail_torn_dialogs has found that a database had gone back

vars == <<is, localEnd, far, closed, sending, sent, rows, acked, next, last, confirmed, got, openings, net, answers, hasAlarm>>
ends == <<is, localEnd, closed>>
counts == <<acked, next, last, confirmed>>

Sides == {"I", "T"}
Other(s) == IF s = "I" THEN "T" ELSE "I"
Each(value) == [s \in Sides |-> value]
Has(s, kinds) == \E row \in rows[s] : row.kind \in kinds
Heard(s) == far[s] \cap {"E", "X"} /= {}
IsOpen(s) == is[s] = "here" /\ localEnd[s] = "none" /\ ~Heard(s)
Higher(x, y) == IF x > y THEN x ELSE y
IsClosed(s) == closed[s] /= "no" \/ (localEnd[s] /= "none" /\ "A" \in far[s])
Of(s, kinds) == {row \in rows[s] : row.kind \in kinds}

Init ==
    /\ is = [s \in Sides |-> IF s = "I" THEN "here" ELSE "none"]
    /\ localEnd = Each("none") /\ far = Each({}) /\ closed = Each("no") /\ sending = Each(FALSE) /\ sent = Each(0)
    /\ rows = Each({}) /\ acked = Each(0) /\ next = Each(0) /\ last = Each(0) /\ confirmed = FALSE /\ got = Each(<<>>)
    /\ openings = 0 /\ net = {} /\ answers = {} /\ hasAlarm = FALSE

-----------------------------------------------------------------------------
(* SEND and END, by who holds the side's group.                            *)
BeginSend(s) ==
    /\ IsOpen(s) /\ ~sending[s] /\ sent[s] < Sends
    /\ sending' = [sending EXCEPT ![s] = TRUE]
    /\ UNCHANGED <<ends, far, sent, rows, counts, got, openings, net, answers, hasAlarm>>

\* What has arrived in between it does not see: a late SEND.
CommitSend(s) ==
    /\ sending[s]
    /\ sending' = [sending EXCEPT ![s] = FALSE]
    /\ sent' = [sent EXCEPT ![s] = @ + 1]
    /\ rows' = [rows EXCEPT ![s] = @ \cup {[id |-> sent[s] + 1, kind |-> "M"]}]
    /\ UNCHANGED <<ends, far, counts, got, openings, net, answers, hasAlarm>>

\* send_end, where the far side is told.
SendEnd(s, kind) ==
    /\ IsOpen(s) /\ ~sending[s] /\ (s = "I" => sent[s] > 0)
    /\ localEnd' = [localEnd EXCEPT ![s] = kind]
    /\ sent' = [sent EXCEPT ![s] = @ + 1]
    /\ LET kept == IF kind = "X" THEN {} ELSE rows[s]
       IN rows' = [rows EXCEPT ![s] = kept \cup {[id |-> sent[s] + 1, kind |-> kind]}]
    /\ UNCHANGED <<is, closed, far, sending, counts, got, openings, net, answers, hasAlarm>>

\* closing_time
ClosingTime(s) == IF s = "T" /\ ~confirmed /\ Mutant /= "a closed target is kept for half an hour, however its first message was acknowledged" THEN "late" ELSE "soon"

\* close_side, where there is nothing to tell: nothing has gone, or the far side has ended.
CloseSide(s) ==
    /\ is[s] = "here" /\ localEnd[s] = "none" /\ ~sending[s]
    /\ Heard(s) \/ (s = "I" /\ sent[s] = 0)
    /\ localEnd' = [localEnd EXCEPT ![s] = "E"]
    /\ rows' = [rows EXCEPT ![s] = IF Mutant = "a late SEND outlives the close of its side" THEN @ ELSE Of(s, {"X"})]
    /\ closed' = [closed EXCEPT ![s] = IF Of(s, {"X"}) = {} THEN ClosingTime(s) ELSE "no"]
    /\ UNCHANGED <<is, far, sending, sent, counts, got, openings, net, answers, hasAlarm>>

\* end_conversation with cleanup; of a closed initiator's side nobody has the handle any more.
CleanUp(s) ==
    /\ WithCleanup /\ is[s] = "here" /\ localEnd[s] /= "C" /\ ~sending[s] /\ ~(s = "I" /\ IsClosed(s))
    /\ localEnd' = [localEnd EXCEPT ![s] = "C"]
    /\ closed' = [closed EXCEPT ![s] = "soon"]
    /\ rows' = [rows EXCEPT ![s] = {}]
    /\ UNCHANGED <<is, far, sending, sent, counts, got, openings, net, answers, hasAlarm>>

-----------------------------------------------------------------------------
(* take: also behind what is in flight. What the far side has ended and    *)
(* this side has not waits, but for an Error.                              *)
Batch(s, row) ==
    LET number == acked[s] + Cardinality({r \in rows[s] : r.id < row.id})
    IN [from |-> s, id |-> row.id, kind |-> row.kind, number |-> number, acked |-> acked[s]]
MayLeave(s) == localEnd[s] /= "none" \/ ~Heard(s) \/ Has(s, {"X"})
Take(s) ==
    /\ Cardinality(net) < Leaving
    /\ MayLeave(s)
    /\ \E row \in rows[s] : net' = net \cup {Batch(s, row)}
    /\ UNCHANGED <<ends, far, sending, sent, rows, counts, got, openings, answers, hasAlarm>>

(* deliver, and open_dialog where there is no side.                        *)
Answer(batch, number) == answers' = answers \cup {[batch |-> batch, next |-> number]}
Gone == -1

Refused(batch, s) ==
    \/ is[s] = "here" /\ localEnd[s] = "C"
    \/ is[s] = "gone" /\ s = "I"
    \/ is[s] /= "here" /\ batch.acked > 0

\* torn_dialogs: after an Error, which drops what waits, a number may be another row's. Nobody hears of it who did not know.
Torn(batch, s) ==
    /\ is[s] = "here" /\ localEnd[s] /= "C" /\ batch.kind /= "X"
    /\ batch.acked > next[s] \/ (batch.number = next[s] - 1 /\ batch.id /= last[s])

Arrive(batch) ==
    LET s == Other(batch.from)
        \* Else it leaves a gap, and is kept apart or comes again.
        opens == is[s] /= "here" /\ ~Refused(batch, s) /\ batch.number = 0
        expected == IF opens THEN 0 ELSE next[s]
        open == opens \/ IsOpen(s)
        fits == batch.number = expected \/ batch.kind = "X"
        isTaken == (open \/ Mutant = "what comes after an end is stored") /\ fits
    IN
    /\ IF Refused(batch, s) THEN
           /\ Answer(batch, Gone)
           /\ UNCHANGED <<ends, far, rows, next, last, confirmed, got, openings, hasAlarm>>
       ELSE IF Torn(batch, s) THEN
           /\ Answer(batch, Gone)
           /\ hasAlarm' = (hasAlarm \/ IsOpen(s))
           /\ far' = [far EXCEPT ![s] = @ \cup {"X"} \cup (IF "X" \notin @ /\ localEnd[s] /= "none" THEN {"A"} ELSE {})]
           /\ rows' = [rows EXCEPT ![s] = IF "X" \in far[s] THEN Of(s, {"X"}) ELSE {}]
           /\ confirmed' = (confirmed \/ (s = "T" /\ batch.acked > 0))
           /\ UNCHANGED <<ends, next, last, got, openings>>
       ELSE
           /\ is[s] = "here" \/ opens
           /\ is' = [is EXCEPT ![s] = "here"]
           /\ localEnd' = IF opens THEN [localEnd EXCEPT ![s] = "none"] ELSE localEnd
           /\ closed' = IF opens THEN [closed EXCEPT ![s] = "no"] ELSE closed
           /\ openings' = IF opens THEN openings + 1 ELSE openings
           /\ far' = [far EXCEPT ![s] =
                (IF opens THEN {} ELSE @) \cup (IF isTaken /\ batch.kind /= "M" THEN {batch.kind} ELSE {})]
           /\ got' = [got EXCEPT ![s] = IF isTaken THEN Append(@, batch.kind) ELSE @]
           /\ next' = [next EXCEPT ![s] =
                IF isTaken \/ ~open THEN Higher(expected, batch.number + 1) ELSE expected]
           /\ last' = [last EXCEPT ![s] = IF opens \/ next'[s] > next[s] THEN batch.id ELSE @]
           /\ confirmed' =
                IF s = "I" THEN confirmed
                ELSE IF opens THEN FALSE
                ELSE confirmed \/ batch.acked > 0 \/ (Mutant = "what follows the first message confirms it" /\ batch.number > 0 /\ isTaken)
           /\ Answer(batch, next'[s])
           /\ UNCHANGED <<rows, hasAlarm>>
    /\ UNCHANGED <<sending, sent, acked, net>>

(* The worker settles: fail_torn_dialogs, acknowledge; or fail_dialogs.    *)
Settle(answer) ==
    LET batch == answer.batch
        s == batch.from
        found == {row \in rows[s] : row.id <= batch.id}
        number == batch.number + 1
        isRight == Cardinality(found) = number - acked[s] \/ \E row \in found : row.kind = "X"
        moves == answer.next >= number /\ found /= {} /\ isRight
        isEnd == \E row \in found : row.kind \in {"E", "X"}
    IN
    /\ is[s] = "here"
    /\ IF answer.next = Gone THEN
           /\ far' = [far EXCEPT ![s] = @ \cup (IF "E" \in @ THEN {} ELSE {"X"}) \cup
                (IF localEnd[s] /= "none" /\ Mutant /= "the end of a dialog that is forgotten is never acknowledged" THEN {"A"} ELSE {})]
           /\ rows' = [rows EXCEPT ![s] = {}]
           /\ got' = IF IsOpen(s) \/ Mutant = "a dialog fails as often as it is refused" THEN [got EXCEPT ![s] = Append(@, "X")] ELSE got
           /\ UNCHANGED <<acked, hasAlarm>>
       ELSE
           /\ hasAlarm' = (hasAlarm \/
                (/\ answer.next > number /\ answer.next > acked[s] + Cardinality(rows[s]) /\ ~Has(s, {"X"})
                 /\ ~Heard(s) /\ ("A" \notin far[s] \/ closed[s] /= "no") /\ localEnd[s] \in {"none", "E"}))
           /\ rows' = IF moves THEN [rows EXCEPT ![s] = @ \ found] ELSE rows
           /\ acked' = IF moves THEN [acked EXCEPT ![s] = @ + Cardinality(found)] ELSE acked
           /\ far' = IF (moves /\ isEnd) \/ (Mutant = "an end is acknowledged by any answer" /\ localEnd[s] /= "none")
                     THEN [far EXCEPT ![s] = @ \cup {"A"}] ELSE far
           /\ UNCHANGED got
    /\ UNCHANGED <<ends, sending, sent, next, last, confirmed, openings, net, answers>>

-----------------------------------------------------------------------------
(* sweep: an end that was acknowledged closes its side. There the event    *)
(* goes, and here it stays: what was acknowledged is asked for below.      *)
Close(s) ==
    /\ is[s] = "here" /\ localEnd[s] /= "none" /\ closed[s] = "no" /\ "A" \in far[s]
    /\ closed' = [closed EXCEPT ![s] = "soon"]
    /\ UNCHANGED <<is, localEnd, far, sending, sent, rows, counts, got, openings, net, answers, hasAlarm>>

(* Half an hour later. A target whose end was acknowledged, while its      *)
(* initiator has ended too and can send nothing, is beyond what is proven. *)
Sweep(s) ==
    /\ is[s] = "here" /\ closed[s] = "soon" /\ sending = Each(FALSE)
    /\ \/ s = "I" \/ localEnd["I"] = "none" \/ "A" \notin far[s] \/ rows["I"] = {}
       \/ Mutant = "one direction is broken for half an hour"
    /\ is' = [is EXCEPT ![s] = "gone"]
    /\ rows' = [rows EXCEPT ![s] = {}]
    /\ net' = {} /\ answers' = {}
    /\ UNCHANGED <<localEnd, far, closed, sending, sent, counts, got, openings, hasAlarm>>

-----------------------------------------------------------------------------
\* What becomes of a second conversation is not in here: its counters begin anew, on one side.
Next == openings <= 1 /\
    \/ \E s \in Sides :
        \/ BeginSend(s) \/ CommitSend(s) \/ SendEnd(s, "E") \/ SendEnd(s, "X") \/ CloseSide(s) \/ CleanUp(s)
        \/ Take(s) \/ Close(s) \/ Sweep(s)
    \/ \E batch \in net : Arrive(batch)
    \/ \E answer \in answers : Settle(answer)

Spec == Init /\ [][Next]_vars

(* A first message that comes again opens no second conversation. One that was cleaned up has asked for it. *)
OpenedOnce == openings <= 1 \/ WithCleanup

(* Nobody is given anything after the far side's end, or after his own.    *)
NothingAfterAnEnd ==
    \A s \in Sides : \A place \in 1..Len(got[s]) : got[s][place] \in {"E", "X"} => place = Len(got[s]) \/ openings > 1

(* A side that has ended is owed an acknowledgement only while something of it is still to be sent. *)
NoSideWaitsInVain ==
    \A s \in Sides :
        is[s] = "here" /\ localEnd[s] \in {"E", "X"} /\ closed[s] = "no" /\ "A" \notin far[s] => Has(s, {"E", "X"})

(* A side whose end was acknowledged leaves no open side behind.           *)
TheFarSideKnows ==
    \A s \in Sides : localEnd[s] \in {"E", "X"} /\ "A" \in far[s] /\ "X" \notin far[s] => ~IsOpen(Other(s)) \/ openings > 1

(* What a closed side had to send is gone with it.                         *)
NothingIsLeft == \A s \in Sides : closed[s] /= "no" => rows[s] = {}

(* No database has gone back, so nobody finds that one has.                *)
NoFalseAlarm == ~hasAlarm

(* To be violated: else the bounds leave out what this is about.           *)
EndsNeverCross == ~(localEnd["I"] = "E" /\ localEnd["T"] = "X" /\ ~Heard("I") /\ ~Heard("T"))
NoTargetIsSwept == is["T"] /= "gone"
NoLateSend == \A s \in Sides : ~(Heard(s) /\ localEnd[s] = "none" /\ rows[s] /= {})
=============================================================================
