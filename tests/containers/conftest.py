"""The images, built once for each process that runs tests of this folder."""

from __future__ import annotations

import os
import uuid
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
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context, with the wheel of pybroker and no other."""
    return images.make_context(tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="session")
def built(engine: None, context: Path) -> Iterator[Images]:
    """The images of this version."""
    images.fetch_wheels(context)
    made = images.build(context, uuid.uuid4().hex)
    yield made
    images.remove(*made.tags)
