-- lock_group_of returns the endpoint, which is read after the lock; new_endpoint finds the priority.
drop function if exists broker_private.lock_group_of(uuid);
drop function if exists broker_private.priority_of(integer, integer, text);
