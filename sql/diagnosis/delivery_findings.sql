-- Findings 301 to 322: why messages do not leave for another service.
--
-- They tell of routes and bindings that can't work, too. There is one finding for each cause, which
-- may keep the messages of many services. Messages are counted up to 10,000.
-- Plan: the first row of each destination, and the first thousand rows of those within this
-- database.
create or replace function broker_private.delivery_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  expired broker_private.routes%rowtype;
  right_now constant timestamp with time zone := broker_private.clock();
  is_all constant boolean := broker_private.sees_all(reader);
  has_worker constant boolean := broker_private.has_worker();
  database_owner constant name := (
    select pg_get_userbyid(d.datdba) from pg_database d where d.datname = current_database()
  );
  told_routes integer[] := '{}';
  waiting jsonb;
  code integer;
begin
  if broker_private.broker_problem() is null then
    for this in
      with waiting as materialized (
        select
          e.far_service, e.far_broker_instance, min(f.enqueue_time) as since,
          least(sum(case when d.service_name = '' then 1 else c.counted end), 10001) as messages,
          min(coalesce(s.status, d.transmission_status)) as status
        from broker_private.destinations d
        cross join lateral (
          select t.endpoint_no, t.enqueue_time from broker_private.transmission_messages t
          where endpoint is null and t.destination_no = d.destination_no
          order by t.precedence, t.id
          limit case when d.service_name = '' then 1000 else 1 end
        ) f
        join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
        cross join lateral (
          select count(*) as counted from (
            select from broker_private.transmission_messages t
            where d.service_name <> '' and t.destination_no = d.destination_no
            limit 10001
          ) l
        ) c
        left join broker_private.transmission_status s on s.endpoint_no = e.endpoint_no
        where is_all or broker_private.may_receive(reader, e.queue_id)
        group by e.far_service, e.far_broker_instance
        union all
        select e.far_service, e.far_broker_instance, f.enqueue_time, 1, coalesce(s.status,
          d.transmission_status)
        from broker_private.endpoints e
        cross join lateral (
          select t.enqueue_time from broker_private.transmission_messages t
          where t.endpoint_no = e.endpoint_no
          order by t.id
          limit 1
        ) f
        join broker_private.destinations d on d.destination_no = e.destination_no
        left join broker_private.transmission_status s on s.endpoint_no = e.endpoint_no
        where e.endpoint_no = endpoint
      ),
      known as (
        select w.far_service, w.since, w.messages, r.address, r.problem as route_problem,
          coalesce(r.problem, w.status) as status
        from (select x.* from waiting x order by x.messages desc, x.since limit 1000) w
        cross join lateral broker_private.route_of(w.far_service, w.far_broker_instance) r
        -- Without a worker nobody knows what is behind an address by now, and 103 says so.
        where r.address is distinct from 'LOCAL' and (r.address is null or has_worker)
      )
      select
        (array_agg(k.far_service order by k.messages desc, k.since))[1] as far_service, count(*) as services,
        min(k.since) as since, least(sum(k.messages), 10001) as messages, min(k.address) as address,
        min(k.route_problem) as route_problem, k.status
      from known k
      group by k.status
    loop
      code := substring(this.status from '^([0-9]{4,5}):')::integer;
      continue when code is null;
      waiting := jsonb_build_object('messages', this.messages);
      expired := null;
      select r.* into expired
      from broker_private.routes r
      where r.scope = 'DATABASE' and r.remote_service_name = this.far_service
        and r.expires_at <= right_now
      order by r.expires_at desc
      limit 1;
      if code in (9750, 9793, 9796) and this.route_problem is not null
        and expired.route_id is not null then
        told_routes := told_routes || expired.route_id;
        return next waiting || broker_private.finding(
          321, 'error', expired.name,
          format('Messages for the service "%s" wait: the lifetime of the route "%s" is over.',
            this.far_service, expired.name),
          this.status, since => expired.expires_at,
          mend => format('select broker.alter_route(%L, lifetime => interval ''365 days'')',
            expired.name),
          mend_role => pg_get_userbyid(expired.owner)
        );
        continue;
      end if;
      return next waiting || broker_private.finding(
        case code
          when 9750 then 301 when 9770 then 302 when 9793 then 303 when 9796 then 304 when 9754
            then 305 when 9783 then 305
          when 28017 then 305 when 28034 then 306 when 28045 then 307 when 28024 then 308 when 28025
            then 308 when 28036 then 309
          when 28037 then 309 when 9748 then 310 when 9666 then 311 when 9727 then 312 when 9730
            then 313 when 9731 then 313
          when 9767 then 313 when 9795 then 314 when 28027 then 315 when 9749 then 316 when 9792
            then 317 else 399
        end,
        case code when 9770 then 'warning' else 'error' end,
        this.far_service, this.status,
        concat(
          case when this.services > 1 then format('So wait the messages for %s other services too. ', this.services - 1) end,
          case code
            when 9750 then 'No route says where the service is. Put its address into the mend.'
            when 9770 then 'The dynamic routing service was asked and has not answered.'
            when 9793 then 'No route names the service, and this database has none of the name. Put '
              'its address into the mend.'
            when 9796 then 'Somebody created a route of address LOCAL for it. Put the service''s '
              'address into the mend, or create the service.'
            when 9754 then 'The address refuses, or nothing listens there. Start the far worker and '
              'its endpoint. If the address is wrong, put the right one into the mend.'
            when 9783 then 'The host of the route''s address has no address. Put the right one into the mend.'
            when 28017 then 'The address does not answer. Start the far worker. If the address is wrong, put '
              'the right one into the mend.'
            when 28034 then 'The far broker knows this worker''s certificate, and grants its user no '
              'CONNECT. The far endpoint''s owner puts its name and the user into the mend.'
            when 28045 then 'The certificate of one side is registered at the other with no user. '
              'Its owner runs broker.create_certificate there.'
            when 28024 then 'A certificate is not valid yet: look at the clocks of both servers.'
            when 28025 then 'A certificate is not valid any more: exchange new ones (pybroker '
              'certificate).'
            when 9727 then 'The dialog is to be encrypted, and no binding says who the far service '
              'is.'
            when 9749 then 'The far queue is off. Its owner turns it on with broker.alter_queue(..., '
              'status => true).'
            else 'The messages wait until it is mended; then they leave by themselves.'
          end
        ),
        since => this.since,
        mend => case
          when code in (9750, 9793) then format(
            'select broker.create_route(%L, address => ''tcp://HOST:PORT'', service_name => %L)',
            broker_private.unused_name(this.far_service, array(select r.name from broker_private.routes r)),
            this.far_service
          )
          when code in (9754, 9783, 9796, 28017) then (
            select format('select broker.alter_route(%L, address => ''tcp://HOST:PORT'')', r.name)
            from broker_private.routes r
            where r.scope = 'DATABASE' and (r.remote_service_name = this.far_service or r.remote_service_name is null)
              and r.address = coalesce(this.address, 'LOCAL')
            order by r.remote_service_name is null, r.route_id
            limit 1
          )
          when code = 28034 then 'select broker.grant(''CONNECT'', ''ENDPOINT'', ''NAME'', ''USER'')'
          when code = 9727 then format(
            'select broker.create_remote_service_binding(%L, %L, ''USER'')',
            broker_private.unused_name(this.far_service, array(select b.name from broker_private.remote_service_bindings b)),
            this.far_service
          )
          when code = 9666 then (
            select format('select broker.alter_endpoint(%L, state => ''STARTED'')', t.name)
            from broker_private.tcp_endpoint t where t.is_the_only_row and t.state <> 'STARTED'
          )
        end,
        mend_role => case when code <> 28034 then database_owner end
      );
    end loop;
  end if;
  if endpoint is not null then
    return;
  end if;

  for this in
    select r.name, r.remote_service_name, r.expires_at, r.owner
    from broker_private.routes r
    where r.expires_at <= right_now and r.route_id <> all (told_routes)
      and (is_all or pg_has_role(reader, r.owner, 'USAGE'))
    order by r.expires_at desc
    limit 1000
  loop
    return next broker_private.finding(
      320, 'warning', this.name, format('The lifetime of the route "%s" is over.', this.name),
      format('It is ignored: a message for the service "%s" goes by another route, or waits.',
        this.remote_service_name),
      since => this.expires_at,
      mend => format('select broker.alter_route(%L, lifetime => interval ''365 days'')', this.name),
      mend_role => pg_get_userbyid(this.owner)
    );
  end loop;
  for this in
    select b.name, b.remote_service_name, b.user_name, b.owner
    from broker_private.remote_service_bindings b
    where not exists (select from broker_private.certificates c where c.user_name = b.user_name)
      and not b.is_anonymous
      and (is_all or pg_has_role(reader, b.owner, 'USAGE'))
    limit 1000
  loop
    return next broker_private.finding(
      322, 'warning', this.name,
      format(
        'The binding "%s" names the user "%s", who has no certificate.', this.name,
        coalesce((this.user_name).broker_user, pg_get_userbyid((this.user_name).role))
      ),
      format('No encrypted dialog to the service "%s" can leave (9730). Put the far side''s '
        'certificate into the mend.', this.remote_service_name),
      mend => format(
        'select broker.create_certificate(%L, ''PEM'', %L)', this.remote_service_name,
        coalesce((this.user_name).broker_user, pg_get_userbyid((this.user_name).role))
      ),
      mend_role => database_owner
    );
  end loop;
end
$$;
