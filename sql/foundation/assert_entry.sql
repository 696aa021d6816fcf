-- broker_private.assert_entry(caller): refuses, unless the caller is who he says he is.
--
-- Who calls is known like this. A public function (schema broker) runs with its caller's rights and hands current_user
-- to its counterpart in broker_private, which runs with the owner's. Anybody may execute the counterpart, so he could
-- claim to be another: the counterpart must see that the public function called it. PG_CONTEXT tells the call stack, one line
-- a frame: this function, the statement that performs it, the counterpart, then the counterpart's caller. The public
-- function calls in an expression, not in a statement, so its frame's line is the fourth, and that line can't be forged: a
-- line that holds a caller's own text begins with the words for "SQL statement", and a function in schema broker can be made by
-- its owner only. The words before the name are translated, so they are taken from the first line instead of being written here.
--
-- Once a public function has failed, PL/pgSQL evaluates its expression as a statement until the transaction ends, and the fourth
-- line is another. So a caller is believed, too, who says he is whom the session runs as, by SET ROLE or by login: that is
-- no claim to anything that the session could not do by itself. But where PostgreSQL runs what a table's owner has written, for whoever analyzes, reindexes
-- or refreshes (autovacuum is a superuser), the session is not asked: there UNLISTEN is refused, which does nothing anywhere else. What remains is a session that
-- itself calls another's function with SECURITY DEFINER.
--
-- The functions of the hot paths look at their own stack first (is_entry), where one line fewer lies between, and come here only if that says no.
create or replace function broker_private.assert_entry(caller name)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  frames text[];
  words text;
  is_believed boolean;
begin
  get diagnostics stack = pg_context;
  frames := string_to_array(stack, e'\n');
  words := left(frames[1], strpos(frames[1], 'broker_private.') - 1);
  if coalesce(starts_with(frames[4], words || 'broker.'), false) then
    return;
  end if;
  is_believed := caller is not distinct from coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
  if is_believed then
    begin
      unlisten "broker_private.assert_entry";
    exception
      when insufficient_privilege then
        is_believed := false;
    end;
  end if;
  if not is_believed then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('It can''t be seen that "%s" calls this function.', caller),
      hint = 'Call the functions in schema broker, not those in broker_private. After one of them failed in a function with SECURITY '
        'DEFINER, it can''t be called from there again in the same transaction: roll back.';
  end if;
end
$$;
