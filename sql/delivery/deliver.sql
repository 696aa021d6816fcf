-- hot path
-- broker_private.deliver(from broker, dialogs..., messages..., security...): stores a batch that
-- came from another broker. Returns, for each dialog of the batch, the number that it expects next,
-- and the fault, if a message could not be taken.
--
-- A batch of messages on dialogs that are known here, that come from where their dialog's messages
-- come from and with its security, is stored by deliver_plain, unless there is something odd in it.
-- All else is deliver_fully's, which says what the arguments are, and what is refused.
-- Locks: the counter of each dialog, in the order of their endpoints; of none, where one would be
-- refused.
-- Plan: endpoints by conversation and side, the rest by endpoint.
create or replace function broker_private.deliver(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], from_services text[], to_services text[], to_brokers uuid[],
  contracts text[], expirations timestamp with time zone[], encrypted boolean[], type_names text[], dialog_index integer[],
  type_index integer[], sequence_numbers bigint[], kinds text, bodies bytea[],
  security_kinds text[], far_users text[], session_keys bytea[], acknowledged bigint[] default null,
  sent_at timestamp with time zone[] default null,
  out next_numbers bigint[], out fault_codes integer[], out fault_texts text[], out fault_is_final boolean[]
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
declare
  dialogs constant integer := cardinality(conversation_ids);
  endpoint_nos bigint[];
  is_ahead boolean;
  confirmed bigint[];
begin
  if kinds = repeat('M', cardinality(dialog_index)) and acknowledged is not null then
    select
      array_agg(x.endpoint_no order by x.place), bool_and(x.is_ahead),
      array_agg(x.endpoint_no) filter (where x.is_new)
    into endpoint_nos, is_ahead, confirmed
    from (
      select
        s.endpoint_no, s.place, (c.next_number < s.acknowledged) is not true as is_ahead,
        s.acknowledged > 0 and not c.is_confirmed as is_new
      from (
        select e.endpoint_no, d.place, d.acknowledged, count(*) over () as known
        from unnest(
          deliver.conversation_ids, deliver.from_initiator, deliver.to_brokers, deliver.security_kinds, deliver.far_users,
          deliver.session_keys, deliver.acknowledged
        ) with ordinality as d (conversation_id, from_initiator, to_broker, kind, far_user, session_key, acknowledged, place)
        join broker_private.endpoints e on e.conversation_id = d.conversation_id and e.is_initiator = not d.from_initiator
        left join broker_private.dialog_security y on y.endpoint_no = e.endpoint_no
        where e.local_end is distinct from 'C'
          and (
            not e.is_initiator or deliver.from_broker = (
              select f.far_broker_instance from broker_private.far_events f
              where f.endpoint_no = e.endpoint_no and f.event = 'B'
            )
          )
          and (
            d.to_broker is null
            or d.to_broker = (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row)
          )
          and case
            when d.kind = 'L' then true
            when d.kind = y.kind::text then case d.kind
              when 'F' then d.far_user = broker_private.principal_name(case
                when e.is_initiator then (
                  select r.user_name from broker_private.remote_service_bindings r where r.remote_service_name = e.far_service
                )
                else y.far_user
              end)::text
              when 'A' then e.is_initiator or substring(d.session_key, 1, 16) = substring(y.session_key, 1, 16)
              else true
            end
          end
          and exists (
            select from broker_private.broker_instance b where b.is_the_only_row and broker_private.is_surely_on(b)
          )
        order by e.endpoint_no
      ) s
      cross join lateral (
        select n.next_number, n.is_confirmed from broker_private.sequence_counters n
        where n.endpoint_no = s.endpoint_no and n.kind = 'I' and s.known = dialogs
        order by n.epoch desc
        limit 1
        for update
      ) c
    ) x;
    -- What repeats nothing can't tell that the sender's database has gone back.
    if is_ahead and cardinality(endpoint_nos) = dialogs then
      if confirmed is not null then
        perform broker_private.confirm_dialogs(confirmed);
      end if;
      next_numbers := broker_private.deliver_plain(
        endpoint_nos, type_names, dialog_index, type_index, sequence_numbers, bodies, sent_at
      );
    end if;
  end if;
  if next_numbers is null then
    select f.* into next_numbers, fault_codes, fault_texts, fault_is_final
    from broker_private.deliver_fully(
      from_broker, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations,
      encrypted, type_names, dialog_index, type_index, sequence_numbers, kinds, bodies, security_kinds, far_users,
      session_keys, acknowledged, sent_at
    ) f;
    return;
  end if;
  fault_codes := array_fill(null::integer, array[dialogs]);
  fault_texts := array_fill(null::text, array[dialogs]);
  fault_is_final := array_fill(false, array[dialogs]);
end
$$;
