-- Notes the session's trace context for the newest messages of an endpoint.
--
-- It is pybroker.traceparent; the messages were put there just now. group_no: of the endpoint,
-- where they lie in a queue. level: as in put_messages. The caller holds the sender's group, so
-- nobody else has put any behind them. A setting that is no trace context is passed by, as the W3C
-- says. Called by put_messages, under what that sets for its plans.
-- Plan: the newest entries of messages_group, or of transmission_messages_endpoint.
create or replace function broker_private.note_traceparent(endpoint bigint, to_group bigint, level smallint, messages integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  given constant text := broker_private.valid_traceparent(current_setting('pybroker.traceparent', true));
begin
  if given is null then
    return;
  end if;
  if level >= 0 then
    insert into broker_private.traceparents (endpoint_no, queuing_order, noted_at, traceparent)
    select endpoint, m.id, broker_private.clock(), given
    from broker_private.messages m
    where m.group_no = to_group and m.precedence = level and m.endpoint_no = endpoint and m.urgency = 2
    order by m.id desc
    limit messages
    on conflict do nothing;
  else
    insert into broker_private.traceparents (endpoint_no, queuing_order, noted_at, traceparent)
    select endpoint, t.id, broker_private.clock(), given
    from broker_private.transmission_messages t
    where t.endpoint_no = endpoint
    order by t.id desc
    limit messages
    on conflict do nothing;
  end if;
end
$$;
