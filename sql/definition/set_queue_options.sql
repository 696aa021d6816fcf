-- Checks and stores the options of CREATE and ALTER QUEUE.
--
-- The runner is the role that activation runs the procedure as; null is the owner.
-- Errors: 9717 activation with an event notification, 153 an option's value, 9614, 9620, 9653, 9742
-- the procedure itself.
create or replace function broker_private.set_queue_options(
  queue integer, status boolean, retention boolean, procedure_name text, readers integer,
  activation boolean, runner regrole, poison_handling boolean, poison text, scaling_policy text, watchdog_interval interval
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.queues%rowtype;
  procedure_text text;
begin
  select q.* into this from broker_private.queues q where q.queue_id = queue for update;
  if status is null or retention is null or activation is null or poison_handling is null then
    found := broker_private.refuse(
      153, format('An option of the queue "%s" is NULL.', this.name), 'Options that are on or off take true or false.'
    );
  end if;
  if retention <> this.is_retention_enabled then
    -- What is sent while retention is off is not counted: the next copy's number is worked out anew.
    delete from broker_private.sequence_counters n
    using broker_private.services s, broker_private.endpoints e
    where s.queue_id = queue and e.service_id = s.service_id and n.endpoint_no = e.endpoint_no and n.kind = '<next sent>';
  end if;
  if poison is null or poison not in ('DISABLE_QUEUE', 'QUARANTINE') then
    found := broker_private.refuse(
      153, format('The poison_action "%s" of the queue "%s" is none.', coalesce(poison, 'NULL'), this.name),
      'Use DISABLE_QUEUE or QUARANTINE.'
    );
  end if;
  if scaling_policy is null or scaling_policy not in ('SERVICE_BROKER', 'BACKLOG') then
    found := broker_private.refuse(
      153, format('The scaling "%s" of the queue "%s" is unknown.', coalesce(scaling_policy, 'NULL'), this.name),
      'Use SERVICE_BROKER or BACKLOG.'
    );
  end if;
  if procedure_name is not null then
    -- One that stays is not looked up again: it may be gone, and the queue must be alterable all the same.
    procedure_text := case
      when procedure_name = this.activation_procedure then procedure_name
      else broker_private.activation_target(procedure_name, this.view_schema)
    end;
    if readers is null or readers not between 0 and 32767 then
      found := broker_private.refuse(
        153, format('max_queue_readers of the queue "%s" is %s.', this.name, coalesce(readers::text, 'missing')),
        'A queue with an activation procedure needs max_queue_readers from 0 to 32767.'
      );
    end if;
    if activation and exists (
      select from broker_private.event_notifications n where n.queue_id = queue and 'QUEUE_ACTIVATION' = any (n.events)
    ) then
      found := broker_private.refuse(
        9717, format('The queue "%s" has an event notification for QUEUE_ACTIVATION, which excludes internal activation.', this.name),
        'Drop the event notification first: broker.drop_event_notification; broker.event_notifications lists them.'
      );
    end if;
    if readers = 0 and activation then
      raise warning using
        errcode = 'S9648',
        message = format('The queue "%s" has activation on and max_queue_readers 0: no procedure will start.', this.name);
    end if;
  elsif readers is not null then
    found := broker_private.refuse(
      153, format('max_queue_readers is given for the queue "%s", which has no activation procedure.', this.name),
      'Give activation_procedure too.'
    );
  end if;
  if watchdog_interval is null or watchdog_interval < interval '0' then
    found := broker_private.refuse(
      153, format('The watchdog %s of the queue "%s" is not an interval of 0 or more.', coalesce(watchdog_interval::text, 'NULL'), this.name),
      'Give an interval; 60 s is the default, and 0 turns it off.'
    );
  end if;
  update broker_private.queues q set
    is_receive_enabled = status,
    is_enqueue_enabled = status,
    is_retention_enabled = retention,
    activation_procedure = procedure_text,
    max_readers = case when procedure_text is not null then readers end,
    is_activation_enabled = procedure_text is not null and activation,
    execute_as = case when procedure_text is not null then runner end,
    is_poison_message_handling_enabled = poison_handling,
    poison_action = poison,
    holds_quarantine = poison = 'QUARANTINE' or this.holds_quarantine and exists (
      select from broker_private.quarantine z
      join broker_private.endpoints e on e.endpoint_no = z.endpoint_no
      where e.queue_id = queue
    ),
    scaling = scaling_policy,
    watchdog = watchdog_interval,
    modify_date = broker_private.clock()
  where q.queue_id = queue;
  if poison_handling then
    perform broker_private.make_marks(queue, case poison when 'QUARANTINE' then 8 else 2 end);
  end if;
  if (poison_handling, poison) is distinct from (this.is_poison_message_handling_enabled, this.poison_action) then
    perform broker_private.reset_marks(queue);
  end if;
  if procedure_text is not null then
    perform broker_private.set_monitor(
      queue, status and activation and not (this.is_receive_enabled and this.is_activation_enabled), readers > this.max_readers
    );
  end if;
end
$$;
