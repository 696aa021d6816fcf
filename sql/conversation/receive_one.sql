-- hot path
-- broker_private.receive_one(group, endpoint): RECEIVE TOP (1) from a group that this session holds, or from one conversation of it, as an array of
-- one message; null if there is none, or if it lay on an endpoint that has ended and is removed now.
-- Called by RECEIVE alone, whose settings pin its plans too.
-- Plan: messages_group, one row; each other table one row by key.
create or replace function broker_private.receive_one(group_number bigint, endpoint bigint)
returns broker.message[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  taken record;
  number bigint;
  received broker.message[];
begin
  if endpoint is null then
    delete from broker_private.messages m
    where m.ctid = (
      select c.ctid from broker_private.messages c
      where c.group_no = group_number
      order by c.precedence, c.endpoint_no, c.urgency, c.id
      limit 1
    )
    returning m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.precedence, m.urgency, m.body,
      m.shared_body_no into taken;
  else
    delete from broker_private.messages m
    where m.ctid = (
      select c.ctid from broker_private.messages c
      where c.group_no = group_number and c.endpoint_no = endpoint
      order by c.precedence, c.endpoint_no, c.urgency, c.id
      limit 1
    )
    returning m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.precedence, m.urgency, m.body,
      m.shared_body_no into taken;
  end if;
  if not found then
    return null;
  end if;
  if taken.shared_body_no is not null then
    taken.body := broker_private.shared_body(taken.shared_body_no);
  end if;
  number := taken.sequence_number;
  if number is null and taken.urgency = 2 then
    update broker_private.sequence_counters s
    set next_number = s.next_number + 1, epoch = (s.next_number + 1) >> 7
    where s.ctid = (
      select n.ctid from broker_private.sequence_counters n
      where n.endpoint_no = taken.endpoint_no and n.kind = 'R'
      order by n.epoch desc
      limit 1
    )
    returning s.next_number - 1 into number;
  elsif number is null then
    number := broker_private.number_of_error(taken.endpoint_no);
  end if;
  select array[row(
    0, 10 - taken.precedence, taken.id, g.conversation_group_id, e.conversation_handle, number, coalesce(s.name, s.dropped_name), s.service_id,
    coalesce(k.name, k.dropped_name), k.contract_id, y.name, y.message_type_id, y.validation, taken.body,
    broker_private.message_id(e.conversation_id, not e.is_initiator, taken.urgency, case taken.urgency when 2 then number else taken.id end),
    taken.enqueue_time
  )::broker.message] into received
  from broker_private.endpoints e
  join broker_private.groups g on g.group_no = e.group_no
  join broker_private.services s on s.service_id = e.service_id
  join broker_private.contracts k on k.contract_id = e.contract_id
  join broker_private.message_types y on y.message_type_id = taken.message_type_id
  where e.endpoint_no = taken.endpoint_no and e.local_end is null;
  return received;
end
$$;
