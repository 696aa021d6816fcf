-- Whether five transactions in a row that received from the queue have rolled back.
--
-- Such a queue is off, whatever its row says: nobody who found that out may have committed yet.
create or replace function broker_private.is_poisoned(queue integer)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  queue_marks regclass[];
begin
  select q.marks into queue_marks
  from broker_private.queues q
  where q.queue_id = queue and q.is_poison_message_handling_enabled and q.poison_action = 'DISABLE_QUEUE';
  -- Nearly always the marks have counted too few for the two transactions that they name to matter.
  return coalesce(greatest(pg_sequence_last_value(queue_marks[1]) & 7, pg_sequence_last_value(queue_marks[2]) & 7), 0) >= 3
    and broker_private.rollbacks_in_a_row(queue_marks) >= 5;
exception
  when internal_error then
    -- Who waited for a DROP QUEUE, which takes the marks with it, finds none.
    if exists (select from broker_private.queues q where q.queue_id = queue) then
      raise;
    end if;
    return false;
end
$$;
