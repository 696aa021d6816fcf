-- The service programs that say that they read a queue, of queues that the reader may receive from.
--
-- Ours. On a standby it tells of those of the primary.
create or replace view broker.service_programs with (security_barrier) as
select
  q.name as queue_name,
  p.host,
  p.process_id,
  p.max_queue_readers,
  p.started_at,
  p.last_seen,
  p.last_seen > broker_private.clock() - interval '15 s' as is_alive
from broker_private.service_programs p
join broker_private.visible_queues q on q.queue_id = p.queue_id;

comment on view broker.service_programs is
'The service programs that announced themselves: those of queues that the reader may receive from. One that died stays until another reads its queue. Ours.';
comment on column broker.service_programs.queue_name is 'the queue that it reads';
comment on column broker.service_programs.host is 'where it runs, as it says itself';
comment on column broker.service_programs.process_id is 'its process there';
comment on column broker.service_programs.max_queue_readers is 'how many readers it has';
comment on column broker.service_programs.started_at is 'when it announced itself first';
comment on column broker.service_programs.last_seen is 'when it did so last';
comment on column broker.service_programs.is_alive is 'whether that is less than 15 seconds ago';
