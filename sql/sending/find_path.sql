-- Decides how the messages of an endpoint travel, and returns the endpoint with the decision.
--
-- One that is refused at its first message stays unsent: its Error is what there is to receive.
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
  route record;
  problem text;
  chosen uuid;
  disabled text;
  is_on boolean;
  own_guid uuid;
  target integer;
  target_queue integer;
  target_owner regrole;
  is_enqueue_enabled boolean;
  sender regrole;
  is_listed boolean;
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
  route := broker_private.route_of(e.far_service, e.far_broker_instance);
  if route.broker_instances is not null then
    chosen := route.broker_instances[1 + floor(random() * cardinality(route.broker_instances))::integer];
    update broker_private.endpoints x set destination_no = broker_private.destination_of(e.far_service, chosen)
    where x.endpoint_no = e.endpoint_no
    returning x.destination_no into e.destination_no;
    route := broker_private.route_of(e.far_service, chosen);
  end if;
  problem := route.problem;
  -- Each a look-up of its own: a join costs more than two of them.
  select
    broker_private.is_surely_on(b), b.service_broker_guid, s.service_id, s.queue_id, s.owner,
    (select q.is_enqueue_enabled from broker_private.queues q where q.queue_id = s.queue_id),
    (select n.owner from broker_private.services n where n.service_id = e.service_id),
    exists (select from broker_private.service_contracts c where c.service_id = s.service_id and c.contract_id = e.contract_id)
  into is_on, own_guid, target, target_queue, target_owner, is_enqueue_enabled, sender, is_listed
  from broker_private.broker_instance b
  left join broker_private.services s on s.name = e.far_service
  where b.is_the_only_row;
  if not is_on then
    disabled := broker_private.broker_problem();
  end if;
  if disabled is not null then
    new_path := '<delayed>';
    problem := disabled;
  elsif route.address = 'LOCAL' then
    new_path := '<delayed>';
    if far_endpoint is not null then
      new_path := case when exists (select from broker_private.incomplete_messages i where i.endpoint_no = far_endpoint) then '<behind incomplete>' else '<local>' end;
    elsif is_enqueue_enabled and not broker_private.is_poisoned(target_queue) then
      far_endpoint := broker_private.open_local_dialog(e, target, target_queue, target_owner, is_listed, sender, own_guid);
      if far_endpoint is null and e.path = '<unsent>' then
        return e;
      elsif far_endpoint is not null then
        new_path := '<local>';
      end if;
    else
      problem := (select broker_private.waiting_reason(q) from broker_private.queues q where q.queue_id = target_queue);
    end if;
  elsif route.address is null and e.path = '<unsent>' and e.far_broker_instance = own_guid then
    -- A broker that is named is asked, and answers: this one has no such service. Without a name the message waits for one.
    perform broker_private.put_broker_error(
      e.endpoint_no, 8490, format('Cannot find the remote service "%s" because it does not exist.', e.far_service)
    );
    return e;
  elsif route.address is null then
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
