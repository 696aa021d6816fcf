"""Who may do what: row 129, which is the table of statements and the rights they need, with edge cases 86 and 92.

A role that has nothing but a login tries each statement, gets the right, and loses it again.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from tests.conftest import migrated_database
from tests.shop import ERROR, Session, Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

PEM = "-----BEGIN CERTIFICATE-----\n" + "MIIB" * 60 + "\n-----END CERTIFICATE-----\n"
OWNER_OF_THE_DATABASE = (
    "alter database {database} owner to {clerk}",
    "alter database {database} owner to postgres",
)
CREATE = (
    "grant create on database {database} to {clerk}; grant create on schema public to {clerk}",
    "revoke create on database {database} from {clerk}",
)


def granted(permission: str, kind: str, name: str) -> tuple[str, str]:
    """What gives a permission, and what takes it."""
    arguments = f"('{permission}', '{kind}', '{name}', '{{clerk}}')"
    return f"select broker.grant{arguments}", f"select broker.revoke{arguments}"


def owned(kind: str, name: str) -> tuple[str, str]:
    arguments = f"'{kind}', '{name}'"
    return (
        f"select broker.alter_authorization({arguments}, '{{clerk}}')",
        f"select broker.alter_authorization({arguments}, 'postgres')",
    )


class Right(NamedTuple):
    """A statement, what gives the right to it, and what takes that away."""

    statement: str
    give: str
    take: str
    number: str = "S0229"


RECEIVE_SHOP = granted("RECEIVE", "QUEUE", "shop")
RECEIVE_WAREHOUSE = granted("RECEIVE", "QUEUE", "warehouse")
RIGHTS = {
    "create message type": Right("select broker.create_message_type('mine')", *CREATE),
    "create contract": Right("select broker.create_contract('mine', '{order}')", *CREATE),
    "create contract: the type": Right(
        "select broker.create_contract('mine', '{spare}')",
        f"{CREATE[0]}; {granted('REFERENCES', 'MESSAGE TYPE', 'spare')[0]}",
        granted("REFERENCES", "MESSAGE TYPE", "spare")[1],
    ),
    "create contract: a type for all": Right(
        "select broker.create_contract('mine', '{spare}')",
        f"{CREATE[0]}; select broker.grant('REFERENCES', 'MESSAGE TYPE', 'spare', 'public')",
        "select broker.revoke('REFERENCES', 'MESSAGE TYPE', 'spare', 'public')",
    ),
    "create queue": Right("select broker.create_queue('mine', schema => 'public')", *CREATE),
    "create route": Right("select broker.create_route('mine', 'LOCAL')", *CREATE),
    "create service on a queue of another": Right(
        "select broker.create_service('mine', 'shop')",
        f"{CREATE[0]}; {owned('QUEUE', 'shop')[0]}",
        owned("QUEUE", "shop")[1],
    ),
    "create service with a contract of another": Right(
        "select broker.create_queue('mine', schema => 'public'), broker.create_service('mine', 'mine', '{ordering}')",
        f"{CREATE[0]}; {granted('REFERENCES', 'CONTRACT', 'ordering')[0]}",
        granted("REFERENCES", "CONTRACT", "ordering")[1],
    ),
    "create remote service binding": Right(
        "select broker.create_remote_service_binding('mine', '//new', 'somebody')", *OWNER_OF_THE_DATABASE
    ),
    "create for another owner": Right(
        "select broker.create_message_type('mine', owner => '{group}')",
        f"{CREATE[0]}; grant {{group}} to {{clerk}}",
        "revoke {group} from {clerk}",
    ),
    "create broker priority": Right("select broker.create_broker_priority('mine')", *OWNER_OF_THE_DATABASE),
    "create certificate": Right(
        f"select broker.create_certificate('mine', '{PEM}', 'me')", *OWNER_OF_THE_DATABASE
    ),
    "alter certificate": Right(
        "select broker.alter_certificate('mine', false)",
        f"select broker.create_certificate('mine', '{PEM}', 'me'); {OWNER_OF_THE_DATABASE[0]}",
        OWNER_OF_THE_DATABASE[1],
    ),
    "create endpoint": Right("select broker.create_endpoint('mine', 4022)", *OWNER_OF_THE_DATABASE),
    "alter broker": Right("select broker.alter_broker('DISABLE_BROKER')", *OWNER_OF_THE_DATABASE),
    "alter message type": Right(
        "select broker.alter_message_type('order', 'EMPTY')", *owned("MESSAGE TYPE", "order")
    ),
    "drop message type": Right("select broker.drop_message_type('spare')", *owned("MESSAGE TYPE", "spare")),
    "drop contract": Right("select broker.drop_contract('spare')", *owned("CONTRACT", "spare")),
    "alter queue": Right("select broker.alter_queue('shop', status => false)", *owned("QUEUE", "shop")),
    "drop queue": Right(
        "select broker.drop_queue('spare')",
        f"{owned('QUEUE', 'spare')[0]}; alter view spare owner to {{clerk}}",
        owned("QUEUE", "spare")[1],
    ),
    "alter service": Right(
        "select broker.alter_service('//warehouse', drop_contracts => '{ordering}')",
        *owned("SERVICE", "//warehouse"),
    ),
    "drop service": Right("select broker.drop_service('//warehouse')", *owned("SERVICE", "//warehouse")),
    "alter route": Right("select broker.alter_route('far', 'tcp://other:4022')", *owned("ROUTE", "far")),
    "alter remote service binding": Right(
        "select broker.alter_remote_service_binding('far', anonymous => true)",
        *owned("REMOTE SERVICE BINDING", "far"),
    ),
    "drop remote service binding": Right(
        "select broker.drop_remote_service_binding('far')", *owned("REMOTE SERVICE BINDING", "far")
    ),
    "drop route": Right("select broker.drop_route('far')", *owned("ROUTE", "far")),
    "alter authorization": Right(
        "select broker.alter_authorization('QUEUE', 'shop', '{clerk}')", *owned("QUEUE", "shop")
    ),
    "grant": Right("select broker.grant('RECEIVE', 'QUEUE', 'shop', 'public')", *owned("QUEUE", "shop")),
    "revoke": Right(
        "select broker.revoke('SEND', 'SERVICE', '//shop', 'public')", *owned("SERVICE", "//shop")
    ),
    "begin dialog: the queue": Right(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering')",
        f"{RECEIVE_SHOP[0]}; {granted('REFERENCES', 'CONTRACT', 'ordering')[0]}",
        RECEIVE_SHOP[1],
    ),
    "begin dialog: the contract": Right(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering')",
        f"{RECEIVE_SHOP[0]}; {granted('REFERENCES', 'CONTRACT', 'ordering')[0]}",
        granted("REFERENCES", "CONTRACT", "ordering")[1],
    ),
    "send": Right("select broker.send('{dialog}', 'order')", *RECEIVE_SHOP),
    "send on many": Right("select broker.send_all(array['{dialog}']::uuid[], 'order')", *RECEIVE_SHOP),
    "send a batch": Right("select broker.send_batch('{dialog}', 'order', array['x'::bytea])", *RECEIVE_SHOP),
    "receive": Right("select broker.receive('warehouse')", *RECEIVE_WAREHOUSE),
    "receive groups": Right("select broker.receive_groups('warehouse', 2)", *RECEIVE_WAREHOUSE),
    "get conversation group": Right("select broker.get_conversation_group('warehouse')", *RECEIVE_WAREHOUSE),
    "transmission status": Right("select broker.get_transmission_status('{dialog}')", *RECEIVE_SHOP),
    "end conversation": Right("select broker.end_conversation('{dialog}')", *owned("SERVICE", "//shop")),
    "end conversation with cleanup": Right(
        "select broker.end_conversation('{dialog}', cleanup => true)", *owned("SERVICE", "//shop")
    ),
    "cleanup of a closed conversation": Right(
        "select broker.end_conversation('{closed}', cleanup => true)",
        f"{OWNER_OF_THE_DATABASE[0]}; {owned('SERVICE', '//warehouse')[0]}",
        OWNER_OF_THE_DATABASE[1],
        "T8006",
    ),
    "move conversation": Right(
        "select broker.move_conversation('{dialog}', '{other}')", *owned("SERVICE", "//shop")
    ),
    "conversation timer": Right(
        "select broker.begin_conversation_timer('{dialog}', '1 s')", *granted("SEND", "SERVICE", "//shop")
    ),
    "peek": Right("select broker.peek('warehouse')", *RECEIVE_WAREHOUSE),
    "ask about a service": Right("select broker.query_service('//shop', '//warehouse')", *RECEIVE_SHOP),
    "queue groups": Right("select broker.queue_groups('warehouse')", *RECEIVE_WAREHOUSE),
    "note a failure": Right("select broker.note_failure('{dialog}', 'why')", *RECEIVE_SHOP),
    "sleep on a queue": Right("select broker.sleep_on('spare')", *granted("RECEIVE", "QUEUE", "spare")),
    "create event notification": Right(
        "select broker.create_event_notification('mine', 'warehouse', 'BROKER_QUEUE_DISABLED', '//nowhere')",
        *owned("QUEUE", "warehouse"),
    ),
    "create event notification to a service of another": Right(
        "select broker.create_event_notification('mine', 'warehouse', 'BROKER_QUEUE_DISABLED', '//shop')",
        f"{owned('QUEUE', 'warehouse')[0]}; {granted('SEND', 'SERVICE', '//shop')[0]}",
        granted("SEND", "SERVICE", "//shop")[1],
    ),
    "let a procedure run as another": Right(
        "select broker.alter_queue('spare', activation_procedure => 'public.program', max_queue_readers => 1,"
        " execute_as => '{group}')",
        f"{owned('QUEUE', 'spare')[0]}; grant {{group}} to {{clerk}}",
        "revoke {group} from {clerk}",
    ),
}


class Place:
    """A database, a role with nothing but a login, and a group that it is no member of."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.psql = psql = shop.psql
        psql.rows("create procedure program() language sql as ''")
        psql.rows("select broker.create_message_type('spare'), broker.create_contract('spare', '{order}')")
        psql.rows("select broker.revoke('REFERENCES', 'MESSAGE TYPE', 'spare', 'public')")
        psql.rows(
            "select broker.create_queue('spare'), broker.create_route('far', 'tcp://far:4022', '//far')"
        )
        psql.rows("select broker.create_remote_service_binding('far', '//far', 'far_user')")
        dialog, other, closed = psql.dialog(), psql.dialog(), psql.dialog()
        psql.send(closed)
        target = psql.handle_of(closed)
        psql.end(target)
        psql.end(closed)
        psql.send(dialog, "order", b"secret")
        group = (
            "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s"
        )
        self.names = {
            "database": shop.database.name,
            "clerk": shop.database.role(),
            "group": shop.database.role("nologin"),
            "dialog": str(dialog),
            "closed": str(target),
            "other": str(psql.value(group, other)),
        }

    def filled(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def run(self, text: str) -> None:
        self.psql.rows(self.filled(text))

    def sqlstate(self, statement: str) -> str | None:
        """Run a statement as the clerk, take back what it did, and return how it was refused."""
        try:
            with self.psql.connection.transaction(force_rollback=True), self.as_clerk():
                self.run(statement)
        except psycopg.Error as error:
            # A refusal says what to do.
            return error.sqlstate if error.diag.message_hint else None
        return None

    @contextmanager
    def as_clerk(self) -> Iterator[None]:
        with self.psql.connection.transaction():
            self.run("set local role {clerk}")
            yield
            self.run("reset role")


@pytest.fixture(scope="module")
def place(any_server: EmbeddedServer) -> Iterator[Place]:
    shop = Shop(migrated_database(any_server, f"permissions_{uuid.uuid4().hex[:8]}"))
    yield Place(shop)
    shop.close()


@pytest.fixture
def undo(place: Place) -> Iterator[None]:
    """Take everything back that a test did."""
    with place.psql.connection.transaction(force_rollback=True):
        yield


@pytest.mark.usefixtures("undo")
@pytest.mark.parametrize("right", RIGHTS.values(), ids=RIGHTS)
def test_row_129_a_statement_needs_its_right_and_no_more(place: Place, right: Right) -> None:
    assert place.sqlstate(right.statement) == "S0229"
    place.run(right.give)
    assert place.sqlstate(right.statement) is None
    place.run(right.take)
    assert place.sqlstate(right.statement) == right.number


@pytest.mark.usefixtures("undo")
@pytest.mark.parametrize("grantee", ["{group}", "public"])
def test_row_129_a_role_has_what_its_groups_and_public_have(place: Place, grantee: str) -> None:
    place.run("grant {group} to {clerk}")
    place.run(f"select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{grantee}')")
    assert place.sqlstate("select broker.receive('warehouse')") is None
    place.run(f"select broker.revoke('RECEIVE', 'QUEUE', 'warehouse', '{grantee}')")
    assert place.sqlstate("select broker.receive('warehouse')") == "S0229"


@pytest.mark.usefixtures("undo")
def test_row_129_a_principal_need_not_be_a_role(place: Place) -> None:
    place.run(
        f"select broker.create_endpoint('worker', 4022); select broker.create_certificate('far', '{PEM}', 'far worker')"
    )
    connects = "select user_name, may_connect from broker_private.worker_certificates()"
    assert place.psql.rows(connects) == [("far worker", False)]
    place.run("select broker.grant('CONNECT', 'ENDPOINT', 'worker', 'far worker')")
    assert place.psql.rows(connects) == [("far worker", True)]
    place.run("select broker.revoke('CONNECT', 'ENDPOINT', 'worker', 'far worker')")
    assert place.psql.rows(connects) == [("far worker", False)]
    place.run("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', 'far worker')")
    assert place.sqlstate("select broker.receive('warehouse')") == "S0229"


@pytest.mark.usefixtures("undo")
def test_edge_092_who_receives_from_a_conversation_does_not_own_it(place: Place) -> None:
    place.run(
        f"{RECEIVE_SHOP[0]}; {RECEIVE_WAREHOUSE[0]}; {granted('REFERENCES', 'CONTRACT', 'ordering')[0]}"
    )
    with place.as_clerk():
        assert place.psql.bodies() == [b"secret"]
        own = place.psql.dialog()
    for statement in ("end_conversation('{dialog}')", "move_conversation('{dialog}', '{other}')"):
        assert place.sqlstate(f"select broker.{statement}") == "S0229"
    # What he began is his, whatever is taken from him.
    place.run(f"{RECEIVE_SHOP[1]}")
    assert place.sqlstate(f"select broker.end_conversation('{own}')") is None


def test_edge_086_send_needs_receive_here_and_the_owner_of_the_service_send_there(shop: Shop) -> None:
    owner = shop.database.role()
    psql = shop.psql
    psql.rows("select broker.alter_authorization('SERVICE', '//shop', %s)", owner)
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", owner)
    psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s)", owner)
    user = shop.session(user=owner)

    def sent() -> UUID:
        dialog = user.dialog()
        user.send(dialog, "order", b"x")
        return dialog

    def answer(dialog: UUID) -> list[tuple[str, bool]]:
        received = user.receive("shop", conversation_handle=dialog)
        return [(kind, b"<Code>-8494</Code>" in (body or b"")) for kind, _, body in received]

    assert answer(sent()) == [(ERROR, True)]
    # It is the service's owner who needs the right, whoever sends.
    dialog = psql.dialog()
    psql.send(dialog, "order", b"x")
    assert answer(dialog) == [(ERROR, True)]
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', %s)", owner)
    granted_dialog = sent()
    assert psql.bodies() == [b"x"]
    psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', %s)", owner)
    assert answer(sent()) == [(ERROR, True)]
    user.send(granted_dialog, "order", b"it is asked when the dialog opens")
    assert len(psql.bodies()) == 1


