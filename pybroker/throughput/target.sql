-- The target: what its readers write, and the procedure that activation starts.

-- As dbo.messageDrop: the first 2,000 bytes of each message.
create table lab.message_drop (
  drop_no bigint not null generated always as identity,
  receive_no bigint not null,
  enqueue_time timestamp with time zone not null,
  message_val bytea not null
);

-- How many messages each RECEIVE brought, and when they were processed.
create table lab.receives (
  receive_no bigint not null,
  reader integer not null,
  messages integer not null,
  processed_at timestamp with time zone not null
);
create sequence lab.receive_numbers;

create table lab.reader_settings (top integer not null, timeout interval not null, ends_dialogs boolean not null);
insert into lab.reader_settings values (10000, '3 s', false);

-- SRPerf_Queue_LabTest: receive, write and count in one transaction; end when nothing came in time.
create procedure lab.test_queue()
language plpgsql
as $$
declare
  settings lab.reader_settings;
  number bigint;
  received integer;
  tests integer;
  ended uuid[];
  handle uuid;
begin
  select * into settings from lab.reader_settings;
  loop
    number := nextval('lab.receive_numbers');
    with received as materialized (
      select m.message_type_name, m.message_body, m.conversation_handle, m.message_enqueue_time
      from broker.receive('MySSBLabTestQueue', top => settings.top, timeout => settings.timeout) m
    ),
    dropped as (
      insert into lab.message_drop (receive_no, enqueue_time, message_val)
      select number, r.message_enqueue_time, substr(r.message_body, 1, 2000)
      from received r
      where r.message_type_name = '//MySSB.com/Lab/M_Test'
    )
    select
      count(*), count(*) filter (where r.message_type_name = '//MySSB.com/Lab/M_Test'),
      array_agg(r.conversation_handle) filter (where settings.ends_dialogs or r.message_type_name <> '//MySSB.com/Lab/M_Test')
    into received, tests, ended
    from received r;
    if received = 0 then
      rollback;
      exit;
    end if;
    foreach handle in array coalesce(ended, '{}') loop
      perform broker.end_conversation(handle);
    end loop;
    insert into lab.receives (receive_no, reader, messages, processed_at)
    values (number, pg_backend_pid(), tests, clock_timestamp());
    commit;
  end loop;
end
$$;
