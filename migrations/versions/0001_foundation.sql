-- The first tables of pybroker. What each holds, and how a message moves through them, is told in sql/README.md.
--
-- Tables that messages pass through have no foreign keys: a key check locks the row that it points to, and an arrival
-- must never wait for the session that works on the conversation.

create schema broker;
create schema if not exists broker_private;

comment on schema broker is 'pybroker: the functions and views for everybody';
comment on schema broker_private is 'pybroker: tables and inner functions, nobody''s business';

create type broker.message as (
  status smallint,
  priority smallint,
  queuing_order bigint,
  conversation_group_id uuid,
  conversation_handle uuid,
  message_sequence_number bigint,
  service_name text,
  service_id integer,
  service_contract_name text,
  service_contract_id integer,
  message_type_name text,
  message_type_id integer,
  validation text,
  message_body bytea,
  message_id uuid,
  message_enqueue_time timestamp with time zone
);

-- One row: this database as a broker. A dump or CREATE DATABASE ... TEMPLATE copies it, so it records which database it was written in:
-- a database that finds another oid or system identifier is a copy (broker_private.broker_problem).
create table broker_private.broker_instance (
  is_the_only_row boolean primary key default true check (is_the_only_row),
  service_broker_guid uuid not null default gen_random_uuid(),
  is_broker_enabled boolean not null default true,
  is_broker_priority_honored boolean not null default false,
  database_oid oid not null,
  -- null where the owner may not ask for it: then the oid alone tells
  system_identifier bigint
);
do $$
begin
  insert into broker_private.broker_instance (database_oid)
  select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database();
  if pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
    update broker_private.broker_instance set system_identifier = (select c.system_identifier from pg_catalog.pg_control_system() c);
  end if;
end
$$;

-- What sql/ files were applied last, so that only changed ones are applied again.
create table broker_private.applied_sql (
  path text primary key,
  sha256 text not null
);

-- Roles that run workers; data, so that a change of the functions can grant again.
create table broker_private.worker_roles (
  role_name name primary key
);

-- Identifiers of system objects are Service Broker's own; a user's begin at 65536, as there.
create sequence broker_private.object_id as integer start with 65536;

-- XML schemas by their collection's name. The server can't read XSD: a worker reads a new collection, and writes down what it can't use.
create table broker_private.schema_collections (
  schema_collection_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  owner name not null default 'pg_database_owner',
  documents text[] not null,
  create_date timestamp with time zone not null,
  is_read boolean not null default false,
  problem text
);

