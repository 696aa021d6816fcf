-- broker_private.assert_entry(): refuses, unless the function that calls this was called by a function of schema broker.
--
-- Who calls is known like this. A public function (schema broker) runs with its caller's rights and hands current_user
-- to its counterpart in broker_private, which runs with the owner's. Anybody may execute the counterpart, so he could
-- claim to be another: the counterpart must see that the public function called it. PG_CONTEXT tells the call stack, one line
-- a frame: this function, the statement that performs it, the counterpart, then the counterpart's caller. The public
-- function calls in an expression, not in a statement, so its frame's line is the fourth, and that line can't be forged: a
-- line that holds a caller's own text begins with the words for "SQL statement", and a function in schema broker can be made by
-- its owner only. The words before the name are translated, so they are taken from the first line instead of being written here.
create or replace function broker_private.assert_entry()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  frames text[];
  words text;
begin
  get diagnostics stack = pg_context;
  frames := string_to_array(stack, e'\n');
  words := left(frames[1], strpos(frames[1], 'broker_private.') - 1);
  if not coalesce(starts_with(frames[4], words || 'broker.'), false) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = 'the functions in schema broker_private are not to be called directly',
      hint = 'Call the function of the same name in schema broker.';
  end if;
end
$$;
