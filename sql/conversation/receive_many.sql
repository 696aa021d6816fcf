-- hot path
-- RECEIVE of any number from a group that this session holds, or from one conversation of it.
--
-- Null if there is none. At most 1000 rows or 64 MB, the last one marked if there is more (see
-- broker.receive). Strays are brought home first, where a move touched the group. Mostly all are
-- alike: of one conversation and one type. Then endpoint and type are looked up once, and a
-- message's number follows from its place. Only the holder of the group removes messages of an open
-- conversation, so all that was found is still there.
-- Plan: messages_group for one group; then each endpoint and message type by its key.
create or replace function broker_private.receive_many(
  queue integer, group_number bigint, endpoint bigint, wanted bigint, has_moved boolean, holds_quarantine boolean,
  has_floors boolean
)
returns broker.message[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_tidscan = on
as $$
declare
  locations tid[];
  is_cut boolean;
  total_size bigint;
  received broker.message[];
  is_alike boolean;
  is_local boolean;
  of_endpoint bigint;
  number_before bigint;
  type_id integer;
  of_handle uuid;
  id_prefix text;
  id_base bigint;
  of_group uuid;
  service_name text;
  service integer;
  contract_name text;
  contract integer;
  type_name text;
  type_validation text;
begin
  loop
    loop
      if has_floors and not has_moved then
        select
          -- In the order of a conversation, which counts where all are of one.
          array_agg(m.location order by m.id), count(*) = 1000 and wanted is distinct from 1000, sum(m.size), min(m.endpoint_no),
          min(m.endpoint_no) = max(m.endpoint_no) and min(m.message_type_id) = max(m.message_type_id) and min(m.urgency) = 2
            and count(m.sequence_number) in (0, count(*)) and count(m.shared_size) = 0,
          min(m.message_type_id), count(m.sequence_number) = 0
        into locations, is_cut, total_size, of_endpoint, is_alike, type_id, is_local
        from broker_private.messages_above_floors(queue, group_number, endpoint, least(wanted, 1000)) m;
        exit when total_size is null or total_size <= 64 * 1024 * 1024;
      end if;
      select
        array_agg(m.location), count(*) = 1000 and wanted is distinct from 1000, sum(m.size), min(m.endpoint_no),
        min(m.endpoint_no) = max(m.endpoint_no) and min(m.message_type_id) = max(m.message_type_id) and min(m.urgency) = 2
          and count(m.sequence_number) in (0, count(*)) and count(m.shared_size) = 0,
        min(m.message_type_id), count(m.sequence_number) = 0
      into locations, is_cut, total_size, of_endpoint, is_alike, type_id, is_local
      from (
        select
          m.ctid as location, coalesce(octet_length(m.body), m.shared_size, 0) as size, m.endpoint_no, m.message_type_id, m.urgency,
          m.sequence_number, m.shared_size
        from broker_private.messages m
        where m.group_no = group_number and (endpoint is null or m.endpoint_no = endpoint)
          and (not has_moved or exists (
            select from broker_private.endpoints e where e.endpoint_no = m.endpoint_no and e.group_no = m.group_no
          ))
        order by m.precedence, m.endpoint_no, m.urgency, m.id
        limit least(wanted, 1000)
      ) m;
      if total_size > 64 * 1024 * 1024 then
        select array_agg(c.location order by c.place), count(*) < max(c.candidates) or max(c.candidates) = 1000 and wanted is distinct from 1000
        into locations, is_cut
        from (
          select
            m.location,
            row_number() over listed as place,
            count(*) over () as candidates,
            sum(m.size) over listed as total
          from (
            select m.ctid as location, coalesce(octet_length(m.body), m.shared_size, 0) as size, m.precedence, m.endpoint_no, m.urgency, m.id
            from broker_private.messages m
            where m.group_no = group_number and (endpoint is null or m.endpoint_no = endpoint)
              and (not has_moved or exists (
                select from broker_private.endpoints e where e.endpoint_no = m.endpoint_no and e.group_no = m.group_no
              ))
            order by m.precedence, m.endpoint_no, m.urgency, m.id
            limit least(wanted, 1000)
          ) m
          window listed as (order by m.precedence, m.endpoint_no, m.urgency, m.id)
        ) c
        where c.place = 1 or c.total <= 64 * 1024 * 1024;
      end if;
      -- What it gathers came before what was found here, or together with it.
      exit when not has_moved or broker_private.gather_moved(group_number) = 0;
      if holds_quarantine then
        wanted := broker_private.set_aside(queue, group_number, wanted);
      end if;
    end loop;
    exit when locations is null;

    if is_alike then
      select
        e.conversation_handle, left(e.conversation_id::text, 18), case when e.is_initiator then 2::bigint << 60 else 6::bigint << 60 end,
        e.conversation_group_id, e.service_name, e.service_id, e.contract_name, e.contract_id
      into of_handle, id_prefix, id_base, of_group, service_name, service, contract_name, contract
      from broker_private.endpoints e
      where e.endpoint_no = of_endpoint and e.local_end is null;
    end if;
    if of_handle is not null then
      select y.name, y.validation into type_name, type_validation
      from broker_private.message_types y
      where y.message_type_id = type_id;
      if is_local then
        update broker_private.sequence_counters n
        set next_number = n.next_number + cardinality(locations), epoch = (n.next_number + cardinality(locations)) >> 7
        where n.ctid = (
          select c.ctid from broker_private.sequence_counters c
          where c.endpoint_no = of_endpoint and c.kind = '<next received>'
          order by c.epoch desc
          limit 1
        )
        returning n.next_number - cardinality(locations) - 1 into number_before;
      end if;
      -- It comes in the order of the list. With the settings of this function nothing but a nested loop
      -- from there to the places is possible. To sort it is a sixteenth of all.
      with taken as (
        delete from broker_private.messages m
        using unnest(locations) with ordinality as l (location, place)
        where m.ctid = l.location
        returning m.id, m.sequence_number, m.enqueue_time, m.precedence, m.body, l.place
      )
      select array_agg(
        row(
          is_cut::integer, 10 - t.precedence, t.id, of_group, of_handle, coalesce(t.sequence_number, number_before + t.place), service_name,
          service, contract_name, contract, type_name, type_id, type_validation, t.body,
          -- As broker_private.message_id does.
          (id_prefix || to_hex(coalesce(t.sequence_number, number_before + t.place) + id_base))::uuid, t.enqueue_time
        )::broker.message
      ) into received
      from taken t;
      exit;
    end if;

    with taken as materialized (
      delete from broker_private.messages m
      where m.ctid = any (locations)
      returning
        m.id, m.group_no, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.precedence, m.urgency, m.body,
        m.shared_body_no
    ),
    numbered as (
      update broker_private.sequence_counters s
      set next_number = s.next_number + k.taken, epoch = (s.next_number + k.taken) >> 7
      from (
        select
          t.endpoint_no,
          count(*) as taken,
          (
            select n.ctid from broker_private.sequence_counters n
            where n.endpoint_no = t.endpoint_no and n.kind = '<next received>'
            order by n.epoch desc
            limit 1
          ) as location
        from taken t
        where t.sequence_number is null and t.urgency = 2
        group by t.endpoint_no
      ) k
      where s.ctid = k.location
      returning s.endpoint_no, s.next_number - k.taken as first_number
    ),
    complete as (
      select
        t.id, t.endpoint_no, t.enqueue_time, t.message_type_id, t.precedence, t.urgency, t.body, t.shared_body_no,
        coalesce(
          t.sequence_number,
          case when t.urgency = 2
            then n.first_number + row_number() over (partition by t.endpoint_no, t.urgency order by t.id) - 1
            else broker_private.number_of_error(t.endpoint_no)
          end
        ) as sequence_number
      from taken t
      left join numbered n on n.endpoint_no = t.endpoint_no
    )
    select array_agg(
      row(
        is_cut::integer, 10 - c.precedence, c.id, e.conversation_group_id, e.conversation_handle, c.sequence_number, e.service_name, e.service_id,
        e.contract_name, e.contract_id, y.name, y.message_type_id, y.validation,
        case when c.shared_body_no is null then c.body else broker_private.shared_body(c.shared_body_no) end,
        broker_private.message_id(e.conversation_id, not e.is_initiator, c.urgency, case c.urgency when 2 then c.sequence_number else c.id end),
        c.enqueue_time
      )::broker.message
      order by c.precedence, c.endpoint_no, c.urgency, c.id
    ) into received
    from complete c
    -- Each side of LIMIT 1 is one probe of an index, whatever the planner believes of the tables' sizes.
    cross join lateral (
      select
        x.conversation_group_id, x.conversation_handle, x.conversation_id, x.is_initiator, x.service_name, x.service_id, x.contract_name,
        x.contract_id
      from broker_private.endpoints x
      where x.endpoint_no = c.endpoint_no and x.local_end is null
      limit 1
    ) e
    cross join lateral (
      select x.message_type_id, x.name, x.validation
      from broker_private.message_types x
      where x.message_type_id = c.message_type_id
      limit 1
    ) y;
    -- Else all lay on endpoints that have ended, and are removed now.
    exit when received is not null;
  end loop;
  return received;
end
$$;
