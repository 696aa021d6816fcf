-- The sequence number of an Error that was sent within this database.
--
-- It was the last message of its dialog, so everything received and everything still waiting comes
-- before it.
create or replace function broker_private.number_of_error(endpoint bigint)
returns bigint
language sql stable
set enable_sort = off
begin atomic
  select
    (select n.next_number from broker_private.newest_counter(endpoint, '<next received>') n) + (
      select count(*)
      from broker_private.endpoints e
      cross join lateral (
        select from broker_private.messages x
        where x.group_no = e.group_no and x.precedence = 10 - e.priority and x.endpoint_no = e.endpoint_no and x.urgency = 2
        order by x.id
      ) m
      where e.endpoint_no = endpoint
    ) + (
      select count(*) from broker_private.incomplete_messages i where i.endpoint_no = endpoint and i.sequence_number is null
    );
end;
