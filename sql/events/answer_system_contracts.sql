-- Answers what came on ServiceEcho and ServiceDiagnostic.
--
-- It answers on 100 conversations at most, and returns on how many. An Echo goes back as it is. A
-- Query is about the service that it came to, and gets a Status, or a Description of what may be
-- asked (answer_query). A side that the far side has ended ends too. What waits for read_status
-- stays, until its minute is over.
-- Locks: the conversations' groups, skipping those that others hold.
create or replace function broker_private.answer_system_contracts()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  group_number bigint;
  message record;
  content bytea;
  e broker_private.endpoints%rowtype;
  state text;
  answered integer := 0;
begin
  for group_number in
    select g.group_no from broker_private.groups g
    where g.group_no in (
      select m.group_no from broker_private.messages m
      join broker_private.endpoints x on x.endpoint_no = m.endpoint_no
      where m.queue_id = 3 and (not x.is_initiator or x.expires_at <= broker_private.clock())
      order by m.precedence, m.id
      limit 100
    )
    order by g.group_no
    for update skip locked
  loop
    for message in
      select m.id, m.endpoint_no, m.message_type_id, m.body, m.shared_body_no
      from broker_private.messages m
      where m.group_no = group_number and m.queue_id = 3
      order by m.id
    loop
      delete from broker_private.messages m where m.group_no = group_number and m.id = message.id;
      select x.* into e from broker_private.endpoints x where x.endpoint_no = message.endpoint_no;
      select s.state into state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no;
      content := case
        when message.shared_body_no is null then message.body
        else broker_private.shared_body(message.shared_body_no)
      end;
      if state in ('DI', 'ER') then
        perform broker_private.close_side(e);
      elsif state = 'CO' and message.message_type_id = 10 then
        perform broker_private.send_system_message(e.conversation_handle, 10, content);
      elsif state = 'CO' and message.message_type_id = 11 then
        perform broker_private.answer_query(e, content);
      end if;
    end loop;
    answered := answered + 1;
  end loop;
  return answered;
end
$$;
