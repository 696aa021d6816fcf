-- Moves a queue's monitor to its due state, and returns how many readers to start now.
--
-- INACTIVE: nothing to receive. With the first message a reader is due, if none runs. NOTIFIED: a
-- reader was started; nothing more until somebody has received, whoever that is. A reader that ends
-- without having received leaves the monitor here, until activation is recycled, somebody receives,
-- or the queue's watchdog frees it. RECEIVES_OCCURRING: a reader that did its work and returned is
-- replaced at once. While messages of a free group remain, one more reader is due 5 seconds after
-- the last step and after the last empty RECEIVE. A reader that finds nothing, or waits, needs no
-- help. With scaling BACKLOG that is 250 ms, and as many readers as groups.
--
-- It looks without a lock first, and writes only what changed: workers look twenty times a second.
-- Locks: the monitor's row, unless another session holds it: that one is just as good.
create or replace function broker_private.step_monitor(queue integer)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  moment constant timestamp with time zone := broker_private.clock();
  this broker_private.queues%rowtype;
  before broker_private.queue_monitors%rowtype;
  after broker_private.queue_monitors%rowtype;
  mark bigint;
  last_empty timestamp with time zone;
  pause interval;
  is_ready boolean;
  live integer;
  gone bigint[];
  is_due boolean;
  is_step boolean;
  starts integer;
begin
  for pass in 1..2 loop
    if pass = 1 then
      select m.* into before from broker_private.queue_monitors m where m.queue_id = queue;
    else
      select m.* into before from broker_private.queue_monitors m where m.queue_id = queue for update skip locked;
    end if;
    exit when not found;
    if pass = 2 then
      -- The sessions that live are remembered within a transaction.
      perform pg_stat_clear_snapshot();
    end if;
    select q.* into this from broker_private.queues q
    where q.queue_id = queue and q.is_activation_enabled and q.is_receive_enabled and not broker_private.is_poisoned(queue);
    exit when not found;
    after := before;
    starts := 0;
    is_step := false;
    pause := case this.scaling when 'BACKLOG' then interval '250 ms' else interval '5 s' end;
    mark := coalesce(pg_sequence_last_value(this.receive_marks), 0);
    last_empty := to_timestamp(nullif(mark >> 20, 0) / 1000.0);
    is_ready := broker_private.has_arrivals(queue);
    select count(l.task_id), array_agg(t.task_id) filter (where l.task_id is null) into live, gone
    from broker_private.activated_tasks t
    left join broker_private.live_tasks l on l.task_id = t.task_id
    where t.queue_id = queue;
    if after.state = 'NOTIFIED' then
      if mark <> after.notified_mark then
        after.state := 'RECEIVES_OCCURRING';
        after.is_stuck := false;
      elsif live = 0 and not after.is_stuck or this.watchdog > interval '0' and moment >= after.last_activated_time + this.watchdog then
        -- A reader that ended without a word was killed with its worker, or its server: nothing is wrong with the procedure.
        after.state := 'INACTIVE';
        after.is_stuck := false;
        after.ramp_from := '-infinity';
      end if;
    end if;
    if not is_ready and after.state = 'RECEIVES_OCCURRING' then
      after.state := 'INACTIVE';
      after.readers_wanted := 0;
      after.not_before := '-infinity';
      after.returns_in_vain := 0;
    end if;
    after.readers_wanted := least(after.readers_wanted, this.max_readers);

    if not is_ready or after.state = 'NOTIFIED' or moment < after.not_before then
      is_due := false;
    elsif after.ramp_from = '-infinity' then
      is_due := true;
      is_step := live > 0;
    elsif live = 0 then
      is_due := after.state = 'INACTIVE' or broker_private.free_groups(queue, 1) > 0 or moment >= last_empty + pause;
    elsif after.state = 'INACTIVE' then
      -- Readers that wait for messages: they have this one, unless they are too few.
      is_due := false;
      after.state := 'RECEIVES_OCCURRING';
      after.ramp_from := moment + pause;
      after.readers_wanted := live;
    elsif live < after.readers_wanted then
      is_due := broker_private.free_groups(queue, 1) > 0;
    else
      is_step := true;
      is_due := moment >= after.ramp_from and moment >= coalesce(last_empty + pause, '-infinity') and broker_private.free_groups(queue, 1) > 0;
    end if;

    if is_due and live < this.max_readers then
      starts := case this.scaling
        when 'BACKLOG' then greatest(1, broker_private.free_groups(queue, this.max_readers - live))
        else 1
      end;
      if is_step or live = 0 and after.state = 'INACTIVE' or starts > 1 or after.ramp_from = '-infinity' then
        after.ramp_from := moment + pause;
        after.readers_wanted := live + starts;
      end if;
      after.readers_wanted := greatest(after.readers_wanted, live + starts);
      after.state := 'NOTIFIED';
      after.notified_mark := mark;
      after.last_activated_time := moment;
      after.tasks_started := after.tasks_started + starts;
    elsif is_due and is_step and this.max_readers > 0 then
      after.task_limit_reached := after.task_limit_reached + 1;
      after.ramp_from := moment + pause;
    end if;

    -- As of a second, so that a reader that waits does not make a look write.
    if after is distinct from before or last_empty >= coalesce(before.last_empty_rowset_time + interval '1 s', '-infinity') then
      after.last_empty_rowset_time := coalesce(last_empty, before.last_empty_rowset_time);
    end if;
    exit when pass = 1 and after is not distinct from before and gone is null;
    if pass = 2 then
      delete from broker_private.activated_tasks t where t.task_id = any (gone);
      update broker_private.queue_monitors m
      set
        state = after.state, is_stuck = after.is_stuck, notified_mark = after.notified_mark, last_empty_rowset_time = after.last_empty_rowset_time,
        last_activated_time = after.last_activated_time, readers_wanted = after.readers_wanted, ramp_from = after.ramp_from,
        not_before = after.not_before, returns_in_vain = after.returns_in_vain, tasks_started = after.tasks_started,
        task_limit_reached = after.task_limit_reached
      where m.queue_id = queue;
      return starts;
    end if;
  end loop;
  return 0;
end
$$;
