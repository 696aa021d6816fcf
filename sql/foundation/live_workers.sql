-- The workers of this home database that said within 15 seconds that they live.
--
-- What the others had in memory is gone with them. None on a standby: the workers that its rows
-- tell of serve its principal.
create or replace view broker_private.live_workers as
select w.worker_id, w.started_at, w.last_seen
from broker_private.workers w
where w.last_seen > broker_private.clock() - interval '15 s' and not pg_catalog.pg_is_in_recovery();
