-- A question on each of these dialogs, in take's columns.
--
-- It is one of kind P, which carries nothing and takes no number. With it goes how much of the
-- dialog was acknowledged. By that deliver finds out whether its database has gone back to an
-- earlier state. The answer tells the same of this one.
create or replace function broker_private.ask(
  endpoints bigint[],
  out endpoint_nos bigint[], out conversation_ids uuid[], out from_initiator boolean[], out from_services text[],
  out to_services text[], out to_brokers uuid[], out contracts text[], out expirations timestamp with time zone[],
  out encrypted boolean[], out type_names text[], out dialog_index integer[], out type_index integer[],
  out sequence_numbers bigint[], out kinds text, out bodies bytea[], out row_ids bigint[],
  out owners text[], out far_users text[], out bindings text[], out established text[], out session_keys bytea[],
  out acknowledged bigint[], out sent_at timestamp with time zone[], out level integer
)
returns setof record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select
    array_agg(e.endpoint_no order by e.endpoint_no), array_agg(e.conversation_id order by e.endpoint_no),
    array_agg(e.is_initiator order by e.endpoint_no), array_agg(coalesce(s.name, s.dropped_name) order by e.endpoint_no),
    array_agg(e.far_service order by e.endpoint_no),
    array_agg(coalesce(e.far_broker_instance, b.far_broker_instance) order by e.endpoint_no),
    array_agg(coalesce(k.name, k.dropped_name) order by e.endpoint_no), array_agg(e.expires_at order by e.endpoint_no),
    array_agg(e.is_encrypted order by e.endpoint_no), array[''], array_agg(e.place order by e.endpoint_no),
    array_agg(1 order by e.endpoint_no), array_agg(c.next_number - 1 order by e.endpoint_no), repeat('<question>', count(*)::integer),
    array_agg(null::bytea order by e.endpoint_no), array_agg(0::bigint order by e.endpoint_no),
    array_agg(broker_private.role_of_owner(s.owner)::text order by e.endpoint_no),
    array_agg(broker_private.principal_name(coalesce(r.user_name, y.far_user))::text order by e.endpoint_no),
    array_agg(case when r.is_anonymous then '<anonymous>' when not r.is_anonymous then '<full>' end order by e.endpoint_no),
    array_agg(y.kind::text order by e.endpoint_no), array_agg(y.session_key order by e.endpoint_no),
    array_agg(c.next_number order by e.endpoint_no), array_agg(null::timestamp with time zone order by e.endpoint_no), null::integer
  from (
    select x.endpoint_no, x.conversation_id, x.is_initiator, x.service_id, x.contract_id, x.far_service, x.far_broker_instance, x.expires_at,
      x.is_encrypted, (row_number() over (order by x.endpoint_no))::integer as place
    from broker_private.endpoints x
    where x.endpoint_no = any (ask.endpoints) and x.local_end is null
  ) e
  join broker_private.services s on s.service_id = e.service_id
  join broker_private.contracts k on k.contract_id = e.contract_id
  cross join lateral broker_private.newest_counter(e.endpoint_no, '<next acknowledged>') c
  left join broker_private.far_events b on b.endpoint_no = e.endpoint_no and b.event = '<broker known>'
  left join broker_private.remote_service_bindings r on r.remote_service_name = e.far_service and e.is_initiator
  left join broker_private.dialog_security y on y.endpoint_no = e.endpoint_no
  having count(*) > 0;
end
$$;
