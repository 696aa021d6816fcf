-- The messages of a destination that leave next.
--
-- Those of endpoints that are left out are not among them; of endpoints in flight there are only
-- those behind the row of each. While the broker honours priorities those of higher priority come
-- first, else, and by age, the oldest.
--
-- All messages of a dialog have one priority, so either order keeps theirs, also when
-- honor_broker_priority changes while they wait.
-- Plan: inlined into take; for each of the ten priorities the head of
-- transmission_messages_destination, then a sort of what that gave. The arrays are sub-selects as
-- those of PL/pgSQL's variables are copied whenever they are looked into, which is for each row
-- that is in flight.
create or replace function broker_private.next_to_leave(
  destination integer, lane integer, lanes integer, max_messages integer, left_out bigint[], by_age boolean,
  in_flight_endpoints bigint[], in_flight_rows bigint[]
)
returns table (
  id bigint, endpoint_no bigint, message_type_id integer, kind "char", body bytea, shared_body_no bigint, shared_size integer, turn integer,
  enqueue_time timestamp with time zone
)
language sql stable
begin atomic
  select t.id, t.endpoint_no, t.message_type_id, t.kind, t.body, t.shared_body_no, t.shared_size, t.turn, t.enqueue_time
  from (
    select
      m.id, m.endpoint_no, m.message_type_id, m.kind, m.body, m.shared_body_no, m.shared_size, m.enqueue_time,
      case when not by_age and (select b.is_broker_priority_honored from broker_private.broker_instance b where b.is_the_only_row) then l.precedence else 0 end as turn
    from pg_catalog.generate_series(0, 9) as l (precedence)
    cross join lateral (
      select w.id, w.endpoint_no, w.message_type_id, w.kind, w.body, w.shared_body_no, w.shared_size, w.enqueue_time
      from broker_private.transmission_messages w
      where w.destination_no = destination and w.precedence = l.precedence
        and w.endpoint_no % lanes = lane and w.endpoint_no <> all ((select left_out)::bigint[])
        and (
          w.endpoint_no <> all ((select in_flight_endpoints)::bigint[])
          or w.id > (select in_flight_rows)[pg_catalog.array_position((select in_flight_endpoints), w.endpoint_no)]
        )
      order by w.id
      limit max_messages
    ) m
  ) t
  order by t.turn, t.id
  limit max_messages;
end;
