-- One finding of a diagnosis.
-- Why: it is JSON, as an array of them is one value, so a caller that must vouch is told from one
-- without findings. docs/diagnose.md lists the numbers; pybroker/diagnosis/catalogue.py is their
-- catalogue.
create or replace function broker_private.finding(
  number integer, level text, object text, problem text, why text,
  since timestamp with time zone default null, mend text default null, mend_role name default null,
  is_destructive boolean default false
)
returns jsonb
language sql stable
begin atomic
  select pg_catalog.jsonb_build_object(
    'number', number, 'level', level, 'object', object, 'problem', problem, 'why', why,
    'since', since, 'mend', mend, 'mend_role', mend_role, 'is_destructive', is_destructive
  );
end;
