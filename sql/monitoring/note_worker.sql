-- A worker of this home database says that it lives.
--
-- Forgets the workers that have said nothing for a minute, and all that they had. The views show
-- nothing of a worker after 15 seconds without a word.
-- Locks: its own row; those of the forgotten, skipping what another worker holds.
create or replace function broker_private.note_worker(worker uuid)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into broker_private.workers (worker_id, started_at, last_seen)
  values (note_worker.worker, broker_private.clock(), broker_private.clock())
  on conflict (worker_id) do update set last_seen = excluded.last_seen;
  delete from broker_private.workers w
  where w.worker_id in (
    select x.worker_id from broker_private.workers x
    where x.last_seen < broker_private.clock() - interval '1 min'
    for update skip locked
  );
end
$$;
