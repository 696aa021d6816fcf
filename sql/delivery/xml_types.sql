-- broker_private.xml_types(names): which of these message types are WELL_FORMED_XML in this database.
create or replace function broker_private.xml_types(type_names text[])
returns boolean[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select coalesce(t.validation = 'X', false)
    from unnest(type_names) with ordinality as n (name, place)
    left join broker_private.message_types t on t.name = n.name
    order by n.place
  );
end
$$;
