-------------------------- MODULE numbering_replay --------------------------
(***************************************************************************)
(* Behaviours of numbering.tla at random, written down so that a test can  *)
(* play them to PostgreSQL: tests/sql/test_hop.py.                             *)
(***************************************************************************)
EXTENDS numbering, TLC

CONSTANT Steps  \* how many a behaviour has
VARIABLES trace, steps

Name(batch) == ToString(batch.first) \o "," \o ToString(Len(batch.rows)) \o "," \o ToString(batch.rows[1]) \o "," \o ToString(batch.acked)
Note(text) ==
    /\ steps < Steps
    /\ steps' = steps + 1
    /\ trace' = trace \o text \o " " \o ToString(acked') \o " " \o ToString(next') \o " " \o ToString(Cardinality(rows')) \o ";"

W == CHOOSE w \in Workers : TRUE

ReplayNext ==
    \/ Send /\ Note("send")
    \/ sent > 1 /\ BeginError(rows) /\ Note("error")
    \/ CommitError /\ Note("commit")
    \/ RollBackError /\ Note("rollback")
    \/ Lose(W) /\ Note("lose")
    \/ \E size \in 1..BatchSize : Take(W, size) /\ Note("take " \o ToString(size) \o " " \o Name(Newest(W)'))
    \/ \E batch \in net : Arrive(batch) /\ vars' /= vars /\ Note("arrive " \o Name(batch))
    \/ \E answer \in answers :
        /\ flight[W] /= <<>> /\ answer.batch = Head(flight[W])
        /\ \A other \in answers : other.batch = answer.batch => other.next <= answer.next
        /\ Settle(W) /\ answer.next >= 0 /\ Note("settle " \o ToString(answer.next))

ReplaySpec == Init /\ trace = "" /\ steps = 0 /\ [][ReplayNext]_<<vars, trace, steps>>

Replayed == steps < Steps \/ PrintT(trace)
=============================================================================
