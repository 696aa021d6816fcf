-- Trigger of a trace: messages that come into a queue.
--
-- Of those that SEND put there, its own side is told too. What comes back from quarantine has not
-- come again.
create or replace function broker_private.trace_messages()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  is_sent boolean;
begin
  get diagnostics stack = pg_context;
  if stack ~ E'broker_private\\.put_back\\(' then
    return null;
  end if;
  is_sent := stack ~ E'broker_private\\.send(_slowly|_all|_batch)?\\(';
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', s.endpoint_no, 'class', s.class, 'subclass', s.subclass,
      'type_id', c.message_type_id, 'sequence_number', c.sequence_number,
      'size', coalesce(c.shared_size, octet_length(c.body), 0)
    ) order by c.id, s.number)
    from (
      select x.id, x.endpoint_no, x.message_type_id, x.sequence_number, x.shared_size, x.body
      from changed x
      order by x.id
      limit 10000
    ) c
    cross join lateral (
      select 1 as number, e.far_endpoint_no as endpoint_no, 'Broker:Conversation' as class,
        'SEND Message' as subclass
      from broker_private.endpoints e
      where is_sent and e.endpoint_no = c.endpoint_no and c.message_type_id not in (1, 2, 5)
      union all
      select 2, e.far_endpoint_no, 'Broker:Message Classify', 'Local'
      from broker_private.endpoints e
      where is_sent and e.endpoint_no = c.endpoint_no and c.message_type_id not in (1, 2, 5)
      union all
      select 3, c.endpoint_no, 'Broker:Conversation', case c.message_type_id
        when 1 then 'Received END CONVERSATION WITH ERROR'
        when 2 then 'Received END CONVERSATION'
        when 5 then 'Dialog Timer'
        else 'Received Sequenced Message'
      end
    ) s
  ));
  return null;
end
$$;
