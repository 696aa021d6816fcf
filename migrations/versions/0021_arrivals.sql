-- Of kind I: what sent_at was before the last change, so that a delivery that finds something odd puts it back.
alter table broker_private.sequence_counters add column sent_before timestamp with time zone;
-- It gets groups and queues of the dialogs as arguments, and finds the counters itself.
drop function if exists broker_private.deliver_plain(
  bigint[], integer[], tid[], bigint[], text[], integer[], integer[], bigint[], bytea[], timestamp with time zone[]
);
