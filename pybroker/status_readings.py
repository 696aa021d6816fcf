"""Readings of a broker's database, for `pybroker status`: what is there now, and rates between two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from psycopg.rows import class_row

from pybroker.errors import broker_errors, emptied_error

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

_BROKER = """
select
  pg_catalog.clock_timestamp() as read_at, b.name as database,
  b.service_broker_guid::text, b.is_broker_enabled,
  (
    select pg_catalog.count(*) from (select from broker.transmission_queue limit 10001) t
  ) as transmission_queue,
  (
    select pg_catalog.count(*) from (select from broker.quarantine where retry_at is null limit 1001) z
  ) as quarantined,
  (
    select pg_catalog.count(*) from (select from broker.quarantine where retry_at is not null limit 1001) z
  ) as retried,
  (
    select pg_catalog.count(*) from broker.dm_broker_connections c where c.state_desc = 'LOGGED_IN'
  ) as connections,
  exists (
    select from pg_catalog.pg_stat_activity a
    where a.datname = pg_catalog.current_database() and a.application_name = 'pybroker worker'
  ) as has_worker,
  current_user::text as role, not pg_catalog.pg_has_role('pg_database_owner', 'USAGE') as is_limited,
  coalesce(s.n_tup_ins, 0) as enqueued, coalesce(s.n_tup_del, 0) as dequeued
from broker.databases b
left join pg_catalog.pg_stat_user_tables s on s.schemaname = 'broker_private' and s.relname = 'messages'
"""
# Each view once: their rows are made by functions, which no plan may ask anew for each pair.
_QUEUES = """
with depths as materialized (select * from broker.queue_depths),
queues as materialized (
  select name, object_id, is_receive_enabled and is_enqueue_enabled as is_enabled, max_readers
  from broker.service_queues
),
monitors as materialized (select queue_id, state from broker.dm_broker_queue_monitors),
counters as materialized (select * from broker.dm_broker_activation_counters),
set_aside as materialized (
  select queue_name, least(pg_catalog.count(*), 10001) as quarantined
  from broker.quarantine
  where retry_at is null
  group by queue_name
)
select
  d.queue_name as queue, q.is_enabled, m.state as monitor, q.max_readers,
  d.ready, d.retained, d.incomplete, d.is_estimate, d.oldest_enqueue_time,
  coalesce(z.quarantined, 0) as quarantined,
  coalesce(c.tasks_running, 0) as tasks_running, coalesce(c.tasks_started, 0) as tasks_started,
  coalesce(c.task_limit_reached, 0) as task_limit_reached
from depths d
join queues q on q.name = d.queue_name
left join monitors m on m.queue_id = q.object_id
left join counters c on c.queue_name = q.name
left join set_aside z on z.queue_name = q.name
order by d.queue_name
"""
_WAITING = """
select
  t.to_service_name as service, t.transmission_status as status, pg_catalog.count(*) as messages,
  pg_catalog.round(
    extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.min(t.enqueue_time)), 3
  )::float as oldest_age_seconds
from (
  select v.to_service_name, v.transmission_status, v.enqueue_time from broker.transmission_queue v limit 10001
) t
group by t.to_service_name, t.transmission_status
order by pg_catalog.count(*) desc, t.to_service_name, t.transmission_status
limit 20
"""
_PROGRAMS = """
select
  queue_name as queue, host, process_id, max_queue_readers as readers, is_alive,
  pg_catalog.round(extract(epoch from pg_catalog.clock_timestamp() - last_seen), 3)::float as seen_seconds_ago
