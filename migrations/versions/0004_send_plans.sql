-- A send plan says where the messages of one open dialog side go, of which types they may be, and who
-- may send them. SEND learns it by taking the lock on the group's row; conversation/refresh_plan.sql
-- makes it, and says when it may be believed.

-- The plan of one dialog of the group; there is none without a handle.
alter table broker_private.groups
  add column send_handle uuid unique,
  add column send_expires_at timestamp with time zone,
  -- The oldest transaction that may not have been over when the plan was made.
  add column send_made xid8,
  -- In this database: the far endpoint, and its queue. Elsewhere: this endpoint, and its destination.
  add column send_target bigint,
  add column send_place integer,
  -- A role that may receive from the queue; null if everybody may.
  add column send_receiver regrole,
  -- What the message has in this database; in the transmission queue -1 minus it.
  add column send_precedence smallint,
  -- The numbers of the types that need no validation, by name.
  add column send_types jsonb;

-- The plan of a dialog whose group has another's; there is none without types.
alter table broker_private.endpoints rename column plain_types to send_types;
alter table broker_private.endpoints
  alter column send_types type jsonb using null,
  add column send_made xid8,
  add column send_target bigint,
  add column send_place integer,
  add column send_receiver regrole,
  add column send_precedence smallint;

-- The transaction that last changed something that plans rest on: those made before it was over are
-- worthless. Only inserted for SEND to see, so whoever changes a definition waits for no sender.
create table broker_private.plan_marks (
  marked_by xid8 not null
);
alter table broker_private.plan_marks set (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50
);

drop trigger if exists note_unusual_queue on broker_private.queues;
drop function if exists broker_private.note_unusual_queue();
drop table broker_private.unusual_objects;
