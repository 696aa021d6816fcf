"""The one place that defines each metric: name, type, unit, help, source and alert.

Names and units are Prometheus' conventions: base units, `_total` for what only counts up, times as seconds
since 1970. No source reads messages: views count up to 10,000 rows of a queue, and estimate beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Alert:
    """When somebody should look.

    Attributes:
        name: of the alert, in Prometheus' CamelCase.
        expression: in PromQL.
        wait: how long it holds before it fires.
        severity: page, or ticket.
        summary: what is wrong; the page of the docs and the alert say it.
        what_to_do: the next thing to type or to read.
    """

    name: str
    expression: str
    wait: str
    severity: Literal["page", "ticket"]
    summary: str
    what_to_do: str


@dataclass(frozen=True)
class Metric:
    """One number.

    Attributes:
        name: without the prefix `pybroker_`; that of a counter without `_total`.
        kind: gauge, or counter: what only rises, until the server forgets its statistics.
        unit: as a dashboard shows it: short, s, bytes, dateTimeFromNow.
        help: what it counts, in a line.
        column: of the source, which has it.
        alert: on it, if there is one.
    """

    name: str
    kind: Literal["gauge", "counter"]
    unit: str
    help: str
    column: str
    alert: Alert | None = None

    @property
    def full_name(self) -> str:
        """The name as Prometheus stores it."""
        return f"pybroker_{self.name}{'_total' if self.kind == 'counter' else ''}"


@dataclass(frozen=True)
class Source:
    """One statement, run in each database at a scrape.

    Attributes:
        title: the heading in the docs and on the dashboard.
        query: a column for each label and each metric; a value that is null is left out.
        labels: columns that say what the numbers of a row belong to; `database` comes before them.
        metrics: what the row has.
    """

    title: str
    query: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]


SOURCES = (
    Source(
        "Queues",
        # Each view once: their rows are made by functions, which no plan may ask anew for each pair.
        "with depths as materialized (select * from broker.queue_depths),"
        " queues as materialized ("
        "select name, (is_receive_enabled and is_enqueue_enabled)::integer as enabled"
        " from broker.service_queues)"
        " select d.queue_name as queue, d.ready, d.retained, d.incomplete,"
        " d.is_estimate::integer as estimate,"
        " extract(epoch from pg_catalog.now() - d.oldest_enqueue_time)::float8 as age, q.enabled"
        " from depths d join queues q on q.name = d.queue_name",
        ("queue",),
        (
            Metric("queue_ready_messages", "gauge", "short", "Messages that RECEIVE would return.", "ready"),
            Metric("queue_retained_messages", "gauge", "short", "Copies that RETENTION keeps.", "retained"),
            Metric(
                "queue_incomplete_messages",
                "gauge",
                "short",
                "Messages that wait for a worker to validate them, or what comes before them.",
                "incomplete",
            ),
            Metric(
                "queue_depth_is_estimate",
                "gauge",
                "short",
                "1 if a number of its messages is above 10,000, and so an estimate.",
                "estimate",
            ),
            Metric(
                "queue_oldest_message_age_seconds",
                "gauge",
                "s",
                "Since when the oldest ready message waits.",
                "age",
                Alert(
                    "PybrokerQueueIsNotRead",
                    "pybroker_queue_oldest_message_age_seconds > 300",
                    "5m",
                    "page",
                    "Messages of {{ $labels.queue }} in {{ $labels.database }} wait for more than 5 minutes.",
                    "pybroker diagnose says what keeps them.",
                ),
            ),
            Metric(
                "queue_enabled",
                "gauge",
                "short",
                "1 if the queue is on, 0 if it is off.",
                "enabled",
                Alert(
                    "PybrokerQueueIsOff",
                    "pybroker_queue_enabled == 0",
                    "1m",
                    "page",
                    "Queue {{ $labels.queue }} in {{ $labels.database }} is off.",
                    "If nobody turned it off, poison messages did: docs/poison-messages.md.",
                ),
            ),
        ),
    ),
    Source(
        "Quarantine",
        "select queue_name as queue, pg_catalog.count(*)::bigint as conversations"
        " from broker.quarantine where retry_at is null group by queue_name",
        ("queue",),
        (
            Metric(
                "quarantined_conversations",
                "gauge",
                "short",
                "Conversations that failing messages set aside, until somebody redrives them.",
                "conversations",
                Alert(
                    "PybrokerConversationIsQuarantined",
                    "pybroker_quarantined_conversations > 0",
                    "1m",
                    "ticket",
                    "Conversations of queue {{ $labels.queue }} in {{ $labels.database }} are set aside.",
                    "broker.quarantine says why; pybroker redrive or discard lets them go on.",
                ),
            ),
        ),
    ),
    Source(
        "Transmission queue and conversations",
        "select pg_catalog.max(depth) filter (where name = 'transmission_queue') as waiting,"
        " pg_catalog.max(depth) filter (where name = 'conversation_endpoints') as conversations,"
        " extract(epoch from pg_catalog.now() - pg_catalog.max(oldest_enqueue_time))::float8 as age"
        " from broker.depths",
        (),
        (
            Metric("transmission_queue_messages", "gauge", "short", "Messages on their way.", "waiting"),
            Metric(
                "transmission_queue_oldest_message_age_seconds",
                "gauge",
                "s",
                "Since when the oldest message on its way waits.",
                "age",
                Alert(
                    "PybrokerMessagesDoNotLeave",
                    "pybroker_transmission_queue_oldest_message_age_seconds > 300",
                    "5m",
                    "page",
                    "Messages of {{ $labels.database }} could not be sent for more than 5 minutes.",
                    "pybroker diagnose, or transmission_status in broker.transmission_queue.",
                ),
            ),
            Metric(
                "conversation_endpoints",
                "gauge",
                "short",
                "Sides of conversations that are there; one that only rises is a leak: nobody ends them.",
                "conversations",
            ),
        ),
    ),
    Source(
        "Traffic",
        "select"
        " pg_catalog.max(cntr_value) filter (where counter_name = 'Enqueued Messages Total') as enqueued,"
        " pg_catalog.max(cntr_value) filter (where counter_name = 'Enqueued Transmission Msgs/sec') as sent,"
        " pg_catalog.max(cntr_value) filter (where counter_name = 'Dequeued Transmission Msgs/sec') as gone,"
        " pg_catalog.max(cntr_value) filter (where counter_name = 'Forwarded Pending Msg Count')"
        " as forwarded,"
        " pg_catalog.max(cntr_value) filter (where counter_name = 'Open Connection Count') as connections"
        " from broker.dm_os_performance_counters",
        (),
        (
            Metric(
                "enqueued_messages",
                "counter",
                "short",
                "Messages put into queues, also by transactions that were rolled back.",
                "enqueued",
            ),
            Metric(
                "transmission_enqueued_messages",
                "counter",
                "short",
                "Messages put into the transmission queue.",
                "sent",
            ),
            Metric(
                "transmission_dequeued_messages",
                "counter",
                "short",
                "Messages that left the transmission queue: acknowledged, or dropped.",
                "gone",
            ),
            Metric(
                "forwarded_pending_messages",
                "gauge",
                "short",
                "Messages that workers hold to pass them on.",
                "forwarded",
            ),
            Metric("open_connections", "gauge", "short", "Connections to other workers.", "connections"),
        ),
    ),
    Source(
        "Activation",
        "select queue_name as queue, tasks_running, tasks_started, tasks_aborted, task_limit_reached,"
        " stored_procedures_invoked from broker.dm_broker_activation_counters",
        ("queue",),
        (
            Metric("activation_tasks_running", "gauge", "short", "Queue readers at work.", "tasks_running"),
            Metric(
                "activation_tasks_started", "counter", "short", "Queue readers that began.", "tasks_started"
            ),
            Metric(
                "activation_tasks_aborted",
                "counter",
                "short",
                "Queue readers that ended with an error.",
                "tasks_aborted",
                Alert(
                    "PybrokerProcedureFails",
                    "rate(pybroker_activation_tasks_aborted_total[5m]) > 0",
                    "5m",
                    "ticket",
                    "The activated procedure of {{ $labels.queue }} in {{ $labels.database }} fails.",
                    "broker.activation_log has its errors.",
                ),
            ),
            Metric(
                "activation_task_limit_reached",
                "counter",
                "short",
                "How often another reader was wanted beyond max_queue_readers.",
                "task_limit_reached",
            ),
            Metric(
                "activation_procedure_calls",
                "counter",
                "short",
                "Calls of the activated procedure.",
                "stored_procedures_invoked",
            ),
        ),
    ),
    Source(
        "Periodic tasks",
        "select name as task, extract(epoch from last_run)::float8 as last_run,"
        " (last_failure is not null and last_failure >= last_run)::integer as failing"
        " from broker.periodic_tasks",
        ("task",),
        (
            Metric(
                "periodic_task_last_run_timestamp_seconds",
                "gauge",
                "dateTimeFromNow",
                "When a task was last done.",
                "last_run",
            ),
            Metric(
                "periodic_task_failing",
                "gauge",
                "short",
                "1 if its last run failed.",
                "failing",
                Alert(
                    "PybrokerTaskFails",
                    "pybroker_periodic_task_failing == 1",
                    "5m",
                    "ticket",
                    "Task {{ $labels.task }} of the workers of {{ $labels.database }} fails.",
                    "broker.periodic_tasks has its error.",
                ),
            ),
        ),
    ),
)

UP = Metric(
    "database_up",
    "gauge",
    "short",
    "1 if the database could be read at this scrape.",
    "",
    Alert(
        "PybrokerDatabaseIsAway",
        "pybroker_database_up == 0",
        "1m",
        "page",
        "Database {{ $labels.database }} can't be read.",
        "The worker's log says why.",
    ),
)
EXPIRY = Metric(
    "certificate_expiry_timestamp_seconds",
    "gauge",
    "dateTimeFromNow",
    "When a registered certificate expires.",
    "",
    Alert(
        "PybrokerCertificateExpires",
        "pybroker_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        "1h",
        "ticket",
        "Certificate {{ $labels.certificate }} in {{ $labels.database }} expires within 14 days.",
        "Register another one, and let the endpoint name it: docs/endpoints.md.",
    ),
)
CERTIFICATES = "select name, certificate_pem from broker.certificates"


def every_metric() -> tuple[tuple[str, Metric, tuple[str, ...]], ...]:
    """Each metric with its heading and its labels, `database` first."""
    found: list[tuple[str, Metric, tuple[str, ...]]] = [("Health", UP, ("database",))]
    found += [(each.title, metric, ("database", *each.labels)) for each in SOURCES for metric in each.metrics]
    found.append(("Certificates", EXPIRY, ("database", "certificate")))
    return tuple(found)
