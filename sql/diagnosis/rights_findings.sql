-- Finding 113: rights on the broker's own objects that it did not give.
--
-- A worker asks it too, when it starts.
create or replace function broker_private.rights_findings()
returns setof jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  broker_owner constant name := (
    select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'broker_private'
  );
  this record;
begin
  for this in
    with stray as materialized (
      select case s.grantee when 0 then 'public' else s.grantee::regrole::text end as grantee, s.privilege, s.kind,
        s.name, s.statement
      from broker_private.stray_rights() s
    )
    (
      select s.grantee as object,
        format(
          '%s has rights that the broker did not give: %s on %s of its objects (%s%s).', s.grantee,
          string_agg(distinct s.privilege, ', '), count(distinct (s.kind, s.name)),
          array_to_string((array_agg(distinct s.name))[:3], ', '), case when count(distinct (s.kind, s.name)) > 3 then ', ...' end
        ) as problem,
        'Who reaches the objects behind the broker''s functions may read, change and forge what is anybody''s.' as why,
        'select broker_private.set_rights()' as mend, false as is_destructive
      from stray s
      where s.privilege is not null
      group by s.grantee
      limit 100
    )
    union all
    (
      select s.name, format('The %s %s is of %s, who lacks the rights of the broker''s owner.', s.kind, s.name, s.grantee),
        'It may act for everybody, or hold everybody up. Look what it does, and remove it.', s.statement, true
      from stray s
      where s.privilege is null
      limit 100
    )
  loop
    return next broker_private.finding(
      113, 'error', this.object, this.problem, this.why, mend => this.mend, mend_role => broker_owner,
      is_destructive => this.is_destructive
    );
  end loop;
end
$$;
