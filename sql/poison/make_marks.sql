-- Sees to it that a queue has so many marks, sequences that RECEIVE writes into.
--
-- Unlogged: a mark costs no WAL, and after a crash, which ended every transaction, counting begins
-- anew. At a standby that is promoted they may be lost: renew_marks makes them again.
create or replace function broker_private.make_marks(queue integer, wanted integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  made regclass[];
  mark regclass;
begin
  select q.marks into made from broker_private.queues q where q.queue_id = queue;
  for place in cardinality(made) + 1 .. wanted loop
    execute format('create unlogged sequence broker_private.marks_%s_%s minvalue 0', queue, place);
    mark := format('broker_private.marks_%s_%s', queue, place)::regclass;
    perform broker_private.set_rights(mark);
    made := made || mark;
  end loop;
  update broker_private.queues q set marks = made where q.queue_id = queue and q.marks <> made;
end
$$;
