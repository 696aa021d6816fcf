-- Refuses a certificate of which it isn't said whether it is for new dialogs.
-- Errors: 153.
create or replace function broker_private.check_active(certificate_name text, is_active boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if is_active is null then
    found := broker_private.refuse(
      153, format('active_for_begin_dialog is NULL for the certificate "%s".', certificate_name), 'Use true or false.'
    );
  end if;
end
$$;
