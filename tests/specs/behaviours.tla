----------------------------- MODULE behaviours -----------------------------
(***************************************************************************)
(* Behaviours at random, written down so that a test can do them to        *)
(* PostgreSQL: what a specification's replay adds to its actions. Each has *)
(* its text, and the state that it comes to. tests/replay.py reads them.   *)
(***************************************************************************)
EXTENDS Integers, Sequences, TLC

CONSTANT Actions  \* how many a behaviour has
VARIABLES trace, actions

NothingNoted == trace = "" /\ actions = 0

Note(text, state) ==
    /\ actions < Actions
    /\ actions' = actions + 1
    /\ trace' = trace \o text \o ": " \o state \o ";"

Replayed == actions < Actions \/ PrintT(trace)
=============================================================================
