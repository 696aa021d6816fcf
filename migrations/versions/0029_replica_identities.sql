-- A publication FOR ALL TABLES refuses each UPDATE and DELETE of a table without a replica identity.
--
-- An id comes once, so the indexes by which rows are found are keys. As such they cost no column
-- more. Rows that have no key are few, or are kept for people only: of these the log has all.
drop index broker_private.messages_head;
create unique index messages_head on broker_private.messages (queue_id, precedence, id) with (deduplicate_items = off);
alter table broker_private.messages replica identity using index messages_head;

drop index broker_private.transmission_messages_destination;
create unique index transmission_messages_destination
on broker_private.transmission_messages (destination_no, precedence, id) with (deduplicate_items = off);
alter table broker_private.transmission_messages replica identity using index transmission_messages_destination;

drop index broker_private.sequence_counters_newest;
create unique index sequence_counters_newest on broker_private.sequence_counters (endpoint_no, kind, epoch desc);
alter table broker_private.sequence_counters replica identity using index sequence_counters_newest;

drop index broker_private.incomplete_messages_endpoint;
create unique index incomplete_messages_endpoint on broker_private.incomplete_messages (endpoint_no, id);
alter table broker_private.incomplete_messages replica identity using index incomplete_messages_endpoint;

drop index broker_private.quarantined_messages_endpoint;
create unique index quarantined_messages_endpoint on broker_private.quarantined_messages (endpoint_no, id);
alter table broker_private.quarantined_messages replica identity using index quarantined_messages_endpoint;

alter table broker_private.retained_messages replica identity full;
alter table broker_private.forwarded_messages replica identity full;
alter table broker_private.destination_walk replica identity full;
alter table broker_private.moved_turn replica identity full;
