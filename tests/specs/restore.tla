------------------------------ MODULE restore ------------------------------
(***************************************************************************)
(* One of two databases goes back to an earlier state: what their dialog   *)
(* has lost or used twice ends it in an Error on both sides, and nothing   *)
(* else does. It stands for delivery/deliver.sql, open_dialog.sql,         *)
(* torn_dialogs.sql, ask.sql, fail_torn_dialogs.sql, fail_dialogs.sql,     *)
(* take.sql, acknowledge.sql, for the columns acknowledged, next_number    *)
(* and sent_at of what they compare, and for the worker's probe.py.        *)
(*                                                                         *)
(* One direction of a dialog. A restore takes longer than a batch is on    *)
(* its way. A message is the time at which it was sent,  *)
(* which no other has: a database that has gone back sends at other times. *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Messages,  \* how many are sent, before and after
    Leaving,   \* how many batches are on their way at most, before the restore and after it
    Restores,  \* which sides may go back, of {"near", "far"}
    Mutant     \* the mistake to make, or "none"

VARIABLES
    sent,       \* how many messages were ever sent
    near,       \* the sender's database: rows (times), acked, isFailed
    far,        \* the target's: next, last (sent_at of the one before), taken (all that it has stored), isFailed
    backup,     \* of each side: the state that may come back
    net, answers,
    isRestored, \* whether it has happened; asked: whether the worker has asked since, and was answered
    asked,
    wasSeen     \* all messages that an application was ever given, over all lives of the database

vars == <<sent, near, far, backup, net, answers, isRestored, asked, wasSeen>>

Init ==
    /\ sent = 0
    /\ near = [rows |-> <<>>, acked |-> 0, history |-> <<>>, isFailed |-> FALSE]
    /\ far = [next |-> 0, last |-> 0, taken |-> <<>>, isFailed |-> FALSE]
    /\ backup = [near |-> near, far |-> far]
    /\ net = {} /\ answers = {} /\ isRestored = FALSE /\ asked = FALSE /\ wasSeen = <<>>

-----------------------------------------------------------------------------
(* send.sql: history is what this life of the database remembers to have sent; only the invariants read it. *)
Send ==
    /\ ~near.isFailed /\ sent < Messages
    /\ sent' = sent + 1
    /\ near' = [near EXCEPT !.rows = Append(@, sent + 1), !.history = Append(@, sent + 1)]
    /\ UNCHANGED <<far, backup, net, answers, isRestored, asked, wasSeen>>

BackUp(side) ==
    /\ ~isRestored /\ sent > 0
    /\ backup.near.history = <<>> /\ backup.far.next = 0
    /\ backup' = [backup EXCEPT ![side] = IF side = "near" THEN near ELSE far]
    /\ backup' /= backup
    /\ UNCHANGED <<sent, near, far, net, answers, isRestored, asked, wasSeen>>

\* The backup takes the database's place; its worker is started anew, so no answer from before is settled.
Restore(side) ==
    /\ side \in Restores /\ ~isRestored
    /\ isRestored' = TRUE
    /\ near' = IF side = "near" THEN backup.near ELSE near
    /\ far' = IF side = "far" THEN backup.far ELSE far
    /\ net' = {} /\ answers' = {}
    /\ UNCHANGED <<sent, backup, asked, wasSeen>>

-----------------------------------------------------------------------------
(* take, and ask: a question has no message.                               *)
Batch(size) == [first |-> near.acked, times |-> SubSeq(near.rows, 1, size), acked |-> near.acked]
Take(size) ==
    /\ ~near.isFailed /\ size <= Len(near.rows) /\ Cardinality(net) < Leaving
    \* dialogs_to_ask: until something was acknowledged nobody knows whom to ask.
    /\ size > 0 \/ near.acked > 0
    /\ net' = net \cup {Batch(size)}
    /\ UNCHANGED <<sent, near, far, backup, answers, isRestored, asked, wasSeen>>

(* deliver: torn_dialogs, and else what is new.                            *)
Arrive(batch) ==
    LET knowsLess == batch.acked > far.next /\ Mutant /= "what was acknowledged is not compared"
        isOther == \E place \in 1..Len(batch.times) :
            batch.first + place = far.next /\ batch.times[place] /= far.last /\ Mutant /= "the time of sending is not compared"
        isTorn == knowsLess \/ isOther \/ (Mutant = "any repetition is taken for a restore" /\ batch.acked < far.next)
        new == IF batch.first > far.next THEN <<>> ELSE SubSeq(batch.times, far.next - batch.first + 1, Len(batch.times))
        end == batch.first + Len(batch.times)
    IN
    \* open_dialog: it is not new to its sender, so it was forgotten here.
    /\ IF far.next = 0 /\ knowsLess THEN
           /\ answers' = answers \cup {[batch |-> batch, next |-> 0, isFinal |-> TRUE]}
           /\ UNCHANGED <<far, wasSeen>>
       ELSE IF isTorn THEN
           /\ far' = [far EXCEPT !.isFailed = TRUE]
           /\ answers' = answers \cup {[batch |-> batch, next |-> 0, isFinal |-> TRUE]}
           /\ UNCHANGED wasSeen
       ELSE IF far.isFailed THEN
           \* Acknowledged and dropped.
           /\ far' = IF end > far.next THEN [far EXCEPT !.next = end, !.last = IF batch.times = <<>> THEN @ ELSE batch.times[Len(batch.times)]] ELSE far
           /\ answers' = answers \cup {[batch |-> batch, next |-> far'.next, isFinal |-> FALSE]}
           /\ UNCHANGED wasSeen
       ELSE
           /\ far' = [far EXCEPT
                !.next = @ + Len(new),
                !.taken = @ \o new,
                !.last = IF new = <<>> \/ (Mutant = "the time of sending is kept of the first message only" /\ @ > 0) THEN @ ELSE new[Len(new)]]
           /\ wasSeen' = wasSeen \o new
           /\ answers' = answers \cup {[batch |-> batch, next |-> far'.next, isFinal |-> FALSE]}
    /\ UNCHANGED <<sent, near, backup, net, isRestored, asked>>

