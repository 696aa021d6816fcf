-- The role that is to run a queue's procedure; null is the queue's owner.
--
-- Whoever names a role, the owner too, must be able to SET ROLE to it himself: to inherit what it
-- may do is less.
-- Errors: 9613 no role, 229 he may not SET ROLE to it.
create or replace function broker_private.activation_runner(role_name name, run_as text, queue_name text)
returns regrole
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  runner constant text := case
    when run_as = 'SELF' then role_name
    when run_as = 'OWNER' then (
      select broker_private.role_of_owner(q.owner) from broker_private.queues q where q.name = queue_name
    )
    else run_as
  end;
begin
  if run_as is null then
    found := broker_private.refuse(
      9613, format('The queue "%s" does not say who runs its activation procedure.', queue_name),
      'Give execute_as: SELF, OWNER, or a role that you may SET ROLE to.'
    );
  elsif runner is distinct from role_name and not exists (
    select from pg_roles r
    where r.rolname = runner
      -- Before 16 every member may SET ROLE.
      and pg_has_role(
        role_name, r.oid, case when current_setting('server_version_num')::integer >= 160000 then 'SET' else 'MEMBER' end
      )
  ) then
    found := broker_private.refuse(
      229, format('Role "%s" may not let the queue "%s" run its procedure as "%s".', role_name, queue_name, runner),
      'Use SELF, or an existing role that you may SET ROLE to.'
    );
  end if;
  return case when run_as <> 'OWNER' then broker_private.find_role(runner::name) end;
end
$$;
