-- Why its conversation can't carry events any more; null if it can.
create or replace function broker_private.notification_problem(this broker_private.event_notifications)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
  state text;
begin
  select x.* into e from broker_private.endpoints x where x.conversation_handle = this.conversation_handle;
  select s.state into state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no;
  return case
    when state in ('SO', 'CO') then null
    when state = 'DI' then '17004: the service "' || this.service_name || '" ended its conversation.'
    when state = 'ER' then '17003: its conversation to the service "' || this.service_name || '" is in error: ' || coalesce((
      select convert_from(m.body, 'UTF8') from broker_private.messages m
      where m.group_no = e.group_no and m.endpoint_no = e.endpoint_no and m.urgency = 1
      limit 1
    ), 'no description.')
    else '17005: its conversation to the service "' || this.service_name || '" is gone.'
  end;
end
$$;
