-- DROP SERVICE: its messages go, and each open conversation's far side gets an Error, -8470.
-- Locks: the groups of the service, in their order: it waits for sessions that work on them.
-- Errors: 8423 not found, 3716 a broker priority refers to it, 229.
create or replace function broker.drop_service(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_service(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_service(caller name, service_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.services%rowtype;
  e broker_private.endpoints%rowtype;
  endpoint bigint;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_service(service_name);
  perform broker_private.require_ownership(caller, this.owner, 'service', service_name);
  if exists (select from broker_private.priorities p where p.local_service_id = this.service_id) then
    found := broker_private.refuse(
      3716, format('The service "%s" cannot be dropped: a broker priority refers to it.', service_name), 'Drop the priority first.'
    );
  end if;
  -- First the name, so that no conversation with it begins while this waits for those that there are.
  update broker_private.services s set name = null, dropped_name = service_name, queue_id = null where s.service_id = this.service_id;
  delete from broker_private.service_contracts c where c.service_id = this.service_id;
  delete from broker_private.moved_services v where v.service_id = this.service_id;
  delete from broker_private.permissions p where p.class = '<service>' and p.securable_id = this.service_id;
  perform from broker_private.groups g where g.service_id = this.service_id order by g.group_no for update;
  for endpoint in
    select x.endpoint_no from broker_private.endpoints x where x.service_id = this.service_id and x.local_end is null order by x.endpoint_no
  loop
    select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
    if (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) = 'CO' then
      perform broker_private.send_end(e, -8470, 'The remote service has been dropped.');
    else
      perform broker_private.close_side(e);
    end if;
    perform broker_private.drop_remains(e);
  end loop;
  return true;
end
$$;

comment on function broker.drop_service(text) is
$$DROP SERVICE. Its messages are removed, and the far side of each open conversation gets an Error,
-8470.

name: as it was created.

Rights: the owner of the service, or of the database.
Locks: the groups of the service: it waits for sessions that work on them.
Errors: 229, 3716, 8423
Example: select broker.create_service('//shop/returns', 'warehouse'), broker.drop_service('//shop/returns');$$;
