-- broker_private.note_unusual_queue(): trigger of queues. Keeps in unusual_objects the queues that SEND has to do more for than insert a row, as they are off or
-- retain. So SEND looks at no queue's row, but for one in a table that is nearly always empty.
create or replace function broker_private.note_unusual_queue()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op <> 'INSERT' then
    delete from broker_private.unusual_objects u where u.object_id = old.queue_id;
  end if;
  if tg_op <> 'DELETE' and (new.is_retention_enabled or not new.is_enqueue_enabled) then
    insert into broker_private.unusual_objects (object_id) values (new.queue_id);
  end if;
  return null;
end
$$;

create or replace trigger note_unusual_queue
after insert or delete or update of is_enqueue_enabled, is_retention_enabled on broker_private.queues
for each row execute function broker_private.note_unusual_queue();
