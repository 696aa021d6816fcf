-- The broker priority of that name, or error 208.
create or replace function broker_private.find_priority(priority_name text)
returns broker_private.priorities
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.priorities%rowtype;
begin
  select p.* into this from broker_private.priorities p where p.name = priority_name;
  if this.priority_id is null then
    found := broker_private.refuse(
      208, format('The broker priority "%s" is not found.', coalesce(priority_name, 'NULL')),
      'broker.conversation_priorities lists them, broker.create_broker_priority makes one.'
    );
  end if;
  return this;
end
$$;
