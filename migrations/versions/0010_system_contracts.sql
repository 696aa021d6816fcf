-- Where dialogs on ServiceEcho and ServiceDiagnostic arrive, to whatever service: a worker answers
-- them. Nobody else receives from it, and it has no view.
insert into broker_private.queues (queue_id, name, view_schema, owner, is_poison_message_handling_enabled, create_date, modify_date)
values (3, 'ServiceBrokerQueue', 'broker', 'pg_database_owner'::regrole, false, 'epoch', 'epoch');
