-- Why nothing can be sent to a destination now; null when something was.
create or replace function broker_private.set_destination_status(destination integer, status_text text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update broker_private.destinations d
  set transmission_status = status_text
  where d.destination_no = destination and d.transmission_status is distinct from status_text;
end
$$;
