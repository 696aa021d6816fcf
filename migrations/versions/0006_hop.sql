-- It gets the dialogs' places, counters and numbers as arguments.
drop function if exists broker_private.deliver_plain(
  bigint[], text[], integer[], integer[], bigint[], bytea[], timestamp with time zone[]
);
