-- Makes the send plan of a dialog side, if it has none that may be believed and serves this sender.
--
-- This is the only place where plans are made.
--
-- A plan is what SEND must know and what stays true while the group is held. It says where messages
-- go, of which types they may be, who may send them, and until when. It stands on the group's row,
-- which SEND locks anyway. If another dialog's is there already, or one for another sender's role,
-- it stands on the endpoint's.
--
-- Who changes an endpoint holds its group, and a trigger (forget_plan) drops the plan. Who changes
-- a definition holds nothing of the kind: he sets the mark to his transaction's number
-- (mark_plans). SEND reads it after the lock, in a later statement: what is read by the one that
-- waits for the lock may be from before. A plan may be believed if the oldest transaction that was
-- not over when it was made is younger than the mark. Then whoever marked was over, and was seen.
-- So a plan made while a change was not committed is never believed, neither before nor after the
-- commit. A SEND that reads the mark before it is set comes before the change, which is not
-- committed then. Set and not committed, and after a rollback, the mark only costs plans. A number
-- counted by each change would fail here. A plan made of what was true before the change could have
-- the number from after it.
--
-- The mark names no object. To look for a plan's own would cost each SEND a column and two
-- operators, and a change of definitions is rare. It costs each dialog one SEND in the general way,
-- and one change of a row.
--
-- No plan is made that a mark makes worthless at once. While a long transaction runs beside it, a
-- SEND after a change finds out anew each time, and doesn't write the row each time. None is made
-- either for a queue that retains, a far queue or broker that is off, or a path other than L and R.
-- Then SEND has more to do than to insert a row. Of names of types no more than 1,000 bytes are on
-- a plan; the others are looked up. The caller holds the group.
-- Locks: the group's row, the endpoint's own row.
create or replace function broker_private.refresh_plan(endpoint bigint, caller name)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  -- Before anything else is read.
  made constant bigint := txid_snapshot_xmin(txid_current_snapshot());
  e broker_private.endpoints%rowtype;
  f broker_private.endpoints%rowtype;
  serves boolean;
  receiver regrole;
  types jsonb;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
  select pg_has_role(caller, g.send_receiver, 'USAGE') is not false into serves
  from broker_private.groups g
  where g.send_handle = e.conversation_handle and not broker_private.is_plan_marked(g.send_made);
  -- One that is good stays: the call had another reason to come here.
  if serves or e.local_end is not null or e.path not in ('<local>', '<remote>')
    or e.send_types is not null and not broker_private.is_plan_marked(e.send_made)
    or broker_private.is_plan_marked(made)
  then
    return;
  end if;

  -- Everybody, or else a role that the sender belongs to, and rather one that was granted the queue
  -- than its owner. So what a superuser makes serves whom he works for.
  select nullif(r.role::oid, 0)::regrole into receiver
  from (
    select q.owner as role, true as is_owner from broker_private.queues q where q.queue_id = e.queue_id
    union all
    select (p.grantee).role, false
    from broker_private.permissions p
    where p.class = '<queue>' and p.securable_id = e.queue_id and p.permission = 'RECEIVE'
      and (p.grantee).role is not null
  ) r
  order by r.role = 0 desc, pg_has_role(caller, r.role, 'USAGE') desc, r.is_owner, r.role::oid
  limit 1;
  perform from broker_private.queues q where q.queue_id = e.queue_id and q.is_retention_enabled;
  if found or exists (
    select from broker_private.far_events v where v.endpoint_no = endpoint and v.event in ('<far end>', '<far error>')
  ) then
    return;
  end if;
  if e.path = '<local>' then
    select x.* into f
    from broker_private.endpoints x
    join broker_private.queues q on q.queue_id = x.queue_id
    cross join broker_private.broker_instance b
    where x.endpoint_no = e.far_endpoint_no and q.is_enqueue_enabled and b.is_broker_enabled;
    if not found then
      return;
    end if;
  end if;

  select jsonb_object_agg(c.message_type_name, c.message_type_id) into types
  from (
    select
      m.message_type_name, m.message_type_id,
      sum(octet_length(m.message_type_name)) over (order by m.message_type_name) as size
    from broker_private.contract_messages m
    where m.contract_id = e.contract_id and m.validation = '<no validation>'
      and case when e.is_initiator then m.is_sent_by_initiator else m.is_sent_by_target end
  ) c
  where c.size <= 1000;
  if types is null then
    return;
  end if;

  if serves is null then
    update broker_private.groups g
    set
      send_handle = e.conversation_handle, send_expires_at = e.expires_at, send_made = made,
      send_target = case e.path when '<local>' then e.far_endpoint_no else endpoint end,
      send_place = case e.path when '<local>' then f.queue_id else e.destination_no end,
      send_precedence = case e.path when '<local>' then 10 - f.priority else e.priority - 11 end,
      send_receiver = receiver, send_types = types
    where g.group_no = e.group_no and (g.send_handle is null or g.send_handle = e.conversation_handle);
    if found then
      return;
    end if;
  end if;
  update broker_private.endpoints x
  set
    send_made = made,
    send_target = case e.path when '<local>' then e.far_endpoint_no else endpoint end,
    send_place = case e.path when '<local>' then f.queue_id else e.destination_no end,
    send_precedence = case e.path when '<local>' then 10 - f.priority else e.priority - 11 end,
    send_receiver = receiver, send_types = types
  where x.endpoint_no = endpoint;
end
$$;
