-- Notes what the caller did from a console.
--
-- It does so in the transaction that does it, or after that was refused. Returns the number of the
-- row. Of a role the newest 10,000 rows stay. Nobody can note in another's name.
--
-- Ours.
-- Locks: the caller's old rows, without waiting.
-- Errors: 153 a text that is missing or too long.
create or replace function broker.note_console_action(action text, object text, result text)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  noted bigint;
begin
  loop
    noted := broker_private.note_console_action(current_user, action, object, result);
    exit when noted is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return noted;
end
$$;

create or replace function broker_private.note_console_action(
  caller name, action text, object text, result text
)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  actor regrole;
  noted bigint;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if coalesce(length(action) not between 1 and 128, true) then
    found := broker_private.refuse(
      153, 'The action is missing or too long.', 'Name it with 1 to 128 characters.'
    );
  elsif coalesce(length(object) not between 1 and 1000, true) then
    found := broker_private.refuse(
      153, 'The object is missing or too long.', 'Name it with 1 to 1,000 characters.'
    );
  elsif coalesce(length(result) not between 1 and 1000, true) then
    found := broker_private.refuse(
      153, 'The result is missing or too long.', 'Tell it in 1 to 1,000 characters.'
    );
  end if;
  actor := broker_private.find_role(caller);
  insert into broker_private.console_actions as a (role, role_name, acted_at, action, object, result)
  values (actor, caller, broker_private.clock(), action, object, result)
  returning a.id into noted;
  delete from broker_private.console_actions a
  where a.ctid = any (array(
    select x.ctid from broker_private.console_actions x
    where x.role = actor and x.id <= (
      select n.id from broker_private.console_actions n
      where n.role = actor
      order by n.id desc
      offset 10000
      limit 1
    )
    order by x.id
    limit 100
    for update skip locked
  ));
  return noted;
end
$$;

comment on function broker.note_console_action(text, text, text) is
$$Ours: notes what the caller did from a console, for broker.console_actions.

action: what was asked for.
object: what it was done to.
result: how it ended.

Returns: the number of the row.
Rights: everybody, in one's own name. Of a role the newest 10,000 rows stay.
Locks: the caller's old rows, without waiting.
Errors: 153
Example: select broker.note_console_action('queue_off', 'warehouse', 'done');$$;
