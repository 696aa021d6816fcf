-- The principal that a name stands for now.
--
-- It is public, the role that has it, or else a broker user of that name.
create or replace function broker_private.principal_of(principal_name name)
returns broker_private.principal
language sql stable
begin atomic
  select case
    when principal_name = 'public' then row(0::oid, null)::broker_private.principal
    when pg_catalog.to_regrole(pg_catalog.quote_ident(principal_name)) is not null
      then row(pg_catalog.to_regrole(pg_catalog.quote_ident(principal_name)), null)::broker_private.principal
    else row(null, principal_name)::broker_private.principal
  end;
end;
