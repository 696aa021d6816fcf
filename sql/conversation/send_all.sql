-- SEND ON CONVERSATION (h1, h2, ...): one message on many dialogs, on all or on none.
--
-- A body of 128 bytes or more is stored once, in shared_bodies, and the messages name it. Dialogs
-- that have sent before and need nothing special are served by one statement for all. Each other
-- goes through send_slowly, which also words the refusals.
-- Locks: the groups of all the dialogs in the order of their numbers. So two calls with the same
-- dialogs in another order don't block each other. The queues' advisory locks, as broker.send.
-- Errors: 8441 no handle, 8435 unknown handle, 8451 a handle twice, each with its place in the
-- list; those of broker.send, likewise.
create or replace function broker.send_all(conversation_handles uuid[], message_type text default 'DEFAULT', body bytea default '')
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_all(current_user, conversation_handles, message_type, body);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send_all(conversation_handles uuid[], message_type text, body text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_all(current_user, conversation_handles, message_type, convert_to(body, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send_all(conversation_handles uuid[], message_type text, body jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_all(current_user, conversation_handles, message_type, convert_to(body::text, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send_all(conversation_handles uuid[], message_type text, body xml)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_all(current_user, conversation_handles, message_type, convert_to(body::text, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.send_all(caller name, handles uuid[], type_name text, content bytea)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  stack text;
  problem record;
  rest record;
  dialogs bigint[];
  groups_of_them bigint[];
  checked "char";
  is_valid boolean;
  shared_no bigint;
  inline_body bytea := nullif(content, '');
  size integer;
  sent bigint[];
  queues integer[];
  failure text;
  advice text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if coalesce(cardinality(handles), 0) = 0 or array_ndims(handles) > 1 then
    found := broker_private.refuse(
      8441, 'The list of conversation handles is empty, or is not a list of one dimension.',
      'Give an array of the handles of the conversations to send on.'
    );
  end if;
  select u.handle, u.place, u.first_place into problem
  from (
    select h.handle, h.place, min(h.place) over (partition by h.handle) as first_place
    from unnest(handles) with ordinality as h (handle, place)
  ) u
  where u.handle is null or u.place > u.first_place
  order by u.place
  limit 1;
  if found and problem.handle is null then
    found := broker_private.refuse(
      8441, format('The conversation handle at position %s of the list is NULL.', problem.place), 'Leave it out.'
    );
  elsif found then
    found := broker_private.refuse(
      8451,
      format('The conversation handle "%s" at position %s of the list is at position %s too.', problem.handle, problem.place, problem.first_place),
      'Give each handle once.'
    );
  end if;

  loop
    with locked as (
      select e.endpoint_no, e.group_no
      from unnest(handles) as h (handle)
      join broker_private.endpoints e on e.conversation_handle = h.handle
      join broker_private.groups g on g.group_no = e.group_no
      order by g.group_no
      for update of g
    )
    select array_agg(l.endpoint_no), array_agg(l.group_no) into dialogs, groups_of_them from locked l;
    -- MOVE CONVERSATION may have changed a group while this waited for its lock.
    exit when not exists (
      select
      from unnest(dialogs, groups_of_them) as l (endpoint_no, group_no)
      join broker_private.endpoints e on e.endpoint_no = l.endpoint_no and e.group_no <> l.group_no
    );
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from broker_private.endpoints e where e.endpoint_no = any (dialogs) order by e.endpoint_no for update;
  end if;
  select h.handle, h.place into problem
  from unnest(handles) with ordinality as h (handle, place)
  where not exists (
    select from broker_private.endpoints e
    where e.conversation_handle = h.handle
      and (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null
  )
  order by h.place
  limit 1;
  if found then
    found := broker_private.refuse(
      8435, format('The conversation handle "%s" at position %s of the list is not found.', problem.handle, problem.place),
      'It never existed here, or the conversation is over: broker.conversation_endpoints lists those of this database.'
    );
  end if;

  select t.validation into checked from broker_private.message_types t where t.name = type_name;
  if found then
    is_valid := broker_private.is_valid_body(checked, content);
  end if;
  if octet_length(content) >= 128 and cardinality(handles) > 1 then
    insert into broker_private.shared_bodies (endpoint_nos, body)
    values (dialogs, content)
    returning shared_body_no into shared_no;
    inline_body := null;
    size := octet_length(content);
  end if;

  with plain as materialized (
    select
      h.place, e.path, e.endpoint_no, e.destination_no, e.priority, c.message_type_id,
      f.endpoint_no as far_endpoint_no, f.group_no as far_group_no, f.queue_id as far_queue_id, f.priority as far_priority
    from unnest(handles) with ordinality as h (handle, place)
    join broker_private.endpoints e on e.conversation_handle = h.handle
    join broker_private.contract_messages c on c.contract_id = e.contract_id and c.message_type_name = type_name
    join broker_private.queues q on q.queue_id = e.queue_id
    left join broker_private.endpoints f on f.endpoint_no = e.far_endpoint_no
    left join broker_private.queues fq on fq.queue_id = f.queue_id
    where e.local_end is null and e.expires_at > broker_private.clock() and not q.is_retention_enabled
      and (
        e.path = '<remote>'
        or e.path = '<local>' and fq.is_enqueue_enabled
          and (select b.is_broker_enabled from broker_private.broker_instance b where b.is_the_only_row)
      )
      and case when e.is_initiator then c.is_sent_by_initiator else c.is_sent_by_target end
      and octet_length(content) <= broker_private.largest_body() and c.validation = checked and is_valid
      and c.schema_collection_id is null
      -- put_messages notes trace contexts, which send_slowly leads to.
      and nullif(current_setting('pybroker.traceparent', true), '') is null
      and not exists (
        select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event in ('<far end>', '<far error>')
      )
      and broker_private.is_permitted(caller, 'RECEIVE', '<queue>', q.queue_id, q.owner)
  ),
  near as (
    insert into broker_private.messages (
      group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body, shared_body_no, shared_size
    )
    select
      p.far_group_no, p.far_endpoint_no, broker_private.clock(), p.far_queue_id, p.message_type_id, 10 - p.far_priority, 2,
      inline_body, shared_no, size
    from plain p
    where p.path = '<local>'
    order by p.place
  ),
  far as (
    insert into broker_private.transmission_messages (
      endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body, shared_body_no, shared_size
    )
    select
      p.endpoint_no, broker_private.clock(), p.destination_no, p.message_type_id, 10 - p.priority, '<message>', inline_body, shared_no, size
    from plain p
    where p.path = '<remote>'
    order by p.place
  )
  select coalesce(array_agg(p.place), '{}'), array_agg(distinct case p.path when '<local>' then p.far_queue_id else 0 end)
  into sent, queues
  from plain p;
  perform broker_private.note_arrival(u.queue_id) from unnest(queues) as u (queue_id);

  -- The handler only says where in the list a refusal was met.
  begin
    for rest in
      select h.handle, h.place
      from unnest(handles) with ordinality as h (handle, place)
      where h.place <> all (sent)
      order by h.place
    loop
      perform broker_private.send_slowly(caller, rest.handle, type_name, array[content], shared_no);
    end loop;
  exception when others then
    get stacked diagnostics failure = message_text, advice = pg_exception_hint;
    if sqlstate !~ E'^[ST]\\d{4}$' then
      raise;
    end if;
    raise exception using
      errcode = sqlstate,
      message = format('At position %s of the list of conversations: %s', rest.place, failure),
      hint = advice;
  end;
  return true;
end
$$;

comment on function broker.send_all(uuid[], text, text) is
$$SEND ON CONVERSATION (h1, h2, ...) with a text, which is stored as UTF-8.

conversation_handles, message_type: as broker.send_all(uuid[], text, bytea).
body: a text.

Rights, locks and errors: as broker.send_all(uuid[], text, bytea).
Example: select broker.send_all(array[:'handle']::uuid[], '//shop/order', '{"id": 1}');$$;

comment on function broker.send_all(uuid[], text, jsonb) is
$$SEND ON CONVERSATION (h1, h2, ...) with JSON, which is stored as its text in UTF-8.

conversation_handles, message_type: as broker.send_all(uuid[], text, bytea).
body: JSON.

Rights, locks and errors: as broker.send_all(uuid[], text, bytea).
Example: select broker.send_all(array[:'handle']::uuid[], '//shop/order', jsonb_build_object('id', 1));$$;

comment on function broker.send_all(uuid[], text, xml) is
$$SEND ON CONVERSATION (h1, h2, ...) with XML, which is stored as its text in UTF-8.

conversation_handles, message_type: as broker.send_all(uuid[], text, bytea).
body: XML.

Rights, locks and errors: as broker.send_all(uuid[], text, bytea).
Example: select broker.send_all(array[:'handle']::uuid[], '//shop/order', xmlparse(document '<order/>'));$$;

comment on function broker.send_all(uuid[], text, bytea) is
$$SEND ON CONVERSATION (h1, h2, ...): sends one message on many dialogs, on all or on none. Its body
is stored once.

conversation_handles: of this side, each once.
message_type: one that every contract lets this side send.
body: at most 1,000,000,000 bytes; '' is no body.

Rights: SEND on the services of all.
Locks: the groups' rows in one order, until the transaction ends.
Errors: 229, 8426, 8427, 8428, 8429, 8430, 8431, 8432, 8433, 8434, 8435, 8441, 8451, 8459
Example: select broker.send_all(array[:'handle']::uuid[], '//shop/order', '\x7b7d'::bytea);$$;
