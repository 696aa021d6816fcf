-- The W3C trace contexts of messages that were sent while somebody traced them. Beside the messages, so
-- that those of everybody else cost nothing. No foreign key: a context may outlive its message for a while
-- (sweep_traceparents).
create table broker_private.traceparents (
  endpoint_no bigint not null,
  -- Whether the number is the message's queuing order, or else its sequence number: of what arrives from
  -- another broker that one is known, and of what is sent here the other.
  is_place boolean not null,
  number bigint not null,
  noted_at timestamp with time zone not null,
  traceparent text collate "C" not null check (octet_length(traceparent) = 55),
  primary key (endpoint_no, is_place, number)
);
create index traceparents_age on broker_private.traceparents (noted_at);
