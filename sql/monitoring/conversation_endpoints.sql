-- The sides of conversations in this database, as sys.conversation_endpoints.
--
-- They are those on queues that the reader may receive from. An initiator's row goes when the
-- conversation is over; a target's stays as CLOSED until security_timestamp. Numbers are counted
-- from what is waiting, for the rows that are read and only if they are asked for. What has no
-- meaning here is NULL: docs/internals.md says why.
create or replace view broker.conversation_endpoints with (security_barrier) as
select
  e.conversation_handle,
  e.conversation_id,
  e.is_initiator,
  e.contract_id as service_contract_id,
  g.conversation_group_id,
  e.service_id,
  e.expires_at as lifetime,
  s.state,
  case s.state
    when 'SO' then 'STARTED_OUTBOUND'
    when 'SI' then 'STARTED_INBOUND'
    when 'CO' then 'CONVERSING'
    when 'DI' then 'DISCONNECTED_INBOUND'
    when 'DO' then 'DISCONNECTED_OUTBOUND'
    when 'ER' then 'ERROR'
    when 'CD' then 'CLOSED'
  end as state_desc,
  e.far_service,
  -- As named at BEGIN DIALOG it is where the dialog should go; what this shows is where it went.
  case
    when e.is_initiator and e.path in ('<local>', '<behind incomplete>') then (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row)
    when e.is_initiator then f.far_broker_instance
    else e.far_broker_instance
  end as far_broker_instance,
  pg_catalog.pg_get_userbyid(e.owner) as principal_id,
  case
    when y.kind = '<full>' and not e.is_initiator then coalesce((y.far_user).broker_user, pg_catalog.pg_get_userbyid((y.far_user).role))
    when not e.is_initiator then case when y.kind is not null then 'public'::name end
    when y.kind in ('<anonymous>', '<full>') then (
      select coalesce((r.user_name).broker_user, pg_catalog.pg_get_userbyid((r.user_name).role)) from broker_private.remote_service_bindings r where r.remote_service_name = e.far_service
    )
  end as far_principal_id,
  -- Of an anonymous dialog, whose one key goes both ways; those of full security are derived anew each time, and no row has them.
  case when not e.is_initiator then encode(substring(y.session_key from 1 for 16), 'hex')::uuid end as outbound_session_key_identifier,
  case when not e.is_initiator then encode(substring(y.session_key from 1 for 16), 'hex')::uuid end as inbound_session_key_identifier,
  case when s.state = 'CD' then e.closed_at + interval '30 min' end as security_timestamp,
  t.fires_at as dialog_timer,
  -- The next number: what is gone, and what waits. Within this database the far side's RECEIVE numbers.
  (
    select n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = coalesce(l.endpoint_no, e.endpoint_no) and n.kind = case when l.endpoint_no is null then '<next acknowledged>' else '<next received>' end
    order by n.epoch desc
    limit 1
  ) + (
    select count(*) from broker_private.messages m
    where m.group_no = l.group_no and m.precedence = 10 - l.priority and m.endpoint_no = l.endpoint_no and m.urgency = 2
  ) + (
    select count(*) from broker_private.transmission_messages m where m.endpoint_no = e.endpoint_no
  ) as send_sequence,
  null::bytea as last_send_tran_id,
  null::bigint as end_dialog_sequence,
  case when l.endpoint_no is null then (
    select n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = e.endpoint_no and n.kind = '<next expected>'
    order by n.epoch desc
    limit 1
  ) else (
    select n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = e.endpoint_no and n.kind = '<next received>'
    order by n.epoch desc
    limit 1
  ) + (
    select count(*) from broker_private.messages m
    where m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no and m.urgency = 2
  ) end as receive_sequence,
  null::integer as receive_sequence_frag,
  null::bigint as system_sequence,
  null::bigint as first_out_of_order_sequence,
  null::bigint as last_out_of_order_sequence,
  null::integer as last_out_of_order_frag,
  false as is_system,
  e.priority,
  e.is_encrypted
