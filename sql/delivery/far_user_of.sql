-- The name of the user that the far side of a dialog with full security has to be.
--
-- For a target that is the one that was pinned, for an initiator the one that the remote service
-- binding names now. Null: there is none any more.
create or replace function broker_private.far_user_of(endpoint bigint, pinned broker_private.principal)
returns text
language sql stable
begin atomic
  select broker_private.principal_name(case
    when e.is_initiator then (
      select r.user_name from broker_private.remote_service_bindings r where r.remote_service_name = e.far_service
    )
    else pinned
  end)::text
  from broker_private.endpoints e
  where e.endpoint_no = endpoint;
end;
