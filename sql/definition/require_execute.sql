-- Refuses an activation procedure that the role which is to run it may not call.
--
-- Else each reader would fail, and who only sees that could be made to grant the right. One that is
-- gone passes, as its queue must be alterable all the same.
-- Errors: 229.
create or replace function broker_private.require_execute(queue integer)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.queues%rowtype;
  runner regrole;
begin
  select q.* into this from broker_private.queues q where q.queue_id = queue;
  runner := coalesce(this.execute_as, this.owner);
  if not broker_private.may_run(runner, broker_private.procedure_of(this.activation_procedure)) then
    found := broker_private.refuse(
      229,
      format(
        'Role "%s" may not run the activation procedure %s of the queue "%s".', pg_get_userbyid(runner), this.activation_procedure, this.name
      ),
      'It needs EXECUTE on the procedure, which the procedure''s owner may grant, and USAGE on its schema; or let another role run it: execute_as.'
    );
  end if;
end
$$;
