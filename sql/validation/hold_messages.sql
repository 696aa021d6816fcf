-- Puts messages behind what is incomplete on their dialog.
--
-- They were sent within this database, to this endpoint. Those that must be checked are the first
-- such.
create or replace function broker_private.hold_messages(
  f broker_private.endpoints, type_id integer, kind_code "char", contents bytea[], checked boolean,
  shared_no bigint default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  has_begun constant boolean := f.is_initiator
    or exists (select from broker_private.incomplete_messages i where i.endpoint_no = f.endpoint_no)
    or exists (select from broker_private.quarantine z where z.endpoint_no = f.endpoint_no)
    or broker_private.number_of_error(f.endpoint_no) > 0;
begin
  insert into broker_private.incomplete_messages (
    endpoint_no, enqueue_time, queue_id, message_type_id, kind, is_first, is_checked, schema_collection_id, body, shared_body_no, shared_size
  )
  select
    f.endpoint_no, broker_private.clock(), f.queue_id, type_id, kind_code, not has_begun and c.place = 1, checked,
    case when not checked then (select t.schema_collection_id from broker_private.message_types t where t.message_type_id = type_id) end,
    case when shared_no is null then nullif(c.content, '') end, shared_no,
    case when shared_no is not null then octet_length(c.content) end
  from unnest(contents) with ordinality as c (content, place)
  order by c.place;
  perform broker_private.note_arrival(1);
end
$$;
