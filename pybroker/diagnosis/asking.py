"""What the far broker says when it is asked on ServiceDiagnostic: for who can't look into its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from lxml import etree
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from pybroker.diagnosis.findings import Finding

_DEFAULT = "DEFAULT"
if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID


# A worker looks for questions every two seconds, on each side.
PATIENCE = 10.0
_ERROR = "{http://schemas.microsoft.com/SQL/ServiceBroker/Error}"


class Services(NamedTuple):
    """Who is to talk to whom, by which contract; encryption is on, off or anonymous."""

    initiator: str
    target: str
    contract: str = _DEFAULT
    encryption: str = "on"


def ask_about(
    near: psycopg.Connection[Any],
    services: Services,
    conversation_id: UUID | None = None,
    *,
    patience: float = PATIENCE,
) -> list[Finding]:
    """Ask the far broker how a service stands, and return what that tells.

    Args:
        near: the asking database, in autocommit.
        services: who asks whom, and about which contract.
        conversation_id: of a conversation between the two, to be told of too.
        patience: how long to wait for the answer, in seconds.
    """
    try:
        (handle,) = _row(
            near,
            "select broker.query_service(%s, %s, %s, %s, %s)",
            services.initiator,
            services.target,
            services.contract,
            conversation_id,
            services.encryption != "off",
        )
    except psycopg.Error as error:
        return [_not_asked(services, str(error.diag.message_primary))]
    try:
        status = _answer(near, handle, patience)
    except RetryError:
        return [_silent(services, patience)]
    finally:
        near.execute("select broker.end_conversation(%s)", (handle,))
    try:
        told = etree.fromstring(status.encode(), etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        return [_silent(services, patience)]
    return list(_told(services, told))


def ask_about_conversation(
    near: psycopg.Connection[Any], handle: UUID, *, patience: float = PATIENCE
) -> list[Finding]:
    """Ask the far broker about a conversation that was begun in this database; nothing about any other."""
    row = near.execute(
        "select s.name, e.far_service, c.name, e.is_encrypted, e.conversation_id"
        " from broker.conversation_endpoints e"
        " join broker.services s using (service_id)"
        " join broker.service_contracts c using (service_contract_id)"
        " where e.conversation_handle = %s and e.is_initiator and e.state = 'CO'"
        " and not exists (select from broker.services x where x.name = e.far_service)",
        (handle,),
    ).fetchone()
    if row is None:
        return []
    initiator, target, contract, is_encrypted, conversation_id = row
    services = Services(initiator, target, contract, "on" if is_encrypted else "off")
    return ask_about(near, services, conversation_id, patience=patience)


def _answer(near: psycopg.Connection[Any], handle: UUID, patience: float) -> str:
    attempts = Retrying(
        retry=retry_if_result(lambda row: row[0] is None),
        stop=stop_after_delay(patience),
        wait=wait_fixed(0.1),
    )
    (status,) = attempts(_row, near, "select broker.read_status(%s)", handle)
    return str(status)


def _row(near: psycopg.Connection[Any], query: str, *arguments: object) -> tuple[Any, ...]:
    row: tuple[Any, ...] = near.execute(query.encode(), arguments).fetchall()[0]
    return row


def _told(services: Services, status: etree._Element) -> Iterator[Finding]:
    if status.tag == f"{_ERROR}Error":
        code, text = (status.findtext(f"{_ERROR}{name}", "") for name in ("Code", "Description"))
        yield Finding(
            507,
            "error",
            services.target,
            f'The far broker refuses dialogs to the service "{services.target}": {text} ({code})',
            "A dialog to it ends with the same Error. Who owns the far database must act.",
        )
        return
    if status.findtext("QueueAcceptsMessages") == "false":
        yield Finding(
            316,
            "error",
            services.target,
            f'The far broker says that the queue of the service "{services.target}" takes no messages.',
            "What is sent to it waits here. The far queue's owner must turn it on.",
        )
    if status.findtext("ContractAccepted") == "false":
        yield Finding(
            503,
            "error",
            services.target,
            f'The far broker says that "{services.target}" refuses the contract "{services.contract}".',
            "It refuses every dialog on it with an Error (8408). The far service's owner must add it.",
        )
    state = status.findtext("ConversationState")
    if state is not None:
        arrived = status.findtext("ArrivedInOrder")
        messages = "" if arrived is None else f", and {arrived} messages have arrived there in order"
        yield Finding(
            417,
            "information",
            services.target,
            f"The far broker says that the conversation is in state {state} there{messages}.",
            "What has arrived there is no longer this side's to send.",
        )


def _silent(services: Services, patience: float) -> Finding:
    return Finding(
        509,
        "warning",
        services.target,
        f'The far broker of the service "{services.target}" has not answered within {patience:g} s.',
        "Its worker may be away, the way to it may be closed, or no worker serves this database. Give"
        " --far-database-url, if you may look into its database.",
    )


def _not_asked(services: Services, reason: str) -> Finding:
    return Finding(
        901,
        "information",
        services.target,
        f"The far broker was not asked: {reason}",
        "A question goes out with the rights of the service that asks: those to receive from its queue.",
    )
