-- Removes what the endpoint still wants to send, its Error only if that is asked for.
--
-- Rows that an END CONVERSATION WITH ERROR is dropping are left to it, so this waits for nobody.
create or replace function broker_private.drop_unsent(endpoint bigint, with_error boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from broker_private.transmission_messages m
  where m.ctid = any (array(
    select t.ctid from broker_private.transmission_messages t
    where t.endpoint_no = endpoint and (with_error or t.kind <> '<error>')
    for update skip locked
  ));
  delete from broker_private.transmission_status w
  where w.ctid = any (array(
    select s.ctid from broker_private.transmission_status s where s.endpoint_no = endpoint for update skip locked
  ));
end
$$;
