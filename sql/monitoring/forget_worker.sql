-- A worker of this home database says that it ends: what the views showed of it goes.
-- Locks: its rows.
create or replace function broker_private.forget_worker(worker uuid)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from broker_private.workers w where w.worker_id = forget_worker.worker;
end
$$;
