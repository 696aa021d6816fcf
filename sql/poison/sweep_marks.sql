-- Removes what dropped queues left behind for activation, and renews marks that are lost.
--
-- The marks of their RECEIVEs go once no transaction that has received holds them, and their log
-- after a day.
-- Locks: the sequence, which nobody uses any more.
create or replace function broker_private.sweep_marks()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  marks regclass;
begin
  perform broker_private.renew_marks();
  for marks in
    select c.oid::regclass
    from pg_class c
    where c.relnamespace = 'broker_private'::regnamespace and c.relkind = 'S' and c.relname like E'receive\\_marks\\_%'
      and not exists (select from broker_private.queues q where q.receive_marks = c.oid::regclass)
      and not exists (select from pg_locks l where l.relation = c.oid and l.locktype = 'relation')
  loop
    execute format('drop sequence %s', marks);
  end loop;
  delete from broker_private.activation_log l
  where l."time" < broker_private.clock() - interval '1 day'
    and not exists (select from broker_private.queues q where q.queue_id = l.queue_id);
end
$$;
