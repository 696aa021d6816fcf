-- An initiator: the usable dialogs, and what the test clients call.

-- As dbo.dialogs: of each `ratio` dialogs that are opened one after the other the last is used.
create table lab.dialogs (
  is_secure boolean not null,
  ratio integer not null,
  thread integer not null,
  conversation_handle uuid not null,
  primary key (is_secure, ratio, thread)
);

create table lab.control (is_over boolean not null);
insert into lab.control values (false);

-- Opens what is missing, and sends one message of 50 characters on each dialog: the warm-up. A transaction a thread. Ratio 0 is
-- for dialogs that are all used, one after the other.
create procedure lab.open_dialogs(
  secure boolean, dialog_ratio integer, threads integer, target_guid text, is_warm boolean default true
)
language plpgsql
as $$
declare
  opened uuid;
  first integer;
begin
  select coalesce(max(d.thread), 0) + 1 into first
  from lab.dialogs d where d.is_secure = secure and d.ratio = dialog_ratio;
  for number in first..threads loop
    for turn in 1..greatest(dialog_ratio, 1) loop
      opened := broker.begin_dialog(
        '//MySSB.com/Lab/S_Test', '//MySSB.com/Lab/S_Test', '//MySSB.com/Lab/C_Test',
        broker_instance => target_guid, encryption => secure
      );
      if is_warm then
        perform broker.send(opened, '//MySSB.com/Lab/M_Test', convert_to(repeat('x', 50), 'UTF8'));
      end if;
    end loop;
    insert into lab.dialogs values (secure, dialog_ratio, number, opened);
    commit;
  end loop;
end
$$;

-- What a test client calls: one SEND, in a transaction of its own.
create procedure lab.send(conversation_handle uuid, body bytea)
language plpgsql
as $$
begin
  perform broker.send(conversation_handle, '//MySSB.com/Lab/M_Test', body);
end
$$;

-- A further series: many in a transaction.
create procedure lab.send_many(conversation_handle uuid, bodies bytea[])
language plpgsql
as $$
begin
  perform broker.send_batch(conversation_handle, '//MySSB.com/Lab/M_Test', bodies);
end
$$;

-- A further series: what the whitepaper advises against, a dialog for each message.
create procedure lab.send_on_new_dialog(secure boolean, target_guid text, body bytea)
language plpgsql
as $$
begin
  perform broker.send(
    broker.begin_dialog(
      '//MySSB.com/Lab/S_Test', '//MySSB.com/Lab/S_Test', '//MySSB.com/Lab/C_Test',
      broker_instance => target_guid, encryption => secure, lifetime => '1 hour'
    ),
    '//MySSB.com/Lab/M_Test', body
  );
end
$$;

-- What activation starts here: ends the dialogs that the target has ended.
create procedure lab.end_dialogs()
language plpgsql
as $$
declare
  handles uuid[];
  handle uuid;
begin
  loop
    handles := array(
      select m.conversation_handle from broker.receive_groups('MySSBLabTestQueue', max_groups => 100, timeout => '1 s') m
    );
    if handles = '{}' then
      rollback;
      exit;
    end if;
    foreach handle in array handles loop
      perform broker.end_conversation(handle);
    end loop;
    commit;
  end loop;
end
$$;
