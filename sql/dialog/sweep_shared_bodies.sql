-- Removes bodies that send_all stored and no message names any more.
--
-- A message of a dialog waits in the transmission queue of its sender or, ready or incomplete, in
-- the queue of the far side. A retained copy lies with its sender. So one endpoint leads to all
-- places. Endpoints whose message is gone are taken off the front, so that the next sweep begins
-- where this one found a message. It looks at up to 1000 bodies a time, from a place that changes.
-- Locks: the bodies' rows, skipping those that another sweep has.
create or replace function broker_private.sweep_shared_bodies()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  waiting bigint;
begin
  for this in
    select b.shared_body_no, b.endpoint_nos
    from broker_private.shared_bodies b
    where b.shared_body_no >= (
      select min(s.shared_body_no) + floor(random() * greatest(max(s.shared_body_no) - min(s.shared_body_no) - 998, 1))::bigint
      from broker_private.shared_bodies s
    )
    order by b.shared_body_no
    limit 1000
    for update skip locked
  loop
    select u.place into waiting
    from unnest(this.endpoint_nos) with ordinality as u (endpoint_no, place)
    where exists (
        select from broker_private.transmission_messages t
        where t.endpoint_no = u.endpoint_no and t.shared_body_no = this.shared_body_no
      )
      or exists (
        select from broker_private.retained_messages r
        where r.endpoint_no = u.endpoint_no and r.shared_body_no = this.shared_body_no
      )
      or exists (
        select
        from broker_private.endpoints e
        join broker_private.endpoints f on f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator
        -- After a move a late message lies under the old group.
        cross join lateral (
          select f.group_no
          union all
          select v.old_group_no from broker_private.moved_conversations v where v.endpoint_no = f.endpoint_no
        ) g
        join broker_private.messages m on m.group_no = g.group_no and m.endpoint_no = f.endpoint_no
        where e.endpoint_no = u.endpoint_no and m.shared_body_no = this.shared_body_no
      )
      or exists (
        select
        from broker_private.endpoints e
        join broker_private.endpoints f on f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator
        join broker_private.incomplete_messages i on i.endpoint_no = f.endpoint_no
        where e.endpoint_no = u.endpoint_no and i.shared_body_no = this.shared_body_no
      )
    order by u.place
    limit 1;
    if waiting is null then
      delete from broker_private.shared_bodies b where b.shared_body_no = this.shared_body_no;
    elsif waiting > 1 then
      update broker_private.shared_bodies b
      set endpoint_nos = this.endpoint_nos[waiting:]
      where b.shared_body_no = this.shared_body_no;
    end if;
  end loop;
end
$$;
