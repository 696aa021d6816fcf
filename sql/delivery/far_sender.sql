-- Who the initiator of a dialog from another worker is here.
--
-- With full security it is the user of the initiator's certificate, else public.
create or replace function broker_private.far_sender(security_kind text, far_user text)
returns name
language sql immutable
begin atomic
  select case when security_kind = '<full>' then far_user else 'public' end::name;
end;
