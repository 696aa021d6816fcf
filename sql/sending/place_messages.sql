-- Puts messages that may be sent where they go.
--
-- That is the far queue, if it is in this database and can take them now. There they are incomplete
-- if a worker must look at them or at what came before them. Else they go into the transmission
-- queue. is_checked: their validation is known to pass. shared_no: the stored body that all of them
-- have (send_all), or null. The caller holds the group. Returns whether they were put, not dropped.
create or replace function broker_private.place_messages(
  e broker_private.endpoints, type_id integer, contents bytea[], is_checked boolean, shared_no bigint
)
returns boolean
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
  far_group bigint;
  far_queue integer;
  far_priority smallint;
  is_enqueue_enabled boolean;
begin
  if e.path <> '<remote>' then
    e := broker_private.find_path(e);
  end if;
  if e.path in ('<local>', '<behind incomplete>') then
    select
      f.group_no, f.queue_id, f.priority, (select q.is_enqueue_enabled from broker_private.queues q where q.queue_id = f.queue_id)
    into far_group, far_queue, far_priority, is_enqueue_enabled
    from broker_private.endpoints f
    where f.endpoint_no = e.far_endpoint_no and f.local_end is distinct from '<cleaned up>';
    if not found then
      perform broker_private.put_broker_error(
        e.endpoint_no, 8462,
        'The remote conversation endpoint is either in a state where no more messages can be exchanged, or it has been dropped.'
      );
      return false;
    end if;
    -- What follows on this dialog must not overtake what waits now: it takes the same way until nothing waits.
    if not is_enqueue_enabled then
      e.path := '<delayed>';
      update broker_private.endpoints x set path = e.path where x.endpoint_no = e.endpoint_no;
      perform broker_private.set_dialog_status(e.endpoint_no, broker_private.waiting_reason(q))
      from broker_private.queues q
      where q.queue_id = far_queue;
    elsif e.path = '<local>' and not is_checked then
      e.path := '<behind incomplete>';
      update broker_private.endpoints x set path = e.path where x.endpoint_no = e.endpoint_no;
    end if;
  end if;
  if e.path = '<local>' then
    return broker_private.put_messages(
      null, e.far_endpoint_no, far_queue, (10 - far_priority)::smallint, type_id, contents, shared_no, far_group
    );
  elsif e.path = '<behind incomplete>' then
    perform broker_private.hold_messages(f, type_id, '<message>', contents, is_checked, shared_no)
    from broker_private.endpoints f
    where f.endpoint_no = e.far_endpoint_no;
    return true;
  -- The broker refused the dialog just now: its Error is what there is to receive.
  elsif e.path = '<unsent>' then
    return false;
  elsif e.path = '<delayed>' and exists (
    select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = '<far error>'
  ) then
    return false;
  end if;
  return broker_private.put_messages(
    null, e.endpoint_no, broker_private.destination_for(e), (e.priority - 11)::smallint, type_id, contents, shared_no
  );
end
$$;
