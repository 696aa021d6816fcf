-------------------------- MODULE numbering_replay --------------------------
(***************************************************************************)
(* Behaviours of numbering.tla, for tests/sql/test_hop.py.                 *)
(***************************************************************************)
EXTENDS numbering, behaviours

Name(batch) == ToString(batch.first) \o "," \o ToString(Len(batch.rows)) \o "," \o ToString(batch.rows[1]) \o "," \o ToString(batch.acked)
State == ToString(acked) \o " " \o ToString(next) \o " " \o ToString(Cardinality(rows))

W == CHOOSE w \in Workers : TRUE

ReplayNext ==
    \/ Send /\ Note("send", State')
    \/ sent > 1 /\ BeginError(rows) /\ Note("error", State')
    \/ CommitError /\ Note("commit", State')
    \/ RollBackError /\ Note("rollback", State')
    \/ Lose(W) /\ Note("lose", State')
    \/ \E size \in 1..BatchSize : Take(W, size) /\ Note("take " \o ToString(size) \o " " \o Name(Newest(W)'), State')
    \/ \E batch \in net : Arrive(batch) /\ vars' /= vars /\ Note("arrive " \o Name(batch), State')
    \/ \E answer \in answers :
        /\ flight[W] /= <<>> /\ answer.batch = Head(flight[W])
        /\ \A other \in answers : other.batch = answer.batch => other.next <= answer.next
        /\ Settle(W) /\ answer.next >= 0 /\ Note("settle " \o ToString(answer.next), State')

ReplaySpec == Init /\ NothingNoted /\ [][ReplayNext]_<<vars, trace, actions>>
=============================================================================
