-- Trigger of a trace: messages that SEND puts into the transmission queue.
--
-- They are Remote, or Delayed where they wait for a queue of this database.
create or replace function broker_private.trace_transmission()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', s.class, 'subclass', s.subclass,
      'type_id', c.message_type_id, 'size', coalesce(c.shared_size, octet_length(c.body), 0)
    ) order by c.id, s.number)
    from (
      select x.id, x.endpoint_no, x.message_type_id, x.shared_size, x.body
      from changed x
      order by x.id
      limit 10000
    ) c
    join broker_private.endpoints e on e.endpoint_no = c.endpoint_no
    cross join lateral (
      select 1 as number, 'Broker:Conversation' as class, 'SEND Message' as subclass
      where stack ~ E'broker_private\\.send(_slowly|_all|_batch)?\\('
      union all
      select 2, 'Broker:Message Classify',
        case e.path when '<remote>' then 'Remote' else 'Delayed' end
    ) s
  ));
  return null;
end
$$;
