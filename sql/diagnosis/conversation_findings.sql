-- Findings 401 to 418: conversations that are quarantined, over, or ended by nobody.
--
-- Over are those whose lifetime is over. Of one endpoint, all that keeps its messages.
-- Those of one queue and error, or of one service, are one finding.
-- Plan: by index with a limit of each queue or service, so that many of one hide none of another.
-- What is quarantined is read once. A service's open sides are counted up to 1,001.
create or replace function broker_private.conversation_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  e broker_private.endpoints%rowtype;
  is_all constant boolean := broker_private.sees_all(reader);
  seen constant integer[] := array(select broker_private.diagnosed_queues(reader, null));
  right_now constant timestamp with time zone := broker_private.clock();
  side_state text;
  error_text text;
  -- As far as the server's statistics know; a standby has none.
  only_grows constant boolean := 10 * pg_stat_get_tuples_deleted('broker_private.endpoints'::regclass)
    < pg_stat_get_tuples_inserted('broker_private.endpoints'::regclass);
  owner_name name;
begin
  for this in
    with set_aside as materialized (
      select z.endpoint_no, x.conversation_handle, q.name as queue, z.last_error, z.quarantined_at, z.retry_at, q.owner
      from (
        select
          y.endpoint_no, y.last_error, y.quarantined_at, y.retry_at,
          row_number() over (partition by y.queue_id) as place
        from broker_private.quarantine y
        where (endpoint is null and y.retry_at is null or y.endpoint_no = endpoint)
          and (is_all or y.queue_id = any (seen))
      ) z
      join broker_private.endpoints x on x.endpoint_no = z.endpoint_no and x.local_end is null
      join broker_private.queues q on q.queue_id = x.queue_id
      where z.place <= 10001
    ),
    alike as materialized (
      select
        s.queue, s.last_error, s.owner, s.retry_at, count(*) as conversations, min(s.quarantined_at) as since,
        (array_agg(s.conversation_handle order by s.quarantined_at))[1] as handle, array_agg(s.endpoint_no) as endpoint_nos
      from set_aside s
      group by s.queue, s.last_error, s.owner, s.retry_at
      order by count(*) desc, min(s.quarantined_at)
      limit 1000
    )
    select a.*, (
      select count(*) from (
        select from broker_private.quarantined_messages m where m.endpoint_no = any (a.endpoint_nos) limit 10001
      ) l
    ) as messages
    from alike a
  loop
    if this.retry_at is not null then
      return next broker_private.finding(
        418, 'information', this.handle::text,
        format('The conversation''s message failed in the queue "%s", and is tried again at %s: %s',
          this.queue, this.retry_at, this.last_error),
        'Nothing of it is received before. broker.redrive would try it now.',
        since => this.since, mend_role => pg_get_userbyid(this.owner)
      );
      continue;
    end if;
    return next jsonb_build_object('messages', this.messages) || broker_private.finding(
      401, 'error', case when this.conversations = 1 then this.handle::text else this.queue end,
      format(
        '%s quarantined in the queue "%s"%s',
        case when this.conversations = 1 then 'The conversation is'
          when this.conversations > 10000 then 'More than 10000 conversations are'
          else format('%s conversations are', this.conversations) end,
        this.queue, coalesce(': ' || this.last_error, '.')
      ),
      'Nothing of that is received. Mend first what makes the messages fail; broker.discard would '
        'remove those that failed.',
      since => this.since,
      mend => case when this.conversations = 1 then format('select broker.redrive(%L)', this.handle)
        else format(
          'select broker.redrive(conversation_handle) from broker.quarantine where queue_name = %L and last_error %s and retry_at is null',
          this.queue, coalesce('= ' || quote_literal(this.last_error), 'is null')
        ) end,
      mend_role => pg_get_userbyid(this.owner)
    );
  end loop;

  for this in
    select
      x.service_name, x.owner, count(*) as conversations, min(x.expires_at) as since,
      (array_agg(x.conversation_handle order by x.expires_at))[1] as handle
    from broker_private.services s
    cross join lateral (
      select y.conversation_handle, y.service_name, y.expires_at, y.owner
      from broker_private.endpoints y
      where y.service_id = s.service_id and y.closed_at is null and y.expires_at <= right_now
        and y.local_end is null and (endpoint is null or y.endpoint_no = endpoint)
        and (is_all or y.queue_id = any (seen))
      limit 10001
    ) x
    group by x.service_name, x.owner
  loop
    return next broker_private.finding(
      403, 'warning', case when this.conversations = 1 then this.handle::text else this.service_name end,
      format('The lifetime of %s of the service "%s" is over, and this side has not ended %s.',
        case when this.conversations = 1 then 'a conversation' when this.conversations > 10000 then 'more than 10000 conversations'
          else format('%s conversations', this.conversations) end,
        this.service_name, case when this.conversations = 1 then 'it' else 'them' end),
      'Nothing more is sent on it. Receive what is there, then end it; begin another with a longer '
        'lifetime.',
      since => this.since,
      mend => case when this.conversations = 1 then format('select broker.end_conversation(%L)', this.handle)
        else format(
          'select broker.end_conversation(e.conversation_handle) from broker.conversation_endpoints e '
            'join broker.services s using (service_id) where s.name = %L and e.lifetime <= now() and e.state not in (''CD'', ''DO'')',
          this.service_name
        ) end,
      mend_role => pg_get_userbyid(this.owner), is_destructive => true
    );
  end loop;

  if endpoint is null then
    for this in
      select s.name, c.open, c.far_ended, s.owner
      from broker_private.services s
      cross join lateral (
        select count(*) as open, count(f.event) as far_ended from (
          select x.endpoint_no from broker_private.endpoints x
          where x.service_id = s.service_id and x.local_end is null
          limit 1001
        ) l
        left join lateral (
          select v.event from broker_private.far_events v
          where v.endpoint_no = l.endpoint_no and v.event = '<far end>'
          limit 1
        ) f on true
      ) c
      where s.name is not null and s.service_id >= 65536
        and (c.open > 1000 or c.far_ended > 100 or c.open > 100 and only_grows)
        and (is_all or broker_private.may_receive(reader, s.queue_id))
      limit 1000
    loop
      return next broker_private.finding(
        404, 'information', this.name,
        format('The service "%s" has %s open conversations, of which the far side has ended %s%s.', this.name,
          case when this.open > 1000 then 'more than 1,000' else this.open::text end, this.far_ended,
          case when only_grows then '; hardly one was ever ended here' end),
        'If that grows, one of its programs does not end its side: each side must call '
          'broker.end_conversation. '
          'broker.conversation_endpoints shows them; state DI is one that only this side keeps.',
        mend_role => pg_get_userbyid(this.owner)
      );
    end loop;
    return;
  end if;

  select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
  select s.state into side_state from broker_private.endpoint_states s
    where s.endpoint_no = endpoint;
  owner_name := pg_get_userbyid(e.owner);
  if side_state = 'ER' then
    select left(convert_from(m.body, 'UTF8'), 1000) into error_text
    from broker_private.messages m
    where m.group_no = e.group_no and m.endpoint_no = e.endpoint_no and m.urgency = 1
    limit 1;
    return next broker_private.finding(
      412, 'error', e.conversation_handle::text,
      format('The conversation is in error%s', coalesce(': ' || error_text,
        '; its Error was received.')),
      'Nothing more can be sent on it. Mend what the Error says, end this side, and begin another '
        'conversation.',
      mend => format('select broker.end_conversation(%L)', e.conversation_handle),
        mend_role => owner_name, is_destructive => true
    );
  elsif side_state = 'DI' then
    return next broker_private.finding(
      411, 'information', e.conversation_handle::text, format('The far side, "%s", has ended the '
        'conversation.', e.far_service),
      'Nothing can be sent on it. Receive what is there, then end this side, or it stays.',
      mend => format('select broker.end_conversation(%L)', e.conversation_handle),
        mend_role => owner_name, is_destructive => true
    );
  elsif side_state in ('DO', 'CD') or side_state is null then
    return next broker_private.finding(
      413, 'information', e.conversation_handle::text, 'This side has ended the conversation.',
      'What the far side sends is dropped.', since => e.closed_at
    );
  elsif side_state = 'SO' and not exists (select from broker_private.transmission_messages t
    where t.endpoint_no = endpoint) then
    return next broker_private.finding(
      414, 'information', e.conversation_handle::text, 'The conversation was begun, and nothing '
        'was sent on it.',
      'The far side learns of it by its first message. A SEND that was not committed has sent '
        'nothing.'
    );
  end if;
  if exists (select from broker_private.early_messages h where h.endpoint_no = endpoint) then
    return next broker_private.finding(
      416, 'warning', e.conversation_handle::text,
      format(
        'Messages came out of order: number %s is missing.', (
          select n.next_number from broker_private.sequence_counters n
          where n.endpoint_no = endpoint and n.kind = '<next expected>'
          order by n.epoch desc
          limit 1
        )
      ),
      'Those after it are kept until it comes. The far worker sends it again; look at '
        'broker.transmission_queue there.'
    );
  end if;
  select q.name, m.enqueue_time into this
  from broker_private.endpoints f
  cross join lateral (
    select x.enqueue_time from broker_private.messages x
    where x.group_no = f.group_no and x.endpoint_no = f.endpoint_no
    limit 1
  ) m
  join broker_private.queues q on q.queue_id = f.queue_id
  where f.conversation_id = e.conversation_id and (is_all or broker_private.may_receive(reader,
    f.queue_id))
  order by f.endpoint_no = endpoint
  limit 1;
  if found then
    return next broker_private.finding(
      415, 'information', e.conversation_handle::text,
      format('A message has arrived in the queue "%s", and nobody has received it.', this.name),
      'It waits for the program that reads the queue.', since => this.enqueue_time
    );
  end if;
end
$$;
