"""Every finding by its number: the table in docs/diagnose.md is made from here.

A number is never given to anything else. Hundreds are families: 0 the connection, 1 the database,
2 queues, 3 the way to another service, 4 conversations, 5 the settings of two sides, 9 the diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What one number stands for.

    Attributes:
        number: its number for good.
        level: error, warning or information; the gravest that it has.
        title: what is wrong.
        mend: what `pybroker diagnose` prints to mend it.
        service_broker: Service Broker's numbers for it, as far as there are some.
        runs_unasked: whether `--fix --yes` runs what mends it: again and again, against nobody's choice.
        is_far: whether what `broker.diagnose` prints is for the far database.
    """

    number: int
    level: str
    title: str
    mend: str
    service_broker: str = ""
    runs_unasked: bool = False
    is_far: bool = False


KINDS = {
    kind.number: kind
    for kind in (
        Kind(1, "error", "the database can't be reached", "who must act: whoever runs the server"),
        Kind(2, "error", "pybroker is not installed in the database", "`pybroker migrate`"),
        Kind(3, "error", "the database is newer than the package", "`pip install 'pybroker>=…'`"),
        Kind(4, "error", "the database is older than the package", "`pybroker migrate`"),
        Kind(
            5,
            "error",
            "the tables of pybroker lack their rows, as after a dump of the schema alone",
            "`pybroker migrate`",
        ),
        Kind(101, "error", "the broker is disabled", "`alter_broker('ENABLE_BROKER')`", "9791"),
        Kind(
            102,
            "error",
            "the database is a copy",
            "`alter_broker` with ENABLE_BROKER or NEW_BROKER: a choice, destructive",
            "9773",
        ),
        Kind(103, "error", "no worker serves the database, and messages wait", "`pybroker worker`"),
        Kind(
            104, "warning", "a prepared transaction older than 5 minutes", "`rollback prepared`, destructive"
        ),
        Kind(105, "warning", "an old snapshot, older than 10 minutes", "`pg_terminate_backend`, destructive"),
        Kind(
            106,
            "warning",
            "autovacuum is off for a table of the broker",
            "`alter table … reset`",
            runs_unasked=True,
        ),
        Kind(
            107, "information", "priorities are not honored", "`alter_broker(honor_broker_priority => true)`"
        ),
        Kind(108, "warning", "the endpoint is stopped or disabled", "`alter_endpoint`", "9666"),
        Kind(
            109,
            "warning",
            "an event notification has lost its conversation",
            "drop it and create it again; its owner must act",
            "17003 to 17005",
        ),
        Kind(110, "error", "a schema collection can't be read", "who must act: its owner"),
        Kind(
            111,
            "error",
            "the owner of an object was dropped",
            "`alter_authorization`; of a service with its role",
        ),
        Kind(
            112,
            "warning",
            "a certificate expires within 30 days",
            "`create_certificate`, with its PEM, and `alter_endpoint`",
            "28025",
        ),
        Kind(
            113,
            "error",
            "somebody has rights that the broker did not give",
            "`set_rights()`",
            runs_unasked=True,
        ),
        Kind(
            114,
            "warning",
            "a publication holds the broker's tables",
            "the publication of all other schemas, destructive",
        ),
        Kind(
            115,
            "warning",
            "a session holds a conversation that others wait for",
            "`pg_terminate_backend`, destructive",
        ),
        Kind(116, "error", "the server's disk is full", "who must act: whoever runs the server"),
        Kind(117, "error", "a task of the worker fails", "who must act: whom the text names"),
        Kind(201, "error", "a queue is off after five rollbacks", "`alter_queue(status => true)`", "8471"),
        Kind(202, "information", "a queue was turned off by hand", "`alter_queue(status => true)`"),
        Kind(
            203,
            "warning",
            "messages wait for a queue that was turned off",
            "`alter_queue(status => true)`",
            "9749",
        ),
        Kind(
            204,
            "error",
            "the activation procedure can't be called",
            "who must act: the queue's owner",
            "9614, 9620, 9653",
        ),
        Kind(205, "information", "activation is off", "`alter_queue(activation_status => true)`"),
        Kind(206, "error", "the activation procedure may not be run", "who must act: the procedure's owner"),
        Kind(
            207, "error", "the activation procedure fails", "who must act: the queue's owner", "28087, 28088"
        ),
        Kind(
            208,
            "error",
            "messages wait, and its readers do not take them, or none may be started",
            "`alter_queue(max_queue_readers => …)`",
        ),
        Kind(
            209,
            "error",
            "the role of the activation procedure was dropped",
            "`alter_queue(execute_as => …)`, with its role",
        ),
        Kind(
            210,
            "warning",
            "a session holds the first conversation group",
            "`pg_terminate_backend`, destructive",
        ),
        Kind(
            211,
            "error",
            "messages wait, and no program reads the queue, or it is too slow",
            "who must act: who runs the program",
        ),
        Kind(301, "error", "no route matches the service", "`create_route`, with its address", "9750"),
        Kind(
            302, "warning", "the dynamic routing service has not answered", "who must act: its owner", "9770"
        ),
        Kind(
            303,
            "error",
            "the service is not here, and no route names it",
            "`create_route`, with its address",
            "9793",
        ),
        Kind(
            304,
            "error",
            "the route is LOCAL, and the service is not here",
            "`alter_route`, with its address",
            "9796",
        ),
        Kind(
            305,
            "error",
            "the address refuses, is silent or has no host",
            "the far worker's operator, or `alter_route`, with its address",
            "9754, 9783, 28017",
        ),
        Kind(
            306,
            "error",
            "CONNECT is not granted",
            "`grant`, with its name and user, in the far database",
            "28034",
            is_far=True,
        ),
        Kind(307, "error", "a certificate is unknown", "who must act: the far database's owner", "28045"),
        Kind(308, "error", "a certificate is not valid now", "who must act: its owner", "28024, 28025"),
        Kind(
            309,
            "error",
            "the endpoint has no usable certificate",
            "who must act: the endpoint's owner",
            "28036, 28037",
        ),
        Kind(310, "error", "there is no endpoint", "who must act: the database's owner", "9748"),
        Kind(311, "error", "an endpoint is stopped, and messages wait", "`alter_endpoint`", "9666"),
        Kind(
            312,
            "error",
            "there is no remote service binding",
            "`create_remote_service_binding`, with its user",
            "9727",
        ),
        Kind(
            313,
            "error",
            "a dialog has no usable certificate or key",
            "who must act: the user's owner",
            "9730, 9731, 9767",
        ),
        Kind(
            314,
            "error",
            "the broker instance is not where the route leads",
            "who must act: the route's owner",
            "9795",
        ),
        Kind(
            315,
            "error",
            "the encryption settings do not meet",
            "who must act: both endpoints' owners",
            "28027",
        ),
        Kind(316, "error", "the far queue is off", "who must act: the far queue's owner", "9749"),
        Kind(317, "error", "forwarding is off on the way", "who must act: the forwarder's owner", "9792"),
        Kind(320, "warning", "the lifetime of a route is over", "`alter_route(lifetime => …)`"),
        Kind(
            321,
            "error",
            "the lifetime of a route is over, and messages wait",
            "`alter_route(lifetime => …)`",
            "9750, 9793",
        ),
        Kind(
            322,
            "warning",
            "the user of a binding has no certificate",
            "`create_certificate`, with its PEM",
            "9730",
        ),
        Kind(
            399,
            "error",
            "messages wait for another reason, which it names",
            "who must act: whom the text names",
        ),
        Kind(401, "error", "conversations are quarantined, by queue and error", "`redrive`"),
        Kind(403, "warning", "the lifetime of conversations is over", "`end_conversation`, destructive"),
        Kind(
            404,
            "information",
            "a service has more than 1,000 open conversations, or more than 100 that nobody ends",
            "who must act: its programs",
        ),
        Kind(410, "error", "the conversation is not here, or may not be seen", "who must act: the caller"),
        Kind(
            411, "information", "the far side has ended the conversation", "`end_conversation`, destructive"
        ),
        Kind(412, "error", "the conversation is in error", "`end_conversation`, destructive"),
        Kind(413, "information", "this side has ended the conversation", "nothing to mend"),
        Kind(414, "information", "nothing was sent on the conversation", "who must act: its program"),
        Kind(
            415,
            "information",
            "a message has arrived, and nobody has received it",
            "who must act: the queue's reader",
        ),
        Kind(
            416,
            "warning",
            "a message before those that came is missing",
            "who must act: the far worker's operator",
        ),
        Kind(417, "information", "what the far broker says of the conversation", "nothing to mend"),
        Kind(418, "information", "a message failed, and is tried again later", "nothing to mend"),
        Kind(501, "error", "there is no such service", "`create_service`", "8407"),
        Kind(502, "error", "the contract does not exist", "`create_contract`", "8408"),
        Kind(
            503,
            "error",
            "the target service does not accept the contract",
            "`alter_service(add_contracts => …)`",
            "8408",
        ),
        Kind(
            504,
            "error",
            "the contract has other message types on the two sides",
            "who must act: both owners",
            "8498",
        ),
        Kind(
            505,
            "error",
            "a message type has another validation on the two sides",
            "`alter_message_type` where there is none, else a choice",
            "9615",
        ),
        Kind(
            506,
            "error",
            "no route leads to the service",
            "`create_route`, with its address",
            "9750, 9793, 9796",
        ),
        Kind(
            507,
            "error",
            "the far broker refuses dialogs to the service",
            "`grant`, with its user, in the far database; or who must act: its owner",
            "8408, 8425, 8494",
        ),
        Kind(
            508,
            "error",
            "an encrypted dialog has no remote service binding",
            "`create_remote_service_binding`, with its user",
            "9727",
        ),
        Kind(
            509,
            "warning",
            "the far broker has not answered",
            "who must act: the far worker's operator",
        ),
        Kind(
            901,
            "information",
            "what the role could not see, or what is not shown",
            "run it as the database's owner, or mend the rest first",
        ),
    )
}


def table() -> str:
    """Return the table of docs/diagnose.md."""
    rows = [
        f"| {kind.number} | {kind.level} | {kind.title} | {kind.mend} | {kind.service_broker} |"
        for kind in KINDS.values()
    ]
    return "\n".join(
        [
            "| number | level | what it says | what mends it | Service Broker's number |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
