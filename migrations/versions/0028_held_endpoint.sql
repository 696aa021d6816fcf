-- lock_group_of returns the endpoint, which is read after the lock.
drop function if exists broker_private.lock_group_of(uuid);
