-- How a public function's line of this PG_CONTEXT begins, as a pattern.
-- Why: in Chinese a frame reads "at GET DIAGNOSTICS of line 5 of function f". The statement of the
-- caller is another, and so is its line, so the words before the name differ. This replaces both in
-- the first line by patterns. A statement holds neither digits nor quotation marks, so a name that
-- somebody chose can't pass for one. Names are quoted where a function was first called under
-- quote_all_identifiers.
create or replace function broker_private.frame_of_entry(stack text)
returns text
language sql immutable
begin atomic
  select
    pg_catalog.replace(
      pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(
          pg_catalog.left(
            stack,
            greatest(
              pg_catalog.strpos(pg_catalog.split_part(stack, E'\n', 1), 'broker_private.'),
              pg_catalog.strpos(pg_catalog.split_part(stack, E'\n', 1), '"broker_private".')
            ) - 1
          ),
          E'[][\\\\.^$*+?(){}|-]', E'\\\\\\&', 'g'
        ),
        '[0-9]+', '[0-9]+', 'g'
      ),
      'GET DIAGNOSTICS', '[^0-9"]{1,40}'
    )
    || E'(broker|"broker")\\."?[a-z_]+"?\\(';
end;
