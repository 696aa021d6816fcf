-- DROP BROKER PRIORITY.
--
-- Dialogs that exist keep their priority.
-- Errors: 208 not found, 229.
create or replace function broker.drop_broker_priority(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_broker_priority(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_broker_priority(caller name, priority_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.priorities%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'broker priority');
  this := broker_private.find_priority(priority_name);
  delete from broker_private.priorities p where p.priority_id = this.priority_id;
  return true;
end
$$;

comment on function broker.drop_broker_priority(text) is
$$DROP BROKER PRIORITY. Dialogs that exist keep their priority.

name: as it was created.

Rights: the database's owner.
Errors: 208, 229
Example: select broker.create_broker_priority('urgent'), broker.drop_broker_priority('urgent');$$;
