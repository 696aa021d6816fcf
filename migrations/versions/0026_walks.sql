-- When sweep_destinations last met a dialog under each, and how far it has come since it began: behind
-- which endpoint its next look begins, or, below zero, before which destination.
alter table broker_private.destinations add column met_at timestamp with time zone not null default '-infinity';
create table broker_private.destination_walk (
  place bigint not null,
  began_at timestamp with time zone not null
);
insert into broker_private.destination_walk (place, began_at) values (0, '-infinity');

-- Behind which conversation that moved the next look begins (settle_moved), and behind which message
-- of the queue that a service has left. A move of a service is watched for one round more once it is over.
create table broker_private.moved_turn (
  endpoint_no bigint not null,
  old_group_no bigint not null
);
insert into broker_private.moved_turn (endpoint_no, old_group_no) values (0, 0);
alter table broker_private.moved_services
  add column place bigint not null default 0,
  add column is_last_round boolean not null default false;
drop index broker_private.moved_conversations_watched;
create index moved_conversations_watched on broker_private.moved_conversations (endpoint_no, old_group_no) where is_watched;
-- What a service still has in a queue that it has left, without a walk over all its dialogs. As wide as it was.
drop index broker_private.endpoints_service;
create index endpoints_service on broker_private.endpoints (service_id, queue_id);
