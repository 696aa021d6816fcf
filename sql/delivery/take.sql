-- hot path
-- broker_private.take(destination, lane, lanes, max messages, max bytes, paused, largest body,
-- by age, in flight, rows, numbers): the next batch for a destination, as arrays in one row.
--
-- A batch in which nothing is out of the ordinary is put together here. Then nothing is paused or
-- in flight, and no body is large. All fits and leaves in the order in which it came, and the far
-- side has ended nothing. All else is take_fully's, which says what each argument and column is,
-- and why a batch may be taken again.
--
-- A dialog of which nothing has gone yet may be moving within this database; deliver_dialog holds
-- its counter then. So its counter is locked, and all is looked at again by statements that see
-- what moved before.
-- Locks: the counters of dialogs of which nothing has gone, in the order of their endpoints.
-- Plan: the head of transmission_messages_destination; the rest by key, once for each dialog.
-- Why: what a statement costs to set up is more than what it does for one message.
create or replace function broker_private.take(
  destination integer, lane integer, lanes integer, max_messages integer, max_bytes bigint, paused bigint[],
  largest_body bigint default null, by_age boolean default false,
  in_flight_endpoints bigint[] default '{}', in_flight_rows bigint[] default '{}', in_flight_numbers bigint[] default '{}',
  out endpoint_nos bigint[], out conversation_ids uuid[], out from_initiator boolean[], out from_services text[],
  out to_services text[], out to_brokers uuid[], out contracts text[], out expirations timestamp with time zone[],
  out encrypted boolean[], out type_names text[], out dialog_index integer[], out type_index integer[],
  out sequence_numbers bigint[], out kinds text, out bodies bytea[], out row_ids bigint[],
  out large_endpoint_nos bigint[], out large_levels integer[], out owners text[], out far_users text[], out bindings text[], out established text[], out session_keys bytea[],
  out acknowledged bigint[], out sent_at timestamp with time zone[],
  out level integer
)
returns setof record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
declare
  is_honored boolean;
  row_endpoints bigint[];
  row_types integer[];
  precedences smallint[];
  size bigint;
  largest integer;
  type_ids integer[];
  service_ids integer[];
  next_numbers bigint[];
  noted bigint[];
  known bigint[];
  known_brokers uuid[];
  has_ended boolean;
  has_far_user boolean;
  fresh bigint[];
  held bigint[];
  far_user text;
  binding text;
  owner text;
  is_odd boolean := take.paused <> '{}' or take.in_flight_endpoints <> '{}' or take.by_age;
  dialog integer;
