-- What a batch says of these dialogs and of these message types.
--
-- Of the dialogs, in take's columns; of the types, their names. Each comes in the order given. From
-- conversation_ids to encrypted nothing of it ever changes, once to_brokers is not null, and no
-- kind of security either. The worker remembers it (take_plain). Owners, far users and bindings
-- change with definitions.
--
-- A dialog of which nothing has gone yet may be moving within this database; deliver_dialog holds
-- its counter then. So the counter is locked, and it is noted that the dialog goes to another
-- broker. is_fresh: there was one. Then the worker takes again, and sees what moved before. Without
-- endpoint_nos somebody else holds one, and the batch is take's.
-- Locks: the counters of such dialogs, in the order of their endpoints, skipping those that
-- somebody holds.
-- Plan: each table by key. A plain join, planned while a table is small, goes through all of it for
-- each dialog. The session keeps that plan while the table grows.
create or replace function broker_private.describe_dialogs(
  endpoints bigint[], types integer[],
  out is_fresh boolean, out type_names text[], out endpoint_nos bigint[], out conversation_ids uuid[],
  out from_initiator boolean[], out from_services text[], out to_services text[], out to_brokers uuid[],
  out contracts text[], out expirations timestamp with time zone[], out encrypted boolean[], out owners text[],
  out far_users text[], out bindings text[], out established text[], out session_keys bytea[]
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
declare
  fresh bigint[];
  held bigint;
begin
  if types <> '{}' then
    select array_agg(y.name order by u.place) into type_names
    from unnest(types) with ordinality as u (message_type_id, place)
    join broker_private.message_types y on y.message_type_id = u.message_type_id;
  end if;
  fresh := array(
    select u.endpoint_no from unnest(endpoints) as u (endpoint_no)
    where (
      select true from broker_private.far_events f
      where f.endpoint_no = u.endpoint_no and f.event = '<first taken>'
      limit 1
    ) is null
    order by u.endpoint_no
  );
  if fresh <> '{}' then
    perform from unnest(fresh) as u (endpoint_no)
    cross join lateral (
      select from broker_private.sequence_counters x
      where x.endpoint_no = u.endpoint_no and x.kind = '<next acknowledged>'
      order by x.epoch desc
      limit 1
      for update skip locked
    ) c;
    get diagnostics held = row_count;
    if held < cardinality(fresh) then
      return;
    end if;
    perform broker_private.note_leaving(fresh);
    is_fresh := true;
  end if;
  select
    array_agg(d.endpoint_no), array_agg(d.conversation_id), array_agg(d.is_initiator), array_agg(d.service_name),
    array_agg(d.far_service), array_agg(d.to_broker), array_agg(d.contract_name), array_agg(d.expires_at),
    array_agg(d.is_encrypted), array_agg(d.owner), array_agg(d.far_user), array_agg(d.binding),
    array_agg(d.kind), array_agg(d.session_key)
  into
    endpoint_nos, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations,
    encrypted, owners, far_users, bindings, established, session_keys
  from (
    select
      e.endpoint_no, e.conversation_id, e.is_initiator, e.service_name, e.far_service,
      coalesce(e.far_broker_instance, (
        select f.far_broker_instance from broker_private.far_events f
        where f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
      )) as to_broker, e.contract_name, e.expires_at,
      e.is_encrypted, case
        when s.owner <> 'pg_database_owner'::regrole then broker_private.name_of_role(s.owner)
        else (select broker_private.role_of_owner('pg_database_owner'))
      end::text as owner,
      broker_private.principal_name(coalesce(r.user_name, y.far_user))::text as far_user,
      case when r.is_anonymous then '<anonymous>' when not r.is_anonymous then '<full>' end as binding, y.kind::text as kind,
      y.session_key
    from unnest(endpoints) with ordinality as u (endpoint_no, place)
    cross join lateral (
      select x.endpoint_no, x.conversation_id, x.is_initiator, x.service_id, x.service_name, x.far_service,
        x.far_broker_instance, x.contract_name, x.expires_at, x.is_encrypted
      from broker_private.endpoints x
      where x.endpoint_no = u.endpoint_no
      limit 1
    ) e
    join broker_private.services s on s.service_id = e.service_id
    left join broker_private.remote_service_bindings r on r.remote_service_name = e.far_service and e.is_initiator
    left join lateral (
      select x.kind, x.far_user, x.session_key from broker_private.dialog_security x
      where x.endpoint_no = e.endpoint_no
      limit 1
    ) y on true
    order by u.place
  ) d;
end
$$;
