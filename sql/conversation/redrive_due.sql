-- Takes those conversations of a queue out of quarantine whose next try is due.
--
-- When that is, note_failure was told. Returns how many. A worker does so for all queues; a service
-- program that retries does it by itself, so that none is needed.
-- Ours: Service Broker has no quarantine.
-- Locks: the groups' rows of those, at most 100; what somebody else holds is left out.
-- Errors: 208 queue, 229 no RECEIVE on it.
create or replace function broker.redrive_due(queue text)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  redriven integer;
begin
  loop
    redriven := broker_private.redrive_due(current_user, queue);
    exit when redriven is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return redriven;
end
$$;

create or replace function broker_private.redrive_due(caller name, queue_name text)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  queue integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  queue := (broker_private.find_queue(queue_name)).queue_id;
  perform broker_private.require_receive(caller, queue);
  return broker_private.put_back_due(queue);
end
$$;

comment on function broker.redrive_due(text) is
$$Ours: takes the conversations of a queue out of quarantine whose next try is due. A worker does so
by itself, as a service program with retry does.

queue: whose conversations are meant.

Returns: how many conversations go on, at most 100.
Rights: RECEIVE on the queue.
Locks: the groups' rows of those, until the transaction ends; one that somebody holds is left out.
Errors: 208, 229
Example: select broker.redrive_due('warehouse');$$;