begin
  while not is_odd loop
    -- One statement, so one snapshot: a number is the counter's, plus the place among the rows. Rows from
    -- before an acknowledgement, with the counter from after it, would be sent again as other messages.
    select
      (
        select b.is_broker_priority_honored from broker_private.broker_instance b
        where b.is_the_only_row and broker_private.is_surely_on(b)
      ),
      w.row_ids, w.row_endpoints, w.row_types, w.precedences, w.kinds, w.sent_at, w.size, w.largest, w.bodies,
      d.endpoint_nos, d.conversation_ids, d.from_initiator, d.from_services, d.to_services, d.to_brokers,
      d.contracts, d.expirations, d.encrypted, d.next_numbers, d.established, d.session_keys, d.service_ids,
      d.has_far_user, f.noted, f.known, f.known_brokers, f.has_ended
    into
      is_honored, row_ids, row_endpoints, row_types, precedences, kinds, sent_at, size, largest, bodies,
      endpoint_nos, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts,
      expirations, encrypted, acknowledged, established, session_keys, service_ids, has_far_user,
      noted, known, known_brokers, has_ended
    from (
      select
        array_agg(r.id) as row_ids, array_agg(r.endpoint_no) as row_endpoints,
        array_agg(r.message_type_id) as row_types, array_agg(r.precedence) as precedences,
        string_agg(r.kind::text, '') as kinds, array_agg(r.enqueue_time) as sent_at,
        sum(r.size + 64) as size, max(r.size) as largest,
        array_agg(
          case when r.shared_body_no is null then r.body else broker_private.shared_body(r.shared_body_no) end
        ) as bodies
      from (
        select
          t.id, t.endpoint_no, t.message_type_id, t.kind, t.enqueue_time, t.precedence, t.body, t.shared_body_no,
          coalesce(octet_length(t.body), t.shared_size, 0) as size
        from broker_private.transmission_messages t
        where t.destination_no = take.destination and t.endpoint_no % take.lanes = take.lane
        order by t.precedence, t.id
        limit take.max_messages
      ) r
    ) w
    cross join lateral (
      select
        array_agg(e.endpoint_no) as endpoint_nos, array_agg(e.conversation_id) as conversation_ids,
        array_agg(e.is_initiator) as from_initiator, array_agg(e.service_name) as from_services,
        array_agg(e.far_service) as to_services, array_agg(e.far_broker_instance) as to_brokers,
        array_agg(e.contract_name) as contracts, array_agg(e.expires_at) as expirations,
        array_agg(e.is_encrypted) as encrypted, array_agg(e.next_number) as next_numbers,
        array_agg(e.kind) as established, array_agg(e.session_key) as session_keys,
        array_agg(e.service_id) as service_ids,
        -- A principal is either a role or a user, so it is never IS NOT NULL.
        bool_or(not e.far_user is null) as has_far_user
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
        where x.endpoint_no = any (w.row_endpoints)
        order by x.endpoint_no
      ) e
    ) d
    cross join lateral (
      select
        array_agg(v.endpoint_no) filter (where v.event = 'S') as noted,
        array_agg(v.endpoint_no) filter (where v.event = 'B') as known,
        array_agg(v.far_broker_instance) filter (where v.event = 'B') as known_brokers,
        bool_or(v.event in ('E', 'X')) is true as has_ended
      from (
        select x.endpoint_no, x.event, x.far_broker_instance from broker_private.far_events x
        where x.endpoint_no = any (d.endpoint_nos)
        order by x.endpoint_no
      ) v
    ) f;
    exit when is_honored is null;
    if row_ids is null then
      return;
    end if;
    -- They came in the order of their priorities; while those don't count, a lower one may have older messages.
    is_odd := has_ended or has_far_user or precedences[1] <> precedences[cardinality(row_ids)]
      or size > take.max_bytes and cardinality(row_ids) > 1 or largest > take.largest_body;
    exit when is_odd;
    if not is_honored and cardinality(row_ids) = take.max_messages then
      perform from broker_private.transmission_messages t
      where t.destination_no = take.destination and t.precedence > precedences[1]
      limit 1;
      is_odd := found;
      exit when is_odd;
    end if;
    -- What belongs to the service and to the far service is asked for once, so all dialogs have the
    -- same ones, on the same side.
    if cardinality(endpoint_nos) > 1 then
      is_odd := not (
        service_ids[1] = all (service_ids) and to_services[1] = all (to_services)
        and from_initiator[1] = all (from_initiator)
      );
      exit when is_odd;
    end if;

    if noted is distinct from endpoint_nos then
      fresh := array(
        select u.endpoint_no from unnest(endpoint_nos) as u (endpoint_no)
        except
        select u.endpoint_no from unnest(noted || known) as u (endpoint_no)
        order by endpoint_no
      );
      if fresh <> '{}' and held is null then
        held := array(
          select c.endpoint_no
          from unnest(fresh) as u (endpoint_no)
          cross join lateral (
            select x.endpoint_no from broker_private.sequence_counters x
            where x.endpoint_no = u.endpoint_no and x.kind = 'A'
            order by x.epoch desc
            limit 1
            for update skip locked
          ) c
        );
        is_odd := held <> fresh;
        continue;
      end if;
      is_odd := fresh <> '{}' and fresh <> held;
      exit when is_odd;
      insert into broker_private.far_events (endpoint_no, event)
      select u.endpoint_no, 'S' from unnest(endpoint_nos) as u (endpoint_no)
      on conflict do nothing;
    end if;
    if array_position(to_brokers, null) is not null and known is not null then
      for place in 1 .. cardinality(endpoint_nos) loop
        if to_brokers[place] is null then
          dialog := width_bucket(endpoint_nos[place], known);
          if dialog > 0 and known[dialog] = endpoint_nos[place] then
            to_brokers[place] := known_brokers[dialog];
          end if;
        end if;
      end loop;
    end if;

    select
      case
        when s.owner <> 'pg_database_owner'::regrole then broker_private.name_of_role(s.owner)
        else (select broker_private.role_of_owner('pg_database_owner'))
      end
    into owner
    from broker_private.services s
    where s.service_id = service_ids[1];
    if from_initiator[1] then
      select
        broker_private.principal_name(r.user_name),
        case when r.is_anonymous then 'A' when not r.is_anonymous then 'F' end
      into far_user, binding
      from broker_private.remote_service_bindings r
      where r.remote_service_name = to_services[1];
    end if;
    select array[y.name] into type_names
    from broker_private.message_types y
    where y.message_type_id = row_types[1];
    owners := array_fill(owner, array[cardinality(endpoint_nos)]);
    far_users := array_fill(far_user, array[cardinality(endpoint_nos)]);
    bindings := array_fill(binding, array[cardinality(endpoint_nos)]);

    if row_types[1] = all (row_types) then
      type_index := array_fill(1, array[cardinality(row_ids)]);
    else
      select array_agg(y.message_type_id), array_agg(y.name) into type_ids, type_names
      from (select distinct u.message_type_id from unnest(row_types) as u (message_type_id)) x
      join broker_private.message_types y on y.message_type_id = x.message_type_id;
      for place in 1 .. cardinality(row_types) loop
        type_index[place] := array_position(type_ids, row_types[place]);
      end loop;
    end if;
    next_numbers := acknowledged;
    for place in 1 .. cardinality(row_endpoints) loop
      -- The dialogs are in the order of their endpoints.
      dialog := width_bucket(row_endpoints[place], endpoint_nos);
      dialog_index[place] := dialog;
      sequence_numbers[place] := next_numbers[dialog];
      next_numbers[dialog] := next_numbers[dialog] + 1;
    end loop;
    large_endpoint_nos := '{}';
    large_levels := '{}';
    level := case when is_honored then 10 - precedences[1] end;
    return next;
    return;
  end loop;

  return query
  select t.* from broker_private.take_fully(
    take.destination, take.lane, take.lanes, take.max_messages, take.max_bytes, take.paused, take.largest_body,
    take.by_age, take.in_flight_endpoints, take.in_flight_rows, take.in_flight_numbers
  ) t;
end
$$;