(* The worker settles: fail_dialogs, fail_torn_dialogs, acknowledge.       *)
Settle(answer) ==
    LET batch == answer.batch
        number == IF answer.next < batch.first + Len(batch.times) THEN answer.next ELSE batch.first + Len(batch.times)
        isTorn ==
            /\ ~near.isFailed
            /\ answer.next > batch.first + Len(batch.times)
            /\ answer.next > near.acked + Len(near.rows)
            /\ Mutant /= "more than was sent is taken for granted"
        count == number - near.acked
        isRight ==
            /\ count > 0 /\ count <= Len(near.rows)
            /\ near.rows[count] = batch.times[Len(batch.times) - (batch.first + Len(batch.times) - number)]
    IN
    /\ near' =
        IF answer.isFinal \/ isTorn THEN [near EXCEPT !.isFailed = TRUE, !.rows = <<>>]
        ELSE IF number > batch.first /\ isRight
        THEN [near EXCEPT !.acked = number, !.rows = SubSeq(@, count + 1, Len(@))]
        ELSE near
    \* tell_far_side: its Error is taken whatever the two remember. It has the number that was acknowledged last.
    /\ far' =
        IF ~isTorn \/ answer.isFinal THEN far
        ELSE IF near.acked < far.next THEN [far EXCEPT !.isFailed = TRUE]
        ELSE [far EXCEPT !.isFailed = TRUE, !.next = near.acked + 1, !.last = Messages + 1]
    \* Each side's worker asks after a restart, and where it was asked so: the sender's question is what tells it.
    /\ asked' = (asked \/ (isRestored /\ batch.times = <<>> /\ batch.acked = near.acked))
    /\ answers' = answers \ {answer}
    /\ UNCHANGED <<sent, backup, net, isRestored, wasSeen>>

-----------------------------------------------------------------------------
Next ==
    \/ Send
    \/ \E side \in {"near", "far"} : BackUp(side) \/ Restore(side)
    \/ \E size \in 0..Messages : Take(size)
    \/ \E batch \in net : Arrive(batch)
    \/ \E answer \in answers : Settle(answer)

Spec == Init /\ [][Next]_vars

Prefix(one, other) == Len(one) <= Len(other) /\ one = SubSeq(other, 1, Len(one))
IsHurt == ~(Prefix(far.taken, near.history) /\ near.acked <= far.next)
IsFailed == near.isFailed \/ far.isFailed

(* Where nothing was lost nor used twice, the dialog goes on.              *)
NoFalseAlarm == IsFailed => isRestored

(* Once all that was sent was acknowledged after a restore, the two sides remember the same, or know that they don't. *)
NothingIsHidden ==
    isRestored /\ near.rows = <<>> /\ asked /\ answers = {} => IsFailed \/ ~IsHurt

(* What the sender holds for delivered is there, or the dialog has failed. *)
NoLieWithoutARestore == ~isRestored => near.acked <= far.next /\ Prefix(far.taken, near.history)

(* An application that has lost nothing is given each message once.        *)
OnceOnly == "far" \notin Restores => \A one, other \in 1..Len(wasSeen) : wasSeen[one] = wasSeen[other] => one = other

(* To be violated: else the bounds leave out what this is about.           *)
NoRestoreIsNoticed == ~IsFailed
NoRestoreIsHarmless == ~(isRestored /\ asked /\ ~IsFailed /\ Len(far.taken) > 1)
=============================================================================
