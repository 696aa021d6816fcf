"""Three initiators and a target in containers, and everything that an operator or fate does to them, counted by ledgers."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.containers import images
from tests.containers.deployment import Deployment, cut, kill, mend, pause, restart, run_in
from tests.ledgers import Load
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.containers.images import Images

NEXT_VERSION = "0.1.1"

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]
# CI runs what was seen to pass on a machine as busy as can be; these three were not, yet.
not_in_ci_yet = pytest.mark.skipif(bool(os.environ.get("CI")), reason="run it by make test-containers")


@pytest.fixture(scope="module")
def deployment(built: Images) -> Iterator[Deployment]:
    with Deployment(built) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def next_worker(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of a release that has another number, and another text for every function and view."""
    context = images.make_context(tmp_path_factory.mktemp("next"), version=NEXT_VERSION)
    for wheel in (built.context / "wheels").iterdir():
        if not wheel.name.startswith("pybroker-"):
            shutil.copy(wheel, context / "wheels")
    tag = f"{built.worker}-next"
    images.build_worker(context, tag)
    yield tag
    images.remove_worker(tag)


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


@not_in_ci_yet
def test_nothing_is_lost_while_each_container_is_paused_killed_and_restarted_in_turn(
    deployment: Deployment,
) -> None:
    with Load(deployment.initiators, deployment.target) as load:
        for broker in deployment.brokers:
            assert broker.worker is not None
            for container in (broker.worker, broker.database):
                load.go_on()
                pause(container, 1)
                kill(container)
                load.go_on()
                restart(container)
        load.go_on()


@not_in_ci_yet
def test_nothing_is_lost_over_a_link_that_is_cut_again_and_again(deployment: Deployment) -> None:
    first, target = deployment.initiators[0], deployment.target
    assert first.worker is not None
    assert target.worker is not None
    with Load(deployment.initiators, target) as load:
        for near, far in (
            (first.worker, target.worker),
            (target.worker, first.worker),
            (target.worker, target.database),
        ):
            load.go_on()
            address = cut(near, far)
            others = Load(deployment.initiators[1:], target)
            if far is not target.database:
                with others as meanwhile:
                    meanwhile.go_on()
            mend(near, address)
        load.go_on()


@not_in_ci_yet
def test_workers_and_schemas_of_two_versions_work_together_in_a_rolling_upgrade(
    deployment: Deployment, next_worker: str
) -> None:
    with Load(deployment.initiators, deployment.target) as load:
        for number, broker in enumerate(deployment.brokers):
            load.go_on()
            if number % 2:
                assert "Renewed version" in broker.migrate(next_worker)
                load.go_on()
                broker.replace_worker(next_worker)
            else:
                broker.replace_worker(next_worker)
                load.go_on()
                assert "Renewed version" in broker.migrate(next_worker)
            assert broker.worker is not None
            assert run_in(broker.worker, "pybroker", "--version").strip() == f"pybroker {NEXT_VERSION}"
        load.go_on()


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
