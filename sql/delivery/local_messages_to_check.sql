-- broker_private.local_messages_to_check(max messages): XML messages of dialogs within this database that this server can't parse.
create or replace function broker_private.local_messages_to_check(max_messages integer)
returns table (row_id bigint, body bytea)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select t.id, coalesce(t.body, broker_private.shared_body(t.shared_body_no), '')
  from broker_private.local_dialogs_waiting() w
  join broker_private.transmission_messages t on t.endpoint_no = w.endpoint_no
  join broker_private.message_types y on y.message_type_id = t.message_type_id
  where y.validation = 'X' and t.kind = 'M' and broker_private.is_well_formed_xml('<a/>') is null
  order by t.id
  limit max_messages;
end
$$;
