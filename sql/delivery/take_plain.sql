-- hot path
-- broker_private.take_plain(destination, lane, lanes, max messages, max bytes, largest body, held):
-- the next batch for a destination, if nothing is out of the ordinary in it. An empty one, with
-- large_levels '{}', if nothing waits. Null if it is take_fully's.
--
-- It is declared stable, so all of its statements see what the caller's saw: one snapshot. A number
-- is the counter's, plus the place among the rows. Rows from before an acknowledgement, with the
-- counter from after it, would be sent again as other messages. What it has to write, volatile
-- functions write.
--
-- A dialog of which nothing has gone yet may be moving within this database; deliver_dialog holds
-- its counter then. So take_fresh locks the counter and calls this function again, which then sees
-- what moved before. held: those that are locked.
-- Locks: none.
-- Plan: the head of transmission_messages_destination; the rest by key. Of one dialog, each table
-- in a statement of its own: a join, or an array of what is one, costs more.
-- Why: what a statement costs to set up is more than what it does for one message. One that is
-- small is planned anew for little after a vacuum.
create or replace function broker_private.take_plain(
  destination integer, lane integer, lanes integer, max_messages integer, max_bytes bigint, largest_body bigint,
  held bigint[]
)
returns broker_private.batch
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  batch broker_private.batch;
  is_honored boolean;
  row_endpoints bigint[];
  row_types integer[];
  first_precedence smallint;
  last_precedence smallint;
  size bigint;
  type_ids integer[];
  service integer;
  service_ids integer[];
  dialog_index integer[];
  next_numbers bigint[];
  sequence_numbers bigint[];
  endpoint bigint;
  event "char";
  far_broker uuid;
  noted bigint[];
  known bigint[];
  fresh bigint[];
  has_far_user boolean;
  far_user text;
  binding text;
  owner text;
  dialogs integer;
  dialog integer;
  number bigint;
