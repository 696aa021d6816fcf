-- Whether something that send plans rest on has changed since the plan was made.
--
-- Or was being changed then. SEND asks the same in place.
create or replace function broker_private.is_plan_marked(made xid8)
returns boolean
language sql volatile
begin atomic
  select exists (select from broker_private.plan_marks m where m.ctid >= '(0,0)' and m.marked_by >= made);
end;
