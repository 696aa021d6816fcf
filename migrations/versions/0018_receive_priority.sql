-- Receive plans held 10 less the priority. A mark makes them worthless, also those that a session
-- notes beside the upgrade, and waits for no reader as a change of each row would. The trigger sets
-- it for the statement, which changes nothing (sending/mark_plans.sql). Without it there are no plans.
update broker_private.contracts set name = name where false;
