-- Decides how the messages of an endpoint travel, and returns the endpoint with the decision.
--
-- At the first message the path is chosen: straight into the queue of a service of this database,
-- or by the transmission queue. The target's endpoint is made here. If several brokers have the
-- service, one of them is chosen for the dialog. A local dialog whose messages had to wait goes
-- straight again once nothing of it waits. It goes behind what is incomplete on the far side until
-- a worker has looked at that. A straight dialog waits too once its broker is off.
-- Locks: none but the endpoint's own row; the caller holds its group.
create or replace function broker_private.find_path(e broker_private.endpoints)
returns broker_private.endpoints
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  address text;
  problem text;
  instances uuid[];
  chosen uuid;
  disabled text;
  here record;
  far_endpoint bigint;
  new_path "char" := '<remote>';
begin
  -- A snapshot that is older than what another session has put there can't tell that nothing waits.
  if e.path in ('<delayed>', '<behind incomplete>') and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    return e;
  end if;
  if e.path in ('<local>', '<behind incomplete>') then
    if not (select b.is_broker_enabled from broker_private.broker_instance b where b.is_the_only_row) then
      e.path := '<delayed>';
    elsif e.path = '<local>' then
      return e;
    end if;
  end if;
  if e.path = '<behind incomplete>' then
    update broker_private.endpoints x set path = '<local>'
    where x.endpoint_no = e.endpoint_no
      and not exists (select from broker_private.incomplete_messages i where i.endpoint_no = e.far_endpoint_no);
    if found then
      e.path := '<local>';
    end if;
    return e;
  end if;
  if e.path = '<delayed>' then
    perform broker_private.deliver_dialog(e.endpoint_no);
    if exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no) then
      return e;
    end if;
    delete from broker_private.transmission_status s where s.endpoint_no = e.endpoint_no;
    update broker_private.endpoints x set path = '<remote>'
    where x.endpoint_no = e.endpoint_no and exists (
      select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event in ('<broker known>', '<first taken>')
    );
    if found then
      e.path := '<remote>';
      return e;
    end if;
    select f.endpoint_no into far_endpoint
    from broker_private.endpoints f
    where f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator;
  end if;
  select r.address, r.problem, r.broker_instances into address, problem, instances
  from broker_private.route_of(e.far_service, e.far_broker_instance) r;
  if instances is not null then
    chosen := instances[1 + floor(random() * cardinality(instances))::integer];
    update broker_private.endpoints x set destination_no = broker_private.destination_of(e.far_service, chosen)
    where x.endpoint_no = e.endpoint_no
    returning x.destination_no into e.destination_no;
    select r.address, r.problem into address, problem from broker_private.route_of(e.far_service, chosen) r;
  end if;
  select broker_private.is_surely_on(b) as is_on, b.service_broker_guid as broker, s as service, q.queue_id, q.is_enqueue_enabled
  into here
  from broker_private.broker_instance b
  left join broker_private.services s on s.name = e.far_service
  left join broker_private.queues q on q.queue_id = s.queue_id
  where b.is_the_only_row;
  if not here.is_on then
    disabled := broker_private.broker_problem();
  end if;
  if disabled is not null then
    new_path := '<delayed>';
    problem := disabled;
  elsif address = 'LOCAL' then
    new_path := '<delayed>';
    if far_endpoint is not null then
      new_path := case when exists (select from broker_private.incomplete_messages i where i.endpoint_no = far_endpoint) then '<behind incomplete>' else '<local>' end;
    elsif here.is_enqueue_enabled and not broker_private.is_poisoned(here.queue_id) then
      far_endpoint := broker_private.open_local_dialog(e, here.service);
      if far_endpoint is not null then
        new_path := '<local>';
      end if;
    else
      problem := (select broker_private.waiting_reason(q) from broker_private.queues q where q.queue_id = here.queue_id);
    end if;
  elsif address is null and e.path = '<unsent>'
    and e.far_broker_instance = here.broker then
    -- A broker that is named is asked, and answers: this one has no such service. Without a name the message waits for one.
    perform broker_private.put_broker_error(
      e.endpoint_no, 8490, format('Cannot find the remote service "%s" because it does not exist.', e.far_service)
    );
    return e;
  elsif address is null then
    new_path := '<delayed>';
  end if;
  if problem is not null and new_path = '<delayed>' then
    perform broker_private.set_dialog_status(e.endpoint_no, problem);
  end if;
  update broker_private.endpoints x set path = new_path, far_endpoint_no = far_endpoint where x.endpoint_no = e.endpoint_no;
  e.path := new_path;
  e.far_endpoint_no := far_endpoint;
  return e;
end
$$;
