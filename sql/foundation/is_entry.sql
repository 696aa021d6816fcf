-- broker_private.is_entry(stack): whether the function whose PG_CONTEXT this is was called by a public one: its frame's line comes right after its own, and a
-- public function hands in the role that it runs as (assert_entry says why that line can't be forged).
-- One expression, so that it is evaluated where it is called. With the stack it is some four hundredths of a SEND.
create or replace function broker_private.is_entry(stack text)
returns boolean
language sql immutable
begin atomic
  select pg_catalog.starts_with(
    pg_catalog.split_part(stack, E'\n', 2), pg_catalog.left(stack, pg_catalog.strpos(stack, 'broker_private.') - 1) || 'broker.'
  );
end;
