-- What the data source remembers in the database that it reads from or writes to. Belongs to the role that installed it.
create schema pybroker_spark;

-- Up to where a reader has staged messages, and up to where Spark is done with them.
create table pybroker_spark.readers (
  reader text primary key,
  queue text not null,
  is_stream boolean not null,
  staged_position bigint not null default 0,
  finished_position bigint not null default 0
);

-- Received, and not yet done with: what Spark may ask for once more. A reader's positions are in the order of receipt.
create table pybroker_spark.staged_messages (
  reader text not null references pybroker_spark.readers,
  position bigint not null,
  message broker.message not null,
  primary key (reader, position)
);

-- Which partitions of which batch were sent, each noted in the transaction of its messages.
create table pybroker_spark.written_partitions (
  query text not null,
  batch bigint not null,
  partition integer not null,
  messages bigint not null,
  primary key (query, batch, partition)
);

-- The dialog on which the messages of a conversation_key go.
create table pybroker_spark.dialogs (
  from_service text not null,
  to_service text not null,
  contract text not null,
  conversation_key text not null,
  conversation_handle uuid not null,
  primary key (from_service, to_service, contract, conversation_key)
);
