-- Removes what an ended side had not received, kept, or waited for.
--
-- What arrives later is left to the sweep. The caller holds the group.
create or replace function broker_private.drop_remains(e broker_private.endpoints)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
begin
  perform broker_private.drop_incomplete(e.endpoint_no);
  delete from broker_private.messages m
  where m.ctid = any (array(
    select x.ctid from broker_private.messages x
    where x.group_no = e.group_no and x.precedence = 10 - e.priority and x.endpoint_no = e.endpoint_no
    order by x.urgency, x.id
  ));
  delete from broker_private.retained_messages r where r.endpoint_no = e.endpoint_no;
  if exists (select from broker_private.quarantine z where z.endpoint_no = e.endpoint_no) then
    delete from broker_private.quarantined_messages m where m.endpoint_no = e.endpoint_no;
    delete from broker_private.quarantine z where z.endpoint_no = e.endpoint_no;
  end if;
  delete from broker_private.conversation_timers t where t.endpoint_no = e.endpoint_no;
  delete from broker_private.transmission_status s
  where s.endpoint_no = e.endpoint_no
    and not exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no);
end
$$;
