-- hot path
-- The next batch for a destination, as arrays in one row, without the endpoints in paused.
--
-- With a largest body, a message with a larger one is left out too, with all that follows on its
-- dialog. Those dialogs are named in large_endpoint_nos, the oldest message's first: take_piece is
-- for them. They may be all that the row has. large_levels: the priority of each, also by age; 5
-- while the broker doesn't honour priorities. By age: the oldest leave first, whatever their
-- priority. level: that of the first message, or of all that leave by age the highest; null while
-- the broker doesn't honour priorities. For the security of each dialog it returns who owns its
-- service here and who the far side is. Then the kind that its binding asks for now (F, A, null
-- without one). Then the kind that it was given when it first went over the network, and the key
-- that was kept then. acknowledged is the next number that the far broker has to acknowledge. By
-- that and by sent_at of each message deliver finds out whether one of the two databases has gone
-- back to an earlier state.
--
-- It reads, and notes once that a dialog's messages go to another broker: from then on they never
-- go anywhere else. A message's number is the next one that the far broker has to acknowledge on
-- its dialog, plus the message's place among the dialog's rows. So it comes out the same as often
-- as a batch has to be sent again. The order of rows of one dialog is the order of their commits,
-- as its senders take turns at the group lock. So a dialog is always in the same lane, and what a
-- lane has in flight is named. Of each of those endpoints that is the last row, behind which the
-- batch begins, and the number that comes next. An endpoint may be left out of a batch, or not all
-- of it be acknowledged. Then it is in flight until all batches with it are settled, and paused
-- until then.
-- Plan: next_to_leave's; counters, endpoints, far events, security, services, contracts by key.
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
  left_out bigint[] := take.paused;
  held bigint[] := '{}';
  large_ids bigint[] := '{}';
  more_left_out bigint[];
  more_held bigint[];
  more_large bigint[];
  more_large_ids bigint[];