# They tell nothing that is anybody's: the broker's own errors, an id from its parts, whether the broker or a queue is on, a text for a code.
OPEN = {"received_mark", "refuse", "message_id", "broker_problem", "is_poisoned", "held_status", "clock"}


def test_row_129_an_ordinary_role_reaches_nothing_inside(place: Place) -> None:
    psql = place.psql
    functions = psql.rows(
        "select p.proname, coalesce(p.proargnames[1], '') = 'caller', has_function_privilege(%s, p.oid, 'execute'),"
        " array(select format_type(t.oid, null) from unnest(p.proargtypes) with ordinality as t (oid, place) order by place)"
        " from pg_proc p where p.pronamespace = 'broker_private'::regnamespace",
        place.names["clerk"],
    )
    assert {
        name for name, has_caller, is_executable, _ in functions if is_executable and not has_caller
    } <= OPEN
    user = place.shop.session(user=place.names["clerk"])
    for name, has_caller, _, types in functions:
        if has_caller:
            # Whoever claims to be another is found out.
            arguments = ["'postgres'::name", *(f"null::{type_name}" for type_name in types[1:])]
            call = f"select broker_private.{name}({', '.join(arguments)})"
            assert _sqlstate(user, call) == "42501", call
    for (relation,) in psql.rows(
        "select oid::regclass::text from pg_class"
        " where relnamespace = 'broker_private'::regnamespace and relkind in ('r', 'p', 'S', 'v', 'm')"
    ):
        assert _sqlstate(user, f"select from {relation}") == "42501", relation


