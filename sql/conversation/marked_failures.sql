-- broker_private.marked_failures(mark): how many rollbacks in a row a conversation's mark tells of by now.
create or replace function broker_private.marked_failures(mark bigint)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return case broker_private.outcome_of(broker_private.marked_transaction(mark))
    when 'committed' then 0
    when 'aborted' then (mark & 7) + 1
    else mark & 7
  end;
end
$$;
