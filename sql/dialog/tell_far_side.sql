-- Sends an Error to the far side of a dialog that is in error here.
--
-- A far side in this database is told by itself.
create or replace function broker_private.tell_far_side(e broker_private.endpoints, code integer, description text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if e.path = '<remote>' or e.path = '<delayed>' and not exists (
    select from broker_private.endpoints f
    where f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator
  ) and e.destination_no <> 0 then
    insert into broker_private.transmission_messages (
      endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body
    )
    values (
      e.endpoint_no, broker_private.clock(), e.destination_no, 1, 10 - e.priority, '<error>', broker_private.error_body(code, description)
    );
    perform broker_private.note_arrival(0);
  end if;
end
$$;
