-- broker_private.activation_runner(caller, execute_as, queue): the role that is to run a queue's procedure; null is the queue's owner. Whoever names a role
-- must be a member of it himself.
-- Errors: 9613 no role, 229 not a member of it.
create or replace function broker_private.activation_runner(role_name name, run_as text, queue_name text)
returns regrole
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if run_as = 'SELF' then
    return broker_private.find_role(role_name);
  elsif run_as = 'OWNER' then
    return null;
  elsif run_as is null then
    perform broker_private.refuse(
      9613, format('The queue "%s" does not say who runs its activation procedure.', queue_name),
      'Give execute_as: SELF, OWNER, or a role that you are a member of.'
    );
  elsif not exists (
    select from pg_roles r where r.rolname = run_as and pg_has_role(role_name, r.oid, 'MEMBER')
  ) then
    perform broker_private.refuse(
      229, format('Role "%s" may not let the queue "%s" run its procedure as "%s".', role_name, queue_name, run_as),
      'Use SELF, OWNER, or an existing role that you are a member of.'
    );
  end if;
  return broker_private.find_role(run_as::name);
end
$$;