from broker_private.endpoints e
join broker_private.groups g on g.group_no = e.group_no
join broker_private.visible_queues q on q.queue_id = e.queue_id
join broker_private.endpoint_states s on s.endpoint_no = e.endpoint_no
left join broker_private.endpoints l on l.conversation_id = e.conversation_id and l.is_initiator <> e.is_initiator
left join broker_private.far_events f on f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
left join broker_private.dialog_security y on y.endpoint_no = e.endpoint_no
left join broker_private.conversation_timers t on t.endpoint_no = e.endpoint_no
where s.state is not null;

comment on view broker.conversation_endpoints is
'The sides of conversations in this database, as sys.conversation_endpoints: those on queues that the reader may receive from. Columns without a meaning here are NULL: docs/internals.md says why.';
comment on column broker.conversation_endpoints.conversation_handle is 'the handle of this side of the conversation: what SEND, RECEIVE and END CONVERSATION take';
comment on column broker.conversation_endpoints.conversation_id is 'the same on both sides of the conversation';
comment on column broker.conversation_endpoints.is_initiator is 'true on the side that began the dialog';
comment on column broker.conversation_endpoints.service_contract_id is 'the contract that it was begun on';
comment on column broker.conversation_endpoints.conversation_group_id is 'the group that the conversation is in: what RECEIVE locks';
comment on column broker.conversation_endpoints.service_id is 'the service on this side';
comment on column broker.conversation_endpoints.lifetime is 'when the conversation ends by itself';
comment on column broker.conversation_endpoints.state is 'SO started outbound, SI started inbound, CO conversing, DI and DO ended by the far or this side, ER in error, CD closed';
comment on column broker.conversation_endpoints.state_desc is 'the state in words';
comment on column broker.conversation_endpoints.far_service is 'name of the service on the other side';
comment on column broker.conversation_endpoints.far_broker_instance is 'guid of the database on the other side, once one has answered';
comment on column broker.conversation_endpoints.principal_id is 'the role that owns this side';
comment on column broker.conversation_endpoints.far_principal_id is 'the user whom the other side''s certificate stands for; NULL for public';
comment on column broker.conversation_endpoints.outbound_session_key_identifier is 'of an anonymous dialog''s key, on the target''s side; others derive keys anew for each batch';
comment on column broker.conversation_endpoints.inbound_session_key_identifier is 'the same key''s: it goes both ways';
comment on column broker.conversation_endpoints.security_timestamp is 'until when a closed target is kept, so that a first message sent twice opens nothing';
comment on column broker.conversation_endpoints.dialog_timer is 'when BEGIN CONVERSATION TIMER fires; NULL without one';
comment on column broker.conversation_endpoints.send_sequence is 'the number that the next message sent will have';
comment on column broker.conversation_endpoints.last_send_tran_id is 'always NULL: which transaction sent last is not kept';
comment on column broker.conversation_endpoints.end_dialog_sequence is 'always NULL: the EndDialog is a message like any other';
comment on column broker.conversation_endpoints.receive_sequence is 'the number that is expected next';
comment on column broker.conversation_endpoints.receive_sequence_frag is 'always NULL: pieces of large messages are counted in bytes';
comment on column broker.conversation_endpoints.system_sequence is 'always NULL: the broker''s own messages carry no number';
comment on column broker.conversation_endpoints.first_out_of_order_sequence is 'always NULL: what comes early waits in a table of its own';
comment on column broker.conversation_endpoints.last_out_of_order_sequence is 'always NULL, as the first';
comment on column broker.conversation_endpoints.last_out_of_order_frag is 'always NULL, as the first';
comment on column broker.conversation_endpoints.is_system is 'always false';
comment on column broker.conversation_endpoints.priority is '1 to 10, from the broker priority at BEGIN DIALOG; 5 without one';
comment on column broker.conversation_endpoints.is_encrypted is 'whether ENCRYPTION was on at BEGIN DIALOG';
