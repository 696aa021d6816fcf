-- The transmission status of a message that its queue in this database can't take now.
create or replace function broker_private.waiting_reason(queue broker_private.queues)
returns text
language sql immutable
begin atomic
  select pg_catalog.format('9749: The target queue "%s" is disabled; the message is delivered when it is enabled.', (queue).name);
end;
