-- Writes down what an activated procedure put out.
--
-- The newest thousand rows of a queue are kept.
-- Errors: 55P03, if somebody has the table for a second.
-- Why: the log decides nothing, so a reader that has ended waits no longer for it.
create or replace function broker_private.log_activation(
  queue integer, queue_name text, procedure_name text, session integer,
  numbers integer[], severities text[], texts text[], states text[], details text[]
)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
begin
  insert into broker_private.activation_log (queue_id, queue_name, procedure_name, "time", spid, number, severity, text, sqlstate, detail)
  select queue, queue_name, procedure_name, broker_private.clock(), session, e.number, e.severity, left(e.text, 8000), e.state, left(e.detail, 8000)
  from unnest(numbers, severities, texts, states, details) with ordinality e (number, severity, text, state, detail, place)
  order by e.place;
  delete from broker_private.activation_log l
  where l.queue_id = queue
    and l.id <= (select o.id from broker_private.activation_log o where o.queue_id = queue order by o.id desc offset 1000 limit 1);
end
$$;
