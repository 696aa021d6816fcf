"""`pybroker throughput`: a cell's messages are all accounted for, and an interrupted run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest

from pybroker.commands import main
from pybroker.throughput.failures import ThroughputError
from pybroker.throughput.matrix import RECOMMENDATIONS, SERIES, Cell, Timing, cells, recommendations
from pybroker.throughput.objects import SERVICE, define
from pybroker.throughput.testbed import Bed, Server
from tests import missing
from tests.shop import Shop, until

pytest.importorskip("pyspark", reason=missing.reason("pyspark", "make .venv/.spark"))

from pybroker.throughput.analysis import ROLES, Outcome, Work
from pybroker.throughput.answers import answers
from pybroker.throughput.cell import abandon, drain
from pybroker.throughput.figures import throughput_figure
from pybroker.throughput.results import Results
from tests.whitepaper import main as write_documentation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import Database

pytestmark = pytest.mark.timeout(900)

# In a second a hundred thousand messages are sent where a transaction has a hundred.
QUICK = (
    "--threads",
    "2",
    "--ratios",
    "2",
    "--payloads",
    "100",
    "--warm-up",
    "0",
    "--seconds",
    "1",
    "--repetitions",
    "1",
    "--json",
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pybroker", "throughput", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, env=environment)


def outcome(cell: Cell, rate: float, **others: Any) -> Outcome:
    plain: dict[str, Any] = {
        "sent": 100, "lost": 0, "doubled": 0, "swapped": 0, "by_second": [int(rate)], "send_rate": rate, "latency": [0.1, 0.2, 0.3],
        "from_send": [0.1, 0.2, 0.3], "receives": 1, "per_receive": 1.0, "readers": 1, "cores": {"target server": 0.1}, "wal_per_message": {},
        "waits": {}, "bound_by": "", "seconds": 1.0, "work": {role: Work(1000, 1.0) for role in ROLES},
        "commits_per_message": 1.1, "flushes_per_message": 0.5, "per_batch": 10.0,
    }  # fmt: skip
    return Outcome(cell=cell, rate=rate, **{**plain, **others})


def everything(by: Sequence[Cell]) -> list[Outcome]:
    return [outcome(cell, 100.0 * cell.initiators * cell.threads) for cell in by]


def test_row_176_the_matrix_is_the_whitepaper_s() -> None:
    assert len(cells()) == 264
    assert len(set(cells(versions=(16, 18)))) == 528
    assert max(cell.initiators * cell.threads * cell.ratio for cell in cells()) == 22_500


def test_rows_171_172_173_174_175_177_178_are_lines_of_the_report_once_their_cells_are_run() -> None:
    found = answers(everything([*cells(), *recommendations()]))
    assert sorted({row for row, _, _ in found}) == list(range(171, 179))
    assert [question for _, question, answer in found if "not run" in answer] == []
    assert "not run" in answers([])[0][2]
    assert set(RECOMMENDATIONS) < set(SERIES)


def test_figures_2_to_5_are_drawn_for_the_documentation_too(tmp_path: Path) -> None:
    results = Results(tmp_path / "run", "embedded", Timing())
    for one in everything(cells(threads=(1, 50))):
        results.add(one)
    docs = tmp_path / "docs"
    docs.mkdir()
    page = docs / "whitepaper.md"
    page.write_text("Before.\n")
    for _ in range(2):
        write_documentation(tmp_path / "run", docs)
    assert page.read_text().startswith("Before.\n<!-- measured -->\n## Measured\n")
    assert page.read_text().count("## Measured") == 1
    assert {file.name for file in docs.glob("whitepaper/*")} == {
        f"figure-{number}.svg" for number in (2, 3, 4, 5)
    }
    modelled = run("--model", "--output", str(tmp_path / "run"), "--server-cores", "4")
    assert modelled.returncode == 0, modelled.stderr
    assert "of 16 cells of three initiators are within ±15%" in modelled.stdout
    assert "16 initiators:" in modelled.stdout
    assert (tmp_path / "run" / "model.svg").read_bytes().startswith(b"<svg")
    picture = throughput_figure(results.outcomes(), 1, 150)
    assert picture is not None
    assert picture.alone.startswith(b"<svg")
    # On a page that is not ours nobody knows our colours.
    assert b"var(--" not in picture.alone
    assert throughput_figure([], 1, 150) is None


def test_a_cell_that_lost_a_message_has_failed() -> None:
    (cell,) = cells(initiators=(1,), threads=(1,), ratios=(1,), payloads=(100,))
    assert not outcome(cell, 1.0).has_failed
    for complaint in ("lost", "doubled", "swapped"):
        assert outcome(cell, 1.0, **{complaint: 1}).has_failed


@pytest.mark.nightly
def test_an_interrupted_run_leaves_no_server_and_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "results"
    arguments = (
        "--initiators",
        "1",
        *QUICK,
        "--series",
        "whitepaper,short-conversations",
        "--output",
        str(output),
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "errors").open("wb") as errors:
        first = psutil.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=errors, env=environment)
    try:
        until(lambda: list(output.glob("cells/*/*/outcome.json")) or first.poll() is not None)
        below = first.children(recursive=True)
        first.send_signal(signal.SIGINT)
        assert first.wait() == 130, (tmp_path / "errors").read_text()
        assert psutil.wait_procs(below, timeout=120)[1] == []
    finally:
        if first.is_running():
            first.kill()
    (finished,) = output.glob("cells/*/*/outcome.json")
    before = finished.read_bytes()
    second = run(*arguments)
    assert second.returncode == 0, second.stderr
    # Spark's warnings are kept, and are in nobody's way.
    assert "WARN" not in second.stderr
    assert "WARN" in (output / "spark.log").read_text()
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in second.stdout.splitlines()]
    assert [one.cell.series for one in outcomes] == ["whitepaper", "short-conversations"]
    assert finished.read_bytes() == before
    for one in outcomes:
        assert one.sent > 0
        assert (one.lost, one.doubled, one.swapped) == (0, 0, 0)
    assert "<h1>" in (output / "report.html").read_text()
    assert json.loads((output / "conditions.json").read_text())["measured"] == 1
    other = run(*arguments, "--seconds", "9")
    assert other.returncode == 1
    assert "--output" in other.stderr


def test_a_failure_shows_what_spark_said(tmp_path: Path) -> None:
    failed = run(*QUICK, "--spark-master", "nothing://nowhere", "--output", str(tmp_path))
    assert failed.returncode == 1
    assert "pybroker throughput: Spark does not start with nothing://nowhere" in failed.stderr
    assert "SparkSubmit" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_quick_has_points_for_each_figure() -> None:
    listed = run("--quick", "--list").stdout.splitlines()
    assert len(listed) == 36
    shapes = [line.split(":")[0].split("-") for line in listed]
    assert {shape[2].split("x")[0] for shape in shapes} == {"1", "2", "3"}
    assert {shape[3] for shape in shapes} == {"1", "150"}
    # Figure 5 begins to mean something at 30 threads in all.
    assert max(int(a) * int(b) for a, b in (shape[2].split("x") for shape in shapes)) >= 30


def test_without_an_engine_containers_are_refused_before_anything_is_started_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("docker", reason=missing.reason("docker-py", "make .venv/.spark"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    refused = run("--on", "containers", "--output", str(tmp_path / "run"))
    assert refused.returncode == 1
    assert "No Docker engine answers" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_message_that_does_not_come_is_left_to_the_analysis_unless_the_broker_says_why(
    make_database: Callable[[], Database],
) -> None:
    databases = [make_database(), make_database()]
    urls = [database.server.url(database.name) for database in databases]
    initiator = Server("initiator1", urls[0], define(urls[0], is_target=False))
    target = Server("target", urls[1], define(urls[1], is_target=True))
    bed = Bed([initiator], target, 1.0, False, {})
    with initiator.connect() as sender, target.connect() as receiver:
        receiver.execute("insert into lab.receives values (1, 1, 1, now())")
        drain(bed, receiver, 1, bed.check)
        drain(bed, receiver, 2, bed.check, patience=0.2)
        sender.execute("call lab.open_dialogs(false, 1, 1, %s)", [target.guid])
        sender.execute("select broker.alter_broker('DISABLE_BROKER')")
        with pytest.raises(ThroughputError, match=r"initiator1 says: .*disabled"):
            drain(bed, receiver, 2, bed.check, patience=0.2)
        abandon(bed)
        left = sender.execute("select from broker.transmission_queue union all select from lab.dialogs")
        assert left.fetchall() == []


IS_MADE = "select to_regclass('lab.message_drop') is not null"
# What a broker that loses a message would leave: the first that is to be written is not.
LOSS = """
create table lab.lost (number integer primary key);
create function lab.lose() returns trigger language plpgsql as $$
begin
  if length(new.message_val) = 100 then
    insert into lab.lost values (1) on conflict do nothing;
    if found then
      return null;
    end if;
  end if;
  return new;
