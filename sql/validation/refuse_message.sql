-- Drops the oldest incomplete message of this endpoint, which failed its check.
--
-- All after it are dropped too, and its sender gets an Error. If nothing had come before it, the
-- endpoint goes as if the dialog had never begun here.
-- Locks: then the group; if somebody has it, nothing is done, and the next look tries again.
create or replace function broker_private.refuse_message(endpoint bigint, first_of_dialog boolean, code integer, description text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  f broker_private.endpoints%rowtype;
  sender broker_private.endpoints%rowtype;
begin
  select x.* into f from broker_private.endpoints x where x.endpoint_no = endpoint;
  if first_of_dialog then
    perform from broker_private.groups g where g.group_no = f.group_no for update skip locked;
    if not found then
      return;
    end if;
  end if;
  insert into broker_private.far_events (endpoint_no, event) values (endpoint, '<refused here>') on conflict do nothing;
  if f.path <> '<remote>' then
    select x.* into sender from broker_private.endpoints x where x.conversation_id = f.conversation_id and x.is_initiator <> f.is_initiator;
    perform broker_private.put_broker_error(sender.endpoint_no, code, description);
  else
    perform broker_private.tell_far_side(f, -code, description);
  end if;
  perform broker_private.drop_incomplete(endpoint);
  if first_of_dialog then
    -- An Error that is on its way keeps the row, unseen, until it is acknowledged.
    update broker_private.endpoints x
    set local_end = '<cleaned up>', closed_at = case when f.path <> '<remote>' then broker_private.clock() end
    where x.endpoint_no = endpoint;
  end if;
end
$$;
