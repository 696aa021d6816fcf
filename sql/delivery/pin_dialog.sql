-- Decides how a dialog is secured when its first message comes over the network.
--
-- Before, it has only been between databases of one worker. One of the databases has moved. Returns
-- null, or 9736 if it may not come like this. A target takes it only from who may open a dialog to
-- its service. An initiator takes only what needs no security: what else it demands is decided when
-- it sends. Nothing clear comes on a dialog with ENCRYPTION ON.
create or replace function broker_private.pin_dialog(endpoint bigint, new_kind text, new_far_user text, new_session_key bytea)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  e broker_private.endpoints%rowtype;
  is_fit boolean;
begin
  select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
  if new_kind = '<clear>' and e.is_encrypted then
    is_fit := false;
  elsif e.is_initiator then
    is_fit := new_kind = '<clear>'
      and not exists (select from broker_private.remote_service_bindings b where b.remote_service_name = e.far_service);
  else
    is_fit := (
      select broker_private.is_permitted(broker_private.far_sender(new_kind, new_far_user), 'SEND', '<service>', s.service_id, s.owner)
      from broker_private.services s
      where s.service_id = e.service_id
    );
  end if;
  if not coalesce(is_fit, false) then
    return 9736;
  end if;
  insert into broker_private.dialog_security (endpoint_no, kind, far_user, session_key)
  values (endpoint, new_kind::"char", broker_private.principal_of(new_far_user::name), new_session_key)
  on conflict do nothing;
  return null;
end
$$;
