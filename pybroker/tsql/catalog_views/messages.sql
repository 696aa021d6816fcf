-- sys.messages: the broker's own errors, as its functions raise them; a number has a row for each of its texts.
select distinct
  found.parts[1]::integer as message_id, 1033 as language_id, 16 as severity, false as is_event_logged,
  replace(found.parts[2], '''''', '''') as text
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
cross join lateral pg_catalog.regexp_matches(
  p.prosrc,
  'broker_private[.]refuse[(][[:space:]]*([0-9]+),[[:space:]]*(?:format[(][[:space:]]*)?''((?:[^'']|'''')*)''',
  'g'
) found (parts)
where n.nspname in ('broker', 'broker_private')
