-- Whether something that plans rest on has changed since the plan was made.
--
-- Or was being changed then. SEND and RECEIVE ask the same in place, after the lock. Where there is
-- no mark yet, as in a copy of the definitions alone, each plan is worthless.
create or replace function broker_private.is_plan_marked(made bigint)
returns boolean
language sql volatile
begin atomic
  select (made > pg_sequence_last_value('broker_private.plan_mark')) is not true;
end;
