"""`pybroker throughput --on containers`: one cell with three initiators, quotas in force, every message accounted for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import missing
from tests.containers.images import POSTGRES_IMAGE, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.containers.images import Images

pytest.importorskip("pyspark", reason=missing.reason("pyspark", "make .venv/.spark"))

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

CONTAINERS = ("docker", "ps", "--all", "--filter", "label=pybroker.throughput", "--format", "{{.Names}}")


@pytest.mark.nightly
def test_rows_176_178_a_cell_of_three_initiators_in_containers_with_quotas_loses_nothing(
    built: Images, tmp_path: Path
) -> None:
    before = run(*CONTAINERS)
    said = run("docker", "run", "--rm", "--entrypoint", "postgres", POSTGRES_IMAGE, "--version")
    version = said.split()[2].partition(".")[0]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pybroker", "throughput", "--on", "containers"),
            *("--postgres-image", POSTGRES_IMAGE, "--versions", version, "--worker-image", built.worker),
            *("--initiators", "3", "--threads", "2", "--ratios", "2", "--payloads", "100"),
            *("--warm-up", "0", "--seconds", "1", "--repetitions", "1", "--json", "--output", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["sent"] > 0
    assert (outcome["lost"], outcome["doubled"], outcome["swapped"]) == (0, 0, 0)
    servers = json.loads((tmp_path / f"servers-{version}.json").read_text())
    assert servers["quota of the initiator3 worker"] == "0.15 cores"
    assert servers["quota of the target server"] == "0.3 cores"
    assert run(*CONTAINERS) == before
