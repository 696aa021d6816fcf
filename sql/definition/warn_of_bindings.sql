-- Warns of each remote service binding whose owner could not create it.
--
-- Such an owner lacks CREATE on the database. A migration calls it, as earlier versions let the
-- named user create one, and it decides for everybody's dialogs.
create or replace function broker_private.warn_of_bindings()
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  binding record;
begin
  for binding in
    select b.name, b.remote_service_name, b.owner
    from broker_private.remote_service_bindings b
    left join pg_roles r on r.rolname = broker_private.role_of_owner(b.owner)
    where has_database_privilege(r.oid, current_database(), 'CREATE') is not true
    order by b.name
  loop
    raise warning 'The remote service binding "%" for the service "%" belongs to "%", who lacks CREATE on the database.',
      binding.name, binding.remote_service_name, binding.owner
      using hint = format(
        'It decides for all dialogs to that service. Make it yours: SELECT broker.alter_authorization(%L, %L, %L);'
        ' or drop it: SELECT broker.drop_remote_service_binding(%L)',
        'REMOTE SERVICE BINDING', binding.name, current_user, binding.name
      );
  end loop;
end
$$;
