-- Moves what waits on one dialog within this database into the far queue, in order.
--
-- It goes up to the first message that still can't go. What a worker must look at, and what comes
-- after it, becomes incomplete there. Returns how many messages moved. A dialog whose messages were
-- once taken to another broker stays with it, whatever the routes say now.
-- Locks: the dialog's counter, so that one at a time moves a dialog, and the rows. What somebody
-- else holds is left for the next time, so this waits for nobody.
create or replace function broker_private.deliver_dialog(endpoint bigint)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
  f broker_private.endpoints%rowtype;
  service broker_private.services%rowtype;
  queue broker_private.queues%rowtype;
  k broker_private.contract_messages%rowtype;
  waiting record;
  fault broker_private.fault;
  far_endpoint bigint;
  moved integer := 0;
  is_valid boolean;
  is_held boolean;
  reason text;
begin
  perform from broker_private.sequence_counters n where n.endpoint_no = endpoint and n.kind = '<next acknowledged>' for update skip locked;
  if not found then
    return 0;
  end if;
  select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
  select x.* into f from broker_private.endpoints x where x.conversation_id = e.conversation_id and x.is_initiator <> e.is_initiator;
  if broker_private.broker_problem() is not null
    or exists (select from broker_private.far_events v where v.endpoint_no = endpoint and v.event in ('<broker known>', '<first taken>'))
    or f.endpoint_no is null
      and (
        select r.address
        from broker_private.destinations d
        cross join lateral broker_private.route_of(d.service_name, d.broker_instance) r
        where d.destination_no = e.destination_no
      ) is distinct from 'LOCAL' then
    return 0;
  end if;
  for waiting in
    select t.id, t.kind, t.message_type_id, t.body, t.shared_body_no, t.shared_size, t.ctid as location,
      (select y.name from broker_private.message_types y where y.message_type_id = t.message_type_id) as type_name
    from broker_private.transmission_messages t
    where t.endpoint_no = endpoint
    order by t.id
  loop
    if f.endpoint_no is null then
      select s.* into service from broker_private.services s where s.name = e.far_service;
      exit when service.service_id is null or not e.is_initiator;
      select q.* into queue from broker_private.queues q where q.queue_id = service.queue_id;
    else
      select q.* into queue from broker_private.queues q where q.queue_id = f.queue_id;
    end if;
    if not queue.is_enqueue_enabled then
      reason := broker_private.waiting_reason(queue);
      exit;
    end if;
    select c.* into k from broker_private.contract_messages c
    where c.contract_id = e.contract_id and c.message_type_name = waiting.type_name;
    is_valid := case
      when waiting.kind <> '<message>' then true
      else broker_private.is_valid_body(k.validation, coalesce(waiting.body, broker_private.shared_body(waiting.shared_body_no), ''))
    end;
    if not is_valid then
      fault := row(case k.validation when '<xml>' then 9615 else 8430 end, waiting.type_name);
      perform broker_private.put_broker_error(endpoint, fault.code, broker_private.fault_text(fault));
      exit;
    end if;
    delete from broker_private.transmission_messages t
    where t.ctid in (
      select w.ctid from broker_private.transmission_messages w
      where w.ctid = waiting.location and w.id = waiting.id
      for update skip locked
    );
    -- END CONVERSATION WITH ERROR has dropped it, or is dropping it and the rest; what came before it stays delivered.
    exit when not found;
    if f.endpoint_no is null then
      far_endpoint := (
        select broker_private.open_local_dialog(
          e, service.service_id, service.queue_id, service.owner,
          exists (select from broker_private.service_contracts c where c.service_id = service.service_id and c.contract_id = e.contract_id),
          n.owner, b.service_broker_guid
        )
        from broker_private.services n
        join broker_private.broker_instance b on b.is_the_only_row
        where n.service_id = e.service_id
      );
      exit when far_endpoint is null;
      select x.* into f from broker_private.endpoints x where x.endpoint_no = far_endpoint;
    end if;
    moved := moved + 1;
    is_valid := is_valid and (waiting.kind <> '<message>' or k.schema_collection_id is null);
    is_held := f.local_end is null and waiting.kind <> '<error>' and (
      is_valid is not true or exists (select from broker_private.incomplete_messages i where i.endpoint_no = f.endpoint_no)
    );
    if is_held then
      perform broker_private.hold_messages(
        f, waiting.message_type_id, waiting.kind, array[coalesce(waiting.body, broker_private.shared_body(waiting.shared_body_no), '')],
        coalesce(is_valid, false), waiting.shared_body_no
      );
      continue;
    end if;
    if f.local_end is null and waiting.kind <> '<message>' then
      insert into broker_private.far_events (endpoint_no, event) values (f.endpoint_no, waiting.kind) on conflict do nothing;
    end if;
    if f.local_end is null then
      insert into broker_private.messages (
        group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body, shared_body_no, shared_size
      )
      values (
        f.group_no, f.endpoint_no, broker_private.clock(), f.queue_id, waiting.message_type_id, 10 - f.priority,
        case waiting.kind when '<error>' then 1 else 2 end, waiting.body, waiting.shared_body_no, waiting.shared_size
      );
      perform broker_private.note_arrival(f.queue_id);
    end if;
    if waiting.kind <> '<message>' then
      insert into broker_private.far_events (endpoint_no, event) values (endpoint, '<end acknowledged>') on conflict do nothing;
    end if;
  end loop;
  with held as (
    select s.ctid as location from broker_private.transmission_status s where s.endpoint_no = endpoint for update skip locked
  ),
  gone as (
    delete from broker_private.transmission_status s using held h where reason is null and s.ctid = h.location
  )
  update broker_private.transmission_status s
  set status = reason
  from held h
  where reason is not null and s.ctid = h.location and s.status <> reason;
  return moved;
end
$$;
