-- A role has one trace; another one replaces it.
create table broker_private.traces (
  role regrole primary key,
  conversation_id uuid,
  service_name text collate "C",
  started_at timestamp with time zone not null,
  ends_at timestamp with time zone not null,
  max_rows integer not null
);

-- No foreign key: its lock would let a role that replaces its trace, and does not commit, hold senders.
-- An event names things as they were then: the conversation may be gone when somebody reads it.
create table broker_private.trace_events (
  id bigint primary key generated always as identity,
  role regrole not null,
  place bigint not null,
  event_time timestamp with time zone not null,
  event_class text not null,
  event_subclass text not null,
  conversation_handle uuid not null,
  conversation_id uuid not null,
  is_initiator boolean not null,
  queue_id integer not null,
  service_name text collate "C" not null,
  far_service text collate "C" not null,
  message_type_name text collate "C",
  message_sequence_number bigint,
  message_size bigint,
  status text,
  login_name name not null,
  spid integer not null
);
create index trace_events_place on broker_private.trace_events (role, place);
create index trace_events_conversation on broker_private.trace_events (conversation_id);
