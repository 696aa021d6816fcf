-- Under which destination a message of this endpoint waits.
--
-- That of the other side's queue, if that side is in this database and not reached by the network.
-- It is made when there is none. No route can lead such a message elsewhere.
create or replace function broker_private.destination_for(e broker_private.endpoints)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  far_queue integer;
  number integer;
begin
  if e.path <> '<delayed>' then
    return e.destination_no;
  end if;
  select f.queue_id into far_queue
  from broker_private.endpoints f
  where f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator;
  if not found then
    return e.destination_no;
  end if;
  select d.destination_no into number
  from broker_private.destinations d
  where d.queue_id = far_queue
  order by d.destination_no
  limit 1;
  if not found then
    insert into broker_private.destinations (service_name, queue_id, met_at) values ('', far_queue, broker_private.clock())
    returning destination_no into number;
  end if;
  return number;
end
$$;
