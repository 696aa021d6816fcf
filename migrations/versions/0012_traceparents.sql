-- The W3C trace contexts of messages that were sent while somebody traced them. Beside the messages, so
-- that those of everybody else cost nothing. No foreign key: a context may outlive its message for a while
-- (sweep_traceparents).
create table broker_private.traceparents (
  -- Where the message waits: of the far side in this database, or of the near one on its way.
  endpoint_no bigint not null,
  queuing_order bigint not null,
  noted_at timestamp with time zone not null,
  traceparent text collate "C" not null check (octet_length(traceparent) = 55),
  primary key (endpoint_no, queuing_order)
);
create index traceparents_age on broker_private.traceparents (noted_at);
