-- What this session's last RECEIVE on a queue left in its marks; null if it made none.
--
-- Everybody may ask: a session learns of itself only. The handler turns an error that can only be
-- raised into an answer.
create or replace function broker_private.received_mark(queue integer)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select currval(q.receive_marks) from broker_private.queues q where q.queue_id = queue);
exception
  when object_not_in_prerequisite_state then
    return null;
end
$$;
