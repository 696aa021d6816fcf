-- They are lock_next_group and try_lock_group_of now.
drop function if exists broker_private.pick_group(integer);
drop function if exists broker_private.try_group_of(bigint);
