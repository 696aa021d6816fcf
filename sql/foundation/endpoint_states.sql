-- The state of every endpoint: SO, SI, CO, DI, DO, ER or CD.
--
-- Null for one that is gone but for its remains. The state is derived: what this side did is in the
-- endpoint, what the far side did is in far_events.
create or replace view broker_private.endpoint_states as
select
  e.endpoint_no,
  case
    when e.local_end = '<cleaned up>' then null
    when e.closed_at is not null or e.local_end is not null and exists (
      select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = '<end acknowledged>'
    ) then case when not e.is_initiator then 'CD' end
    when e.local_end is not null then 'DO'
    when exists (
      select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = '<far error>'
    ) then 'ER'
    when exists (
      select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = '<far end>'
    ) then 'DI'
    when e.path = '<unsent>' then 'SO'
    when not e.is_initiator and exists (
      select from broker_private.incomplete_messages i where i.endpoint_no = e.endpoint_no and i.is_first
    ) then 'SI'
    when not e.is_initiator and exists (
      select from broker_private.early_messages h where h.endpoint_no = e.endpoint_no
    ) and (
      select n.next_number from broker_private.sequence_counters n
      where n.endpoint_no = e.endpoint_no and n.kind = '<next expected>'
      order by n.epoch desc
      limit 1
    ) = 0 then 'SI'
    else 'CO'
  end as state
from broker_private.endpoints e;
