"""The simulation: a seed is the same whenever it is run, seeds find nothing, and would if there were something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from pybroker.workers.transport.incoming import receiver
from tests.simulation import __main__ as simulation
from tests.simulation.faults import Fault
from tests.simulation.sites import SHOP, WAREHOUSE, made_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection

    from pybroker.workers.transport.protocol.rows import Delivered
    from tests.simulation.sites import Sites

SEEDS = (1, 2, 3)
# Its dialogs have timers.
WITH_TIMERS = 3


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with made_sites() as made:
        yield made


def test_a_few_seeds_lose_nothing_and_come_to_an_end(sites: Sites) -> None:
    """Faults of these seeds lose a message, double one, mix up a dialog, or leave one that never ends."""
    results = [simulation.run_seed(sites, seed) for seed in SEEDS]
    assert [(result.seed, result.failure) for result in results if result.failure] == []
    assert all(result.faults and result.statements > 100 for result in results)


def test_a_seed_is_the_same_in_another_process_with_another_server(sites: Sites) -> None:
    """A failing seed can't be replayed: something in it is not the seed's."""
    # Here its sessions are another seed's, there they are new.
    later = simulation.run_seed(sites, SEEDS[1])
    here = simulation.run_seed(sites, SEEDS[0])
    there = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--seed",
            str(SEEDS[0]),
            "--seeds",
            "2",
            "--processes",
            "2",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"},
    )
    assert set(re.findall(r"^seed \d+: (\w+) ", there.stdout, re.MULTILINE)) == {here.hash, later.hash}


def test_what_is_acknowledged_and_not_stored_is_found_without_a_fault(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation runs and sees nothing, or blames a fault that has nothing to do with it."""
    deliver = receiver._deliver

    async def deliver_and_forget(connection: AsyncConnection[Any], *batch: Any) -> Delivered:
        delivered = await deliver(connection, *batch)
        await connection.rollback()
        return delivered

    monkeypatch.setattr(receiver, "_deliver", deliver_and_forget)
    failed = simulation.run_seed(sites, SEEDS[0])
    assert "is nowhere" in str(failed.failure)
    assert failed.faults
    assert simulation.shrink(sites, failed).faults == []


@pytest.mark.parametrize(
    ("right", "wrong", "failure"),
    [
        ("using due d where t.endpoint_no", "using due d where false and t.endpoint_no", "have fired"),
        ("where d.local_end is null", "where false", "after 300 s"),
    ],
    ids=["a timer stays when it has fired", "a timer is forgotten"],
)
def test_a_timer_that_fires_twice_or_never_is_found(
    sites: Sites, right: str, wrong: str, failure: str
) -> None:
    """Timers are set, and nobody looks whether they fire."""
    assert simulation.run_seed(sites, WITH_TIMERS, faults=[]).failure is None
    with changed_function(sites, "broker_private.fire_timers()", right, wrong):
        found = simulation.run_seed(sites, WITH_TIMERS, faults=[]).failure
    assert failure in str(found)


@contextmanager
def changed_function(sites: Sites, function: str, right: str, wrong: str) -> Iterator[None]:
    """Plant a mistake in a function of the shop's database."""
    session = sites.sessions[SHOP]
    query = b"select pg_get_functiondef(%s::regprocedure)"
    row = session.execute(query, (function,)).fetchone()
    assert row is not None
    assert row[0].count(right) == 1
    session.execute(row[0].replace(right, wrong).encode())
    try:
        yield
    finally:
        session.execute(row[0].encode())


@pytest.mark.parametrize("hours", [1, -1])
def test_messages_flow_on_while_clocks_jump(sites: Sites, hours: int) -> None:
    """A wall clock that jumps by an hour, or back, stops a worker, ends a dialog or loses a message."""
    jumps = [
        Fault(at + place / 4, f"clock of the {whose}", site, hours=sign * hours)
        for at, sign in ((0.5, 1), (3.0, -1))
        for place, (whose, site) in enumerate(product(("worker", "server"), (SHOP, WAREHOUSE)))
    ]
    calm, jumping = (simulation.run_seed(sites, 1, faults=faults) for faults in ([], jumps))
    assert (calm.failure, jumping.failure) == (None, None)
    # Nothing had to be tried again.
    assert jumping.statements == calm.statements
