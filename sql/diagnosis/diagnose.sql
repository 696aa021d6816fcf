-- What keeps messages, and the statement that mends it.
--
-- Of one conversation, or of all that this database knows. Ours: SQL Server has the program
-- ssbdiagnose. Errors come first, of these what concerns the whole database, then what holds up
-- most messages. docs/diagnose.md lists the numbers. A role is told of the objects
-- that it may see, and how much it could not see (901).
-- Locks: none.
-- Plan: no scan of messages: first rows by index, counts with a limit.
create or replace function broker.diagnose(conversation_handle uuid default null)
returns table (
  number integer, level text, object text, problem text, why text,
  since timestamp with time zone, mend text, mend_role name, is_destructive boolean
)
language plpgsql
rows 10
set search_path = pg_catalog, pg_temp
as $$
declare
  findings jsonb;
  done boolean;
begin
  loop
    findings := broker_private.diagnose(current_user, conversation_handle);
    exit when findings is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return query
  with found as materialized (
    select f.*, row_number() over (
      order by array_position(array['error', 'warning', 'information'], f.level), f.number >= 200,
        f.messages desc nulls last, f.number, f.since, f.object
    ) as place
    from jsonb_to_recordset(findings) f (
      number integer, level text, object text, problem text, why text,
      since timestamp with time zone, mend text, mend_role name, is_destructive boolean, messages bigint
    )
  )
  select f.number, f.level, f.object, f.problem, f.why, f.since, f.mend, f.mend_role, f.is_destructive
  from (
    select f.* from found f where f.place <= 100
    union all
    select 901, 'information', current_database(), format('%s more findings are not shown.', count(*) - 100),
      'These are the gravest, and those that hold up most messages. Mend them, and ask again.',
      null, null, null, false, null, 101
    from found
    having count(*) > 100
  ) f
  order by f.place;
end
$$;

create or replace function broker_private.diagnose(caller name, handle uuid)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  endpoint bigint;
  queue integer;
  unseen bigint;
  findings jsonb;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if handle is not null then
    select e.endpoint_no, e.queue_id into endpoint, queue
    from broker_private.endpoints e
    where e.conversation_handle = handle;
    if endpoint is null or not (
      broker_private.sees_all(caller) or broker_private.may_receive(caller, queue)
    ) then
      return jsonb_build_array(broker_private.finding(
        410, 'error', handle::text, 'This database has no such conversation that the role may see.',
        'It may be gone: both sides have ended it. Or the handle is of another database, or of a '
          'queue that the role may not receive from.'
      ));
    end if;
  end if;
  select coalesce(jsonb_agg(f.finding), '[]') into findings
  from (
    select b.finding from broker_private.broker_findings(caller, endpoint) b (finding)
    union all select q.finding from broker_private.queue_findings(caller, endpoint) q (finding)
    union all select d.finding from broker_private.delivery_findings(caller, endpoint) d (finding)
    union all select c.finding from broker_private.conversation_findings(caller,
      endpoint) c (finding)
    union all select h.finding from broker_private.holder_findings(caller, endpoint) h (finding)
    union all select r.finding from broker_private.rights_findings() r (finding)
      where handle is null and broker_private.sees_all(caller)
  ) f;
  if handle is null and not broker_private.sees_all(caller) then
    select
      (select count(*) from broker_private.queues q where q.queue_id >= 65536)
        - (select count(*) from broker_private.diagnosed_queues(caller, null)) into unseen;
    findings := findings || broker_private.finding(
      901, 'information', caller::text,
      format('The role "%s" sees %s of the queues here not, and nothing of sessions, endpoints and '
        'owners.', caller, unseen),
      'A role is told of the queues that it may receive from. The owner of the database and '
        'members of pg_monitor are told of all.'
    );
  end if;
  return findings;
end
$$;

comment on function broker.diagnose(uuid) is
$$Ours, after ssbdiagnose: what keeps messages, and the statement that mends it, errors first.
docs/diagnose.md lists the numbers.

conversation_handle: what keeps this conversation; NULL is all that this database knows.

Returns: findings: number, level (error, warning, information), object, problem, why, since, mend,
  mend_role, is_destructive.
Rights: a role is told of what it may see, and how much it could not see.
Example: select number, level, object, problem, mend from broker.diagnose();$$;
