-- Whether it is ALL or one IP address.
--
-- The handler turns an error that can only be raised into an answer.
create or replace function broker_private.is_listener_ip(ip text)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return ip is not null and (ip = 'ALL' or host(ip::inet) = ip);
exception
  when invalid_text_representation then
    return false;
end
$$;
