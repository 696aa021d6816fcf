-- What take returns, as one value: a row of so many columns costs the caller as much again.
create type broker_private.batch as (
  endpoint_nos bigint[], conversation_ids uuid[], from_initiator boolean[], from_services text[],
  to_services text[], to_brokers uuid[], contracts text[], expirations timestamp with time zone[],
  encrypted boolean[], type_names text[], dialog_index integer[], type_index integer[],
  sequence_numbers bigint[], kinds text, bodies bytea[], row_ids bigint[], owners text[],
  far_users text[], bindings text[], established text[], session_keys bytea[],
  acknowledged bigint[], sent_at timestamp with time zone[], level integer,
  large_endpoint_nos bigint[], large_levels integer[]
);
drop function if exists broker_private.take(
  integer, integer, integer, integer, bigint, bigint[], bigint, boolean, bigint[], bigint[], bigint[]
);
