"""The images: what goes into them is made once for all processes, and each that runs tests of this folder has tags of its own."""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.containers import images

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.containers.images import Images


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker engine with the base images; without them the tests are skipped and say so, in CI they fail."""
    if reason := images.missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this run have."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine


@pytest.fixture(scope="session")
def context(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context, with the wheel of pybroker."""
    made = shared / "context"
    with _one_at_a_time(shared):
        if not made.exists():
            # Under its name once it is whole.
            images.make_context(tmp_path_factory.mktemp("context")).rename(made)
    return made


@pytest.fixture(scope="session")
def built(engine: None, shared: Path, context: Path) -> Iterator[Images]:
    """The images of this version."""
    with _one_at_a_time(shared):
        if len(list((context / "wheels").iterdir())) == 1:
            images.fetch_wheels(context)
        # All but the first find everything in the engine's cache.
        made = images.build(context, uuid.uuid4().hex)
    yield made
    images.remove(*made.tags)


@contextmanager
def _one_at_a_time(shared: Path) -> Iterator[None]:
    with (shared / "context.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
