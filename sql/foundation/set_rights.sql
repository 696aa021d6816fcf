-- Makes the rights on objects of the broker what given_rights says: on all, or on a new relation.
--
-- It warns of what it took from whom, and of what only somebody else can take. PUBLIC gets what it
-- lacks in schema broker where nobody has ever granted or revoked, and while pybroker is being
-- installed. Else an operator took it.
create or replace function broker_private.set_rights(new_relation regclass default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  -- The last step of a migration writes its version into the schema's comment.
  is_installed constant boolean := coalesce(obj_description('broker'::regnamespace, 'pg_namespace') ~ '^pybroker [0-9]', false);
  this record;
begin
  for this in
    with of_each as (
      select s.grantee, s.is_option_only, s.kind, s.name, pg_has_role(s.owner, 'USAGE') as is_ours,
        string_agg(s.privilege, ', ' order by s.privilege) as privileges,
        -- What everybody has of a function that was just made is no news.
        new_relation is null and not (s.grantee = 0 and s.is_new) as is_news
      from broker_private.stray_rights(new_relation) s
      where s.privilege is not null
      group by s.grantee, s.is_option_only, s.kind, s.name, s.owner, s.is_new
    )
    select e.is_ours, e.is_option_only, e.privileges, e.kind, string_agg(e.name, ', ') as names,
      case e.grantee when 0 then 'public' else e.grantee::regrole::text end as grantee,
      count(*) filter (where e.is_news) as news,
      (array_agg(e.name order by e.name) filter (where e.is_news))[:5] as first_names
    from of_each e
    group by e.is_ours, e.is_option_only, e.privileges, e.kind, e.grantee
  loop
    if this.is_ours then
      execute concat(
        'revoke ', case when this.is_option_only then 'grant option for ' end, this.privileges, ' on ', this.kind, ' ',
        this.names, ' from ', this.grantee, ' cascade'
      );
    end if;
    if this.news > 0 then
      raise warning using
        message = concat(
          case when this.is_ours then 'Taken from ' else 'Not taken from ' end, this.grantee, ': ',
          case when this.is_option_only then 'GRANT OPTION FOR ' end, this.privileges, ' on ', this.kind, ' ',
          array_to_string(this.first_names, ', '), ' and ' || nullif(greatest(this.news - 5, 0), 0) || ' more', '.'
        ),
        hint = case
          when this.is_ours then 'The broker gives no such right. What was done with it is not undone.'
          else 'It belongs to another role. Run the same as a superuser.'
        end;
    end if;
  end loop;
  for this in
    select r.grantee, r.privilege, o.kind,
      string_agg((pg_identify_object(o.catalog, o.oid, 0)).identity, ', ') as names
    from broker_private.given_rights r
    join broker_private.broker_objects o on o.catalog = r.catalog and o.oid = r.oid and o.column_name is null
    where (new_relation is null or o.catalog = 'pg_class'::regclass and o.oid = new_relation)
      and pg_has_role(o.owner, 'USAGE')
      and (r.grantee <> 0 or o.schema <> 'broker' or o.kind = 'type' or o.acl is null or not is_installed)
      and not exists (
        select from aclexplode(o.acl) a
        where a.grantee = r.grantee and a.privilege_type = r.privilege
      )
    group by r.grantee, r.privilege, o.kind
  loop
    execute format(
      'grant %s on %s %s to %s', this.privilege, this.kind, this.names,
      case this.grantee when 0 then 'public' else this.grantee::regrole::text end
    );
  end loop;
  if new_relation is not null then
    return;
  end if;
  for this in
    select s.grantee, s.kind, s.name, s.statement from broker_private.stray_rights() s where s.privilege is null
  loop
    raise warning using
      message = format('The %s %s is of %s, who lacks the rights of the broker''s owner.', this.kind, this.name, this.grantee::regrole),
      hint = format('It may act for everybody, or hold everybody up. Look what it does, and remove it: %s', this.statement);
  end loop;
end
$$;
