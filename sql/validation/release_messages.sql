-- Makes ready what nothing holds back any more on these dialogs, in order.
--
-- Answers the first message that failed its check with an Error. Returns how many messages became
-- ready. A queue that is off takes nothing.
-- Locks: the counter of each dialog, as deliver does and in its order, so that nothing arrives in
-- between. The rows too, skipping those that the end of the conversation is dropping: what comes
-- after one of them stays.
create or replace function broker_private.release_messages(endpoint_nos bigint[])
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  released integer;
  queues integer[];
  this record;
begin
  if broker_private.broker_problem() is not null then
    return 0;
  end if;
  perform
  from (select distinct u.endpoint_no from unnest(endpoint_nos) as u (endpoint_no) order by u.endpoint_no) d
  cross join lateral (
    select from broker_private.sequence_counters n
    where n.endpoint_no = d.endpoint_no and n.kind = '<next expected>'
    order by n.epoch desc
    limit 1
    for update
  ) c;

  with candidates as materialized (
    select
      i.id, i.endpoint_no, i.sequence_number, i.enqueue_time, i.message_type_id, i.kind, i.body, i.shared_body_no, i.shared_size,
      i.is_checked and i.fault_code is null as is_good,
      e.conversation_id, e.is_initiator, e.group_no, e.queue_id, 10 - e.priority as precedence
    from broker_private.incomplete_messages i
    join broker_private.endpoints e on e.endpoint_no = i.endpoint_no
    join broker_private.queues q on q.queue_id = e.queue_id
    where i.endpoint_no = any (release_messages.endpoint_nos) and e.local_end is null and q.is_enqueue_enabled
      and not exists (select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = '<refused here>')
  ),
  held as materialized (
    select i.id
    from broker_private.incomplete_messages i
    where i.id in (select c.id from candidates c) and i.endpoint_no = any (release_messages.endpoint_nos)
    for update skip locked
  ),
  ready as materialized (
    select c.id, c.endpoint_no, c.sequence_number, c.enqueue_time, c.message_type_id, c.kind, c.body, c.shared_body_no, c.shared_size,
      c.conversation_id, c.is_initiator, c.group_no, c.queue_id, c.precedence
    from (
      select x.*, count(*) filter (where not x.is_good or h.id is null) over (partition by x.endpoint_no order by x.id) as ahead
      from candidates x
      left join held h on h.id = x.id
    ) c
    where c.ahead = 0
  ),
  gone as (
    delete from broker_private.incomplete_messages i
    where i.id in (select r.id from ready r) and i.endpoint_no = any (release_messages.endpoint_nos)
  ),
  ended as (
    insert into broker_private.far_events (endpoint_no, event)
    select r.endpoint_no, '<far end>' from ready r where r.kind = '<end dialog>'
    union all
    select e.endpoint_no, '<end acknowledged>'
    from ready r
    join broker_private.endpoints e on e.conversation_id = r.conversation_id and e.is_initiator <> r.is_initiator
    where r.kind = '<end dialog>' and r.sequence_number is null
    on conflict do nothing
  ),
  stored as (
    insert into broker_private.messages (
      group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence, urgency, body,
      shared_body_no, shared_size
    )
    select r.group_no, r.endpoint_no, r.sequence_number, r.enqueue_time, r.queue_id, r.message_type_id, r.precedence, 2,
      r.body, r.shared_body_no, r.shared_size
    from ready r
    order by r.id
    returning queue_id
  )
  select count(*), array_agg(distinct s.queue_id) into released, queues from stored s;
  perform broker_private.note_arrival(u.queue_id) from unnest(queues) as u (queue_id);

  for this in
    select h.endpoint_no, h.is_first, h.fault_code, h.fault_text, e.local_end is not null or v.endpoint_no is not null as is_over
    from (select distinct u.endpoint_no from unnest(endpoint_nos) as u (endpoint_no)) d
    cross join lateral (
      select i.endpoint_no, i.is_first, i.fault_code, i.fault_text
      from broker_private.incomplete_messages i
      where i.endpoint_no = d.endpoint_no
      order by i.id
      limit 1
    ) h
    join broker_private.endpoints e on e.endpoint_no = h.endpoint_no
    left join broker_private.far_events v on v.endpoint_no = h.endpoint_no and v.event = '<refused here>'
    where h.fault_code is not null or e.local_end is not null or v.endpoint_no is not null
    order by h.endpoint_no
  loop
    if this.is_over then
      perform broker_private.drop_incomplete(this.endpoint_no);
    else
      perform broker_private.refuse_message(this.endpoint_no, this.is_first, this.fault_code, this.fault_text);
    end if;
  end loop;
  return released;
end
$$;
