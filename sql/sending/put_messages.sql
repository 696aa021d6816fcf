-- Puts messages of one dialog where a send plan says, in the order of the list.
--
-- Wakes who sleeps there. With made, when the plan was made, only if it may be believed and the far
-- side is still open; returns whether they were put. level: -1 minus the precedence where they go
-- into the transmission queue. shared_no: the stored body that all of them have (send_all), or
-- null. to_group: the far side's group, where it is known, whether that side is open or not. The
-- caller holds the group.
-- Locks: the queue's advisory lock, shared, by trying, until the transaction ends.
create or replace function broker_private.put_messages(
  made bigint, target bigint, place integer, level smallint, type_id integer, contents bytea[], shared_no bigint default null,
  to_group bigint default null
)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  if made is not null then
    if broker_private.is_plan_marked(made)
      or level < 0 and exists (select from broker_private.far_events v where v.endpoint_no = target and v.event in ('<far end>', '<far error>'))
    then
      return false;
    end if;
  end if;
  if level >= 0 then
    if to_group is null then
      select f.group_no into to_group from broker_private.endpoints f where f.endpoint_no = target and f.local_end is null;
      if not found then
        return false;
      end if;
    end if;
    insert into broker_private.messages (
      group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body, shared_body_no, shared_size
    )
    select
      to_group, target, broker_private.clock(), place, type_id, level, 2,
      case when shared_no is null then nullif(c.content, '') end, shared_no, case when shared_no is not null then octet_length(c.content) end
    from unnest(contents) as c (content);
  else
    insert into broker_private.transmission_messages (
      endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body, shared_body_no, shared_size
    )
    select
      target, broker_private.clock(), place, type_id, -1 - level, '<message>',
      case when shared_no is null then nullif(c.content, '') end, shared_no, case when shared_no is not null then octet_length(c.content) end
    from unnest(contents) as c (content);
    place := 0;
  end if;
  if not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), place) then
    perform broker_private.wake_sleepers(place);
  end if;
  if current_setting('pybroker.traceparent', true) <> '' then
    perform broker_private.note_traceparent(target, to_group, level, cardinality(contents));
  end if;
  return true;
end
$$;
