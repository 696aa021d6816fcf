"""Rights belong to roles and not to their names, and what the catalog views show to whom."""

from __future__ import annotations

import subprocess
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import EmbeddedServerError
from pybroker.migrations import migrate
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.embedded import EmbeddedServer
    from tests.shop import Shop

PEM = "-----BEGIN CERTIFICATE-----\n" + "MIIB" * 60 + "\n-----END CERTIFICATE-----\n"
RECEIVES = "select count(*) from broker.receive('warehouse')"


def _name() -> str:
    return f"role_{uuid.uuid4().hex[:12]}"


def _create(shop: Shop, name: str) -> str:
    shop.psql.rows(f'create role "{name}" login')
    return name


def test_a_role_that_gets_the_name_of_a_dropped_one_has_no_right_of_it(shop: Shop) -> None:
    psql, name = shop.psql, shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", name)
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', %s)", name)
    psql.rows("select broker.alter_authorization('SERVICE', '//shop', %s)", name)
    psql.rows("select broker.alter_authorization('QUEUE', 'shop', %s)", name)
    assert shop.session(user=name).rows(RECEIVES) == [(0,)]
    psql.rows(f"drop role {name}")
    user = shop.session(user=_create(shop, name))
    assert user.refused(RECEIVES) == "S0229"
    assert user.refused("select broker.receive('shop')") == "S0229"
    assert user.refused("select broker.drop_service('//shop')") == "S0229"
    assert user.refused("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", name) == "S0229"
    assert user.refused("select broker.begin_dialog('//shop', '//warehouse')") == "S0229"
    # The owner of the database can still give it to somebody.
    psql.rows("select broker.alter_authorization('SERVICE', '//shop', %s)", name)
    user.rows("select broker.drop_service('//shop')")


def test_a_role_that_is_renamed_keeps_its_rights(shop: Shop) -> None:
    psql, old, new = shop.psql, shop.database.role(), _name()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", old)
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", old)
    psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s)", old)
    psql.rows("select broker.alter_authorization('SERVICE', '//warehouse', %s)", old)
    dialog = shop.session(user=old).dialog()
    psql.rows(f"alter role {old} rename to {new}")
    user = shop.session(user=new)
    assert user.rows(RECEIVES) == [(0,)]
    user.end(dialog)
    user.rows("select broker.drop_service('//warehouse')")


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_bare_number_is_no_right(shop: Shop, is_dropped: bool) -> None:
    psql, name = shop.psql, shop.database.role()
    number = str(psql.value("select oid from pg_roles where rolname = %s", name))
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", name)
    if is_dropped:
        psql.rows(f"drop role {name}")
    for taken in (number, f"unknown (OID={number})"):
        user = shop.session(user=_create(shop, taken))
        assert user.refused(RECEIVES) == "S0229"
        psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", taken)
        assert user.rows("select count(*) from broker.receive('shop')") == [(0,)]
        assert user.refused(RECEIVES) == "S0229"
        psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'shop', %s)", taken)
        assert user.refused("select broker.receive('shop')") == "S0229"
        psql.rows(f'drop role "{taken}"')


def test_a_broker_user_is_not_the_role_that_gets_its_name(shop: Shop) -> None:
    psql, name = shop.psql, _name()
    psql.rows(
        f"select broker.create_endpoint('worker', 4022); select broker.create_certificate('far', '{PEM}', '{name}');"
        f"select broker.grant('CONNECT', 'ENDPOINT', 'worker', '{name}');"
        f"select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{name}')"
    )
    certificates = "select user_name, may_connect from broker_private.worker_certificates()"
    assert psql.rows(certificates) == [(name, True)]
    user = shop.session(user=_create(shop, name))
    assert user.refused(RECEIVES) == "S0229"
    # The far broker is not taken for the role either: its certificate counts again when the name is free.
    assert psql.rows(certificates) == []
    psql.rows("select broker.grant('CONNECT', 'ENDPOINT', 'worker', %s)", name)
    psql.rows(f"select broker.revoke('CONNECT', 'ENDPOINT', 'worker', '{name}'); drop role {name}")
    assert psql.rows(certificates) == [(name, False)]


