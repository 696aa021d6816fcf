-- hot path
-- The next batch for a destination, if nothing is out of the ordinary in it.
--
-- If is_plain is not true, it is take's. Without rows nothing waits.
--
-- It returns what changes. What never does of a dialog that has begun to go, the worker asks for
-- once (describe_dialogs). incarnation: as long as it is the same, numbers of dialogs and of types
-- stand for the same ones. A database that was restored, or is a copy, has another. acknowledged:
-- for each row the next number that the far broker has to acknowledge on its dialog.
--
-- A batch is not plain where the far side of a dialog has ended, or messages have two priorities.
-- Nor is one with more bytes than it may have.
-- Locks: none.
-- Plan: the head of transmission_messages_destination; counters and far events by key, in the same
-- snapshot. Rows from before an acknowledgement, with the counter from after it, would be sent
-- again as other messages.
-- Why: a statement costs more to set up than what it does for one message, and so does a column
-- that crosses. Of one statement, planning it anew after a vacuum costs little.
create or replace function broker_private.take_plain(
  destination integer, lane integer, lanes integer, max_messages integer, max_bytes bigint, largest_body bigint,
  out is_plain boolean, out from_broker uuid, out incarnation text, out level integer, out kinds text,
  out row_ids bigint[], out endpoint_nos bigint[], out acknowledged bigint[], out type_ids integer[],
  out sent_at timestamp with time zone[], out bodies bytea[]
)
returns record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  is_honored boolean;
  first_precedence smallint;
  last_precedence smallint;
  size bigint;
begin
  select
    b.is_broker_priority_honored, b.service_broker_guid,
    b.database_oid || ' ' || date_part('epoch', pg_postmaster_start_time())
      || ' ' || pg_relation_filenode('broker_private.endpoints')
  into is_honored, from_broker, incarnation
  from broker_private.broker_instance b
  where b.is_the_only_row and broker_private.is_surely_on(b);
  if not found then
    return;
  end if;
  select
    array_agg(r.id), array_agg(r.endpoint_no), array_agg(r.acknowledged), array_agg(r.message_type_id),
    string_agg(r.kind::text, ''), array_agg(r.enqueue_time), min(r.precedence), max(r.precedence),
    sum(coalesce(octet_length(r.body), r.shared_size, 0) + 64),
    array_agg(
      case when r.shared_body_no is null then r.body else broker_private.shared_body(r.shared_body_no) end
    )
  into row_ids, endpoint_nos, acknowledged, type_ids, kinds, sent_at, first_precedence, last_precedence, size, bodies
  from (
    select
      t.id, t.endpoint_no, t.message_type_id, t.kind, t.enqueue_time, t.precedence, t.body, t.shared_body_no,
      t.shared_size,
      case
        when not exists (
          select from broker_private.far_events f
          where f.endpoint_no = t.endpoint_no and f.event in ('<far end>', '<far error>')
        )
        then (
          select n.next_number from broker_private.sequence_counters n
          where n.endpoint_no = t.endpoint_no and n.kind = '<next acknowledged>'
          order by n.epoch desc
          limit 1
        )
      end as acknowledged
    from broker_private.transmission_messages t
    where t.destination_no = take_plain.destination and t.endpoint_no % take_plain.lanes = take_plain.lane
    order by t.precedence, t.id
    limit take_plain.max_messages
  ) r;
  if row_ids is null then
    is_plain := true;
    return;
  end if;
  -- They came in the order of their priorities; while those don't count, a lower one may have older messages.
  is_plain := first_precedence = last_precedence and array_position(acknowledged, null) is null;
  if size > least(max_bytes, largest_body) then
    is_plain := is_plain and (size <= max_bytes or cardinality(row_ids) = 1)
      and (select max(octet_length(u.body)) from unnest(bodies) as u (body)) <= largest_body;
  end if;
  if is_honored then
    level := 10 - first_precedence;
  elsif cardinality(row_ids) = max_messages then
    perform from broker_private.transmission_messages t
    where t.destination_no = take_plain.destination and t.precedence > first_precedence
    limit 1;
    is_plain := is_plain and not found;
  end if;
  if not is_plain then
    bodies := null;
  end if;
end
$$;
