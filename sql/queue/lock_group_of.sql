-- Locks the group of an open conversation, waiting for whoever has it, and returns the endpoint.
--
-- The endpoint is read after the lock: what was read before may be old when the lock comes. A
-- session in REPEATABLE READ can't read it anew, so there the endpoint is locked too: it fails with
-- 40001 if the endpoint changed since.
-- Locks: the group's row.
-- Errors: 8426 unknown handle.
create or replace function broker_private.lock_group_of(handle uuid)
returns broker_private.endpoints
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  e broker_private.endpoints%rowtype;
  locked bigint;
  is_there boolean;
begin
  loop
    select g.group_no into locked
    from broker_private.endpoints x
    -- LIMIT 1: a probe of the key, whatever the planner believes of the table's size.
    cross join lateral (
      select y.group_no from broker_private.groups y where y.group_no = x.group_no limit 1 for update
    ) g
    where x.conversation_handle = handle;
    e := (select x from broker_private.endpoints x where x.conversation_handle = handle);
    is_there := found and locked is not null;
    if e.local_end is not null then
      is_there := (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null;
    end if;
    if not is_there then
      found := broker_private.refuse(
        8426, format('The conversation handle "%s" is not found.', coalesce(handle::text, 'NULL')),
        'It never existed here, or the conversation is over: broker.conversation_endpoints lists those of this database.'
      );
    end if;
    -- MOVE CONVERSATION may have changed the group while this waited for the lock.
    exit when e.group_no = locked;
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from broker_private.endpoints x where x.conversation_handle = handle for update;
  end if;
  return e;
end
$$;
