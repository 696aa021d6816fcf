-- Trigger of a trace: conversations that end.
--
-- They are those that this side ends, and those that are over on both sides (Terminate Dialog).
create or replace function broker_private.trace_ends()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', 'Broker:Conversation', 'subclass', s.subclass
    ) order by c.endpoint_no, s.number)
    from (
      select x.endpoint_no, x.local_end, x.closed_at
      from changed x
      order by x.endpoint_no
      limit 10000
    ) c
    join before b on b.endpoint_no = c.endpoint_no
    cross join lateral (
      select 1 as number, case c.local_end
        when '<cleaned up>' then 'END CONVERSATION WITH CLEANUP'
        when '<ended with error>' then 'END CONVERSATION WITH ERROR'
        else 'END CONVERSATION'
      end as subclass
      where b.local_end is null and c.local_end is not null
      union all
      select 2, 'Terminate Dialog' where b.closed_at is null and c.closed_at is not null
    ) s
  ));
  return null;
end
$$;
