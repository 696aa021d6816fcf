-- Trigger of a trace: messages that leave a queue.
--
-- They do by RECEIVE, or for another reason (Removed). What goes into quarantine is told of there.
create or replace function broker_private.trace_removed_messages()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  is_received boolean;
begin
  get diagnostics stack = pg_context;
  if stack ~ E'broker_private\\.move_aside\\(' then
    return null;
  end if;
  is_received := stack ~ E'broker_private\\.receive(_many|_groups)?\\(';
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', 'Broker:Queue',
      'subclass', case when is_received then 'RECEIVE' else 'Removed' end,
      'type_id', c.message_type_id, 'sequence_number', c.sequence_number,
      'size', coalesce(c.shared_size, octet_length(c.body), 0)
    ) order by c.id)
    from (
      select x.id, x.endpoint_no, x.message_type_id, x.sequence_number, x.shared_size, x.body
      from changed x
      order by x.id
      limit 10000
    ) c
  ));
  return null;
end
$$;
