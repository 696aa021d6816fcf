-- Empties every table of conversations and messages, for NEW_BROKER.
--
-- Whoever comes after a waiting TRUNCATE waits behind it, so it gives up soon, lets the others
-- through, and tries again. A notice says for whom, if that is somebody else than before. A
-- caller's own lock_timeout ends it. It waits for a little more than deadlock_timeout, after which
-- PostgreSQL takes a lock from an autovacuum. TRUNCATE locks table after table, and a worker that
-- looks at several has them in another order. Who is told of the deadlock gives his locks back; if
-- it is this one, it begins anew.
-- Locks: the tables, against everybody, until the transaction ends.
-- Errors: 40P01, when the caller's own locks are what a worker waits for; 55P03, lock_timeout is
-- over.
create or replace function broker_private.forget_conversations()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  deadlocks integer := 0;
  began constant timestamp with time zone := broker_private.clock();
  -- Null: for ever.
  patience constant interval := nullif(current_setting('lock_timeout')::interval, interval '0');
  holders text;
  told text;
  longest_wait constant interval := least(patience, current_setting('deadlock_timeout')::interval + interval '0.5 s');
begin
  loop
    begin
      perform set_config('lock_timeout', (extract(epoch from longest_wait) * 1000)::integer::text, true);
      truncate
          broker_private.endpoints, broker_private.groups, broker_private.messages, broker_private.incomplete_messages, broker_private.transmission_messages, broker_private.early_messages,
          broker_private.message_pieces,
          broker_private.transmission_status, broker_private.sequence_counters, broker_private.far_events, broker_private.dialog_security,
          broker_private.conversation_timers, broker_private.retained_messages, broker_private.shared_bodies,
          broker_private.configuration_requests, broker_private.quarantine, broker_private.quarantined_messages, broker_private.noted_failures,
          broker_private.moved_conversations, broker_private.moved_services, broker_private.traceparents;
      perform set_config('lock_timeout', (coalesce(extract(epoch from patience), 0) * 1000)::integer::text, true);
      return;
    exception
      when deadlock_detected then
        deadlocks := deadlocks + 1;
        if deadlocks = 10 then
          raise;
        end if;
      when lock_not_available then
        if broker_private.clock() - began >= patience then
          raise;
        end if;
        select string_agg(format('pid %s of "%s" since %s', h.pid, h.usename, h.xact_start), ', ' order by h.xact_start) into holders
        from (
          select a.pid, a.usename, a.xact_start
          from pg_stat_activity a
          where a.pid <> pg_backend_pid() and a.pid in (
            select l.pid from pg_locks l
            join pg_class c on c.oid = l.relation
            where l.granted and l.locktype = 'relation' and c.relnamespace = 'broker_private'::regnamespace
              and l.database = (select d.oid from pg_database d where d.datname = current_database())
          )
          order by a.xact_start
          limit 3
        ) h;
        if holders is distinct from told then
          told := holders;
          raise notice 'NEW_BROKER waits for transactions that use conversations: %.', holders;
        end if;
        perform pg_sleep_for(interval '2 s');
    end;
  end loop;
end
$$;
