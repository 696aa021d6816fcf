-- Locks the group of an open conversation, waiting for whoever has it, and returns it.
--
-- Whatever is read before the lock may be old when the lock comes; callers read the endpoint after
-- it. A session in REPEATABLE READ can't, so there the endpoint is locked too: it fails with 40001
-- if the endpoint changed since.
-- Locks: the group's row.
-- Errors: 8426 unknown handle.
create or replace function broker_private.lock_group_of(handle uuid)
returns broker_private.groups
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  conversation_group broker_private.groups%rowtype;
begin
  loop
    select g.* into conversation_group
    from broker_private.endpoints e
    -- LIMIT 1: a probe of the key, whatever the planner believes of the table's size.
    cross join lateral (
      select x.* from broker_private.groups x where x.group_no = e.group_no limit 1 for update
    ) g
    where e.conversation_handle = handle
      and (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null;
    if not found then
      found := broker_private.refuse(
        8426, format('The conversation handle "%s" is not found.', coalesce(handle::text, 'NULL')),
        'It never existed here, or the conversation is over: broker.conversation_endpoints lists those of this database.'
      );
    end if;
    -- MOVE CONVERSATION may have changed the group while this waited for the lock.
    exit when exists (
      select from broker_private.endpoints e where e.conversation_handle = handle and e.group_no = conversation_group.group_no
    );
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from broker_private.endpoints e where e.conversation_handle = handle for update;
  end if;
  return conversation_group;
end
$$;
