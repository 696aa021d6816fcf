-- take_plain returns less, as a row of its own, and take what take_fully did.
drop function if exists broker_private.take(
  integer, integer, integer, integer, bigint, bigint[], bigint, boolean, bigint[], bigint[], bigint[]
);
drop function if exists broker_private.take_plain(integer, integer, integer, integer, bigint, bigint, bigint[]);
drop function if exists broker_private.take_fresh(integer, integer, integer, integer, bigint, bigint, bigint[]);
drop function if exists broker_private.take_fully(
  integer, integer, integer, integer, bigint, bigint[], bigint, boolean, bigint[], bigint[], bigint[]
);
drop type broker_private.batch;
-- It has other arguments.
drop function if exists broker_private.acknowledge_one(uuid, bigint, bigint, bigint);
