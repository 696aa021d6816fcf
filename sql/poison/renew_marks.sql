-- Makes the marks anew that this server can't read.
--
-- A standby doesn't write to disk at once that an unlogged sequence was created. Promoted before it
-- has, it finds an empty file ("bad magic number in sequence"; seen on PostgreSQL 15 and 18). Each
-- RECEIVE from that queue would fail. What rollbacks were counted is forgotten, as by a crash.
-- Locks: only where marks are lost, the queue's row, skipping one that is being changed; the
-- sequences, which nobody can use.
create or replace function broker_private.renew_marks()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  queue integer;
  this record;
  mark regclass;
begin
  for queue in
    select q.queue_id from broker_private.queues q
  loop
    begin
      perform pg_sequence_last_value(m.mark)
      from broker_private.queues q
      cross join unnest(q.marks || q.receive_marks) as m (mark)
      where q.queue_id = queue and m.mark is not null;
      continue;
    exception
      when internal_error then
        select q.marks, q.receive_marks into this from broker_private.queues q where q.queue_id = queue for update skip locked;
    end;
    continue when this is null;
    update broker_private.queues q set marks = '{}', receive_marks = null where q.queue_id = queue;
    foreach mark in array array_remove(this.marks || this.receive_marks, null) loop
      execute format('drop sequence %s', mark);
    end loop;
    perform broker_private.make_marks(queue, cardinality(this.marks));
    if this.receive_marks is not null then
      perform broker_private.create_receive_marks(queue);
    end if;
  end loop;
end
$$;
