-- broker_private.place_messages(endpoint, message type, contents, is_checked, shared body): puts messages that may be sent where they go: into the far queue, if that is in
-- this database and can take them now, there too but incomplete if a worker must look at them or at what came before them, else into the transmission queue. is_checked: their validation is known to pass. shared_no: the
-- stored body that all of them have (send_all), or null. The caller holds the group.
create or replace function broker_private.place_messages(
  e broker_private.endpoints, type_id integer, contents bytea[], is_checked boolean, shared_no bigint
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  f broker_private.endpoints%rowtype;
  far_queue broker_private.queues%rowtype;
begin
  if e.path in ('U', 'B', 'I') then
    e := broker_private.find_path(e);
    -- The broker refused the dialog just now: its Error is what there is to receive. SEND does not look for one on a straight dialog.
    if e.path = 'L' and exists (select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = 'X') then
      update broker_private.endpoints x set path = 'I' where x.endpoint_no = e.endpoint_no;
      return;
    end if;
  end if;
  if e.path in ('L', 'I') then
    select x.* into f from broker_private.endpoints x where x.endpoint_no = e.far_endpoint_no;
    select q.* into far_queue from broker_private.queues q where q.queue_id = f.queue_id;
    -- What follows on this dialog must not overtake what waits now: it takes the same way until nothing waits.
    if not far_queue.is_enqueue_enabled then
      update broker_private.endpoints x set path = 'B' where x.endpoint_no = e.endpoint_no returning * into e;
      perform broker_private.set_dialog_status(e.endpoint_no, broker_private.waiting_reason(far_queue));
    elsif e.path = 'L' and not is_checked then
      update broker_private.endpoints x set path = 'I' where x.endpoint_no = e.endpoint_no returning * into e;
    end if;
  end if;
  if e.path = 'L' then
    insert into broker_private.messages (
      group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body, shared_body_no, shared_size
    )
    select
      f.group_no, f.endpoint_no, broker_private.clock(), f.queue_id, type_id, 10 - f.priority, 2,
      case when shared_no is null then nullif(c.content, '') end, shared_no, case when shared_no is not null then octet_length(c.content) end
    from unnest(contents) with ordinality as c (content, place)
    where not exists (select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = 'X')
    order by c.place;
    perform broker_private.note_arrival(f.queue_id);
  elsif exists (select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = 'X') then
    -- The broker refused the dialog just now: its Error is what there is to receive.
    return;
  elsif e.path = 'I' then
    perform broker_private.hold_messages(f, type_id, 'M', contents, is_checked, shared_no);
  else
    insert into broker_private.transmission_messages (
      endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body, shared_body_no, shared_size
    )
    select
      e.endpoint_no, broker_private.clock(), broker_private.destination_for(e), type_id, 10 - e.priority, 'M',
      case when shared_no is null then nullif(c.content, '') end, shared_no, case when shared_no is not null then octet_length(c.content) end
    from unnest(contents) with ordinality as c (content, place)
    order by c.place;
    perform broker_private.note_arrival(0);
  end if;
end
$$;
