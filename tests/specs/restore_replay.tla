--------------------------- MODULE restore_replay ---------------------------
(***************************************************************************)
(* Behaviours of restore.tla, for tests/sql/test_replays_of_two.py. Of a   *)
(* side that has failed only that is compared.                             *)
(***************************************************************************)
EXTENDS restore, behaviours

RECURSIVE Joined(_)
Joined(times) == IF times = <<>> THEN "" ELSE ToString(Head(times)) \o Joined(Tail(times))
Name(batch) == ToString(batch.first) \o "," \o ToString(Len(batch.times)) \o "," \o Joined(batch.times) \o "," \o ToString(batch.acked)
Said(answer) == IF answer.isFinal THEN "final" ELSE ToString(answer.next)

State ==
    (IF near.isFailed THEN "failed" ELSE ToString(near.acked) \o "," \o ToString(Len(near.rows))) \o " "
        \o (IF far.isFailed THEN "failed" ELSE IF far.next = 0 THEN "-" ELSE ToString(far.next) \o "," \o Joined(far.taken))

IsOver == actions = Actions - 1
Rest ==
    /\ actions < Actions /\ actions' = Actions
    /\ trace' = trace \o "rest: " \o State \o ";"
    /\ UNCHANGED vars
Does ==
    \/ Send /\ Note("send", State')
    \/ \E side \in {"near", "far"} :
        \/ BackUp(side) /\ Note("backup " \o side, State')
        \/ actions > 8 /\ Restore(side) /\ Note("restore " \o side, State')
    \/ \E size \in 0..Messages : Take(size) /\ Batch(size) \notin net /\ Note("take " \o ToString(size) \o " " \o Name(Batch(size)), State')
    \/ \E batch \in net :
        /\ Arrive(batch)
        /\ \E answer \in answers' :
            /\ answer.batch = batch
            /\ answer \notin answers \/ answers' = answers
            /\ ~answer.isFinal => answer.next = far'.next
            /\ Note("arrive " \o Name(batch) \o " " \o Said(answer), State')
    \/ \E answer \in answers : Settle(answer) /\ Note("settle " \o Name(answer.batch) \o " " \o Said(answer), State')

ReplayNext == IF IsOver \/ ~ENABLED Does THEN Rest ELSE Does
ReplaySpec == Init /\ NothingNoted /\ [][ReplayNext]_<<vars, trace, actions>>
=============================================================================
