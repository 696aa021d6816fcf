-- For each precedence, 0 first, the id below which nothing is left in the queue.
--
-- It is a message's id: where a search may begin.
--
-- While a session keeps an old snapshot, deleted messages stay in the indexes. A search from the
-- beginning walks past all that were received since. Without one it walks past the pages of all
-- that were received since the last vacuum. A floor is right for whoever can see its row. The
-- newest row counts: rows are added, never updated, so under an old snapshot a look meets the
-- newest first. Right stays right. An arrival gets a new id, above every floor (raise_floors), and
-- whoever puts in a message with an old one resets the floors (reset_floors). Stable, so that a
-- statement that calls it sees messages and floors as of the same moment.
-- Plan: queue_floors_newest, one row.
create or replace function broker_private.floors_of(queue integer)
returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(
    (select f.floors from broker_private.queue_floors f where f.queue_id = queue order by f.number desc limit 1),
    '{0,0,0,0,0,0,0,0,0,0}'
  );
end
$$;