def test_the_users_certificate_follows_the_role(shop: Shop) -> None:
    psql, old, new = shop.psql, shop.database.role(), _name()
    psql.rows(
        f"select broker.create_endpoint('worker', 4022); select broker.create_certificate('far', '{PEM}', '{old}');"
        f"select broker.grant('CONNECT', 'ENDPOINT', 'worker', '{old}')"
    )
    psql.rows(f"alter role {old} rename to {new}")
    certificates = "select user_name, may_connect from broker_private.worker_certificates()"
    assert psql.rows(certificates) == [(new, True)]
    psql.rows(f"drop role {new}")
    _create(shop, new)
    assert psql.rows(certificates) == []


def test_no_role_of_a_dropped_ones_name_runs_its_procedure(shop: Shop) -> None:
    psql, name = shop.psql, shop.database.role()
    psql.rows("create procedure work() language sql as ''")
    psql.rows(f"grant usage on schema public to {name}")
    psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.work', max_queue_readers => 1, execute_as => %s)",
        name,
    )
    psql.rows(f"revoke usage on schema public from {name}; drop role {name}")
    _create(shop, name)
    psql.send(psql.dialog())
    assert psql.rows("select execute_as from broker_private.activate_queues()") == []
    psql.rows("select broker.alter_queue('warehouse', execute_as => %s)", name)
    assert psql.rows("select execute_as from broker_private.activate_queues()") == [(name,)]


def test_an_owner_must_be_a_role(shop: Shop) -> None:
    assert shop.psql.refused("select broker.create_message_type('m', owner => 'nobody there')") == "T5151"
    assert shop.psql.refused("select broker.alter_authorization('QUEUE', 'shop', 'nobody there')") == "T5151"


@pytest.fixture
def copy(any_server: EmbeddedServer) -> Iterator[str]:
    """The URL of an empty database to restore a dump into."""
    name = f"copy_{uuid.uuid4().hex[:8]}"
    any_server.create_database(name)
    yield any_server.url(name)
    with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database "{name}" with (force)'.encode())


def test_a_dump_names_roles_and_a_dropped_role_does_not_block_its_restore(
    shop: Shop, copy: str, any_server: EmbeddedServer
) -> None:
    try:
        pg_dump = any_server.binary("pg_dump")
    except EmbeddedServerError:
        pytest.skip(f"PostgreSQL {any_server.version} comes without pg_dump here")
    psql, gone, stays = shop.psql, shop.database.role(), shop.database.role()
    for role in (gone, stays, "far user", "public"):
        psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", role)
    psql.rows("select broker.alter_authorization('QUEUE', 'shop', %s)", gone)
    psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'warehouse', 'public')")
    psql.rows(f"drop role {gone}")
    dumped = subprocess.run(
        [pg_dump, "--dbname", any_server.url(shop.database.name), "--format=custom"],
        check=True,
        capture_output=True,
    )
    restore = [any_server.binary("pg_restore"), "--dbname", copy, "--exit-on-error", "--single-transaction"]
    psql.rows(f"alter role {stays} rename to {stays}_away")
    refused = subprocess.run(restore, check=False, input=dumped.stdout, capture_output=True)
    assert f'role "{stays}" does not exist'.encode() in refused.stderr
    psql.rows(f"alter role {stays}_away rename to {stays}")
    subprocess.run(restore, check=True, input=dumped.stdout)
    with psycopg.connect(copy, autocommit=True) as connection:
        granted = "select count(*) from broker_private.permissions where class <> 'M'"
        assert Session(connection).value(granted) == 3
        assert migrate(copy, new_broker=True).broker_problem is None
        assert Session(connection).value(granted) == 2
    _create(shop, gone)
    for role, sqlstate in ((gone, "S0229"), (stays, None)):
        with psycopg.connect(copy.replace("//postgres", f"//{role}"), autocommit=True) as connection:
            user = Session(connection)
            assert user.value("select current_user") == role
            if sqlstate is None:
                assert user.rows(RECEIVES) == [(0,)]
            else:
                assert user.refused(RECEIVES) == sqlstate
            assert user.refused("select broker.receive('shop')") == "S0229"


def _seen(user: Session) -> dict[str, list[str]]:
    views = (
        "services",
        "service_queues",
        "service_contracts",
        "service_message_types",
        "routes",
        "remote_service_bindings",
        "certificates",
        "event_notifications",
        "xml_schema_collections",
        "service_broker_endpoints",
        "conversation_priorities",
    )
    return {
        view: names
        for view in views
        if (
            names := [
                name
                for (name,) in user.rows(f"select name from broker.{view} order by name")
                if name != "DEFAULT" and not name.startswith("http://schemas.microsoft.com/")
            ]
        )
    }


