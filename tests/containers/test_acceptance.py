"""Three initiators and a target in containers, and everything that an operator or fate does to them, counted by ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

import pybroker
from tests.containers import images
from tests.containers.deployment import Deployment, cut, kill, pause, restart
from tests.ledgers import Load
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testcontainers.core.container import DockerContainer

    from tests.containers.deployment import Broker
    from tests.containers.images import Images

_THIS = Version(pybroker.__version__)
NEXT_VERSION = f"{_THIS.major}.{_THIS.minor}.{_THIS.micro + 1}"

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def deployment(built: Images) -> Iterator[Deployment]:
    with Deployment(built) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def next_worker(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of a release that has another number, and another text for every function and view."""
    context = images.make_context(tmp_path_factory.mktemp("next"), version=NEXT_VERSION)
    tag = f"{built.worker}-next"
    images.build_upgraded(context, built.worker, tag)
    yield tag
    images.remove(tag)


def test_conversations_go_both_ways_by_activation_over_tls_with_ordinary_roles(
    deployment: Deployment,
) -> None:
    with Load(deployment.initiators, deployment.target) as load:
        load.go_on()
        for broker in deployment.brokers:
            until(lambda b=broker: b.execute("select from broker.dm_broker_connections") != [])
            connections = "select distinct encryption_algorithm_desc from broker.dm_broker_connections"
            assert all("NONE" not in str(kind) for (kind,) in broker.execute(connections))
            role = "select rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls from pg_roles where rolname = current_user"
            assert broker.execute(role) == [(False,)]
            sessions = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name like 'pybroker%'"
            assert broker.execute(sessions.replace("%", "%%")) == [(True,)]


def test_nothing_is_lost_while_each_container_is_paused_killed_and_restarted_in_turn(
    deployment: Deployment,
) -> None:
    with Load(deployment.initiators, deployment.target) as load:
        for strike in (pause, kill, restart):
            load.go_on()
            for broker in deployment.initiators:
                _strike_both(strike, broker)
            load.go_on()
            _strike_both(strike, deployment.target)
        load.go_on()


def _strike_both(strike: Callable[[DockerContainer], None], broker: Broker) -> None:
    assert broker.worker is not None
    strike(broker.worker)
    strike(broker.database)


@pytest.mark.nightly
def test_nothing_is_lost_over_a_link_that_is_cut_again_and_again(deployment: Deployment) -> None:
    first, *others = deployment.initiators
    target = deployment.target
    assert first.worker is not None
    assert target.worker is not None
    with Load(deployment.initiators, target) as load:
        load.go_on()
        for near, far in ((first.worker, target.worker), (target.worker, first.worker)):
            with cut(near, far):
                place = load.last_sent(first)
                load.go_on(*others)
                assert not load.was_answered(first, place)
            load.go_on(first)
        with cut(target.worker, target.database):
            until(lambda: "No route to host" in target.log())
        load.go_on()


@pytest.mark.nightly
def test_workers_and_schemas_of_two_versions_work_together_in_a_rolling_upgrade(
    deployment: Deployment, next_worker: str
) -> None:
    def migrate(broker: Broker) -> None:
        assert "Renewed version" in broker.migrate(next_worker)

    def replace(broker: Broker) -> None:
        broker.replace_worker(next_worker)
        until(lambda: broker.version() == f"pybroker {NEXT_VERSION}\n")

    first, second, third = deployment.initiators
    with Load(deployment.initiators, deployment.target) as load:
        load.go_on()
        for broker in (second, deployment.target):
            migrate(broker)
        for broker in (first, third):
            replace(broker)
        load.go_on()
        for broker in (first, third):
            migrate(broker)
        for broker in (second, deployment.target):
            replace(broker)
        load.go_on()


@pytest.mark.nightly
def test_a_dump_that_is_restored_on_another_server_goes_on_where_the_broker_stopped(
    deployment: Deployment,
) -> None:
    moved = deployment.initiators[-1]
    with Load(deployment.initiators, deployment.target) as load:
        load.go_on()
        load.hold(moved)
        moved.move()
        assert moved.execute("select is_broker_enabled from broker.databases") == [(False,)]
        moved.execute("select broker.alter_broker('ENABLE_BROKER')")
        moved.start_worker(deployment.images.worker)
        load.release(moved)
        load.go_on()
