-- Why this database's broker neither sends, delivers nor activates; null if it does.
--
-- It is a transmission status. Whoever wants to know whether the broker is on asks here. It is off
-- if it was turned off, or if this database is a copy of the one that has its guid. Everybody may
-- execute it: the views show what it says.
create or replace function broker_private.broker_problem()
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.broker_instance%rowtype;
begin
  select b.* into this from broker_private.broker_instance b where b.is_the_only_row;
  if broker_private.is_copy() then
    return format(
      '9773: The broker is disabled: this database is a copy, and the broker instance "%s" may live on elsewhere. If it does, run '
      'alter_broker(''NEW_BROKER'') here; if this database takes its place, ENABLE_BROKER.', this.service_broker_guid
    );
  elsif not this.is_broker_enabled then
    return '9791: The broker is disabled in the sender''s database.';
  end if;
  return null;
end
$$;
