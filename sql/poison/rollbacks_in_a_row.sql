-- How many of the last transactions that received from a queue have rolled back.
--
-- It is as far as its two marks tell. note_receive says what is in a mark. Of two that ended while
-- the same third one received, nobody knows which was the last: a commit among them counts.
create or replace function broker_private.rollbacks_in_a_row(marks regclass[])
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  mark bigint;
  outcome text;
  counted integer := 0;
  aborted integer := 0;
  is_committed boolean := false;
begin
  for place in 1 .. 2 loop
    mark := pg_sequence_last_value(marks[place]);
    outcome := broker_private.outcome_of(mark >> 4);
    counted := greatest(counted, mark & 7);
    aborted := aborted + (outcome is not distinct from 'aborted')::integer;
    is_committed := is_committed or outcome is not distinct from 'committed';
  end loop;
  return case when is_committed then 0 else counted + aborted end;
end
$$;
