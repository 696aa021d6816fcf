"""The short form of `make chaos`: docs/testing.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.rounds import play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_under_faults_at_random_nothing_is_lost_doubled_changed_or_out_of_order(tmp_path: Path) -> None:
    report = play(tmp_path, rounds=5, messages=2000, dialogs=20, seed=20260101)
    assert report.is_right, report
    assert (report.there.received, report.back.received) == (2000, 2000)
    assert sum(report.faults.values()) >= 5
