-- Trigger of a trace: conversations that begin.
--
-- BEGIN DIALOG here, or Dialog Created by the first message of another side.
create or replace function broker_private.trace_endpoints()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', 'Broker:Conversation',
      'subclass', case when c.is_initiator then 'BEGIN DIALOG' else 'Dialog Created' end
    ) order by c.endpoint_no)
    from (
      select x.endpoint_no, x.is_initiator
      from changed x
      order by x.endpoint_no
      limit 10000
    ) c
  ));
  return null;
end
$$;
