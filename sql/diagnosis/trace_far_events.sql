-- Trigger of a trace: what the far side did.
--
-- Our end was acknowledged, or a message of it was refused here. Its EndDialog and its Error are
-- told of when they come into the queue.
create or replace function broker_private.trace_far_events()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no,
      'class', case c.event
        when '<end acknowledged>' then 'Broker:Conversation' else 'Broker:Message Undeliverable'
      end,
      'subclass', case c.event when '<end acknowledged>' then 'Received END CONVERSATION Ack' else 'Refused' end
    ) order by c.endpoint_no)
    from (
      select x.endpoint_no, x.event
      from changed x
      order by x.endpoint_no
      limit 10000
    ) c
    where c.event in ('<end acknowledged>', '<refused here>')
  ));
  return null;
end
$$;
