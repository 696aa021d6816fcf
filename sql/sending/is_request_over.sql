-- Whether the dynamic routing service has ended its conversation about what it was asked for.
--
-- With or without an error.
create or replace function broker_private.is_request_over(request broker_private.configuration_requests)
returns boolean
language sql stable
begin atomic
  select not exists (
    select from broker_private.endpoints e
    where e.conversation_handle = (request).conversation_handle and e.local_end is null
      and not exists (
        select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('<far end>', '<far error>')
      )
  );
end;
