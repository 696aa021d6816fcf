-- Ends the sleep that broker.sleep_on began by returning true, once for each true.
--
-- Senders notify nobody then. A queue that was dropped while the session slept is no error: its
-- lock goes with the session.
create or replace function broker.wake_up(queue text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.wake_up(current_user, queue);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.wake_up(caller name, queue_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  return coalesce(
    (select pg_advisory_unlock(broker_private.sleepers_lock(), q.queue_id) from broker_private.queues q where q.name = queue_name), false
  );
end
$$;

comment on function broker.wake_up(text) is
$$Ours: ends the sleep that broker.sleep_on began by returning true, once for each true.

queue: that the session slept on; one that was dropped meanwhile is no error.

Example: select broker.sleep_on('warehouse'), broker.wake_up('warehouse');$$;
