-- Trigger of a trace: messages that leave the transmission queue.
--
-- The far broker has them, or they were removed. What went to a queue of this database is told of
-- there.
create or replace function broker_private.trace_acknowledged()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  is_acknowledged boolean;
begin
  get diagnostics stack = pg_context;
  if stack ~ E'broker_private\\.deliver_dialog\\(' then
    return null;
  end if;
  is_acknowledged := stack ~ E'broker_private\\.acknowledge(_one)?\\(';
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'type_id', c.message_type_id,
      'class', case
        when is_acknowledged then 'Broker:Remote Message Ack' else 'Broker:Transmission'
      end,
      'subclass', case when is_acknowledged then 'Acknowledgement Received' else 'Removed' end,
      'size', coalesce(c.shared_size, octet_length(c.body), 0)
    ) order by c.id)
    from (
      select x.id, x.endpoint_no, x.message_type_id, x.shared_size, x.body
      from changed x
      order by x.id
      limit 10000
    ) c
  ));
  return null;
end
$$;
