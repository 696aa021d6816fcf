"""The check that lint makes of the sync twins says which is stale, and passes no word of asyncio."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests import missing, sync_twin

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''"""Calls an AsyncBroker."""


async def call_async(broker: AsyncBroker) -> None:
    """Make an AsyncCall, ``async with`` a broker."""
    async with broker.transaction() as transaction:
        await transaction.connection()
'''
TWIN = '''# Made from call_async.py by python -m tests.sync_twin: change that file.
"""Calls a Broker."""


def call(broker: Broker) -> None:
    """Make a Call, ``with`` a broker."""
    with broker.transaction() as transaction:
        transaction.connection()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if find_spec("ruff") is None:
        missing.skip("ruff", "make .venv/.linters")
    monkeypatch.setattr(sync_twin, "ROOT", tmp_path)
    monkeypatch.setattr(sync_twin, "SOURCES", (".",))
    (tmp_path / "call_async.py").write_text(SOURCE)
    (tmp_path / "call.py").write_text(TWIN)
    return tmp_path


def test_a_twin_that_follows_its_source_is_not_stale(folder: Path) -> None:
    assert (folder / "call_async.py") in sync_twin.sources()
    assert sync_twin.stale_twins() == {}


@pytest.mark.parametrize("changed", ["call.py", "call_async.py"])
def test_a_change_of_one_of_the_two_is_found(folder: Path, changed: str) -> None:
    path = folder / changed
    path.write_text(path.read_text().replace("transaction.connection()", "transaction.touch()"))
    (stale,) = sync_twin.stale_twins()
    assert stale == folder / "call.py"


def test_a_module_without_a_twin_is_found(folder: Path) -> None:
    (folder / "call.py").unlink()
    assert list(sync_twin.stale_twins()) == [folder / "call.py"]


def test_what_only_asyncio_has_is_refused(folder: Path) -> None:
    path = folder / "call_async.py"
    path.write_text(SOURCE + "        await asyncio.sleep(1)\n")
    with pytest.raises(ValueError, match=r"call_async.py:8 .*asyncio.sleep"):
        sync_twin.stale_twins()
