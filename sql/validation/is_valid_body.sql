-- Whether a body, '' for none, is what a validation wants, XML schemas left aside.
--
-- Null for XML where this server has no parser.
create or replace function broker_private.is_valid_body(validation "char", content bytea)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return case validation
    when '<no validation>' then true
    when '<empty>' then content = ''
    when '<json>' then broker_private.is_valid_json(content)
    else broker_private.is_well_formed_xml(content)
  end;
end
$$;
