-- The groups that have conversations, as sys.conversation_groups.
--
-- They are those on queues that the reader may receive from.
create or replace view broker.conversation_groups with (security_barrier) as
select g.conversation_group_id, g.service_id, false as is_system
from broker_private.groups g
join broker_private.visible_queues q on q.queue_id = g.queue_id
where exists (
    select from broker_private.endpoints e
    join broker_private.endpoint_states s on s.endpoint_no = e.endpoint_no
    where e.group_no = g.group_no and s.state is not null
  );

comment on view broker.conversation_groups is
'The groups that have conversations, as sys.conversation_groups: those on queues that the reader may receive from.';
comment on column broker.conversation_groups.conversation_group_id is 'what RECEIVE locks, and a program keeps its state by';
comment on column broker.conversation_groups.service_id is 'the service that all conversations of the group belong to';
comment on column broker.conversation_groups.is_system is 'always false';
