-- When sweep_destinations last met a dialog under each, and how far it has come since it began: behind
-- which endpoint its next look begins, or, below zero, before which destination.
alter table broker_private.destinations add column met_at timestamp with time zone not null default '-infinity';
create table broker_private.destination_walk (
  place bigint not null,
  began_at timestamp with time zone not null
);
insert into broker_private.destination_walk (place, began_at) values (0, '-infinity');
