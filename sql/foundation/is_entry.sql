-- Whether a public function called the function whose PG_CONTEXT this is.
-- Why: a public function (schema broker) runs with its caller's rights and hands current_user to
-- its counterpart in broker_private, which runs with the owner's. Anybody may execute the
-- counterpart, so it believes that name only if its own caller is a function of schema broker.
-- PG_CONTEXT tells the call stack, a line for each frame. The first line is the counterpart's own.
-- The second begins whatever called it, so nobody can put another text before it. Deeper lines
-- prove nothing: a caller's own SQL is shown there, and may hold line breaks. The words before a
-- function's name are translated. They are taken from the first line. Functions in schema broker
-- are made by the schema's owner only, and a frame names its function with its schema, or quoted.
-- One expression, so that PostgreSQL evaluates it in place. A range costs less than starts_with.
create or replace function broker_private.is_entry(stack text)
returns boolean
language sql immutable
begin atomic
  select
    pg_catalog.split_part(stack, E'\n', 2)
      >= (pg_catalog.left(stack, pg_catalog.strpos(stack, 'broker_private.') - 1) || 'broker.') collate pg_catalog."C"
    and pg_catalog.split_part(stack, E'\n', 2)
      < (pg_catalog.left(stack, pg_catalog.strpos(stack, 'broker_private.') - 1) || 'broker/') collate pg_catalog."C";
end;
