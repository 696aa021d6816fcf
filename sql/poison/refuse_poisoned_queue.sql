-- Error 9617 of a queue that rollbacks have turned off.
create or replace function broker_private.refuse_poisoned_queue(queue_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  found := broker_private.refuse(
    9617, format('The queue "%s" is disabled: five transactions in a row that received from it have rolled back.', queue_name),
    format(
      'Find what fails, then its owner enables it: SELECT broker.alter_queue(%L, status => true); '
      'end the conversation whose message can''t be processed.', queue_name
    )
  );
end
$$;
