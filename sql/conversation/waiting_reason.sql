-- broker_private.waiting_reason(queue, is_checked): the transmission status of a message that its queue in this database
-- can't take now.
create or replace function broker_private.waiting_reason(queue broker_private.queues, is_checked boolean)
returns text
language sql immutable
begin atomic
  select case
    when not (queue).is_enqueue_enabled
    then pg_catalog.format('9749: The target queue "%s" is disabled; the message is delivered when it is enabled.', (queue).name)
    else pg_catalog.format(
      'This server cannot parse XML, so a worker checks the message and delivers it: run pybroker worker on this database. '
      'The target queue is "%s".', (queue).name
    )
  end;
end;
