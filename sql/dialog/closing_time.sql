-- From when on a side that closes now is to be kept for 30 minutes.
--
-- It is one with no end of its own to be acknowledged. A target whose initiator is not known to
-- have the acknowledgement of its first message is kept to the end of the lifetime. Until then the
-- message may come again, however late, and would open a second conversation.
create or replace function broker_private.closing_time(e broker_private.endpoints)
returns timestamp with time zone
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not e.is_initiator and e.path = '<remote>' then
    if not (select n.is_confirmed from broker_private.newest_counter(e.endpoint_no, '<next expected>') n) then
      return greatest(e.expires_at, broker_private.clock());
    end if;
  end if;
  return broker_private.clock();
end
$$;
