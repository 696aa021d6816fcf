-- Makes ready what nothing holds back any more, of all dialogs.
--
-- That is messages that were put behind others while those became ready, and those of queues that
-- were off. Returns how many.
-- Plan: one probe of incomplete_messages_endpoint for each dialog with incomplete messages.
create or replace function broker_private.release_waiting()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  endpoint_nos bigint[];
begin
  with recursive dialogs (endpoint_no) as (
    (select i.endpoint_no from broker_private.incomplete_messages i order by i.endpoint_no limit 1)
    union all
    select (
      select n.endpoint_no from broker_private.incomplete_messages n where n.endpoint_no > d.endpoint_no order by n.endpoint_no limit 1
    )
    from dialogs d
    where d.endpoint_no is not null
  )
  select array_agg(d.endpoint_no) into endpoint_nos
  from dialogs d
  cross join lateral (
    select i.is_checked from broker_private.incomplete_messages i where i.endpoint_no = d.endpoint_no order by i.id limit 1
  ) h
  join broker_private.endpoints e on e.endpoint_no = d.endpoint_no
  join broker_private.queues q on q.queue_id = e.queue_id
  where h.is_checked and q.is_enqueue_enabled or e.local_end is not null;
  return case when endpoint_nos is null then 0 else broker_private.release_messages(endpoint_nos) end;
end
$$;