begin
  select b.is_broker_priority_honored into is_honored
  from broker_private.broker_instance b
  where b.is_the_only_row and broker_private.is_surely_on(b);
  if is_honored is null then
    return null;
  end if;
  select
    array_agg(r.id), array_agg(r.endpoint_no), array_agg(r.message_type_id), min(r.precedence), max(r.precedence),
    string_agg(r.kind::text, ''), array_agg(r.enqueue_time),
    sum(coalesce(octet_length(r.body), r.shared_size, 0) + 64),
    array_agg(
      case when r.shared_body_no is null then r.body else broker_private.shared_body(r.shared_body_no) end
    )
  into
    batch.row_ids, row_endpoints, row_types, first_precedence, last_precedence, batch.kinds, batch.sent_at, size,
    batch.bodies
  from (
    select
      t.id, t.endpoint_no, t.message_type_id, t.kind, t.enqueue_time, t.precedence, t.body, t.shared_body_no,
      t.shared_size
    from broker_private.transmission_messages t
    where t.destination_no = take_plain.destination and t.endpoint_no % take_plain.lanes = take_plain.lane
    order by t.precedence, t.id
    limit take_plain.max_messages
  ) r;
  batch.large_endpoint_nos := '{}';
  batch.large_levels := '{}';
  if row_endpoints is null then
    return batch;
  end if;
  -- They came in the order of their priorities; while those don't count, a lower one may have older messages.
  if first_precedence <> last_precedence
    or size > least(take_plain.max_bytes, take_plain.largest_body)
    and (
      size > take_plain.max_bytes and cardinality(row_types) > 1
      or (select max(octet_length(u.body)) from unnest(batch.bodies) as u (body)) > take_plain.largest_body
    )
  then
    return null;
  end if;
  if not is_honored and cardinality(row_types) = max_messages then
    perform from broker_private.transmission_messages t
    where t.destination_no = take_plain.destination and t.precedence > first_precedence
    limit 1;
    if found then
      return null;
    end if;
  end if;

  endpoint := row_endpoints[1];
  if endpoint = all (row_endpoints) then
    dialogs := 1;
    select
      array[e.endpoint_no], array[e.conversation_id], array[e.is_initiator], array[e.service_name],
      array[e.far_service], array[e.far_broker_instance], array[e.contract_name], array[e.expires_at],
      array[e.is_encrypted], e.service_id
    into
      batch.endpoint_nos, batch.conversation_ids, batch.from_initiator, batch.from_services,
      batch.to_services, batch.to_brokers, batch.contracts, batch.expirations, batch.encrypted, service
    from broker_private.endpoints e
    where e.endpoint_no = endpoint;
    select n.next_number into number
    from broker_private.sequence_counters n
    where n.endpoint_no = endpoint and n.kind = 'A'
    order by n.epoch desc
    limit 1;
    batch.acknowledged := array[number];
    select array[y.kind::text], array[y.session_key], not y.far_user is null
    into batch.established, batch.session_keys, has_far_user
    from broker_private.dialog_security y
    where y.endpoint_no = endpoint;
    if not found then
      batch.established := array[null::text];
      batch.session_keys := array[null::bytea];
    end if;
    for event, far_broker in
      select f.event, f.far_broker_instance from broker_private.far_events f where f.endpoint_no = endpoint
    loop
      if event = 'S' then
        noted := batch.endpoint_nos;
      elsif event = 'B' then
        known := batch.endpoint_nos;
        batch.to_brokers := array[coalesce(batch.to_brokers[1], far_broker)];
      elsif event in ('E', 'X') then
        return null;
      end if;
    end loop;
  else
    select
      array_agg(e.endpoint_no), array_agg(e.conversation_id), array_agg(e.is_initiator), array_agg(e.service_name),
      array_agg(e.far_service), array_agg(e.far_broker_instance), array_agg(e.contract_name),
      array_agg(e.expires_at), array_agg(e.is_encrypted), array_agg(e.next_number), array_agg(e.kind),
      array_agg(e.session_key), array_agg(e.service_id),
      -- A principal is either a role or a user, so it is never IS NOT NULL.
      bool_or(not e.far_user is null)
    into
      batch.endpoint_nos, batch.conversation_ids, batch.from_initiator, batch.from_services, batch.to_services,
      batch.to_brokers, batch.contracts, batch.expirations, batch.encrypted, batch.acknowledged, batch.established,
      batch.session_keys, service_ids, has_far_user
    from (
      select
        x.endpoint_no, x.conversation_id, x.is_initiator, x.service_name, x.far_service, x.far_broker_instance,
        x.contract_name, x.expires_at, x.is_encrypted, x.service_id, y.kind::text as kind, y.session_key,
        y.far_user, (
          select n.next_number from broker_private.sequence_counters n
          where n.endpoint_no = x.endpoint_no and n.kind = 'A'
          order by n.epoch desc
          limit 1
        ) as next_number
      from broker_private.endpoints x
      left join broker_private.dialog_security y on y.endpoint_no = x.endpoint_no
      where x.endpoint_no = any (row_endpoints)
      order by x.endpoint_no
    ) e;
    dialogs := cardinality(service_ids);
    service := service_ids[1];
    -- What belongs to the service and to the far service is asked for once, so all dialogs have the
    -- same ones, on the same side.
    if (
      service = all (service_ids) and batch.to_services[1] = all (batch.to_services)
      and batch.from_initiator[1] = all (batch.from_initiator)
    ) is not true then
      return null;
    end if;
    for endpoint, event, far_broker in
      select f.endpoint_no, f.event, f.far_broker_instance
      from broker_private.far_events f
      where f.endpoint_no = any (batch.endpoint_nos)
      order by f.endpoint_no
    loop
      if event = 'S' then
        noted := noted || endpoint;
      elsif event = 'B' then
        known := known || endpoint;
        dialog := width_bucket(endpoint, batch.endpoint_nos);
        batch.to_brokers[dialog] := coalesce(batch.to_brokers[dialog], far_broker);
      elsif event in ('E', 'X') then
        return null;
      end if;
    end loop;
  end if;
  if has_far_user then
    return null;
  end if;

  if noted is distinct from batch.endpoint_nos then
    fresh := array(
      select u.endpoint_no from unnest(batch.endpoint_nos) as u (endpoint_no)
      except
      select u.endpoint_no from unnest(noted || known) as u (endpoint_no)
      order by endpoint_no
    );
    if fresh <> held then
      -- Those of another batch: the head has changed meanwhile.
      if held <> '{}' then
        return null;
      end if;
      return broker_private.take_fresh(destination, lane, lanes, max_messages, max_bytes, largest_body, fresh);
    end if;
    perform broker_private.note_leaving(batch.endpoint_nos);
  end if;

  -- Who sends counts where his certificate may be asked for.
  if ('N' = all (batch.established)) is not true then
    select
      case
        when s.owner <> 'pg_database_owner'::regrole then broker_private.name_of_role(s.owner)
        else (select broker_private.role_of_owner('pg_database_owner'))
      end
    into owner
    from broker_private.services s
    where s.service_id = service;
  end if;
  if batch.from_initiator[1] then
    select
      broker_private.principal_name(r.user_name),
      case when r.is_anonymous then 'A' when not r.is_anonymous then 'F' end
    into far_user, binding
    from broker_private.remote_service_bindings r
    where r.remote_service_name = batch.to_services[1];
  end if;
  if row_types[1] = all (row_types) then
    select array[y.name] into batch.type_names
    from broker_private.message_types y
    where y.message_type_id = row_types[1];
  else
    select array_agg(y.message_type_id), array_agg(y.name) into type_ids, batch.type_names
    from (select distinct u.message_type_id from unnest(row_types) as u (message_type_id)) x
    join broker_private.message_types y on y.message_type_id = x.message_type_id;
  end if;
  batch.level := case when is_honored then 10 - first_precedence end;
  if cardinality(row_types) = 1 then
    batch.owners := array[owner];
    batch.far_users := array[far_user];
    batch.bindings := array[binding];
    batch.dialog_index := array[1];
    batch.type_index := array[1];
    batch.sequence_numbers := batch.acknowledged;
    return batch;
  end if;

  batch.owners := array_fill(owner, array[dialogs]);
  batch.far_users := array_fill(far_user, array[dialogs]);
  batch.bindings := array_fill(binding, array[dialogs]);
  if type_ids is null then
    batch.type_index := array_fill(1, array[cardinality(row_types)]);
  else
    for place in 1 .. cardinality(row_types) loop
      batch.type_index[place] := array_position(type_ids, row_types[place]);
    end loop;
  end if;
  next_numbers := batch.acknowledged;
  for place in 1 .. cardinality(row_endpoints) loop
    -- The dialogs are in the order of their endpoints.
    dialog := width_bucket(row_endpoints[place], batch.endpoint_nos);
    dialog_index[place] := dialog;
    sequence_numbers[place] := next_numbers[dialog];
    next_numbers[dialog] := next_numbers[dialog] + 1;
  end loop;
  batch.dialog_index := dialog_index;
  batch.sequence_numbers := sequence_numbers;
  return batch;
end
$$;
