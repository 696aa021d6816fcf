-- Whether a search for a group's oldest message meets too many deleted ones.
--
-- That is more than 200 from its beginning, or too many pages of them.
-- Plan: messages_group, one row.
create or replace function broker_private.is_deep_group(group_number bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  dead bigint := broker_private.walked_in_vain('broker_private.messages_group');
  pages bigint := pg_stat_get_xact_blocks_fetched('broker_private.messages_group'::regclass);
begin
  perform from broker_private.messages m where m.group_no = group_number order by m.precedence, m.endpoint_no, m.urgency, m.id limit 1;
  return broker_private.walked_in_vain('broker_private.messages_group') - dead > 200
    or pg_stat_get_xact_blocks_fetched('broker_private.messages_group'::regclass) - pages > 24;
end
$$;
