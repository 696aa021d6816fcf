-- A message's id, the same wherever it is worked out.
--
-- The first half is the conversation's. The second says which side sent it, what it is, and its
-- number. That is its sequence number or, for a DialogTimer or an Error, its place in the queue.
-- RECEIVE has this formula inlined (conversation/receive.sql, receive_many.sql, "As
-- broker_private.message_id does", and make_receive_plan.sql): change all, or none.
create or replace function broker_private.message_id(conversation uuid, is_from_initiator boolean, urgency smallint, number bigint)
returns uuid
language sql immutable
begin atomic
  select (
    pg_catalog.left(conversation::text, 18)
    || pg_catalog.lpad(pg_catalog.to_hex((is_from_initiator::integer::bigint << 62) + (urgency::bigint << 60) + number), 16, '0')
  )::uuid;
end;
