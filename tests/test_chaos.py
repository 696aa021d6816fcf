"""The short forms of `make chaos` and `make soak`: docs/testing.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.rounds import play
from tests.chaos.soak import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_under_faults_at_random_nothing_is_lost_doubled_changed_or_out_of_order(tmp_path: Path) -> None:
    report = play(tmp_path, rounds=5, messages=3000, dialogs=20, seed=20260202)
    assert report.is_right, report
    assert (report.there.received, report.back.received) == (3000, 3000)
    # The seed is one that has them all.
    assert report.faults.keys() == FAULTS.keys()


def test_workers_do_not_grow_while_messages_pass(tmp_path: Path) -> None:
    soaked = soak(tmp_path, messages=20_000, steps=5, dialogs=20)
    assert soaked.is_right
    assert soaked.is_flat, soaked.samples
