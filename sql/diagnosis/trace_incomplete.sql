-- Trigger of a trace: messages that SEND leaves to a worker to validate.
create or replace function broker_private.trace_incomplete()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if stack !~ E'broker_private\\.send(_slowly|_all|_batch)?\\(' then
    return null;
  end if;
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', e.far_endpoint_no, 'class', s.class, 'subclass', s.subclass,
      'type_id', c.message_type_id, 'size', coalesce(c.shared_size, octet_length(c.body), 0)
    ) order by c.id, s.number)
    from (
      select x.id, x.endpoint_no, x.message_type_id, x.shared_size, x.body
      from changed x
      order by x.id
      limit 10000
    ) c
    join broker_private.endpoints e on e.endpoint_no = c.endpoint_no
    cross join (
      values (1, 'Broker:Conversation', 'SEND Message'), (2, 'Broker:Message Classify', 'Delayed')
    ) s (number, class, subclass)
  ));
  return null;
end
$$;
