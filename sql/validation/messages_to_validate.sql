-- The oldest messages that a worker must look at before they are ready.
--
-- A body above the largest comes as null with its size. What waits for a schema collection that
-- can't be used is left out.
-- Plan: incomplete_messages_unchecked.
create or replace function broker_private.messages_to_validate(max_messages integer, max_bytes bigint, largest_body bigint)
returns table (message bigint, schema_collection_id integer, body bytea, size bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if broker_private.broker_problem() is not null then
    return;
  end if;
  return query
  select
    w.id, w.schema_collection_id,
    case when w.size <= largest_body
      then coalesce(
        (
          select coalesce(i.body, broker_private.shared_body(i.shared_body_no))
          from broker_private.incomplete_messages i
          where i.id = w.id and i.endpoint_no = w.endpoint_no
        ), ''
      )
    end,
    w.size
  from (
    select o.id, o.endpoint_no, o.schema_collection_id, o.size,
      sum(case when o.size <= largest_body then o.size else 0 end) over (order by o.id) as total,
      row_number() over (order by o.id) as place
    from (
      select i.id, i.endpoint_no, i.schema_collection_id, coalesce(octet_length(i.body), i.shared_size, 0)::bigint as size
      from broker_private.incomplete_messages i
      left join broker_private.schema_collections c on c.schema_collection_id = i.schema_collection_id
      where not i.is_checked and c.problem is null
      order by i.id
      limit max_messages
    ) o
  ) w
  where w.place = 1 or w.total <= max_bytes
  order by w.id;
end
$$;
