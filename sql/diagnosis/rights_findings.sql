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
    select case s.grantee when 0 then 'public' else s.grantee::regrole::text end as grantee,
      string_agg(distinct s.privilege, ', ') as privileges, count(distinct (s.kind, s.name)) as objects,
      (array_agg(distinct s.name))[:3] as names
    from broker_private.stray_rights() s
    where s.privilege is not null
    group by s.grantee
    limit 100
  loop
    return next broker_private.finding(
      113, 'error', this.grantee, format('%s has rights that the broker did not give: %s on %s of its objects (%s%s).',
        this.grantee, this.privileges, this.objects, array_to_string(this.names, ', '),
        case when this.objects > 3 then ', …' end),
      'Who reaches the objects behind the broker''s functions may read, change and forge what is anybody''s.',
      mend => 'select broker_private.set_rights()', mend_role => broker_owner
    );
  end loop;
  for this in
    select s.grantee::regrole::text as grantee, s.kind, s.name, s.statement
    from broker_private.stray_rights() s
    where s.privilege is null
    limit 100
  loop
    return next broker_private.finding(
      113, 'error', this.name, format('The %s %s is of %s, who lacks the rights of the broker''s owner.', this.kind,
        this.name, this.grantee),
      'It may act for everybody, or hold everybody up. Look what it does, and remove it.',
      mend => this.statement, mend_role => broker_owner, is_destructive => true
    );
  end loop;
end
$$;