create table broker_private.message_types (
  message_type_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  owner name not null default 'pg_database_owner',
  -- N none, E empty, X XML, J JSON
  validation "char" not null,
  -- XML that must match these schemas too
  schema_collection_id integer references broker_private.schema_collections check (schema_collection_id is null or validation = 'X')
);
create index message_types_schema_collection on broker_private.message_types (schema_collection_id);
insert into broker_private.message_types (message_type_id, name, validation)
values
  (1, 'http://schemas.microsoft.com/SQL/ServiceBroker/Error', 'X'),
  (2, 'http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog', 'E'),
  (3, 'http://schemas.microsoft.com/SQL/Notifications/QueryNotification', 'X'),
  (4, 'http://schemas.microsoft.com/SQL/Notifications/EventNotification', 'X'),
  (5, 'http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer', 'E'),
  (6, 'http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/MissingRoute', 'X'),
  (7, 'http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/FailedRoute', 'X'),
  (8, 'http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/MissingRemoteServiceBinding', 'X'),
  (9, 'http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/FailedRemoteServiceBinding', 'X'),
  (10, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceEcho/Echo', 'N'),
  (11, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceDiagnostic/Query', 'X'),
  (12, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceDiagnostic/Status', 'X'),
  (13, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceDiagnostic/Description', 'N'),
  (14, 'DEFAULT', 'N');

-- A contract or service that is dropped loses its name, and its row stays for the messages that still name it.
create table broker_private.contracts (
  contract_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" unique check (length(name) between 1 and 128),
  dropped_name text collate "C",
  owner name not null default 'pg_database_owner',
  check ((name is null) <> (dropped_name is null))
);
insert into broker_private.contracts (contract_id, name)
values
  (1, 'http://schemas.microsoft.com/SQL/Notifications/PostQueryNotification'),
  (2, 'http://schemas.microsoft.com/SQL/Notifications/PostEventNotification'),
  (3, 'http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice'),
  (4, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceEcho'),
  (5, 'http://schemas.microsoft.com/SQL/ServiceBroker/ServiceDiagnostic'),
  (6, 'DEFAULT');

-- Name and validation of the type are repeated here, so that SEND learns all that it needs of a type from one row.
-- A type's name never changes; ALTER MESSAGE TYPE changes the validation in both places.
create table broker_private.contract_messages (
  contract_id integer not null references broker_private.contracts on delete cascade,
  message_type_name text collate "C" not null,
  message_type_id integer not null references broker_private.message_types,
  validation "char" not null,
  is_sent_by_initiator boolean not null,
  is_sent_by_target boolean not null,
  schema_collection_id integer,
  primary key (contract_id, message_type_name)
);
create index contract_messages_type on broker_private.contract_messages (message_type_id);
insert into broker_private.contract_messages
select c.contract_id, t.name, t.message_type_id, t.validation, c.by_initiator, c.by_target
from (values
  (1, 3, true, false), (2, 4, true, false), (3, 6, true, false), (3, 7, true, false), (3, 8, true, false),
  (3, 9, true, false), (4, 10, true, true), (5, 11, true, false), (5, 12, false, true), (5, 13, false, true),
  (6, 14, true, true)
) as c (contract_id, message_type_id, by_initiator, by_target)
join broker_private.message_types t on t.message_type_id = c.message_type_id;

create table broker_private.queues (
  queue_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (octet_length(name) between 1 and 63),
  view_schema name not null,
  owner name not null,
  is_receive_enabled boolean not null default true,
  is_enqueue_enabled boolean not null default true,
  is_retention_enabled boolean not null default false,
  is_poison_message_handling_enabled boolean not null default true,
  poison_action text not null default 'DISABLE_QUEUE' check (poison_action in ('DISABLE_QUEUE', 'QUARANTINE')),
  activation_procedure text,
  max_readers integer check (max_readers between 0 and 32767),
  is_activation_enabled boolean not null default false,
  -- null: the queue's owner
  execute_as name,
  scaling text not null default 'SERVICE_BROKER' check (scaling in ('SERVICE_BROKER', 'BACKLOG')),
  -- 0: off
  watchdog interval not null default '60 s',
  -- Unlogged sequences: what a transaction writes into one outlives its rollback. See conversation/note_receive.sql.
  marks regclass[] not null default '{}',
  -- The two by which rollbacks are counted, if they turn the queue off: RECEIVE reads them from here.
  first_mark regclass generated always as (
    case when is_poison_message_handling_enabled and poison_action = 'DISABLE_QUEUE' then marks[1] end
  ) stored,
  second_mark regclass generated always as (marks[2]) stored,
  -- Whether RECEIVE has to look for quarantined conversations: the poison action is QUARANTINE, or was when one was quarantined.
  holds_quarantine boolean not null default false,
  -- Whether RECEIVE has to begin at the queue's floors, as deleted messages stay in the indexes: see conversation/floors_of.sql.
  has_floors boolean not null default false,
  -- Where every RECEIVE leaves a mark, see create_receive_marks.sql; null while nobody wants to know.
  receive_marks regclass,
  create_date timestamp with time zone not null,
  modify_date timestamp with time zone not null
);

-- What keeps a SEND from doing nothing but insert a row: the queues that are off or retain, kept by a trigger of queues, and the message types that
-- dialogs may have among their plain types and that are plain no more, kept by ALTER MESSAGE TYPE. Both have their numbers from one sequence.
create table broker_private.unusual_objects (
  object_id integer primary key
);

-- What is remembered of a queue that has, or had, an activation procedure. Written by a look of a worker only where something changed.
create table broker_private.queue_monitors (
  queue_id integer primary key references broker_private.queues on delete cascade,
  state text not null default 'INACTIVE' check (state in ('INACTIVE', 'NOTIFIED', 'RECEIVES_OCCURRING')),
  -- NOTIFIED, and its last reader has ended without having received.
  is_stuck boolean not null default false,
  -- The queue's receive mark when the monitor became NOTIFIED: a RECEIVE since then has changed it.
  notified_mark bigint not null default 0,
  last_empty_rowset_time timestamp with time zone,
  last_activated_time timestamp with time zone,
  -- How many readers the ramp has come to: one that did its work and returned is replaced at once.
  readers_wanted integer not null default 0,
  -- When one more is due; -infinity: at once, as ALTER QUEUE said so.
  ramp_from timestamp with time zone not null default '-infinity',
  -- No start before it, as the last readers failed or found nothing.
  not_before timestamp with time zone not null default '-infinity',
  returns_in_vain integer not null default 0,
  tasks_started bigint not null default 0,
  tasks_aborted bigint not null default 0,
  procedures_invoked bigint not null default 0,
  task_limit_reached bigint not null default 0
);

-- A running queue reader. It counts as long as its session lives, whoever started it, so a killed worker's readers still do.
-- Unlogged, as no reader outlives its server.
create unlogged table broker_private.activated_tasks (
  task_id bigint primary key generated always as identity,
  queue_id integer not null,
  -- The session that started it, until it has one of its own.
  pid integer not null,
  has_begun boolean not null default false,
  login name not null,
  server_start timestamp with time zone not null,
  procedure_name text not null,
  execute_as name not null,
  started_at timestamp with time zone not null
);
create index activated_tasks_queue on broker_private.activated_tasks (queue_id);

-- What activated procedures put out and how they ended: the newest thousand of each queue.
create table broker_private.activation_log (
  id bigint primary key generated always as identity,
  queue_id integer not null,
  queue_name text collate "C" not null,
  procedure_name text,
  "time" timestamp with time zone not null,
  spid integer,
  number integer not null,
  severity text not null,
  text text not null,
  sqlstate text,
  detail text
);
create index activation_log_queue on broker_private.activation_log (queue_id, id);

-- What workers do at fixed periods, as they say themselves.
create table broker_private.periodic_tasks (
  name text primary key,
  period interval not null,
  description text not null,
  last_run timestamp with time zone not null,
  last_failure timestamp with time zone,
  last_error text
);

-- The workers whose home database this is, as they say themselves every few seconds; what they hold in memory is beside it, and goes with it.
create unlogged table broker_private.workers (
  worker_id uuid primary key,
  started_at timestamp with time zone not null,
  last_seen timestamp with time zone not null
);

create unlogged table broker_private.connections (
  connection_id uuid primary key,
  worker_id uuid not null references broker_private.workers on delete cascade,
  address text not null,
  is_accept boolean not null,
  state smallint not null,
  connect_time timestamp with time zone not null,
  login_time timestamp with time zone,
  last_activity_time timestamp with time zone not null,
  user_name name,
  certificate_name text collate "C",
  encryption text,
  peer_arbitration_id uuid,
  receives_posted integer not null,
  is_receive_flow_controlled boolean not null,
  sends_posted integer not null,
  is_send_flow_controlled boolean not null,
  bytes_sent bigint not null,
  bytes_received bigint not null,
  messages_sent bigint not null,
  messages_received bigint not null,
  frames_sent bigint not null,
  frames_received bigint not null
);
create index connections_worker on broker_private.connections (worker_id);

-- Messages that a worker passes on to another one.
create unlogged table broker_private.forwarded_messages (
  worker_id uuid not null references broker_private.workers on delete cascade,
  conversation_id uuid,
  is_initiator boolean not null,
  to_service_name text collate "C" not null,
  to_broker_instance uuid,
  from_service_name text collate "C" not null,
  from_broker_instance uuid not null,
  adjacent_broker_address text not null,
  kind "char" not null,
  message_sequence_number bigint not null,
  piece_at bigint not null,
  hops_remaining smallint not null,
  time_to_live_ms bigint not null,
  time_consumed_ms bigint not null
);
create index forwarded_messages_worker on broker_private.forwarded_messages (worker_id);

create table broker_private.services (
  service_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" unique check (length(name) between 1 and 128),
  dropped_name text collate "C",
  owner name not null,
  queue_id integer references broker_private.queues,
  check ((name is null) = (queue_id is null) and (name is null) <> (dropped_name is null))
);
create index services_queue on broker_private.services (queue_id);

-- Where event notifications send from; Errors and EndDialogs of their subscribers arrive here. Nobody receives from it, and it has no view.
insert into broker_private.queues (queue_id, name, view_schema, owner, is_poison_message_handling_enabled, create_date, modify_date)
values (2, 'EventNotificationErrorsQueue', 'broker', 'pg_database_owner', false, 'epoch', 'epoch');
insert into broker_private.services (service_id, name, owner, queue_id)
values (2, 'http://schemas.microsoft.com/SQL/Notifications/EventNotificationService', 'pg_database_owner', 2);

-- Who is told of what happens to a queue, each by a conversation of its own.
create table broker_private.event_notifications (
  event_notification_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  queue_id integer not null references broker_private.queues,
  event text not null check (event in ('QUEUE_ACTIVATION', 'BROKER_QUEUE_DISABLED')),
  service_name text collate "C" not null,
  broker_instance uuid,
  owner name not null,
  conversation_handle uuid not null,
  create_date timestamp with time zone not null,
  -- The last QUEUE_ACTIVATION, and the newest message at that time.
  notified_at timestamp with time zone,
  notified_up_to bigint
);
create index event_notifications_queue on broker_private.event_notifications (queue_id);

create table broker_private.service_contracts (
  service_id integer not null references broker_private.services on delete cascade,
  contract_id integer not null references broker_private.contracts,
  primary key (service_id, contract_id)
);
create index service_contracts_contract on broker_private.service_contracts (contract_id);

create table broker_private.routes (
  route_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  owner name not null default 'pg_database_owner',
  remote_service_name text collate "C",
  broker_instance uuid,
  expires_at timestamp with time zone,
  address text not null,
  mirror_address text,
  scope text not null default 'DATABASE' check (scope in ('DATABASE', 'WORKER'))
);
insert into broker_private.routes (name, address) values ('AutoCreatedLocal', 'LOCAL');
-- Of what comes from outside, to a worker whose home this database is: as AutoCreatedLocal of msdb, everything that the worker serves can be reached.
insert into broker_private.routes (name, address, scope) values ('AutoCreatedWorker', 'LOCAL', 'WORKER');

-- What the dynamic routing service was asked for: R a route, B a remote service binding. It stays, so that the same is not asked for at once again.
create table broker_private.configuration_requests (
  kind "char" not null check (kind in ('R', 'B')),
  service_name text collate "C" not null,
  conversation_handle uuid not null,
  -- null while there is no answer
  answered_at timestamp with time zone,
  primary key (kind, service_name)
);

-- Which level a dialog gets; null is ANY. Of several that match the one with the contract comes first, then the one with the
-- local service, then the one with the remote service.
create table broker_private.priorities (
  priority_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  contract_id integer references broker_private.contracts,
  local_service_id integer references broker_private.services,
  remote_service_name text collate "C",
  priority_level smallint not null check (priority_level between 1 and 10),
  unique nulls not distinct (contract_id, local_service_id, remote_service_name)
);

-- Class: Q queue, S service, C contract, X schema collection, P TCP endpoint. A grantee may be a principal that is no database role.
create table broker_private.permissions (
  class "char" not null,
  securable_id integer not null,
  permission text not null check (permission in ('SEND', 'RECEIVE', 'REFERENCES', 'CONNECT')),
  grantee name not null,
  primary key (class, securable_id, permission, grantee)
);

create table broker_private.certificates (
  certificate_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  user_name name not null,
  certificate_pem text not null,
  -- one certificate stands for one user
  thumbprint bytea not null unique generated always as (
    sha256(decode(regexp_replace(certificate_pem, '-----[^-]+-----|\s', '', 'g'), 'base64'))
  ) stored
);

-- The user whose certificate the far service's broker proves itself with; who begins a dialog to that service is secured by it.
create table broker_private.remote_service_bindings (
  remote_service_binding_id integer primary key default nextval('broker_private.object_id'),
  name text collate "C" not null unique check (length(name) between 1 and 128),
  owner name not null,
  remote_service_name text collate "C" not null unique check (length(remote_service_name) between 1 and 128),
  user_name name not null,
  is_anonymous boolean not null
);

-- At most one row: the TCP endpoint of the worker whose home database this is.
create table broker_private.tcp_endpoint (
  is_the_only_row boolean primary key default true check (is_the_only_row),
  endpoint_id integer not null unique default nextval('broker_private.object_id'),
  name text collate "C" not null check (length(name) between 1 and 128),
  owner name not null,
  state text not null check (state in ('STARTED', 'STOPPED', 'DISABLED')),
  listener_port integer not null check (listener_port between 1024 and 65535),
  listener_ip text not null,
  certificate_id integer references broker_private.certificates,
  encryption text not null check (encryption in ('DISABLED', 'SUPPORTED', 'REQUIRED')),
  is_message_forwarding_enabled boolean not null,
  message_forwarding_size integer not null check (message_forwarding_size > 0)
);

-- Where messages go: a pair of far service and broker instance that was named. The pair is not unique: a unique key would make two
-- strangers who name it first wait for each other. Row 0 is for dialogs both of whose sides are in this database.
create table broker_private.destinations (
  destination_no integer primary key generated by default as identity,
  service_name text collate "C" not null,
  broker_instance uuid,
  transmission_status text
);
create index destinations_name on broker_private.destinations (service_name, broker_instance);
insert into broker_private.destinations (destination_no, service_name) values (0, '');

-- The group lock is a lock on this row, and nothing updates the row but a move, once: see sql/README.md, "The group lock" and
-- "What moves".
create table broker_private.groups (
  group_no bigint primary key generated always as identity,
  conversation_group_id uuid not null unique,
  service_id integer not null,
  queue_id integer not null,
  -- a conversation moved into or out of it, or its service moved to another queue: a message may lie under its old group or queue
  has_moved boolean not null default false
) with (fillfactor = 70);

-- Changed only by the side that owns it, under the lock of its group.
create table broker_private.endpoints (
  -- What SEND reads comes first, and what has one width: to a column behind a text or a null PostgreSQL walks each time.
  endpoint_no bigint primary key generated always as identity,
  conversation_handle uuid not null unique,
  group_no bigint not null,
  expires_at timestamp with time zone not null,
  queue_id integer not null,
  priority smallint not null,
  -- U nothing sent yet, L straight into the far queue, I local and behind an incomplete message, B local but by way of the transmission
  -- queue, R remote
  path "char" not null,
  is_initiator boolean not null,
  destination_no integer not null,
  contract_id integer not null,
  service_id integer not null,
  is_encrypted boolean not null,
  far_endpoint_no bigint,
  -- null while open; E ended, X ended with an error, C cleaned up
  local_end "char",
  -- The types that this side may send and that had no validation when the dialog began here: number by name. So SEND need not look a type up. Which types a
  -- contract has never changes; ALTER MESSAGE TYPE notes a type that gets a validation in unusual_objects. Null if there are none, or many.
  plain_types jsonb,
  conversation_id uuid not null,
  far_service text collate "C" not null,
  far_broker_instance uuid,
  -- when this side was closed at once, as no acknowledgement was owed
  closed_at timestamp with time zone,
  owner name not null,
  -- Repeated here, so that RECEIVE learns from one row what it returns of a conversation: names of services and contracts never change, and the group's
  -- identifier changes only with group_no.
  service_name text collate "C" not null,
  contract_name text collate "C" not null,
  conversation_group_id uuid not null,
  -- The first half of what broker_private.message_id makes: making it costs RECEIVE as much as half a look-up.
  message_id_prefix text collate "C" generated always as (left(conversation_id::text, 18)) stored,
  unique (conversation_id, is_initiator)
) with (fillfactor = 70);
create index endpoints_group on broker_private.endpoints (group_no);
create index endpoints_service on broker_private.endpoints (service_id);
create index endpoints_lifetime on broker_private.endpoints (expires_at) where closed_at is null;
create index endpoints_closed on broker_private.endpoints (closed_at) where closed_at is not null;

-- From which groups MOVE CONVERSATION took an endpoint: a message that was being sent meanwhile lands there. Watched as long as
-- transactions of that time may be open; later strays are RECEIVE's alone to find.
create table broker_private.moved_conversations (
  endpoint_no bigint not null,
  old_group_no bigint not null,
  -- the endpoint's group now
  group_no bigint not null,
  moved_at timestamp with time zone not null,
  moved_by xid8 not null,
  is_watched boolean not null default true,
  primary key (endpoint_no, old_group_no)
);
create index moved_conversations_group on broker_private.moved_conversations (group_no);
create index moved_conversations_old_group on broker_private.moved_conversations (old_group_no);
create index moved_conversations_watched on broker_private.moved_conversations (endpoint_no) where is_watched;

-- From which queues ALTER SERVICE took a service, as long as transactions of that time may be open.
create table broker_private.moved_services (
  service_id integer not null,
  old_queue_id integer not null,
  moved_at timestamp with time zone not null,
  moved_by xid8 not null,
  primary key (service_id, old_queue_id)
);

-- What the far side did, by insert only: an arrival locks nothing that this side may hold.
-- S our first message was taken to be sent to another broker, B its broker became known, E its EndDialog and X its (or the broker's)
-- Error arrived, A it acknowledged our end. F is our own broker's: it refused a message of the far side that it had acknowledged, and drops
-- what comes after it.
create table broker_private.far_events (
  endpoint_no bigint not null,
  event "char" not null,
  far_broker_instance uuid,
  primary key (endpoint_no, event)
);

-- How a dialog with another worker is secured: decided when it first goes over the network, and never changed. No row: nothing did yet, or its far side
-- is in a database of the same worker. Kind: N not at all, A anonymous, F full.
create table broker_private.dialog_security (
  endpoint_no bigint primary key,
  kind "char" not null check (kind in ('N', 'A', 'F')),
  -- of a target of kind F: who the initiator is here
  far_user name,
  -- of kind A, as the worker wants it kept: no secret without the worker's own keys
  session_key bytea
);

-- One timer for each endpoint. It goes when it fires.
create table broker_private.conversation_timers (
  endpoint_no bigint primary key,
  fires_at timestamp with time zone not null
);
create index conversation_timers_due on broker_private.conversation_timers (fires_at);

-- Numbers that move with the messages of an endpoint. Kind: A next to be acknowledged by the far broker, I next expected
-- from it, R next to be returned by RECEIVE on a dialog within this database, S next to be sent, where RETENTION keeps copies. The epoch (number / 128) leads the index from
-- the newest: under an old snapshot a look-up walks at most one epoch's dead versions, not all.
create table broker_private.sequence_counters (
  endpoint_no bigint not null,
  kind "char" not null,
  epoch bigint not null,
  next_number bigint not null,
  -- of kind I: the far broker is known to have the acknowledgement of the dialog's first message, so it never sends that again
  is_confirmed boolean not null default false,
  -- of kind I: when the far side sent the last message that was taken, by its own clock; it tells that message from another of the same number
  sent_at timestamp with time zone,
  -- of kind R, until its first update: makes the row wide, so that its page has more room afterwards than the fill factor keeps free.
  -- With no more than that each look at an updated page prunes it, which costs as much as the update
  padding text
) with (fillfactor = 70);
create index sequence_counters_newest on broker_private.sequence_counters (endpoint_no, kind, epoch desc);

-- Without a cache: raise_floors concludes from its last value what ids can still come.
create sequence broker_private.queuing_order;

-- Messages that RECEIVE may return. Urgency: 0 DialogTimer, 1 Error, 2 all others. The sequence number is null for
-- a message sent within this database: RECEIVE numbers it.
create table broker_private.messages (
  id bigint not null default nextval('broker_private.queuing_order'),
  group_no bigint not null,
  endpoint_no bigint not null,
  sequence_number bigint,
  enqueue_time timestamp with time zone not null,
  queue_id integer not null,
  message_type_id integer not null,
  precedence smallint not null,
  urgency smallint not null,
  body bytea,
  -- of a message that send_all put on many dialogs: its body is in shared_bodies, and so large
  shared_body_no bigint,
  shared_size integer
);
alter table broker_private.messages alter column body set storage external;
-- No two entries are alike, so looking for duplicates whenever a page is full is work for nothing.
create index messages_head on broker_private.messages (queue_id, precedence, id) with (deduplicate_items = off);
create index messages_group on broker_private.messages (group_no, precedence, endpoint_no, urgency, id) with (deduplicate_items = off);

-- Where a search for messages of a queue may begin, while deleted ones stay in the indexes: see conversation/floors_of.sql. The newest row of a queue counts. All ids up to
-- decided are in the queue or never will be, and all up to horizon once the senders (virtual transactions) have ended.
-- Unlogged, as a queue without a row is looked at from its beginning.
create sequence broker_private.floor_numbers;
create sequence broker_private.floor_resets;
create unlogged table broker_private.queue_floors (
  queue_id integer not null,
  number bigint not null,
  floors bigint[] not null,
  -- The precedence of the first message, if a search for any before it is short; else null.
  level smallint,
  -- Whether a search for a group's messages was long too.
  is_deep boolean not null,
  decided bigint not null,
  horizon bigint not null,
  senders text[] not null
);
create index queue_floors_newest on broker_private.queue_floors (queue_id, number desc);

-- What a queue with RETENTION ON keeps of a conversation until its side here ends. Status: 0 received, 3 a copy of what was sent.
-- A table of its own, so that RECEIVE never meets them. The queue is that of the endpoint.
create table broker_private.retained_messages (
  id bigint not null,
  endpoint_no bigint not null,
  queue_id integer not null,
  status smallint not null,
  priority smallint not null,
  sequence_number bigint not null,
  message_id uuid not null,
  enqueue_time timestamp with time zone not null,
  message_type_id integer not null,
  body bytea,
  shared_body_no bigint
);
alter table broker_private.retained_messages alter column body set storage external;
create index retained_messages_endpoint on broker_private.retained_messages (endpoint_no);
create index retained_messages_queue on broker_private.retained_messages (queue_id);

-- Conversations that nothing is received of, as their transactions failed five times in a row. The message is the one that failed.
create table broker_private.quarantine (
  endpoint_no bigint primary key,
  message_id bigint not null,
  failures integer not null,
  last_error text,
  -- the session that received last, to find its error in the activation log
  failed_in integer,
  quarantined_at timestamp with time zone not null
);

-- Their messages. RECEIVE's indexes never meet these, and an arrival does not know of them: it goes into messages, and RECEIVE moves it here.
create table broker_private.quarantined_messages (
  id bigint not null,
  endpoint_no bigint not null,
  sequence_number bigint,
  enqueue_time timestamp with time zone not null,
  message_type_id integer not null,
  urgency smallint not null,
  body bytea
);
alter table broker_private.quarantined_messages alter column body set storage external;
create index quarantined_messages_endpoint on broker_private.quarantined_messages (endpoint_no, id);

-- Failures in a row that a service program told of (note_failure). RECEIVE deletes the row, so a commit begins anew and a rollback does not.
create table broker_private.noted_failures (
  endpoint_no bigint primary key,
  failures integer not null,
  last_error text not null
);

-- Messages that are in this database and not ready: those that a worker must look at (is_checked is false), and what came after them on
-- their dialogs. Not in messages, so that RECEIVE never meets them. Kind: M message, E EndDialog; an Error waits for nothing. The sequence
-- number is null for one that was sent within this database. is_first: no message of the dialog came before it. What a type demanded when the message
-- came is kept: ALTER MESSAGE TYPE is for later ones. queue_id is for counting; a message becomes ready in the queue that its endpoint has then.
create table broker_private.incomplete_messages (
  id bigint not null default nextval('broker_private.queuing_order'),
  endpoint_no bigint not null,
  sequence_number bigint,
  enqueue_time timestamp with time zone not null,
  queue_id integer not null,
  message_type_id integer not null,
  kind "char" not null,
  is_first boolean not null,
  is_checked boolean not null,
  schema_collection_id integer,
  -- Found by the check; it takes effect when everything before the message is ready.
  fault_code integer,
  fault_text text,
  body bytea,
  shared_body_no bigint,
  shared_size integer
) with (fillfactor = 80);
alter table broker_private.incomplete_messages alter column body set storage external;
create index incomplete_messages_endpoint on broker_private.incomplete_messages (endpoint_no, id);
create index incomplete_messages_unchecked on broker_private.incomplete_messages (id) where not is_checked;
create index incomplete_messages_queue on broker_private.incomplete_messages (queue_id);

-- Messages of another broker that came before what precedes them on their dialog: deliver handles them once that is here. Kind: M, E. And
-- (is_whole is false) the message of a dialog of which only some pieces have come: it has no body here, they are in message_pieces.
-- A table of its own, nearly always empty, so that an arrival finds out by one look that nothing is to be done.
create table broker_private.early_messages (
  endpoint_no bigint not null,
  sequence_number bigint not null,
  id bigint not null default nextval('broker_private.queuing_order'),
  enqueue_time timestamp with time zone not null,
  -- for counting, as above
  queue_id integer not null,
  message_type_id integer not null,
  kind "char" not null,
  size bigint not null,
  is_whole boolean not null default true,
  stored_bytes bigint,
  sent_at timestamp with time zone,
  body bytea,
  primary key (endpoint_no, sequence_number)
);
alter table broker_private.early_messages alter column body set storage external;
create index early_messages_queue on broker_private.early_messages (queue_id);

-- The pieces that have come of the next message of a dialog, without a gap, by where in its body they begin.
create table broker_private.message_pieces (
  endpoint_no bigint not null,
  piece_at bigint not null,
  piece bytea not null,
  primary key (endpoint_no, piece_at)
);
alter table broker_private.message_pieces alter column piece set storage external;

-- Messages on their way. Kind: M message, E EndDialog, X Error. A row has no number: the sender's next unacknowledged
-- number and the row's place among its endpoint's rows say it. So all rows of an endpoint have one precedence, 10 less its level, and
-- whether that counts when messages leave is asked when they are taken.
create table broker_private.transmission_messages (
  id bigint not null default nextval('broker_private.queuing_order'),
  endpoint_no bigint not null,
  enqueue_time timestamp with time zone not null,
  destination_no integer not null,
  message_type_id integer not null,
  precedence smallint not null,
  kind "char" not null,
  body bytea,
  shared_body_no bigint,
  shared_size integer
);
alter table broker_private.transmission_messages alter column body set storage external;
create index transmission_messages_destination on broker_private.transmission_messages (destination_no, precedence, id) with (deduplicate_items = off);
create index transmission_messages_endpoint on broker_private.transmission_messages (endpoint_no, id) with (deduplicate_items = off);

-- A body that send_all put on many dialogs, stored once. The messages name it, and retained copies do; no index finds
-- them by it, which every SEND would have to keep. Instead the row knows the senders' endpoints, and sweep looks at what waits on those dialogs;
-- it takes endpoints off the front as their messages go, and then the body.
create table broker_private.shared_bodies (
  shared_body_no bigint primary key generated always as identity,
  endpoint_nos bigint[] not null,
  body bytea not null
);
alter table broker_private.shared_bodies alter column body set storage external;

-- Why one dialog's messages wait, where that is not a matter of the whole destination.
create table broker_private.transmission_status (
  endpoint_no bigint primary key,
  status text not null
);

-- Vacuum by what was removed, at full speed, and never analyze: yesterday's statistics of a queue are wrong today.
alter table broker_private.messages set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);
alter table broker_private.transmission_messages set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);
alter table broker_private.incomplete_messages set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);
alter table broker_private.sequence_counters set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);

-- Why a message of a batch was not taken: Service Broker's number, and the message's type.
create type broker_private.fault as (code integer, message_type_name text);
