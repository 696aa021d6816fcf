"""What the functions of `broker_private` return to transport, as plain values; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from pybroker.workers.transport.protocol import arrays

if TYPE_CHECKING:
    from collections.abc import Collection

Encryption = Literal["DISABLED", "SUPPORTED", "REQUIRED"]

# A line of the log names at most so many conversations.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Destination:
    """A row of `transmission_work()`."""

    destination_no: int
    service_name: str
    broker_instance: UUID | None
    address: str | None
    mirror_address: str | None
    is_local: bool
    broker_instances: list[UUID] | None
    is_reply: bool
    is_missing: bool
    problem: str | None
    has_status: bool
    is_stranded: bool


@dataclass(frozen=True, slots=True)
class DialogsToAsk:
    """Open dialogs with other databases, by destination, and where the routes say that is."""

    destination: Destination
    endpoint_nos: list[int]


@dataclass(frozen=True, slots=True)
class Taken:
    """The row of `take()`; all but `kinds` and `priority`, a column `level`, are binary arrays.

    Those from `owners` to `session_keys` say of each dialog what its security is decided by. `priority` is
    None where the broker doesn't honour priorities.
    """

    endpoint_nos: bytes
    conversation_ids: bytes
    from_initiator: bytes
    from_services: bytes
    to_services: bytes
    to_brokers: bytes
    contracts: bytes
    expirations: bytes
    encrypted: bytes
    type_names: bytes
    dialog_index: bytes
    type_index: bytes
    sequence_numbers: bytes
    kinds: str
    bodies: bytes
    row_ids: bytes
    owners: bytes
    far_users: bytes
    bindings: bytes
    established: bytes
    session_keys: bytes
    acknowledged: bytes
    sent_at: bytes
    priority: int | None = None
    # Nothing was odd in it.
    is_plain: bool = False

    def conversations(self, endpoint_nos: Collection[int]) -> list[str]:
        """Return the ids of the first conversations among these, for the log."""
        found = [
            str(UUID(bytes=conversation_id))
            for endpoint_no, conversation_id in zip(
                arrays.to_integers(self.endpoint_nos, arrays.BIGINT),
                arrays.to_elements(self.conversation_ids, arrays.UUID),
                strict=True,
            )
            if endpoint_no in endpoint_nos and conversation_id is not None
        ]
        return found[:_NAMED]


@dataclass(frozen=True, slots=True)
class TakenPlainly:
    """The row of `take_plain()` without its first column; arrays are binary, one element for each message.

    `incarnation`: as long as it is the same, numbers of dialogs and types stand for the same ones. Without
    `kinds` nothing waits.
    """

    from_broker: UUID
    incarnation: str
    priority: int | None
    kinds: str
    row_ids: bytes
    endpoint_nos: bytes
    acknowledged: bytes
    type_ids: bytes
    sent_at: bytes
    bodies: bytes


@dataclass(frozen=True, slots=True)
class Described:
    """The row of `describe_dialogs()`: binary arrays, or None where there is nothing to say.

    `is_fresh`: of some nothing had gone yet, which are held now. Without `endpoint_nos` others hold one.
    """

    is_fresh: bool | None
    type_names: bytes | None
    endpoint_nos: bytes | None
    conversation_ids: bytes
    from_initiator: bytes
    from_services: bytes
    to_services: bytes
    to_brokers: bytes
    contracts: bytes
    expirations: bytes
    encrypted: bytes
    owners: bytes
    far_users: bytes
    bindings: bytes
    established: bytes
    session_keys: bytes


@dataclass(frozen=True, slots=True)
class Securities:
    """How the dialogs of a batch are secured: binary arrays, one element for each dialog.

    Kinds: L from the same worker, N not at all, A anonymous, F full. For F the user whose certificate signed,
    for A the key as the worker wants it kept.
    """

    kinds: bytes
    far_users: bytes
    session_keys: bytes

    @classmethod
    def of_all(cls, kind: str, dialogs: int) -> Securities:
        """Return what says the same, without a user or a key, of this number of dialogs."""
        return cls(
            arrays.from_texts([kind] * dialogs),
            arrays.from_texts([None] * dialogs),
            arrays.from_elements([None] * dialogs, arrays.BYTEA),
        )


@dataclass(frozen=True, slots=True)
class TakenPiece:
    """The row of `take_piece()`: one message with a piece of its body, and where in it that begins."""

    taken: Taken
    piece_at: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The row of `deliver()`: binary arrays, one element for each dialog."""

    next_numbers: bytes
    fault_codes: bytes
    fault_texts: bytes
    fault_is_final: bytes
    stored_bytes: int = 0


@dataclass(frozen=True)
class Endpoint:
    """The row of `worker_endpoint()`."""

    name: str
    state: str
    listener_ip: str
    listener_port: int
    certificate_name: str | None
    certificate_pem: str | None
    encryption: Encryption
    is_message_forwarding_enabled: bool = False
    message_forwarding_size: int = 10


@dataclass(frozen=True)
class KnownCertificate:
    """A row of `worker_certificates()`."""

    name: str
    user_name: str
    certificate_pem: str
    may_connect: bool
    is_active_for_begin_dialog: bool = True