from broker.service_programs
order by queue_name, is_alive desc, host, process_id
limit 100
"""
_CERTIFICATES = "select name, certificate_pem from broker.certificates order by name"


class Waiting(msgspec.Struct, frozen=True):
    """Messages for a far service that wait for one reason; without a reason they are on their way."""

    service: str
    status: str
    messages: int
    oldest_age_seconds: float


class Program(msgspec.Struct, frozen=True):
    """A service program that announced itself; one that is not alive said nothing for 15 seconds."""

    queue: str
    host: str
    process_id: int
    readers: int
    is_alive: bool
    seen_seconds_ago: float


class CertificateStatus(msgspec.Struct, frozen=True):
    """A certificate, and how many days it is still valid; below zero it is not."""

    name: str
    days_left: float


@dataclass(frozen=True)
class QueueReading:
    """One queue at one moment; counters count since the queue was made.

    Attributes:
        queue: its name.
        is_enabled: whether it is on.
        monitor: INACTIVE, NOTIFIED or RECEIVES_OCCURRING; None for a queue without activation.
        max_readers: the limit of activated readers; None where none was given.
        ready: messages that can be received.
        retained: messages that RETENTION keeps.
        incomplete: messages that wait for validation or for what comes before them.
        is_estimate: whether a number is above 10,000, and so no exact one.
        oldest_enqueue_time: when the first ready message came; None if there is none.
        quarantined: its conversations set aside until somebody redrives them, counted up to 10,001.
        tasks_running: activated readers that run now.
        tasks_started: how many were started.
        task_limit_reached: how often another was due and the limit did not allow it.
    """

    queue: str
    is_enabled: bool
    monitor: str | None
    max_readers: int | None
    ready: int
    retained: int
    incomplete: int
    is_estimate: bool
    oldest_enqueue_time: datetime | None
    quarantined: int
    tasks_running: int
    tasks_started: int
    task_limit_reached: int


@dataclass(frozen=True)
class BrokerReading:
    """The broker of a database at one moment, by its server's clock.

    Attributes:
        read_at: when.
        database: its name.
        service_broker_guid: its broker instance.
        is_broker_enabled: whether the broker delivers.
        transmission_queue: messages on their way, counted up to 10,001.
        quarantined: conversations set aside until somebody redrives them, counted up to 1,001.
        retried: conversations set aside until their next try is due, counted up to 1,001.
        connections: to other brokers, logged in; 0 for a role that may not see them.
        has_worker: whether a worker serves it.
        role: who asked.
        is_limited: whether that role sees only some of the queues, and no connections.
        enqueued: messages that came into its queues, since the server's statistics were reset.
        dequeued: messages that left them, likewise.
    """

    read_at: datetime
    database: str
    service_broker_guid: str
    is_broker_enabled: bool
    transmission_queue: int
    quarantined: int
    retried: int
    connections: int
    has_worker: bool
    role: str
    is_limited: bool
    enqueued: int
    dequeued: int


@dataclass(frozen=True)
class Reading:
    """A database at one moment: its broker, and those of its queues that the role may receive from."""

    broker: BrokerReading
    queues: tuple[QueueReading, ...]
    waiting: tuple[Waiting, ...]
    certificates: tuple[CertificateStatus, ...]
    programs: tuple[Program, ...]


class QueueStatus(msgspec.Struct, frozen=True):
    """What `pybroker status` says of a queue: a reading, and rates since the one before, per second.

    The last three are the whitepaper's counters: Tasks Running, Tasks Started/sec, Task Limit Reached/sec.
    """

    queue: str
    is_enabled: bool
    monitor: str | None
    max_readers: int | None
    ready: int
    retained: int
    incomplete: int
    is_estimate: bool
    oldest_age_seconds: float | None
    quarantined: int
    tasks_running: int
    tasks_started_per_second: float
    task_limit_reached_per_second: float


class Status(msgspec.Struct, frozen=True):
    """What `pybroker status` says of a database."""

    read_at: datetime
    database: str
    service_broker_guid: str
    is_broker_enabled: bool
    transmission_queue: int
    enqueued_per_second: float
    dequeued_per_second: float
    has_worker: bool
    connections: int
    quarantined: int
    retried: int
    role: str
    is_limited: bool
    queues: list[QueueStatus]
    waiting: tuple[Waiting, ...]
    certificates: tuple[CertificateStatus, ...]
    programs: tuple[Program, ...]


def read(connection: psycopg.Connection[Any]) -> Reading:
    """Take a reading.

    Raises:
        NotMigratedError: the database has no broker of this version.
    """
    with broker_errors():
        broker = connection.cursor(row_factory=class_row(BrokerReading)).execute(_BROKER).fetchone()
        queues = connection.cursor(row_factory=class_row(QueueReading)).execute(_QUEUES).fetchall()
        waiting = connection.cursor(row_factory=class_row(Waiting)).execute(_WAITING).fetchall()
        programs = connection.cursor(row_factory=class_row(Program)).execute(_PROGRAMS).fetchall()
        certificates = connection.execute(_CERTIFICATES).fetchall()
    if broker is None:
        raise emptied_error()
    left = _days_left(certificates, broker.read_at)
    return Reading(broker, tuple(queues), tuple(waiting), left, tuple(programs))


def _days_left(certificates: list[tuple[str, str]], now: datetime) -> tuple[CertificateStatus, ...]:
    """Read the dates of certificates, soonest over first; the client alone can't, and shows none."""
    try:
        from cryptography import x509  # noqa: PLC0415 - the client alone has none
    except ImportError:
        return ()
    left = []
    for name, pem in certificates:
        over = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
        left.append(CertificateStatus(name, math.floor((over - now).total_seconds() / 8_640) / 10))
    return tuple(sorted(left, key=lambda one: one.days_left))


def status_of(before: Reading, now: Reading) -> Status:
    """Return the later of two readings, with rates between them; a counter that was reset counts as 0."""
    seconds = max((now.broker.read_at - before.broker.read_at).total_seconds(), 1e-6)

    def rate(old: int, new: int) -> float:
        return round(max(new - old, 0) / seconds, 3)

    old_queues = {queue.queue: queue for queue in before.queues}
    queues = []
    for queue in now.queues:
        old = old_queues.get(queue.queue, queue)
        oldest = queue.oldest_enqueue_time
        queues.append(
            QueueStatus(
                queue=queue.queue,
                is_enabled=queue.is_enabled,
                monitor=queue.monitor,
                max_readers=queue.max_readers,
                ready=queue.ready,
                retained=queue.retained,
                incomplete=queue.incomplete,
                is_estimate=queue.is_estimate,
                oldest_age_seconds=(
                    None if oldest is None else round((now.broker.read_at - oldest).total_seconds(), 3)
                ),
                quarantined=queue.quarantined,
                tasks_running=queue.tasks_running,
                tasks_started_per_second=rate(old.tasks_started, queue.tasks_started),
                task_limit_reached_per_second=rate(old.task_limit_reached, queue.task_limit_reached),
            )
        )
    return Status(
        read_at=now.broker.read_at,
        database=now.broker.database,
        service_broker_guid=now.broker.service_broker_guid,
        is_broker_enabled=now.broker.is_broker_enabled,
        transmission_queue=now.broker.transmission_queue,
        enqueued_per_second=rate(before.broker.enqueued, now.broker.enqueued),
        dequeued_per_second=rate(before.broker.dequeued, now.broker.dequeued),
        has_worker=now.broker.has_worker,
        connections=now.broker.connections,
        quarantined=now.broker.quarantined,
        retried=now.broker.retried,
        role=now.broker.role,
        is_limited=now.broker.is_limited,
        queues=queues,
        waiting=now.waiting,
        certificates=now.certificates,
        programs=now.programs,
    )
