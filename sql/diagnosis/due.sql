-- What a worker's parts would find, each by a look of its own, so that one look is enough for all.
--
-- It says in how many seconds the next timer or lifetime is over, null without one. Then whether
-- poison, the readers of queues, event notifications and unread schema collections want to be
-- looked at. Then who the broker is, and why it is off, as in the greeting. Then whether a move is
-- watched, and whether the triggers of traces are to come or go. At last a hash of all that
-- worker_endpoint and worker_certificates say, null without an endpoint. What waits in queues,
-- sleep_on_queues says.
-- Plan: conversation_timers_due and endpoints_lifetime, as in fire_timers.
-- Why: it is volatile, as it asks the clock, and each statement sees what was committed until it
-- begins.
create or replace function broker_private.due(
  out timers_in double precision, out is_poisoned boolean, out has_readers boolean, out has_events boolean,
  out has_schemas boolean, out service_broker_guid uuid, out broker_problem text,
  out has_moved boolean, out is_trace_due boolean, out endpoint_hash bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  timers_in := extract(epoch from least(
    (select min(w.fires_at) from broker_private.timed_queues() w),
    (
      select e.expires_at
      from broker_private.endpoints e
      where e.closed_at is null and not e.is_lifetime_over
      order by e.expires_at
      limit 1
    )
  ) - broker_private.clock());
  is_poisoned := exists (select from broker_private.quarantine) or exists (
    select from broker_private.queues q
    where case
      when q.is_receive_enabled and broker_private.is_poisoned(q.queue_id) then true
      when q.holds_quarantine then exists (
        select from broker_private.failing_conversations(q.queue_id) f where f.failures >= 5
      )
      else false
    end
  );
  has_readers := exists (select from broker_private.activated_tasks) or exists (
    select from broker_private.queue_monitors m
    join broker_private.queues q on q.queue_id = m.queue_id
    where m.state <> 'INACTIVE' and q.is_activation_enabled and q.is_receive_enabled
  );
  has_events := exists (
    select from broker_private.event_notifications n where broker_private.notification_problem(n) is not null
  );
  has_schemas := exists (select from broker_private.schema_collections c where not c.is_read);
  service_broker_guid := (
    select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row
  );
  broker_problem := broker_private.broker_problem();
  has_moved := exists (select from broker_private.moved_services)
    or exists (select from broker_private.moved_conversations v where v.is_watched);
  is_trace_due := broker_private.is_traced() <> broker_private.is_trace_wanted();
  if exists (select from broker_private.tcp_endpoint) then
    endpoint_hash := hashtextextended(
      jsonb_build_array(
        (select to_jsonb(e) from broker_private.worker_endpoint() e),
        (select jsonb_agg(to_jsonb(c) order by c.name) from broker_private.worker_certificates() c)
      )::text,
      0
    );
  end if;
end
$$;
