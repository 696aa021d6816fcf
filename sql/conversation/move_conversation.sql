-- MOVE CONVERSATION: this side joins another group of its service, and its messages go along.
--
-- Both groups are locked until the transaction ends. A group whose last conversation leaves is
-- gone. What is being sent to the conversation meanwhile lands under the old group: see
-- sql/README.md, "What moves".
-- Locks: both groups' rows, in the order of their numbers, waiting for whoever holds them. If the
-- conversation has left its group while this waited, they are given back and it begins anew.
-- Errors: 8426 unknown handle, 8420 no group given, 8436 unknown group, 8439 a group of another
-- service, 8438 state, 229 not the owner of the conversation or of its service.
create or replace function broker.move_conversation(conversation_handle uuid, conversation_group_id uuid)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.move_conversation(current_user, conversation_handle, conversation_group_id);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.move_conversation(caller name, handle uuid, group_id uuid)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  target broker_private.groups%rowtype;
  endpoint_state text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if group_id is null then
    found := broker_private.refuse(
      8420, format('The conversation group for conversation "%s" is missing.', handle), 'Give conversation_group_id: the group to move to.'
    );
  end if;
  loop
    begin
      select x.* into e from broker_private.endpoints x where x.conversation_handle = handle;
      select s.state into endpoint_state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no;
      if endpoint_state is null then
        found := broker_private.refuse(
          8426, format('The conversation handle "%s" is not found.', handle),
          'It never existed here, or the conversation is over: broker.conversation_endpoints lists those of this database.'
        );
      end if;
      perform broker_private.require_conversation_ownership(caller, e, 'move');
      if endpoint_state in ('DO', 'CD') then
        found := broker_private.refuse(
          8438, format('The conversation endpoint "%s" is in state %s and cannot be moved.', handle, endpoint_state),
          'This side has ended the conversation.'
        );
      end if;
      select g.* into target
      from broker_private.groups g
      where g.conversation_group_id = group_id
        and exists (
          select from broker_private.endpoints x
          where x.group_no = g.group_no
            and (select s.state from broker_private.endpoint_states s where s.endpoint_no = x.endpoint_no) is not null
        );
      if not found then
        found := broker_private.refuse(
          8436, format('The conversation group "%s" is not found.', group_id),
          'broker.conversation_groups lists the groups; one goes with its last conversation.'
        );
      elsif target.service_id <> e.service_id then
        found := broker_private.refuse(
          8439, format('The destination conversation group "%s" is invalid for conversation "%s".', group_id, handle),
          'All conversations of a group belong to one service: move it to a group of its own service.'
        );
      end if;
      perform from broker_private.groups g where g.group_no in (e.group_no, target.group_no) order by g.group_no for update;
      -- Both may have changed while this waited: the group may be empty, and gone, by now.
      exit when exists (
        select from broker_private.endpoints x
        where x.endpoint_no = e.endpoint_no and x.group_no = e.group_no
          and (select s.state from broker_private.endpoint_states s where s.endpoint_no = x.endpoint_no) = endpoint_state
      ) and exists (
        select from broker_private.endpoints x
        where x.group_no = target.group_no
          and (select s.state from broker_private.endpoint_states s where s.endpoint_no = x.endpoint_no) is not null
      );
      raise exception using errcode = 'PB001', message = 'The groups have changed.';
    exception when sqlstate 'PB001' then
      -- The locks go with the block: kept, they would be held out of the order of their numbers.
      null;
    end;
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from broker_private.endpoints x where x.endpoint_no = e.endpoint_no for update;
  end if;
  if target.group_no = e.group_no then
    return true;
  end if;
  update broker_private.groups g set has_moved = true where g.group_no in (e.group_no, target.group_no) and not g.has_moved;
  update broker_private.endpoints x set group_no = target.group_no, conversation_group_id = target.conversation_group_id
  where x.endpoint_no = e.endpoint_no;
  delete from broker_private.moved_conversations v where v.endpoint_no = e.endpoint_no and v.old_group_no = target.group_no;
  update broker_private.moved_conversations v set group_no = target.group_no where v.endpoint_no = e.endpoint_no;
  insert into broker_private.moved_conversations (endpoint_no, old_group_no, group_no, moved_at, moved_by)
  values (e.endpoint_no, e.group_no, target.group_no, broker_private.clock(), pg_current_xact_id());
  perform broker_private.gather_moved(target.group_no);
  return true;
end
$$;

comment on function broker.move_conversation(uuid, uuid) is
$$MOVE CONVERSATION: this side joins another group of its service, and its messages go along.

conversation_handle: of this side.
conversation_group_id: the group that it joins.

Rights: the owner of the conversation or of its service.
Locks: both groups' rows, until the transaction ends.
Errors: 229, 8420, 8426, 8436, 8438, 8439
Example: select broker.move_conversation(:'handle', (select conversation_group_id from broker.conversation_endpoints where conversation_handle = :'handle'));$$;