begin
  -- A worker may have asked before this database was replaced by a copy.
  if broker_private.broker_problem() is not null then
    return;
  end if;
  large_endpoint_nos := '{}';
  -- Mostly once. A dialog of which nothing has gone yet may be moving within this database
  -- (deliver_dialog holds its counter then): it is left out. One that can be held is looked at
  -- again, as this statement would still see what moved just before. Nobody moves it after, as it is
  -- held until S is committed.
  loop
    with rows_in_order as materialized (
      select t.id, t.endpoint_no, t.message_type_id, t.kind, t.body, t.shared_body_no, t.shared_size, t.enqueue_time, t.turn,
        row_number() over in_order as place, sum(coalesce(octet_length(t.body), t.shared_size, 0) + 64) over in_order as total
      from broker_private.next_to_leave(
        take.destination, take.lane, take.lanes, take.max_messages, left_out, take.by_age, take.in_flight_endpoints, take.in_flight_rows
      ) t
      where large_ids = '{}' or not exists (
        select from unnest(take.large_endpoint_nos, large_ids) as l (endpoint_no, id) where l.endpoint_no = t.endpoint_no and t.id >= l.id
      )
      window in_order as (order by t.turn, t.id rows unbounded preceding)
    ),
    next as materialized (
      select r.endpoint_no, bool_or(r.kind = '<error>') as has_error, bool_or(r.place = 1 or r.total <= take.max_bytes) as is_in_batch,
        min(r.id) filter (where coalesce(octet_length(r.body), r.shared_size) > take.largest_body) as large_id
      from rows_in_order r
      group by r.endpoint_no
    ),
    fresh as materialized (
      select n.endpoint_no from next n
      where n.endpoint_no <> all (held)
        and (
          select true from broker_private.far_events f
          where f.endpoint_no = n.endpoint_no and f.event in ('<first taken>', '<broker known>')
          limit 1
        ) is null
    ),
    now_held as materialized (
      select f.endpoint_no from fresh f
      cross join lateral (
        select x.endpoint_no from broker_private.sequence_counters x
        where x.endpoint_no = f.endpoint_no and x.kind = '<next acknowledged>'
        order by x.epoch desc
        limit 1
        for update skip locked
      ) c
    ),
    -- What the far side has ended and this side has not is left out too: its messages wait until it does, and go then. An Error does not wait.
    ended as (
      select n.endpoint_no from next n
      where not n.has_error
        and (
          select true from broker_private.far_events f
          where f.endpoint_no = n.endpoint_no and f.event in ('<far end>', '<far error>')
          limit 1
        )
        and (
          select true from broker_private.endpoints e
          where e.endpoint_no = n.endpoint_no and e.local_end is null
          limit 1
        )
    ),
    barred as materialized (
      select
        array(select f.endpoint_no from fresh f where f.endpoint_no not in (select h.endpoint_no from now_held h))
          || array(select e.endpoint_no from ended e) as endpoint_nos,
        array(select h.endpoint_no from now_held h) as held,
        array(select n.endpoint_no from next n where n.large_id is not null order by n.large_id) as large,
        array(select n.large_id from next n where n.large_id is not null order by n.large_id) as large_ids
    ),
    batch as not materialized (
      select r.* from rows_in_order r where r.place = 1 or r.total <= take.max_bytes
    ),
    -- Of each endpoint in the batch, in the order of lines' dense_rank: an endpoint's row, service and contract stay while messages of it wait.
    dialogs as materialized (
      select n.endpoint_no, row_number() over (order by n.endpoint_no) as dialog, e.conversation_id, e.is_initiator,
        coalesce(s.name, s.dropped_name) as from_service, e.far_service,
        coalesce(e.far_broker_instance, (
          select f.far_broker_instance from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
        )) as to_broker,
        coalesce(k.name, k.dropped_name) as contract, e.expires_at, e.is_encrypted,
        coalesce(take.in_flight_numbers[array_position(take.in_flight_endpoints, e.endpoint_no)], c.acknowledged) as next_number, c.acknowledged,
        case
          when s.owner <> 'pg_database_owner'::regrole then broker_private.name_of_role(s.owner)
          else (select broker_private.role_of_owner('pg_database_owner'))
        end::text as owner,
        broker_private.principal_name(coalesce(r.user_name, y.far_user))::text as far_user,
        case when r.is_anonymous then '<anonymous>' when not r.is_anonymous then '<full>' end as binding, y.kind::text as security_kind, y.session_key
      from next n
      cross join barred b
      cross join lateral (
        select x.endpoint_no, x.conversation_id, x.is_initiator, x.service_id, x.contract_id, x.far_service,
          x.far_broker_instance, x.expires_at, x.is_encrypted
        from broker_private.endpoints x
        where x.endpoint_no = n.endpoint_no
        limit 1
      ) e
      join broker_private.services s on s.service_id = e.service_id
      join broker_private.contracts k on k.contract_id = e.contract_id
      cross join lateral (
        select x.next_number as acknowledged from broker_private.sequence_counters x
        where x.endpoint_no = e.endpoint_no and x.kind = '<next acknowledged>'
        order by x.epoch desc
        limit 1
      ) c
      left join broker_private.remote_service_bindings r on r.remote_service_name = e.far_service and e.is_initiator
      left join lateral (
        select x.kind, x.far_user, x.session_key from broker_private.dialog_security x where x.endpoint_no = e.endpoint_no limit 1
      ) y on true
      where n.is_in_batch and b.endpoint_nos = '{}' and b.held = '{}' and b.large_ids = '{}'
    ),
    noted as (
      insert into broker_private.far_events (endpoint_no, event)
      select d.endpoint_no, '<first taken>' from dialogs d
      where (
        select true from broker_private.far_events f
        where f.endpoint_no = d.endpoint_no and f.event = '<first taken>'
        limit 1
      ) is null
      on conflict do nothing
    ),
    headers as materialized (
      select
        array_agg(d.endpoint_no) as endpoint_nos, array_agg(d.conversation_id) as conversation_ids, array_agg(d.is_initiator) as from_initiator,
        array_agg(d.from_service) as from_services, array_agg(d.far_service) as to_services, array_agg(d.to_broker) as to_brokers,
        array_agg(d.contract) as contracts, array_agg(d.expires_at) as expirations, array_agg(d.is_encrypted) as encrypted,
        array_agg(d.next_number) as next_numbers, array_agg(d.acknowledged) as acknowledged, array_agg(d.owner) as owners, array_agg(d.far_user) as far_users,
        array_agg(d.binding) as bindings, array_agg(d.security_kind) as established, array_agg(d.session_key) as session_keys
      from (select * from dialogs x order by x.dialog) d
    ),
    types as materialized (
      select array_agg(y.message_type_id) as type_ids, array_agg(y.name) as type_names
      from (select distinct b.message_type_id from batch b) x
      join broker_private.message_types y on y.message_type_id = x.message_type_id
    ),
    -- Without the bodies, so these aren't copied by each sort and window.
    lines as (
      select
        array_agg(l.dialog) as dialog_index, array_agg(l.message_type) as type_index, array_agg(l.sequence_number) as sequence_numbers
      from (
        select b.dialog::integer, array_position(y.type_ids, b.message_type_id) as message_type, h.next_numbers[b.dialog] + b.ahead as sequence_number
        from (
          select
            r.place, r.message_type_id, dense_rank() over (order by r.endpoint_no) as dialog,
            row_number() over (partition by r.endpoint_no order by r.place) - 1 as ahead
          from batch r
        ) b
        cross join headers h
        cross join types y
        order by b.place
      ) l
    ),
    contents as (
      select
        string_agg(r.kind::text, '') as kinds,
        array_agg(case when r.shared_body_no is null then r.body else broker_private.shared_body(r.shared_body_no) end) as bodies,
        array_agg(r.id) as row_ids, array_agg(r.enqueue_time) as sent_at, min(r.turn) as turn
      from (select * from batch b order by b.turn, b.id) r
    )
    select
      b.endpoint_nos, b.held, b.large, b.large_ids,
      h.endpoint_nos, h.conversation_ids, h.from_initiator, h.from_services, h.to_services, h.to_brokers, h.contracts, h.expirations,
      h.encrypted, (select y.type_names from types y), l.dialog_index, l.type_index, l.sequence_numbers,
      c.kinds, c.bodies, c.row_ids, h.owners, h.far_users, h.bindings, h.established, h.session_keys, h.acknowledged, c.sent_at,
      (select 10 - c.turn from broker_private.broker_instance i where i.is_the_only_row and i.is_broker_priority_honored)
    into
      more_left_out, more_held, more_large, more_large_ids,
      endpoint_nos, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations,
      encrypted, type_names, dialog_index, type_index, sequence_numbers,
      kinds, bodies, row_ids, owners, far_users, bindings, established, session_keys, acknowledged, sent_at,
      level
    from barred b
    cross join headers h
    cross join lines l
    cross join contents c;
    exit when more_left_out = '{}' and more_held = '{}' and more_large = '{}';
    left_out := left_out || more_left_out;
    held := held || more_held;
    large_endpoint_nos := large_endpoint_nos || more_large;
    large_ids := large_ids || more_large_ids;
  end loop;

  if large_ids <> '{}' then
    select array_agg(u.endpoint_no order by u.place), array_agg(
      case when i.is_broker_priority_honored
        then coalesce((select e.priority from broker_private.endpoints e where e.endpoint_no = u.endpoint_no), 5) else 5 end
      order by u.place
    )
    into large_endpoint_nos, large_levels
    from unnest(take.large_endpoint_nos) with ordinality as u (endpoint_no, place)
    cross join broker_private.broker_instance i
    where i.is_the_only_row and u.endpoint_no <> all (left_out);
    large_endpoint_nos := coalesce(large_endpoint_nos, '{}');
  end if;
  large_levels := coalesce(large_levels, '{}');
  if row_ids is not null or large_endpoint_nos <> '{}' then
    return next;
  end if;
end
$$;
