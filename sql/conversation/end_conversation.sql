-- END CONVERSATION.
--
-- Plain: the far side gets EndDialog after everything sent before. With an error: what waits in the
-- transmission queue is dropped and the far side gets an Error, which RECEIVE returns before the
-- rest. With cleanup: this side vanishes and the far side is not told. In each case this side's
-- unread and retained messages are removed.
-- Locks: the group's row. The far side's rows are never locked or changed: its end is recorded by
-- an insert.
-- Errors: 8426 unknown handle, 8427 state, 8419, 8422, 8424 code and description, 229 not the owner
-- of the conversation or its service, 28006 cleanup of a closed one by another than the database's
-- owner.
create or replace function broker.end_conversation(
  conversation_handle uuid, error_code integer default null, error_description text default null, cleanup boolean default false
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.end_conversation(current_user, conversation_handle, error_code, error_description, cleanup);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.end_conversation(
  caller name, handle uuid, error_code integer, error_description text, with_cleanup boolean
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  state text;
  has_far_ended boolean;
  has_remains boolean;
  is_error constant boolean := error_code is not null;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if is_error and error_description is null then
    found := broker_private.refuse(8422, 'The error description is missing.', 'Give error_description with error_code.');
  elsif error_description is not null and not is_error then
    found := broker_private.refuse(8424, 'The error code is missing.', 'Give error_code, an integer above 0, with error_description.');
  elsif error_code <= 0 then
    found := broker_private.refuse(8419, format('The error code %s is not above 0.', error_code), 'Negative codes are the broker''s own.');
  elsif length(error_description) > 3000 then
    found := broker_private.refuse(
      8422, format('The error description has %s characters.', length(error_description)), 'It has at most 3000 characters.'
    );
  elsif with_cleanup is null then
    found := broker_private.refuse(153, 'The option cleanup of END CONVERSATION is NULL.', 'Use true or false.');
  elsif is_error and with_cleanup then
    found := broker_private.refuse(
      153, 'error_code and cleanup exclude each other.', 'With cleanup the far side is told nothing: leave one of them out.'
    );
  end if;

  e := broker_private.lock_group_of(handle);
  select
    exists (
      select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event in ('<far end>', '<far error>')
    ),
    exists (
      select from broker_private.messages m
      where m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no
    )
    or exists (select from broker_private.incomplete_messages i where i.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.early_messages h where h.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.message_pieces p where p.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.retained_messages r where r.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.quarantine z where z.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.conversation_timers t where t.endpoint_no = e.endpoint_no)
    or exists (select from broker_private.transmission_status s where s.endpoint_no = e.endpoint_no)
  into has_far_ended, has_remains;
  if not broker_private.is_owner(caller, e.owner) then
    perform broker_private.require_conversation_ownership(caller, e, 'end');
  end if;

  if e.local_end is not null then
    state := (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no);
  end if;
  if with_cleanup then
    if state = 'CD' and not pg_has_role(caller, 'pg_database_owner', 'USAGE') then
      found := broker_private.refuse(
        28006, format('The conversation endpoint "%s" is closed: only the owner of the database may remove it.', handle),
        'Leave it: it goes by itself, and until then it keeps a message that is sent again from opening a second conversation.'
      );
    end if;
    delete from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no;
    update broker_private.endpoints x set local_end = '<cleaned up>', closed_at = broker_private.clock()
    where x.endpoint_no = e.endpoint_no;
  elsif state is not null then
    found := broker_private.refuse(
      8427, format('The conversation endpoint "%s" is in state %s and cannot be ended.', handle, state),
      'This side has ended the conversation already; its row goes by itself.'
    );
  elsif e.path = '<unsent>' or has_far_ended then
    found := broker_private.close_side(e);
  else
    found := broker_private.send_end(e, error_code, error_description);
  end if;
  if has_remains then
    perform broker_private.drop_remains(e);
  end if;
  return true;
end
$$;

comment on function broker.end_conversation(uuid, integer, text, boolean) is
$$END CONVERSATION: ends this side; its unread and retained messages are removed. The far side gets
an EndDialog after all that was sent before.

conversation_handle: of this side.
error_code: positive: the far side gets an Error in place of an EndDialog, and what waits to be
  sent is dropped.
error_description: what the Error says, at most 3,000 characters; goes with error_code.
cleanup: true removes this side at once, and tells the far side nothing: for conversations whose
  far side is gone.

Rights: the owner of the conversation or of its service; cleanup of a closed one: the database's
  owner.
Locks: the group's row, until the transaction ends.
Errors: 229, 8419, 8422, 8424, 8426, 8427, 28006
Example: select broker.end_conversation(:'handle', 1, 'out of stock');$$;
