-- Moves what arrived for a quarantined conversation out of its queue.
--
-- A body that it shares with other messages becomes its own. The caller holds the group.
create or replace function broker_private.move_aside(endpoint bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
begin
  if not exists (select from broker_private.quarantine z where z.endpoint_no = endpoint) then
    return;
  end if;
  with moved as (
    delete from broker_private.messages m
    where m.ctid = any (array(
      select w.location
      from broker_private.endpoints e
      cross join lateral (
        select x.ctid as location from broker_private.messages x
        where x.group_no = e.group_no and x.precedence = 10 - e.priority and x.endpoint_no = e.endpoint_no
        order by x.urgency, x.id
      ) w
      where e.endpoint_no = endpoint
    ))
    returning m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.urgency, m.body, m.shared_body_no
  )
  insert into broker_private.quarantined_messages (id, endpoint_no, sequence_number, enqueue_time, message_type_id, urgency, body)
  select
    m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.urgency,
    case when m.shared_body_no is null then m.body else broker_private.shared_body(m.shared_body_no) end
  from moved m;
end
$$;
