-- The sides here of a batch's dialogs, in its order.
--
-- What has none yet has an endpoint_no of null. refusal: why nothing may arrive on it. 8495: its
-- messages come from another broker than the one it is with. 9795: they are for another broker
-- instance. 9736: their security differs from the dialog's. is_unpinned: the dialog has none yet
-- (pin_dialog).
-- Plan: endpoints by conversation and side, the rest by endpoint; part of deliver's plan. A plain
-- join may be planned as a hash of the whole table.
create or replace function broker_private.sides_of(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], to_brokers uuid[], security_kinds text[], far_users text[], session_keys bytea[]
)
returns table (place bigint, endpoint_no bigint, is_initiator boolean, is_answered boolean, refusal integer, is_unpinned boolean)
language sql stable
begin atomic
  select
    d.place, e.endpoint_no, e.is_initiator, f.endpoint_no is not null,
    case
      when e.endpoint_no is null then null
      when f.far_broker_instance <> sides_of.from_broker then 8495
      when d.to_broker <> (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row) then 9795
      when d.kind = '<same worker>' or s.endpoint_no is null then null
      when d.kind is distinct from s.kind::text then 9736
      when d.kind = '<full>' and d.far_user is distinct from broker_private.far_user_of(e.endpoint_no, s.far_user) then 9736
      -- Whoever knows a dialog could make a key of his own for it. The first 16 bytes name the key.
      when d.kind = '<anonymous>' and not e.is_initiator
        and pg_catalog.substring(d.session_key, 1, 16) is distinct from pg_catalog.substring(s.session_key, 1, 16) then 9736
    end,
    e.endpoint_no is not null and s.endpoint_no is null and d.kind is distinct from '<same worker>'
  from unnest(
    sides_of.conversation_ids, sides_of.from_initiator, sides_of.to_brokers, sides_of.security_kinds, sides_of.far_users,
    sides_of.session_keys
  ) with ordinality as d (conversation_id, from_initiator, to_broker, kind, far_user, session_key, place)
  left join lateral (
    select x.endpoint_no, x.is_initiator from broker_private.endpoints x
    where x.conversation_id = d.conversation_id and x.is_initiator = not d.from_initiator and x.local_end is distinct from '<cleaned up>'
    limit 1
  ) e on true
  left join lateral (
    select x.endpoint_no, x.far_broker_instance from broker_private.far_events x
    where x.endpoint_no = e.endpoint_no and x.event = '<broker known>' and e.is_initiator
    limit 1
  ) f on true
  left join lateral (
    select x.endpoint_no, x.kind, x.far_user, x.session_key from broker_private.dialog_security x where x.endpoint_no = e.endpoint_no limit 1
  ) s on true;
end;
