-- The principal's name, or null.
--
-- Null: its role was dropped, or it is a broker user and a role has got its name since. What comes
-- over the network names a user. So a name may stand for one principal only, and a role is never
-- taken for a broker user.
create or replace function broker_private.principal_name(principal broker_private.principal)
returns name
language sql stable
begin atomic
  select case
    when (principal).role = 0 then 'public'::name
    when (principal).role is not null then broker_private.name_of_role((principal).role)
    when pg_catalog.to_regrole(pg_catalog.quote_ident((principal).broker_user)) is null then (principal).broker_user
  end;
end;
