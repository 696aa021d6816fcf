-- broker.conversation_endpoints: the sides of conversations in this database, as sys.conversation_endpoints: those on queues that the
-- reader may receive from. An initiator's row goes when the conversation is over; a target's stays a while as CLOSED.
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
    when 'CO' then 'CONVERSING'
    when 'DI' then 'DISCONNECTED_INBOUND'
    when 'DO' then 'DISCONNECTED_OUTBOUND'
    when 'ER' then 'ERROR'
    when 'CD' then 'CLOSED'
  end as state_desc,
  e.far_service,
  -- As named at BEGIN DIALOG it is where the dialog should go; what this shows is where it went.
  case
    when e.is_initiator and e.path = 'L' then (select b.service_broker_guid from broker_private.broker_instance b)
    when e.is_initiator then f.far_broker_instance
    else e.far_broker_instance
  end as far_broker_instance,
  e.owner as principal_id,
  t.fires_at as dialog_timer,
  e.is_encrypted,
  e.priority,
  false as is_system
from broker_private.endpoints e
join broker_private.groups g on g.group_no = e.group_no
join broker_private.visible_queues q on q.queue_id = e.queue_id
join broker_private.endpoint_states s on s.endpoint_no = e.endpoint_no
left join broker_private.far_events f on f.endpoint_no = e.endpoint_no and f.event = 'B'
left join broker_private.conversation_timers t on t.endpoint_no = e.endpoint_no
where s.state is not null;
