-- When a conversation in quarantine is tried again by itself, null for not before somebody redrives it; and how often it was.
alter table broker_private.quarantine add column retry_at timestamp with time zone, add column retries integer not null default 0;
create index quarantine_retry_at on broker_private.quarantine (retry_at) where retry_at is not null;
-- The same count while the conversation is in its queue.
alter table broker_private.noted_failures add column retries integer not null default 0;
drop function if exists broker.note_failure(uuid, text);
drop function if exists broker_private.note_failure(name, uuid, text);
drop function if exists broker_private.quarantine_conversation(bigint, integer, text, integer);

-- The service programs that read a queue, as they say themselves every few seconds. Who ends takes its row along; one that died leaves it.
create table broker_private.service_programs (
  -- Only the program knows it.
  program_id uuid,
  queue_id integer references broker_private.queues on delete cascade,
  max_queue_readers integer not null,
  host text not null,
  process_id integer not null,
  started_at timestamp with time zone not null,
  last_seen timestamp with time zone not null,
  primary key (program_id, queue_id)
);
create index service_programs_queue on broker_private.service_programs (queue_id, last_seen);