end
$$;
create trigger lose before insert on lab.message_drop for each row execute function lab.lose();
"""


def test_on_urls_a_loss_fails_its_cell_only_and_other_conversations_stay(
    tmp_path: Path, make_database: Callable[[], Database]
) -> None:
    databases = [make_database(), make_database()]
    initiator, target = (database.server.url(database.name) for database in databases)
    shops = [Shop(database) for database in databases]
    dialogs = [shop.psql.dialog(encryption=False) for shop in shops]
    for shop, dialog in zip(shops, dialogs, strict=True):
        shop.psql.send(dialog, body=b"mine")
    # It stays on its way, and nobody is to wait for it.
    shops[0].psql.send(
        shops[0].psql.value(
            "select broker.begin_dialog('//shop', '//nowhere', 'ordering', encryption => false)"
        )
    )
    worker = [
        *(sys.executable, "-m", "pybroker", "worker"),
        *("--database-url", initiator, "--database-url", target),
    ]
    arguments = (
        *("--on", "urls", "--initiator-url", initiator, "--target-url", target, "--initiators", "1", *QUICK),
        *("--series", "cold,deferred-batches", "--depth", "1000", "--output", str(tmp_path / "results")),
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log").open("w") as log:
        serving = subprocess.Popen(worker, stdout=log, stderr=log)
        running = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        try:
            until(lambda: running.poll() is not None or shops[1].psql.value(IS_MADE))
            assert running.poll() is None, (tmp_path / "log").read_text()
            shops[1].psql.rows(LOSS)
            said, _ = running.communicate()
        finally:
            running.kill()
            serving.terminate()
            serving.wait()
    assert running.returncode == 1, (tmp_path / "log").read_text()
    cold, deferred = (msgspec.json.decode(line, type=Outcome) for line in said.splitlines())
    assert (cold.cell.series, cold.lost, cold.doubled) == ("cold", 1, 0)
    assert (deferred.cell.series, deferred.lost, deferred.doubled, deferred.swapped) == (
        *("deferred-batches", 0, 0, 0),
    )
    assert deferred.sent >= deferred.cell.depth == 1000
    assert "not encrypted" in (tmp_path / "results" / "report.html").read_text()
    for shop, dialog in zip(shops, dialogs, strict=True):
        assert shop.psql.state(dialog) == "CO"
        assert shop.psql.bodies() == [b"mine"]
        assert not shop.psql.rows("select from broker.services where name = %s", SERVICE)
        shop.close()


def test_row_174_the_reader_series_differ_on_less_than_a_core_too() -> None:
    names = ("whitepaper", "1-reader", "2-readers", "4-readers")
    for part in (0.45, 0.9):
        assert [SERIES[name].readers_on(part) for name in names] == [1, 1, 2, 4]
    assert SERIES["whitepaper"].readers_on(2.0) == SERIES["2-readers"].readers_on(2.0) == 4


def test_what_can_t_be_run_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    urls = ("--on", "urls", "--initiator-url", "postgresql:///a", "--target-url", "postgresql:///b")
    for arguments, complaint in (
        (("--series", "nothing"), "nothing"),
        (("--threads", "0"), "above 0"),
        (("--series", "unlimited"), "--on containers"),
        (("--payloads", "10"), "24 bytes"),
        (("--on", "urls"), "--target-url"),
        ((*urls, "--initiators", "1", "--series", "whitepaper,plain"), "encrypted"),
        (("--depth", "1000"), "deferred"),
        (("--model", "--output", "/nowhere"), "holds no run"),
        (("--quick", "--recommendations"), "--quick"),
        (("--initiators", "4"), "4"),
    ):
        # A process for each would import Spark ten times.
        monkeypatch.setattr(sys, "argv", ["pybroker", "throughput", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capfd.readouterr().err
        assert ended.value.code == 2, told
        assert complaint in told
