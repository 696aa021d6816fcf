-- Whether a role that has the rights of the database's owner traces now.
create or replace function broker_private.is_trace_wanted()
returns boolean
language sql stable
begin atomic
  select exists (
    select from broker_private.traces t
    where t.ends_at > broker_private.clock()
      and pg_catalog.pg_has_role(t.role, 'pg_database_owner', 'USAGE')
  );
end;
