-- Ends the caller's trace, and that of everybody if the database's owner calls it.
--
-- What it has seen stays in broker.trace for a week, or until the role traces again. Returns how
-- many traces were ended.
-- Locks: the rows of traces, without waiting: a trace that is just being replaced is left. As
-- detach_trace, of the owner only, and only if nobody waits long for them; else a worker removes
-- the triggers later.
create or replace function broker.stop_trace()
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  ended integer;
begin
  loop
    ended := broker_private.stop_trace(current_user);
    exit when ended is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return ended;
end
$$;

create or replace function broker_private.stop_trace(caller name)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  is_owner constant boolean := pg_has_role(caller, 'pg_database_owner', 'USAGE');
  ended integer;
  is_settled boolean;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  update broker_private.traces t
  set ends_at = broker_private.clock()
  where t.ctid = any (array(
    select x.ctid from broker_private.traces x
    where x.ends_at > broker_private.clock()
      and (is_owner or x.role = broker_private.find_role(caller))
    for update skip locked
  ));
  get diagnostics ended = row_count;
  if is_owner then
    is_settled := broker_private.settle_trace();
  end if;
  return ended;
end
$$;

comment on function broker.stop_trace() is
$$Ours: ends the caller's trace, and that of everybody if the database's owner calls it. What it has
seen stays in broker.trace for a week, or until the role traces again.

Returns: how many traces were ended.
Rights: everybody, for one's own.
Example: select broker.stop_trace();$$;
