-- Makes the sequence in which every RECEIVE from the queue leaves a mark, if it is not there.
--
-- A monitor must know that somebody has received, even where that was rolled back, and of what is
-- written only a sequence's value survives that. An empty RECEIVE sets it to the time in
-- milliseconds * 2^20. One that returns messages, or names a conversation, adds 1. So another value
-- than before means a RECEIVE, value >> 20 the last empty one, and currval tells a session of its
-- own. Unlogged, so it costs no WAL: 0.3 microseconds a RECEIVE, and nothing for queues that are
-- not monitored. DROP QUEUE leaves it to sweep, as it would wait for every transaction that has
-- received.
create or replace function broker_private.create_receive_marks(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  made regclass;
begin
  if (select q.receive_marks is null from broker_private.queues q where q.queue_id = queue) then
    execute format('create unlogged sequence broker_private.%I', 'receive_marks_' || queue);
    made := format('broker_private.%I', 'receive_marks_' || queue)::regclass;
    perform broker_private.set_rights(made);
    update broker_private.queues q set receive_marks = made where q.queue_id = queue;
  end if;
end
$$;
