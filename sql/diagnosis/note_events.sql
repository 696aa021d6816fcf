-- Writes down for each trace what happened to conversations that it watches.
--
-- A fact has endpoint_no, class, subclass, and what is known of the message: type_id,
-- sequence_number, size, status. Facts may be null: nothing happened.
-- Plan: the last place of each trace by its index; no count.
-- Why: the triggers hand over 10,000 rows of a statement at most, so that none is too large for a
-- list. A trace is full at the place max_rows. Sessions do not see each other's newest places, so
-- each transaction that is open at that moment may write as many rows as were left.
create or replace function broker_private.note_events(facts jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  now_ constant timestamp with time zone := broker_private.clock();
begin
  insert into broker_private.trace_events (
    role, place, event_time, event_class, event_subclass, conversation_handle, conversation_id,
    is_initiator, queue_id, service_name, far_service, message_type_name, message_sequence_number,
    message_size, status, login_name, spid
  )
  select
    w.role, w.place, now_, w.class, w.subclass, w.conversation_handle, w.conversation_id,
    w.is_initiator, w.queue_id, w.service_name, w.far_service, w.message_type_name,
    w.sequence_number, w.size, left(w.status, 1000), session_user, pg_backend_pid()
  from (
    select
      t.role, t.max_rows, e.conversation_handle, e.conversation_id, e.is_initiator, e.queue_id,
      e.service_name, e.far_service, y.name as message_type_name,
      f.class, f.subclass, f.sequence_number, f.size, f.status, f.number,
      t.last_place + row_number() over (partition by t.role order by f.number) as place
    from rows from (
      jsonb_to_recordset(facts) as (
        endpoint_no bigint, class text, subclass text, type_id integer, sequence_number bigint,
        size bigint, status text
      )
    ) with ordinality f (endpoint_no, class, subclass, type_id, sequence_number, size, status, number)
    join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
    join (
      select
        x.role, x.conversation_id, x.service_name, x.max_rows,
        coalesce((
          select n.place from broker_private.trace_events n
          where n.role = x.role
          order by n.place desc
          limit 1
        ), 0) as last_place
      from broker_private.traces x
      where x.ends_at > now_ and exists (select from pg_roles r where r.oid = x.role)
    ) t on t.last_place < t.max_rows
      and (t.conversation_id is null or t.conversation_id = e.conversation_id)
      and (t.service_name is null or t.service_name in (e.service_name, e.far_service))
      and (
        pg_has_role(t.role, 'pg_database_owner', 'USAGE')
        or broker_private.may_receive(broker_private.name_of_role(t.role), e.queue_id)
      )
    left join broker_private.message_types y on y.message_type_id = f.type_id
  ) w
  where w.place <= w.max_rows
  order by w.number;
end
$$;
