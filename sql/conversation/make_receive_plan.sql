-- Makes the receive plan of a group, if it has none that may be believed.
--
-- It says what RECEIVE returns of one of the group's conversations, for messages of one type. It
-- stands on the group's row, which RECEIVE locks anyway, and spares it the look at endpoint and
-- type.
--
-- It may be believed as a send plan may (refresh_plan). Who changes the endpoint holds its group,
-- and a trigger drops the plan (forget_plan). Who changes a type marks all plans (mark_plans).
-- Locks: the group's row, which the caller holds.
create or replace function broker_private.make_receive_plan(endpoint bigint, type_id integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  -- Before anything else is read.
  made constant bigint := txid_snapshot_xmin(txid_current_snapshot());
begin
  if current_setting('transaction_isolation') <> 'read committed' or broker_private.is_plan_marked(made) then
    return;
  end if;
  update broker_private.groups g
  set
    receive_made = made,
    receive_plan = row(
      e.endpoint_no, left(e.conversation_id::text, 18), case when e.is_initiator then 2::bigint << 60 else 6::bigint << 60 end,
      row(
        0, e.priority, null, e.conversation_group_id, e.conversation_handle, null, e.service_name, e.service_id, e.contract_name,
        e.contract_id, y.name, y.message_type_id, y.validation, null, null, null
      )::broker.message
    )::broker_private.receive_plan
  from broker_private.endpoints e
  -- LIMIT 1: a probe of each key, whatever the planner believes of the tables' sizes.
  cross join lateral (
    select x.name, x.message_type_id, x.validation from broker_private.message_types x where x.message_type_id = type_id limit 1
  ) y
  cross join lateral (
    select x.ctid as location from broker_private.groups x where x.group_no = e.group_no limit 1
  ) w
  where e.endpoint_no = endpoint and e.local_end is null and g.ctid = w.location
    and ((g.receive_plan).endpoint_no is null or broker_private.is_plan_marked(g.receive_made));
end
$$;
