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
from tests.simulation.faults import WITH_WORKER, Fault
from tests.simulation.sites import SHOP, WAREHOUSE, made_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection

    from pybroker.workers.transport.protocol.rows import Delivered
    from tests.simulation.sites import Sites

SEEDS = (26, 3, 7)
# Its dialogs have timers.
WITH_TIMERS = 3
# Its orders and answers come alone.
LONE = 3
LATE = Fault(0.3, "worker dies", WAREHOUSE, "deliver_one", seconds=0.05, lingers=5.0)
# Its initiator forgets messages that were acknowledged.
FORGETFUL = 12
RESTORE = Fault(1.0, "restored", SHOP, WITH_WORKER, seconds=0.5, after=1.2)


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
    here = simulation.run_seed(sites, SEEDS[0])
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(SEEDS[0])],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"},
    )
    assert re.findall(r"^seed \d+: (\w+) ", there.stdout, re.MULTILINE) == [here.hash]


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
        pytest.param(
            "using due d where t.endpoint_no",
            "using due d where false and t.endpoint_no",
            "have fired",
            id="a timer stays when it has fired",
        ),
        pytest.param(
            "where d.local_end is null",
            "where false",
            "after 300 s",
            id="a timer is forgotten",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_timer_that_fires_twice_or_never_is_found(
    sites: Sites, right: str, wrong: str, failure: str
) -> None:
    """Timers are set, and nobody looks whether they fire."""
    assert simulation.run_seed(sites, WITH_TIMERS, faults=[]).failure is None
    with changed_function(sites, SHOP, "fire_timers", right, wrong):
        found = simulation.run_seed(sites, WITH_TIMERS, faults=[]).failure
    assert failure in str(found)


def test_what_is_put_back_loses_nothing_else_and_is_the_same_whenever_it_is_run(sites: Sites) -> None:
    """A dialog that a restore has hurt never ends, or another one does, or a restore can't be replayed."""
    first, second = (simulation.run_seed(sites, FORGETFUL, faults=[RESTORE], is_whole=True) for _ in range(2))
    assert (first.failure, second.failure) == (None, None)
    # Something was forgotten, and somebody was told.
    assert any("dialogs_torn" in line for line in first.lines)
    assert second.hash == first.hash


@pytest.mark.nightly
def test_a_dialog_that_a_restore_has_hurt_and_that_never_ends_is_found(sites: Sites) -> None:
    """A database is restored, and nobody looks whether its dialogs come to an end."""
    right = "d.acknowledged > c.next_number or b.is_other"
    with (
        changed_function(sites, SHOP, "torn_dialogs", right, "false"),
        changed_function(sites, WAREHOUSE, "torn_dialogs", right, "false"),
    ):
        found = simulation.run_seed(sites, FORGETFUL, faults=[RESTORE]).failure
    assert "open conversation" in str(found)


def test_a_message_is_stored_once_while_a_commit_is_late(sites: Sites) -> None:
    """A worker dies at a COMMIT, and the next one stores the same message before it comes: nobody looks at that."""
    late = simulation.run_seed(sites, LONE, faults=[LATE], is_whole=True)
    assert late.failure is None
    # The next worker's delivery has waited for it.
    assert any(" parked " in line for line in late.lines)
    assert any(" late " in line for line in late.lines)
    right, wrong = "n.epoch = number >> 7 and n.next_number = number;", "n.epoch = number >> 7;"
    with changed_function(sites, WAREHOUSE, "deliver_one", right, wrong):
        found = simulation.run_seed(sites, LONE, faults=[LATE]).failure
    assert "(1, 0), (2, 0), (1, 0), (2, 0)" in str(found)


@contextmanager
def changed_function(sites: Sites, site: str, function: str, right: str, wrong: str) -> Iterator[None]:
    """Plant a mistake in a function of a database."""
    session = sites.sessions[site]
    query = b"select pg_get_functiondef(('broker_private.' || %s)::regproc)"
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
        Fault(at + place / 8, f"clock of the {whose}", site, hours=sign * hours)
        for at, sign in ((0.2, 1), (0.8, -1))
        for place, (whose, site) in enumerate(product(("worker", "server"), (SHOP, WAREHOUSE)))
    ]
    calm, jumping = (simulation.run_seed(sites, 1, faults=faults) for faults in ([], jumps))
    assert (calm.failure, jumping.failure) == (None, None)
    # Nothing had to be tried again.
    assert jumping.statements == calm.statements
