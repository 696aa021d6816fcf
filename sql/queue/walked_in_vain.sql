-- How many entries of an index of messages this session has met whose message it could not see.
--
-- It is of use as a difference within one transaction. Always 0 if track_counts is off, and then no
-- floor is raised.
create or replace function broker_private.walked_in_vain(index regclass)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_stat_get_xact_tuples_returned(index) - pg_stat_get_xact_tuples_fetched(index);
end
$$;
