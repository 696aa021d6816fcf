-- hot path
-- broker.send_batch(conversation_handle, message_type, bodies): many messages on one dialog, in the order of the array, all or
-- none. Ours: Service Broker has one SEND for each.
-- As broker.send: the plain cases are here, in three statements whatever the number of bodies; every other is send_slowly's. Here, too, the far place is
-- read under the group's lock, and that the endpoint is still the same is seen from its row's place and version.
-- Locks and errors: as broker.send; an error in one body refuses all.
-- Plan: as broker.send's; what is inserted is read from the array alone, in its order.
create or replace function broker.send_batch(conversation_handle uuid, message_type text, bodies bytea[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_batch(current_user, conversation_handle, message_type, bodies);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.send_batch(caller name, handle uuid, type_name text, contents bytea[])
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  location tid;
  version xid;
  endpoint bigint;
  path_taken "char";
  from_queue integer;
  stack text;
  type_id integer;
  locked_group bigint;
  to_group bigint;
  to_endpoint bigint;
  sleepers_queue integer;
  destination integer;
  level_below_ten integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if contents is null or array_ndims(contents) > 1 then
    perform broker_private.refuse(
      8433, 'The list of message bodies is not a list of one dimension.', 'Give an array of bytea; for an empty body use ''.'
    );
  end if;
  -- Where all bodies together are not too large none is.
  if current_setting('transaction_isolation') = 'read committed' and pg_column_size(contents) <= broker_private.largest_body()
    and array_position(contents, null) is null
  then
    select
      e.ctid, e.xmin, e.endpoint_no, e.path, e.queue_id,
      (
        select c.message_type_id from broker_private.contract_messages c
        where c.contract_id = e.contract_id and c.message_type_name = type_name and c.validation = 'N'
          and case when e.is_initiator then c.is_sent_by_initiator else c.is_sent_by_target end
      ),
      (select g.group_no from broker_private.groups g where g.group_no = e.group_no for update)
    into location, version, endpoint, path_taken, from_queue, type_id, locked_group
    from broker_private.endpoints e
    where e.conversation_handle = handle and e.local_end is null and e.expires_at > broker_private.clock();
  end if;

  if path_taken = 'L' then
    select f.group_no, f.endpoint_no, f.queue_id, 10 - f.priority into to_group, to_endpoint, sleepers_queue, level_below_ten
    from broker_private.endpoints f
    where f.endpoint_no = (
        select e.far_endpoint_no from broker_private.endpoints e
        where e.ctid = case when type_id is not null then location end and e.xmin = version
      )
      and f.local_end is null
      and not exists (select from broker_private.unusual_objects u where u.object_id in (f.queue_id, from_queue))
      and (pg_has_role(caller, 'pg_database_owner', 'USAGE') or broker_private.may_receive(caller, from_queue));
    if found then
      insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
      select to_group, to_endpoint, sleepers_queue, type_id, level_below_ten, 2, nullif(c.content, '')
      from unnest(contents) as c (content);
    end if;
  elsif path_taken = 'R' then
    select e.destination_no, 10 - e.priority, 0 into destination, level_below_ten, sleepers_queue
    from broker_private.endpoints e
    where e.ctid = case when type_id is not null then location end and e.xmin = version
      and not exists (select from broker_private.far_events v where v.endpoint_no = endpoint and v.event in ('E', 'X'))
      and not exists (select from broker_private.unusual_objects u where u.object_id = from_queue)
      and (pg_has_role(caller, 'pg_database_owner', 'USAGE') or broker_private.may_receive(caller, from_queue));
    if found then
      insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
      select endpoint, destination, type_id, level_below_ten, 'M', nullif(c.content, '')
      from unnest(contents) as c (content);
    end if;
  end if;
  if sleepers_queue is null then
    perform broker_private.send_slowly(caller, handle, type_name, contents);
  elsif not pg_try_advisory_xact_lock_shared(1886937714, sleepers_queue) then
    perform broker_private.wake_sleepers(sleepers_queue);
  end if;
  return true;
end
$$;
