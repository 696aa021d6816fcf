-- The state of each of the four marks of a queue that quarantines.
--
-- It is ten times the rollbacks in a row that the mark tells of by now, and 1 more while its
-- transaction is in progress. What is in a mark, note_conversations says.
create or replace function broker_private.mark_states(marks regclass[])
returns integer[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  states integer[] := '{}';
  mark bigint;
  distance bigint;
  outcome text;
  current_id constant bigint := txid_current();
begin
  for place in 1 .. 4 loop
    mark := coalesce(pg_sequence_last_value(marks[place]), 0);
    outcome := null;
    if mark >> 31 > 0 then
      distance := (current_id - (mark >> 31)) & 4294967295;
      -- Half of all ids are behind, the others are ahead, as for the server itself.
      outcome := case when distance between 1 and least(2147483647, current_id - 3) then txid_status(current_id - distance) else 'in progress' end;
    end if;
    states := states || case outcome
      when 'committed' then 0
      when 'aborted' then 10 * ((mark & 7)::integer + 1)
      when 'in progress' then 10 * (mark & 7)::integer + 1
      else 10 * (mark & 7)::integer
    end;
  end loop;
  return states;
end
$$;
