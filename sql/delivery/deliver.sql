-- hot path
-- Stores a batch that came from another broker.
--
-- Returns, for each dialog of the batch, the number that it expects next, and the fault, if a
-- message could not be taken.
--
-- deliver_plain stores a batch of messages on dialogs that are known here, unless there is
-- something odd in it. They have to come from their dialog's broker and with its security. All else
-- is deliver_fully's, which says what the arguments are, and what is refused.
-- Locks: the counter of each dialog, in the order of their endpoints; of none, where one would be
-- refused.
-- Plan: endpoints by conversation and side, the rest by an array of endpoints. Only the counters
-- are a join, as each is found from its newest epoch.
-- Why: a statement costs 20,000 instructions or more to set up; a join 35,000, and 4,000 for each
-- dialog. A look by an array of keys costs hardly more for many dialogs than for one.
create or replace function broker_private.deliver(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], from_services text[], to_services text[], to_brokers uuid[],
  contracts text[], expirations timestamp with time zone[], encrypted boolean[], type_names text[], dialog_index integer[],
  type_index integer[], sequence_numbers bigint[], kinds text, bodies bytea[],
  security_kinds text[], far_users text[], session_keys bytea[], acknowledged bigint[] default null,
  sent_at timestamp with time zone[] default null,
  out next_numbers bigint[], out fault_codes integer[], out fault_texts text[], out fault_is_final boolean[]
)
returns record
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
  dialogs constant integer := cardinality(conversation_ids);
  guid uuid;
  -- In the order of the endpoints.
  endpoint_nos bigint[];
  places integer[];
  counters tid[];
  expected bigint[];
  confirmed bigint[];
  has_initiator boolean;
  right_ones bigint;
  is_right boolean;
begin
  if kinds = repeat('<message>', cardinality(dialog_index)) and acknowledged is not null then
    select
      (
        select b.service_broker_guid from broker_private.broker_instance b
        where b.is_the_only_row and broker_private.is_surely_on(b)
      ),
      array_agg(s.endpoint_no), array_agg(s.place), bool_or(s.is_initiator)
    into guid, endpoint_nos, places, has_initiator
    from (
      select e.endpoint_no, e.is_initiator, d.place::integer as place
      from unnest(deliver.conversation_ids) with ordinality as d (conversation_id, place)
      join broker_private.endpoints e
        on e.conversation_id = d.conversation_id
        and e.is_initiator = not deliver.from_initiator[d.place]
      where e.local_end is distinct from '<cleaned up>'
      order by e.endpoint_no
    ) s;
    is_right := cardinality(endpoint_nos) = dialogs and guid is not null
      and (guid = all (to_brokers)) is not false;
    if is_right and has_initiator then
      perform from broker_private.far_events f
      where f.endpoint_no = any (endpoint_nos) and f.event = '<broker known>'
        and f.far_broker_instance = deliver.from_broker
        and not deliver.from_initiator[places[width_bucket(f.endpoint_no, endpoint_nos)]];
      get diagnostics right_ones = row_count;
      is_right := right_ones = cardinality(array_positions(from_initiator, false));
    end if;
    if is_right and ('<same worker>' = all (security_kinds)) is not true then
      perform from broker_private.dialog_security y
      where y.endpoint_no = any (endpoint_nos)
        and y.kind::text = deliver.security_kinds[places[width_bucket(y.endpoint_no, endpoint_nos)]]
        and case y.kind
          when '<clear>' then true
          when '<anonymous>' then
            not deliver.from_initiator[places[width_bucket(y.endpoint_no, endpoint_nos)]]
            or substring(y.session_key, 1, 16) = substring(
              deliver.session_keys[places[width_bucket(y.endpoint_no, endpoint_nos)]], 1, 16
            )
          when '<full>' then
            deliver.far_users[places[width_bucket(y.endpoint_no, endpoint_nos)]]
              = broker_private.far_user_of(y.endpoint_no, y.far_user)
        end;
      get diagnostics right_ones = row_count;
      is_right := right_ones = dialogs;
    end if;
    if is_right then
      select
        array_agg(c.location), array_agg(c.next_number),
        bool_and((c.next_number < deliver.acknowledged[u.place]) is not true),
        array_agg(u.endpoint_no)
          filter (where deliver.acknowledged[u.place] > 0 and not c.is_confirmed)
      into counters, expected, is_right, confirmed
      from unnest(endpoint_nos, places) as u (endpoint_no, place)
      cross join lateral (
        select n.ctid as location, n.next_number, n.is_confirmed
        from broker_private.sequence_counters n
        where n.endpoint_no = u.endpoint_no and n.kind = '<next expected>'
        order by n.epoch desc
        limit 1
        for update
      ) c;
    end if;
    -- What repeats nothing can't tell that the sender's database has gone back.
    if is_right then
      next_numbers := broker_private.deliver_plain(
        endpoint_nos, places, counters, expected, type_names, dialog_index, type_index,
        sequence_numbers, bodies, sent_at
      );
    end if;
  end if;
  if next_numbers is null then
    select f.* into next_numbers, fault_codes, fault_texts, fault_is_final
    from broker_private.deliver_fully(
      from_broker, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations,
      encrypted, type_names, dialog_index, type_index, sequence_numbers, kinds, bodies, security_kinds, far_users,
      session_keys, acknowledged, sent_at
    ) f;
    return;
  end if;
  if confirmed is not null then
    perform broker_private.confirm_dialogs(confirmed);
  end if;
  fault_codes := array_fill(null::integer, array[dialogs]);
  fault_texts := array_fill(null::text, array[dialogs]);
  fault_is_final := array_fill(false, array[dialogs]);
end
$$;
