-- Refuses a user that can own no certificate, and one that the caller may not act as.
create or replace function broker_private.check_binding_user(caller name, binding_name text, binding_user text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.check_role_name('user of the remote service binding', binding_user);
  if binding_user ~ '^pg_' then
    found := broker_private.refuse(
      28089, format('The role "%s" can''t be the user of the remote service binding "%s": it is PostgreSQL''s own and owns no certificate.', binding_user, binding_name),
      'Name the user of the far broker''s certificate.'
    );
  elsif lower(binding_user) = 'public' or exists (
    select from pg_roles r where r.rolname = binding_user and not r.rolcanlogin and exists (select from pg_auth_members m where m.roleid = r.oid)
  ) then
    found := broker_private.refuse(
      28083, format('"%s" can''t be the user of the remote service binding "%s": a group owns no certificate.', binding_user, binding_name),
      'Name the user of the far broker''s certificate: one party, not several.'
    );
  elsif not broker_private.is_owner(caller, to_regrole(quote_ident(binding_user))) then
    found := broker_private.refuse(
      229, format('Role "%s" may not use "%s" in the remote service binding "%s".', caller, binding_user, binding_name),
      'Name yourself, or a role that you are a member of; the owner of the database may name any.'
    );
  end if;
end
$$;
