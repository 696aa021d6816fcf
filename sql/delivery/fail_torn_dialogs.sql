-- The far broker expects these numbers next, which lie behind the batch that it answers.
--
-- Dialogs on which it has taken more than this database has ever sent end in an Error on both
-- sides. This database has gone back to an earlier state.
--
-- What was sent in an earlier attempt and waits still is no such thing: it counts as sent.
-- Locks: as put_broker_error.
create or replace function broker_private.fail_torn_dialogs(endpoint_nos bigint[], next_numbers bigint[])
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  torn bigint[];
  endpoint bigint;
  e broker_private.endpoints%rowtype;
begin
  torn := array(
    select u.endpoint_no
    from unnest(fail_torn_dialogs.endpoint_nos, fail_torn_dialogs.next_numbers) as u (endpoint_no, next_number)
    cross join lateral broker_private.newest_counter(u.endpoint_no, '<next acknowledged>') c
    cross join lateral (
      select count(*) as messages, coalesce(bool_or(t.kind = '<error>'), false) as has_error
      from broker_private.transmission_messages t
      where t.endpoint_no = u.endpoint_no
    ) w
    -- An end with an error, or with cleanup, has dropped what waited. Who was told of the far side's
    -- end has received all before it.
    where u.next_number > c.next_number + w.messages and not w.has_error
      and not exists (select from broker_private.far_events f where f.endpoint_no = u.endpoint_no and f.event in ('<far end>', '<far error>', '<end acknowledged>'))
      and exists (select from broker_private.endpoints x where x.endpoint_no = u.endpoint_no and (x.local_end is null or x.local_end = '<ended>'))
    order by u.endpoint_no
  );
  foreach endpoint in array torn loop
    select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
    if broker_private.put_broker_error(endpoint, 9719, broker_private.fault_text(row(9719, null)::broker_private.fault)) then
      perform broker_private.tell_far_side(e, -9720, broker_private.fault_text(row(9720, null)::broker_private.fault));
    end if;
  end loop;
  return torn;
end
$$;
