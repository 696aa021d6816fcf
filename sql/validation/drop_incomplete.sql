-- Removes what is incomplete on the endpoint's dialog or came too early.
--
-- Its side has ended or refused a message. An EndDialog from this database counts as acknowledged.
-- Rows that a worker has just taken to make them ready are left to it, so this waits for nobody.
create or replace function broker_private.drop_incomplete(endpoint bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  delete from broker_private.early_messages h where h.endpoint_no = endpoint;
  delete from broker_private.message_pieces p where p.endpoint_no = endpoint;
  with held as (
    select i.ctid as location from broker_private.incomplete_messages i where i.endpoint_no = endpoint for update skip locked
  ),
  gone as (
    delete from broker_private.incomplete_messages i using held h where i.ctid = h.location
    returning i.kind, i.sequence_number
  )
  insert into broker_private.far_events (endpoint_no, event)
  select e.endpoint_no, '<end acknowledged>'
  from broker_private.endpoints f
  join broker_private.endpoints e on e.conversation_id = f.conversation_id and e.is_initiator <> f.is_initiator
  where f.endpoint_no = endpoint and exists (select from gone g where g.kind = '<end dialog>' and g.sequence_number is null)
  on conflict do nothing;
end
$$;
