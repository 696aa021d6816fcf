-- What was done from a console, by whom, when, and how it ended.
--
-- A role sees what it did itself; the database's owner sees all.
create or replace view broker.console_actions with (security_barrier) as
select a.id, a.acted_at, a.role_name as role, a.action, a.object, a.result
from broker_private.console_actions a
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
  or a.role = pg_catalog.to_regrole(pg_catalog.quote_ident(current_user));

comment on view broker.console_actions is
'What was done from a console: a role sees what it did itself, the database''s owner sees all. Ours.';
comment on column broker.console_actions.id is 'counts up; the newest row has the highest';
comment on column broker.console_actions.acted_at is 'when it was done, or refused';
comment on column broker.console_actions.role is 'who did it, by the name that the role had then';
comment on column broker.console_actions.action is 'what was asked for, such as redrive or queue_off';
comment on column broker.console_actions.object is 'the queue, the conversation, or what the finding was about';
comment on column broker.console_actions.result is 'done with what the statement returned, or refused with the reason';
