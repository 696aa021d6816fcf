-- A standby refuses to plan a statement that names an unlogged table, so the monitoring views failed
-- there. Logged, they can be read; the views show nothing there, as what they tell of is not there.
alter table broker_private.activated_tasks set logged;
alter table broker_private.workers set logged;
alter table broker_private.connections set logged;
alter table broker_private.forwarded_messages set logged;

-- It gets the arguments owner and schema.
drop function if exists broker.alter_queue(
  text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, boolean
);
drop function if exists broker_private.alter_queue(
  name, text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, boolean
);

-- Who may create a contract may list each type that there is, until its owner revokes that.
insert into broker_private.permissions (class, securable_id, permission, grantee)
select 'M', t.message_type_id, 'REFERENCES', row(0::oid, null)::broker_private.principal
from broker_private.message_types t
where t.message_type_id >= 65536
on conflict do nothing;

-- Certificates may be taken out of use for new dialogs.
alter table broker_private.certificates add column is_active_for_begin_dialog boolean not null default true;
drop function if exists broker_private.worker_certificates();
drop function if exists broker.create_certificate(text, text, text);
drop function if exists broker_private.create_certificate(name, text, text, text);
