"""Each mistake of tests/mutation can be planted: its text is in its file, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutation.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_can_be_planted(mistake: Mistake, tmp_path: Path) -> None:
    file = mistake.file
    (tmp_path / file).parent.mkdir(parents=True)
    shutil.copy(ROOT / file, tmp_path / file)
    mistake.plant(tmp_path)
    assert (tmp_path / file).read_text() != (ROOT / file).read_text()
