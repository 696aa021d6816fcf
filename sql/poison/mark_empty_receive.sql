-- Writes into a queue's marks that RECEIVE came back empty now: see create_receive_marks.
create or replace function broker_private.mark_empty_receive(marks regclass)
returns bigint
language sql volatile
begin atomic
  select pg_catalog.setval(marks, pg_catalog.floor(extract(epoch from broker_private.clock()) * 1000)::bigint << 20);
end;
