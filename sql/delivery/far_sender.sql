-- broker_private.far_sender(kind, far user): who the initiator of a dialog from another worker is
-- here: the user of his certificate with full security, else public.
create or replace function broker_private.far_sender(security_kind text, far_user text)
returns name
language sql immutable
begin atomic
  select case when security_kind = 'F' then far_user else 'public' end::name;
end;
