"""The short forms of `make chaos` and `make soak`: docs/testing.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.restores import play_restores
from tests.chaos.rounds import BACKLOG, play
from tests.chaos.soak import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_under_faults_at_random_nothing_is_lost_doubled_changed_or_out_of_order(tmp_path: Path) -> None:
    report = play(tmp_path, rounds=5, messages=3000, dialogs=20, seed=20260319)
    assert report.is_right, report
    assert (report.there.received, report.back.received) == (3000, 3000)
    # The seed is one that has them all, and fills a queue before the last round.
    assert report.faults.keys() == FAULTS.keys()
    assert report.backlog >= BACKLOG
    assert report.sealed == 10


# At each landing single dialogs go back with their database: tests/conformance/test_identity_gone_back.py.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_restore_in_the_midst_of_it_leaves_no_dialog_that_hangs_or_delivers_twice(tmp_path: Path) -> None:
    # A copy of a data directory that is being written is as good with fsync as without, while the machine stays up.
    report = play_restores(tmp_path, restores=1, dialogs=12, seed=20260203, settings={"fsync": "off"})
    assert report.is_right, report
    assert report.hurt


def test_workers_do_not_grow_while_messages_pass(tmp_path: Path) -> None:
    soaked = soak(tmp_path, messages=10_000, steps=5, dialogs=20)
    assert soaked.is_right
    assert soaked.is_flat, soaked.samples