@pytest.fixture
def catalog(shop: Shop) -> Session:
    """A database that has an object of each kind."""
    shop.psql.rows(
        "select broker.create_endpoint('worker', 4022);"
        f"select broker.create_certificate('far', '{PEM}', 'far user');"
        "select broker.create_route('way', 'LOCAL'); select broker.create_broker_priority('urgent', priority_level => 7);"
        "select broker.create_remote_service_binding('bound', '//far', 'far user');"
        "select broker.create_event_notification('told', 'shop', 'QUEUE_ACTIVATION', '//shop')"
    )
    return shop.psql


ALL = {
    "services": ["//shop", "//warehouse"],
    "service_queues": ["shop", "warehouse"],
    "service_contracts": ["ordering"],
    "service_message_types": ["ack", "invoice", "nudge", "order"],
    "routes": ["AutoCreatedLocal", "AutoCreatedWorker", "way"],
    "remote_service_bindings": ["bound"],
    "certificates": ["far"],
    "event_notifications": ["told"],
    "service_broker_endpoints": ["worker"],
    "conversation_priorities": ["urgent"],
}
TYPES = {name: ALL[name] for name in ("service_contracts", "service_message_types")}
SEEN = {
    "nothing": ([], {}),
    "SEND": (
        ["select broker.grant('SEND', 'SERVICE', '//warehouse', '{user}')"],
        {"services": ["//warehouse"], **TYPES},
    ),
    "RECEIVE": (
        ["select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{user}')"],
        {"services": ["//warehouse"], "service_queues": ["warehouse"], **TYPES},
    ),
    "RECEIVE of public": (
        ["select broker.grant('RECEIVE', 'QUEUE', 'shop', 'public')"],
        {"services": ["//shop"], "service_queues": ["shop"]},
    ),
    "REFERENCES": (["select broker.grant('REFERENCES', 'CONTRACT', 'ordering', '{user}')"], TYPES),
    "REFERENCES on a type": (
        ["select broker.grant('REFERENCES', 'MESSAGE TYPE', 'ack', '{user}')"],
        {"service_message_types": ["ack"]},
    ),
    "CONNECT": (
        ["select broker.grant('CONNECT', 'ENDPOINT', 'worker', '{user}')"],
        {"service_broker_endpoints": ["worker"]},
    ),
    "owner": (
        [
            "select broker.alter_authorization('ROUTE', 'way', '{user}')",
            "select broker.alter_authorization('MESSAGE TYPE', 'ack', '{user}')",
            "select broker.alter_authorization('REMOTE SERVICE BINDING', 'bound', '{user}')",
        ],
        {"routes": ["way"], "service_message_types": ["ack"], "remote_service_bindings": ["bound"]},
    ),
    "owner of the queue": (
        ["select broker.alter_authorization('QUEUE', 'shop', '{user}')"],
        {"services": ["//shop"], "service_queues": ["shop"], "event_notifications": ["told"]},
    ),
    "user of the certificate": (
        [
            "select broker.drop_certificate('far')",
            f"select broker.create_certificate('own', '{PEM}', '{{user}}')",
            "select broker.alter_remote_service_binding('bound', '{user}')",
        ],
        {"certificates": ["own"], "remote_service_bindings": ["bound"]},
    ),
    "pg_monitor": (["grant pg_monitor to {user}"], ALL),
}


@pytest.mark.parametrize("case", SEEN)
def test_a_role_sees_what_it_owns_or_may_use(shop: Shop, catalog: Session, case: str) -> None:
    statements, expected = SEEN[case]
    name = shop.database.role()
    for statement in statements:
        catalog.rows(statement.format(user=name))
    assert _seen(shop.session(user=name)) == expected
    if case == "nothing":
        assert _seen(catalog) == ALL


def test_a_worker_role_sees_all(shop: Shop, catalog: Session) -> None:
    name = shop.database.role()
    migrate(shop.database.server.url(shop.database.name), worker_roles=[name])
    assert _seen(shop.session(user=name)) == ALL == _seen(catalog)


def test_a_worker_role_that_is_dropped_is_none_again_under_its_name(shop: Shop) -> None:
    psql, name = shop.psql, shop.database.role()
    url = shop.database.server.url(shop.database.name)
    migrate(url, worker_roles=[name])
    psql.rows(f"drop owned by {name}; drop role {name}")
    _create(shop, name)
    migrate(url)
    user = shop.session(user=name)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user.rows("select broker_private.fire_timers()")
    assert "service_queues" not in _seen(user)
