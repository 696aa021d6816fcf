-- What was done from a console, and how it ended. The name is the role's as it was then: the audit of a role that was dropped stays
-- readable, and another role that gets its name later does not see it.
create table broker_private.console_actions (
  id bigint primary key generated always as identity,
  role regrole not null,
  role_name name not null,
  acted_at timestamp with time zone not null,
  action text not null,
  object text not null,
  result text not null
);
create index console_actions_role on broker_private.console_actions (role, id);
