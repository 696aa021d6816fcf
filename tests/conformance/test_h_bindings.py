"""Remote service bindings, and who may SEND from another worker: rows 119, 120, 122 and 128 as far as a database decides them.

The test plays the far worker: it brings batches as `deliver` gets them once a worker has opened them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.shop import ERROR

if TYPE_CHECKING:
    from uuid import UUID

    from tests.shop import Session, Shop

BIND = "select broker.create_remote_service_binding(%s, %s, %s)"
FAR = uuid.UUID(int=1)
KEY, OTHER_KEY = bytes(16) + b"wrapped once", bytes(range(16)) + b"wrapped"


class FarWorker:
    """Brings messages of one dialog, secured as the test says."""

    def __init__(
        self, psql: Session, conversation: UUID | None = None, *, to_initiator: bool = False
    ) -> None:
        self.psql = psql
        self.conversation = conversation or uuid.uuid4()
        self.to_initiator = to_initiator

    def bring(
        self,
        number: int,
        kind: str,
        user: str | None = None,
        key: bytes | None = None,
        *,
        to_broker: UUID | None = None,
        piece: bool = False,
    ) -> tuple[int, int | None, bool]:
        """Bring a message, or a piece of one; return what is expected next, and the fault with whether it is final."""
        function, of_piece = ("deliver_piece", ", 0, 2") if piece else ("deliver", "")
        services = ("//far", "//shop") if self.to_initiator else ("//far", "//warehouse")
        ((next_numbers, codes, final),) = self.psql.rows(
            f"select next_numbers, fault_codes, fault_is_final from broker_private.{function}(%s, array[%s], array[%s],"
            " array[%s], array[%s], array[%s::uuid], '{ordering}', array[now() + interval '1 h'], '{true}', array[%s],"
            f" '{{1}}', '{{1}}', array[%s]::bigint[], 'M', array['x'::bytea]{of_piece}, array[%s], array[%s], array[%s::bytea])",
            FAR,
            self.conversation,
            not self.to_initiator,
            *services,
            to_broker,
            "ack" if self.to_initiator else "order",
            number,
            kind,
            user,
            key,
        )
        return next_numbers[0], codes[0], final[0]


def taken(
    psql: Session, columns: str = "owners, far_users, bindings, established, session_keys"
) -> list[object]:
    """Return these columns of the only dialog that waits for another worker."""
    ((place,),) = psql.rows("select destination_no from broker_private.transmission_work()")
    (row,) = psql.rows(f"select {columns} from broker_private.take(%s, 0, 1, 10, 10000, '{{}}')", place)
    return [array[0] for array in row]


def begun(psql: Session, **options: object) -> tuple[UUID, int]:
    """Begin a dialog to the far service and send on it; return its conversation and its endpoint."""
    extra = "".join(f", {name} => %s" for name in options)
    handle = psql.value(
        f"select broker.begin_dialog('//shop', '//far', 'ordering'{extra})", *options.values()
    )
    psql.send(handle)
    ((conversation, endpoint),) = psql.rows(
        "select conversation_id, endpoint_no from broker_private.endpoints where conversation_handle = %s",
        handle,
    )
    return conversation, endpoint


def note(psql: Session, endpoint: int, kind: str, key: bytes | None = None) -> None:
    psql.rows(
        "select broker_private.note_dialog_security(array[%s::bigint], array[%s], array[%s::bytea])",
        endpoint,
        kind,
        key,
    )


@pytest.fixture
def psql(shop: Shop) -> Session:
    shop.psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:9', service_name => '//far')")
    return shop.psql


def test_row_119_a_binding_names_the_user_of_a_far_service(psql: Session) -> None:
    psql.rows(BIND, "far", "//far", "far_user")
    shown = "select name, remote_service_name, remote_principal_id, service_contract_id, is_anonymous_on from broker.remote_service_bindings"
    assert psql.rows(shown) == [("far", "//far", "far_user", 0, False)]
    assert psql.refused(BIND, "other", "//far", "far_user") == "S9619"
    assert psql.refused(BIND, "far", "//other", "far_user") == "S2714"
    for user, number in (("public", "T8083"), ("pg_monitor", "T8089")):
        assert psql.refused(BIND, "other", "//other", user) == number
    psql.rows("select broker.alter_remote_service_binding('far', user_name => 'new_user')")
    psql.rows("select broker.alter_remote_service_binding('far', anonymous => true)")
    assert psql.rows(shown) == [("far", "//far", "new_user", 0, True)]
    psql.rows("select broker.drop_remote_service_binding('far')")
    assert psql.refused("select broker.drop_remote_service_binding('far')") == "S0208"
    psql.rows(BIND, "again", "//far", "far_user")


def test_row_119_a_group_owns_no_certificate_and_nobody_binds_to_another(shop: Shop) -> None:
    psql, group, clerk = shop.psql, shop.database.role("nologin"), shop.database.role()
    psql.rows(BIND, "empty", "//empty", group)
    psql.rows(f"grant {group} to {clerk}")
    assert psql.refused(BIND, "far", "//far", group) == "T8083"
    user = shop.session(user=clerk)
    psql.rows(f"grant create on database {shop.database.name} to {clerk}")
    assert user.refused(BIND, "far", "//far", "far_user") == "S0229"
    user.rows(BIND, "own", "//far", clerk)
    assert (
        user.refused("select broker.alter_remote_service_binding('own', user_name => 'far_user')") == "S0229"
    )
    assert user.refused("select broker.drop_remote_service_binding('empty')") == "S0229"
    user.rows("select broker.drop_remote_service_binding('own')")


def test_a_role_with_only_a_login_can_t_stop_everybody_s_clear_dialogs_by_a_binding(
    shop: Shop, psql: Session
) -> None:
    clerk = shop.database.role()
    user = shop.session(user=clerk)
    for anonymous in (False, True):
        assert user.refused(f"{BIND[:-1]}, %s)", "mine", "//far", clerk, anonymous) == "S0229"
    begun(psql, encryption=False)
    assert taken(psql, "bindings") == [None], "it would be held with 9730: the clerk has no certificate"
    psql.rows(f"grant create on database {shop.database.name} to {clerk}")
    user.rows(BIND, "mine", "//elsewhere", clerk)


def test_rows_120_122_take_says_what_the_security_of_a_dialog_is_decided_by(psql: Session) -> None:
    owner = psql.value("select owner from broker_private.services where name = '//shop'")
    _, endpoint = begun(psql)
    assert taken(psql) == [owner, None, None, None, None]
    psql.rows(BIND, "far", "//far", "far_user")
    assert taken(psql) == [owner, "far_user", "F", None, None]
    psql.rows("select broker.alter_remote_service_binding('far', anonymous => true)")
    assert taken(psql) == [owner, "far_user", "A", None, None]
    note(psql, endpoint, "A", b"12345678")
    note(psql, endpoint, "N")
    psql.rows("select broker.drop_remote_service_binding('far')")
    assert taken(psql) == [owner, None, None, "A", b"12345678"], (
        "what was decided stays, whatever is bound later"
    )


def test_row_128_without_full_security_public_needs_send(psql: Session) -> None:
    for kind, key in (("N", None), ("A", KEY)):
        assert FarWorker(psql).bring(0, kind, key=key) == (0, -8494, True)
        assert FarWorker(psql).bring(0, kind, key=key, piece=True) == (0, -8494, True)
    assert psql.rows("select from broker.conversation_endpoints") == []
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'far_user')")
    assert FarWorker(psql).bring(0, "N") == (0, -8494, True), "without a certificate he is nobody"
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
    dialog = FarWorker(psql)
    assert dialog.bring(0, "A", key=KEY) == (1, None, False)
    assert FarWorker(psql).bring(0, "F", "anybody") == (1, None, False)
    psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', 'public')")
    assert FarWorker(psql).bring(0, "N") == (0, -8494, True)
    assert dialog.bring(1, "A", key=KEY) == (2, None, False), "a dialog that is open stays open"


def test_row_128_with_full_security_the_user_of_the_certificate_needs_send(psql: Session) -> None:
    assert FarWorker(psql).bring(0, "F", "far_user") == (0, -8494, True)
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'far_user')")
    assert FarWorker(psql).bring(0, "F", "far_user") == (1, None, False)
    assert FarWorker(psql).bring(0, "F", "far_user", piece=True) == (0, None, False)
    assert FarWorker(psql).bring(0, "F", "other_user") == (0, -8494, True)
    psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', 'far_user')")
    assert FarWorker(psql).bring(0, "F", "far_user") == (0, -8494, True)


def test_row_121_a_database_of_the_same_worker_is_asked_for_no_right(psql: Session) -> None:
    assert FarWorker(psql).bring(0, "L") == (1, None, False)


@pytest.mark.parametrize("piece", [False, True])
def test_row_120_a_target_takes_a_dialog_only_as_it_was_opened(psql: Session, *, piece: bool) -> None:
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
    refused = (0, -9736, False)
    full, anonymous = FarWorker(psql), FarWorker(psql)
    assert full.bring(0, "F", "far_user") == (1, None, False)
    for kind, user in (("N", None), ("A", None), ("F", "other_user")):
        assert full.bring(1, kind, user, KEY, piece=piece) == refused
    assert anonymous.bring(0, "A", key=KEY) == (1, None, False)
    assert anonymous.bring(1, "A", key=OTHER_KEY, piece=piece) == refused, (
        "whoever saw a dialog has not its key"
    )
    assert anonymous.bring(1, "A", key=KEY[:16] + b"wrapped anew") == (2, None, False)
    assert full.bring(1, "F", "far_user") == (2, None, False)
    shown = "select far_principal_id, inbound_session_key_identifier from broker.conversation_endpoints where conversation_id = %s"
    assert psql.rows(shown, full.conversation) == [("far_user", None)]
    assert psql.rows(shown, anonymous.conversation) == [("public", uuid.UUID(bytes=KEY[:16]))]
    psql.rows("update broker_private.endpoints set local_end = 'E', closed_at = now() - interval '1 day'")
    psql.rows("select broker_private.sweep()")
    assert psql.rows("select from broker_private.dialog_security") == []


def test_row_120_an_initiator_takes_only_what_it_has_decided(psql: Session) -> None:
    psql.rows(BIND, "far", "//far", "far_user")
    conversation, endpoint = begun(psql)
    far = FarWorker(psql, conversation, to_initiator=True)
    assert far.bring(0, "N") == (0, -9736, False)
    note(psql, endpoint, "F")
    for kind, user in (("N", None), ("A", None), ("F", "other_user"), ("F", None)):
        assert far.bring(0, kind, user, KEY) == (0, -9736, False)
    known = "select from broker_private.far_events where event = 'B'"
    assert psql.rows(known) == [], "nobody becomes the dialog's broker by what is refused"
    assert far.bring(0, "F", "far_user") == (1, None, False)
    psql.rows("select broker.drop_remote_service_binding('far')")
    assert far.bring(1, "F", "far_user") == (0, -9736, False)
    psql.rows(BIND, "far", "//far", "far_user")
    assert far.bring(1, "F", "far_user") == (2, None, False)


def test_row_120_a_dialog_whose_database_moved_to_another_worker_is_secured_from_then_on(
    psql: Session,
) -> None:
    clear, _ = begun(psql, encryption=False)
    assert FarWorker(psql, clear, to_initiator=True).bring(0, "N") == (1, None, False)
    encrypted, _ = begun(psql)
    assert FarWorker(psql, encrypted, to_initiator=True).bring(0, "N") == (0, -9736, False)
    target = FarWorker(psql)
    assert target.bring(0, "L") == (1, None, False)
    assert target.bring(1, "N") == (0, -9736, False), "it is with ENCRYPTION ON"
    assert target.bring(1, "F", "far_user") == (0, -9736, False), "he may not SEND"
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'far_user')")
    assert target.bring(1, "F", "far_user") == (2, None, False)
    assert target.bring(2, "F", "other_user") == (0, -9736, False)
    assert target.bring(2, "L") == (3, None, False)


def test_row_108_what_is_for_another_broker_instance_lies_on_no_dialog(psql: Session) -> None:
    guid = psql.value("select service_broker_guid from broker.databases")
    far = FarWorker(psql)
    assert far.bring(0, "L", to_broker=guid) == (1, None, False)
    for piece in (False, True):
        assert far.bring(1, "L", to_broker=uuid.uuid4(), piece=piece) == (0, -9795, False)
    assert far.bring(1, "L", to_broker=guid) == (2, None, False)


def test_row_128_an_error_says_that_send_is_missing(psql: Session) -> None:
    _, endpoint = begun(psql)
    psql.rows(
        "select broker_private.fail_dialogs(array[%s::bigint], '{-8494}', '{You do not have permission.}')",
        endpoint,
    )
    ((kind, _, body),) = psql.receive("shop")
    assert kind == ERROR
    assert b"<Code>-8494</Code>" in (body or b"")
