-- What a worker found of messages.
--
-- A code of null is a message that is good, 9615 one that is no well-formed XML, 9616 one that does
-- not match its schemas. Returns how many messages became ready, those behind them included. Only a
-- worker's role may say so: what a client says of its own message is worth nothing here.
-- Locks: as release_messages.
create or replace function broker_private.conclude_validation(messages bigint[], codes integer[], reasons text[])
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  endpoint_nos bigint[];
begin
  with found as (
    select i.id, i.endpoint_no, v.code, v.reason, y.name
    from unnest(conclude_validation.messages, conclude_validation.codes, conclude_validation.reasons) as v (id, code, reason)
    join broker_private.incomplete_messages i on i.id = v.id and not i.is_checked
    join broker_private.message_types y on y.message_type_id = i.message_type_id
    for update of i skip locked
  ),
  checked as (
    update broker_private.incomplete_messages i
    set
      is_checked = true,
      schema_collection_id = null,
      fault_code = f.code,
      fault_text = broker_private.fault_text(row(f.code, f.name)::broker_private.fault) || ' ' || left(f.reason, 2000)
    from found f
    where i.id = f.id and i.endpoint_no = f.endpoint_no
    returning i.endpoint_no
  )
  select array_agg(distinct c.endpoint_no) into endpoint_nos from checked c;
  return case when endpoint_nos is null then 0 else broker_private.release_messages(endpoint_nos) end;
end
$$;