# What a role could write into an index of its own, for a superuser's ANALYZE, or autovacuum's, to run.
ROB = """
create function lair.rob(n integer) returns integer language plpgsql as $body$
declare
  loot broker.message[];
  done boolean;
begin
  begin
    loot := broker_private.receive(session_user, 'warehouse', 1, null, null, '0');
    insert into lair.loot select m.message_body from unnest(loot) m;
  exception when others then null;
  end;
  begin
    done := broker_private.grant(session_user, 'RECEIVE', 'QUEUE', 'warehouse', '{clerk}');
    insert into lair.loot values ('granted');
  exception when others then null;
  end;
  return n;
end
$body$;
create function lair.pry(n integer) returns integer language plpgsql immutable as 'begin return lair.rob(n); end';
create table lair.loot (what bytea);
create table lair.bait (n integer);
create index on lair.bait (lair.pry(n));
insert into lair.bait values (1);
"""


def test_row_129_what_a_table_s_owner_has_written_is_not_done_as_whoever_analyzes_it(place: Place) -> None:
    psql, clerk = place.psql, place.names["clerk"]
    psql.rows(f'create schema lair authorization "{clerk}"')
    psql.send(psql.dialog(), "order", b"secret")
    user = place.shop.session(user=clerk)
    user.rows(ROB.format(clerk=clerk))
    waiting = psql.rows("select count(*) from broker_private.messages")
    psql.rows("analyze lair.bait")
    assert user.rows("select what from lair.loot") == []
    assert _sqlstate(user, "select broker.receive('warehouse')") == "S0229"
    assert psql.rows("select count(*) from broker_private.messages") == waiting
    psql.rows("drop schema lair cascade")


def test_row_129_the_views_are_for_looking_only(place: Place) -> None:
    user = place.shop.session(user=place.names["clerk"])
    for (view,) in place.psql.rows(
        "select oid::regclass::text from pg_class where relnamespace = 'broker'::regnamespace and relkind <> 'c'"
    ):
        user.rows(f"select * from {view} limit 1")
        assert _sqlstate(user, f"delete from {view}") in ("42501", "55000"), view
    for view in (
        "conversation_endpoints",
        "conversation_groups",
        "transmission_queue",
        "queue_messages",
        "queue_depths",
        "dm_broker_connections",
    ):
        assert user.rows(f"select from broker.{view}") == [], view
    create = "create function broker.mine() returns void language sql as ''"
    assert _sqlstate(user, create) == "42501"


def _sqlstate(session: Session, statement: str) -> str | None:
    try:
        session.rows(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return None
