-- How many bytes a body has at most.
--
-- PostgreSQL's limit of a value is 1 GiB, and RECEIVE needs room beside the body.
create or replace function broker_private.largest_body()
returns integer
language sql immutable
begin atomic
  select 1000000000;
end;
