-- The wanted name, or with a number if another object has it.
create or replace function broker_private.unused_name(wanted text, used text[])
returns text
language sql immutable
begin atomic
  select c.name
  from (
    select wanted as name, 1 as number
    union all
    select pg_catalog.left(wanted, 120) || '_' || n, n from pg_catalog.generate_series(2, 1 + pg_catalog.cardinality(used) + 1) n
  ) c
  where c.name <> all (used)
  order by c.number
  limit 1;
end;
