----------------------------- MODULE numbering -----------------------------
(***************************************************************************)
(* Numbers and acknowledgements of one direction of a dialog between two   *)
(* databases, while batches are lost, doubled, overtake each other, and    *)
(* workers die. It stands for conversation/send.sql, end_conversation.sql, *)
(* delivery/take.sql, deliver.sql, hold_early.sql, take_early.sql,         *)
(* torn_dialogs.sql, acknowledge.sql, fail_torn_dialogs.sql, and for the   *)
(* worker's in_flight.py and batches.py.                                   *)
(*                                                                         *)
(* What each function does is one transaction, so one action; END with an  *)
(* error is two, as its open transaction holds rows. A dialog shares       *)
(* nothing with another but the batch, so there is one of them.            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Workers,     \* of the sending database; a second one is another that was started
    Messages,    \* how many messages are sent
    BatchSize,   \* how many a batch has at most
    Depth,       \* how many batches a worker has in flight at most
    Losses,      \* how often a worker dies, or its connection
    WithError,   \* whether the dialog may end with an error
    Mutant       \* the mistake to make, or "none"

VARIABLES
    sent,      \* how many messages were sent; each is its place
    side,      \* of the sending side: open, ending (its transaction is open), ended
    rows,      \* committed rows of transmission_messages, by id
    dropping,  \* those that the open transaction of END has locked
    acked,     \* sequence_counters, kind A
    flight,    \* of each worker: its batches in flight, the oldest first
    isBroken,  \* of each worker: nothing follows what is in flight
    losses,
    net,       \* every batch that was ever sent: it may arrive at any time, any number of times, or never
    answers,   \* every answer
    next,      \* sequence_counters, kind I, of the far side
    last,      \* sent_at there: which message had the number before
    early,     \* early_messages: number and row
    stored,    \* what went into the far queue
    torn       \* which side has found that a database had gone back

vars == <<sent, side, rows, dropping, acked, flight, isBroken, losses, net, answers, next, last, early, stored, torn>>
near == <<sent, side, rows, dropping, acked>>
far == <<next, last, early, stored>>

Error == Messages + 1
Lower(x, y) == IF x < y THEN x ELSE y
Higher(x, y) == IF x > y THEN x ELSE y
Lowest(set) == CHOOSE x \in set : \A y \in set : x <= y
RECURSIVE InOrder(_)
InOrder(set) == IF set = {} THEN <<>> ELSE <<Lowest(set)>> \o InOrder(set \ {Lowest(set)})
Has(batch, row) == \E place \in 1..Len(batch.rows) : batch.rows[place] = row
EndOf(batch) == batch.first + Len(batch.rows)

Init ==
    /\ sent = 0 /\ side = "open" /\ rows = {} /\ dropping = {} /\ acked = 0
    /\ flight = [w \in Workers |-> <<>>] /\ isBroken = [w \in Workers |-> FALSE]
    /\ losses = 0 /\ net = {} /\ answers = {}
    /\ next = 0 /\ last = 0 /\ early = {} /\ stored = <<>> /\ torn = {}

-----------------------------------------------------------------------------
(* The sending side's applications.                                        *)

\* send: holding the group, so never while END's transaction is open.
Send ==
    /\ side = "open" /\ sent < Messages
    /\ sent' = sent + 1
    /\ rows' = rows \cup {sent + 1}
    /\ UNCHANGED <<side, dropping, acked, flight, isBroken, losses, net, answers, far, torn>>

\* end_conversation with an error: its DELETE has come to some of the rows.
BeginError(locked) ==
    /\ WithError /\ side = "open" /\ sent > 0
    /\ side' = "ending"
    /\ dropping' = locked
    /\ UNCHANGED <<sent, rows, acked, flight, isBroken, losses, net, answers, far, torn>>

CommitError ==
    /\ side = "ending"
    /\ side' = "ended"
    /\ dropping' = {}
    /\ rows' = {Error}
    /\ UNCHANGED <<sent, acked, flight, isBroken, losses, net, answers, far, torn>>

RollBackError ==
    /\ side = "ending" /\ losses < Losses
    /\ side' = "open"
    /\ dropping' = {}
    /\ losses' = losses + 1
    /\ UNCHANGED <<sent, rows, acked, flight, isBroken, net, answers, far, torn>>

-----------------------------------------------------------------------------
(* The sending side's worker.                                              *)

Newest(w) == flight[w][Len(flight[w])]
LastRow(w) ==
    IF flight[w] = <<>> \/ Mutant = "what is in flight is taken again as if it were new" THEN 0
    ELSE Newest(w).rows[Len(Newest(w).rows)]
NextNumber(w) ==
    IF flight[w] = <<>> \/ Mutant = "a number is given twice" THEN acked
    ELSE EndOf(Newest(w))

\* take: the next rows behind what is in flight. It sees what END's open transaction has not deleted yet.
Take(w, size) ==
    /\ Len(flight[w]) < Depth
    /\ ~isBroken[w]
    /\ LET waiting == InOrder({row \in rows : row > LastRow(w)})
           number == IF Mutant = "what is in flight is taken again as if it were new" /\ flight[w] /= <<>> THEN EndOf(Newest(w)) ELSE NextNumber(w)
           batch == [first |-> number, rows |-> SubSeq(waiting, 1, size), acked |-> acked]
       IN /\ Len(waiting) >= size
          /\ flight' = [flight EXCEPT ![w] = Append(@, batch)]
          /\ net' = net \cup {batch}
    /\ UNCHANGED <<near, isBroken, losses, answers, far, torn>>

\* The worker dies, or its connection: no answer comes any more. What it sent may still arrive.
Lose(w) ==
    /\ losses < Losses /\ flight[w] /= <<>>
    /\ losses' = losses + 1
    /\ flight' = [flight EXCEPT ![w] = <<>>]
    /\ isBroken' = [isBroken EXCEPT ![w] = FALSE]
    /\ UNCHANGED <<near, net, answers, far, torn>>

\* acknowledge: the rows up to `row` that nobody drops, if they are as many as the numbers say.
Acknowledged(row, number) ==
    LET found == {r \in rows \ dropping : r <= row}
        isRight == Cardinality(found) = number - acked \/ Error \in found
    IN IF found = {} \/ ~(isRight \/ Mutant = "the rows are not counted")
       THEN UNCHANGED <<rows, acked>>
       ELSE /\ rows' = rows \ found
            /\ acked' = IF Mutant = "the rows are not counted" THEN number
                        ELSE IF Mutant = "the counter is left where it was" THEN acked
                        ELSE acked + Cardinality(found)

\* Settled in the order of sending: fail_torn_dialogs and acknowledge, by what outcome() makes of the answer.
Settle(w) ==
    /\ flight[w] /= <<>>
    /\ \E answer \in answers :
        /\ answer.batch = Head(flight[w])
        /\ LET batch == answer.batch
               number == Lower(answer.next, EndOf(batch))
               isTaken == number > batch.first
               isTorn == answer.next > EndOf(batch) /\ answer.next > acked + Cardinality(rows) /\ side /= "ended"
           IN /\ IF isTaken THEN Acknowledged(batch.rows[number - batch.first], number) ELSE UNCHANGED <<rows, acked>>
              /\ torn' = IF isTorn THEN torn \cup {"near"} ELSE torn
              /\ isBroken' = [isBroken EXCEPT ![w] = Len(flight[w]) > 1 /\ (@ \/ number /= EndOf(batch))]
              /\ flight' = [flight EXCEPT ![w] = Tail(@)]
    /\ UNCHANGED <<sent, side, dropping, losses, net, answers, far>>

-----------------------------------------------------------------------------
(* The far side.                                                           *)

IsOpen == \A place \in 1..Len(stored) : stored[place] /= Error

\* torn_dialogs, which deliver asks where the two sides' counters differ.
IsTorn(batch) ==
    /\ ~Has(batch, Error)
    /\ \/ batch.acked > next
       \/ \E place \in 1..Len(batch.rows) : batch.first + place - 1 = next - 1 /\ batch.rows[place] /= last

Brought(batch) == {[number |-> batch.first + place - 1, row |-> batch.rows[place]] : place \in 1..Len(batch.rows)}
RECURSIVE Run(_, _)
Run(number, set) == IF \E m \in set : m.number = number THEN Run(number + 1, set) ELSE number
RowAt(number, set) == (CHOOSE m \in set : m.number = number).row

\* deliver: what it has seen it drops by its number; what leaves a gap it keeps apart; an Error it takes with any number.
Deliver(batch) ==
    IF Has(batch, Error) THEN
        /\ stored' = IF IsOpen THEN Append(stored, Error) ELSE stored
        /\ early' = {}
        /\ next' = IF IsOpen \/ batch.first >= next THEN Higher(next, EndOf(batch)) ELSE next
        /\ last' = IF next' > next THEN Error ELSE last
        /\ UNCHANGED torn
    ELSE IF IsTorn(batch) THEN
        /\ torn' = IF IsOpen THEN torn \cup {"far"} ELSE torn
        /\ UNCHANGED far
    ELSE
        LET brought == Brought(batch)
            kept == {m \in early : \A b \in brought : b.number /= m.number}
            known == {m \in brought \cup kept : m.number >= next}
            all == IF Mutant = "a duplicate is not dropped" /\ IsOpen
                   THEN {[number |-> next + place - 1, row |-> batch.rows[place]] : place \in 1..Len(batch.rows)}
                   ELSE known
            \* A side that has ended acknowledges and drops, gap or not.
            end == IF IsOpen THEN Run(next, all) ELSE Higher(next, EndOf(batch))
        IN /\ stored' = IF IsOpen
                        THEN stored \o [place \in 1..(end - next) |-> RowAt(next + place - 1, all)]
                        ELSE stored
           /\ next' = IF Mutant = "what came too early is acknowledged" THEN Higher(end, EndOf(batch)) ELSE end
           /\ early' = IF IsOpen THEN {m \in all : m.number > end} ELSE {}
           /\ last' = IF next' = next THEN last
                      ELSE IF \E m \in all : m.number = next' - 1 THEN RowAt(next' - 1, all) ELSE last
           /\ UNCHANGED torn

\* The answer is there before anybody knows whether the sender's worker still is.
Arrive(batch) ==
    /\ Deliver(batch)
    /\ answers' = answers \cup {[batch |-> batch, next |-> next']}
    /\ UNCHANGED <<near, flight, isBroken, losses, net>>

\* The server crashes in the commit of deliver.
ArriveInVain(batch) ==
    /\ Mutant = "the acknowledgement goes before the commit"
    /\ batch.first = next
    /\ answers' = answers \cup {[batch |-> batch, next |-> EndOf(batch)]}
    /\ UNCHANGED <<near, flight, isBroken, losses, net, far, torn>>

-----------------------------------------------------------------------------
Next ==
    \/ Send
    \/ \E locked \in SUBSET rows : BeginError(locked)
    \/ CommitError \/ RollBackError
    \/ \E w \in Workers : Lose(w) \/ Settle(w) \/ \E size \in 1..BatchSize : Take(w, size)
    \/ \E batch \in net : Arrive(batch) \/ ArriveInVain(batch)

Fairness ==
    /\ \A w \in Workers : WF_vars(\E size \in 1..BatchSize : Take(w, size)) /\ WF_vars(Settle(w))
    /\ \A w \in Workers : WF_vars(flight[w] /= <<>> /\ Arrive(Head(flight[w])))
    /\ WF_vars(CommitError)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

(* Each message once, in order, and nothing after an Error.                *)
InOrderOnce ==
    \A place \in 1..Len(stored) : stored[place] = place \/ (place = Len(stored) /\ stored[place] = Error)

(* A message that is not there yet is still to be sent, unless an Error has dropped it.  *)
NothingLost ==
    /\ side /= "ended" => \A row \in 1..sent : row \in rows \/ \E place \in 1..Len(stored) : stored[place] = row
    /\ side = "ended" => Error \in rows \/ ~IsOpen

(* The sender never knows more than is true.                               *)
NoEarlyAcknowledgement == acked <= next

(* A row that waits has the number that the far side will know it by.      *)
NumbersStay == side /= "ended" => acked + Cardinality(rows) = sent

(* No database has gone back, so nobody finds that one has.                *)
NoFalseAlarm == torn = {}

(* All arrives, or the Error that replaces it.                             *)
AllArrives == <>[](rows = {} /\ (IsOpen => Len(stored) = sent))

(* To be violated: else the bounds leave out what this is about.           *)
NothingIsEarly == early = {}
NoErrorBehindAGap == ~(~IsOpen /\ next > Len(stored))
=============================================================================
