-- Refuses a role without REFERENCES on the type, as CREATE CONTRACT asks.
--
-- Everybody may list the types that come with the broker.
-- Errors: 229.
create or replace function broker_private.require_type_reference(role_name name, this broker_private.message_types)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if this.message_type_id >= 65536
    and not broker_private.is_permitted(role_name, 'REFERENCES', '<message type>', this.message_type_id, this.owner)
  then
    found := broker_private.refuse(
      229, format('Role "%s" may not list the message type "%s" in a contract.', role_name, this.name),
      format(
        'Let its owner, "%s", run: SELECT broker.grant(''REFERENCES'', ''MESSAGE TYPE'', %L, %L)',
        pg_get_userbyid(this.owner), this.name, role_name
      )
    );
  end if;
end
$$;
