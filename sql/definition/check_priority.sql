-- Refuses a priority or a remote service that has no meaning.
create or replace function broker_private.check_priority(priority_name text, remote_service text, level integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if level is null or level not between 1 and 10 then
    found := broker_private.refuse(
      153, format('The level %s of the broker priority "%s" is out of range.', coalesce(level::text, 'NULL'), priority_name),
      'Use 1 (lowest) to 10; 5 is the default.'
    );
  end if;
  if remote_service is not null then
    perform broker_private.check_name('remote service of the broker priority', remote_service);
  end if;
end
$$;
