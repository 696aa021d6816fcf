"""Prometheus sees what happened: each number after the messages that a test sent, and health without being lied to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psycopg
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import pybroker
from pybroker.metrics import endpoint, files
from pybroker.metrics.catalogue import every_metric
from pybroker.metrics.collector import DatabaseCollector
from tests import missing
from tests.activated import Application, next_event
from tests.brokers import free_port
from tests.patience import PATIENCE
from tests.shop import Shop, in_background, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.conftest import Database

DOCKER = Path(__file__).parents[2] / "docker"

Numbers = dict[str, dict[tuple[str, ...], float]]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def numbers(text: str) -> Numbers:
    """Each metric's values, by what stands in its labels beside the database."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name != "database")
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def scrape(port: int) -> Numbers:
    status, text = get(port, "/metrics")
    assert status == 200
    return numbers(text)


@contextmanager
def measured(*urls: str) -> Iterator[int]:
    with endpoint.serving(urls, "127.0.0.1", 0, lambda: True) as port:
        yield port


def now_measured(shop: Shop) -> Numbers:
    """What a scrape finds, by an endpoint that has read nothing before."""
    with measured(shop.database.url) as port:
        return scrape(port)


def test_a_scrape_counts_what_was_sent_and_received(shop: Shop) -> None:
    psql = shop.psql
    before = now_measured(shop)
    dialogs = [psql.dialog() for _ in range(3)]
    for dialog in dialogs:
        psql.send(dialog, body=b"1")
        psql.send(dialog, body=b"2")
    # To a service that is nowhere: it waits in the transmission queue.
    far = psql.value("select broker.begin_dialog('//shop', '//nowhere')")
    psql.rows("select broker.send(%s, 'DEFAULT', ''::bytea)", far)
    psql.receive(top=1)
    # PostgreSQL's counts are those of sessions that have told them.
    psql.rows("select pg_stat_force_next_flush()")
    after = now_measured(shop)
    assert after["pybroker_database_up"] == {(): 1}
    assert after["pybroker_queue_ready_messages"][("warehouse",)] == 5
    assert after["pybroker_queue_enabled"][("warehouse",)] == 1
    assert 0 <= after["pybroker_queue_oldest_message_age_seconds"][("warehouse",)] < 3600
    assert after["pybroker_transmission_queue_messages"] == {(): 1}
    assert after["pybroker_conversation_endpoints"] == {(): 7}
    assert after["pybroker_transmission_queue_oldest_message_age_seconds"][()] >= 0

    def grown(name: str) -> float:
        return after[name][()] - before[name][()]

    until(lambda: grown_to(shop, before, "pybroker_enqueued_messages_total") >= 6)
    assert grown("pybroker_transmission_enqueued_messages_total") in (0, 1)


def grown_to(shop: Shop, before: Numbers, name: str) -> float:
    return now_measured(shop)[name][()] - before[name][()]


COUNTED = """
begin
  perform nextval('public.starts');
  loop
    insert into public.seen (queue, body)
    select 'orders', convert_from(message_body, 'UTF8') from broker.receive('orders', top => 7);
    exit when not found;
    commit;
  end loop;
end
"""
SENDERS, SENT_BY_EACH = 3, 60


def test_scrapes_under_load_go_wrong_by_no_message(database: Database) -> None:
    """While programs send and readers receive, no counter goes back; in the end each number is what was done."""
    application = Application(database)
    application.queue("orders", COUNTED, max_readers=2)
    before = scraped_once(database.url)
    command = [sys.executable, "-m", "pybroker", "worker", "--log-format", "json"]
    command += ["--database-url", database.url, "--metrics-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        try:
            port = next_event(worker, "metrics_ready")["port"]
            next_event(worker, "worker_ready")
            sending = [in_background(lambda: send_orders(database)) for _ in range(SENDERS)]
            scrapes = [scrape(port)]
            while not all(one.done() for one in sending):
                # By an endpoint of its own: one that has read 5 seconds ago at most tells what it knows.
                scrapes.append(scraped_once(database.url))
            for one in sending:
                one.result()
            until(lambda: len(application.seen("orders")) == SENDERS * SENT_BY_EACH)
            until(lambda: application.tasks("orders") == 0)
        finally:
            worker.terminate()
            assert worker.stderr is not None
            worker.stderr.read()
    sent = SENDERS * SENT_BY_EACH
    # PostgreSQL counts what a session did when that session says so, at the latest at its end.
    name = "pybroker_enqueued_messages_total"
    until(lambda: scraped_once(database.url)[name][()] - before[name][()] >= sent)
    after = scraped_once(database.url)
    assert after[name][()] - before[name][()] == sent
    assert after["pybroker_queue_ready_messages"][("orders",)] == 0
    assert "pybroker_queue_oldest_message_age_seconds" not in after
    assert after["pybroker_activation_procedure_calls_total"][("orders",)] == application.starts()
    assert after["pybroker_activation_tasks_started_total"][("orders",)] >= 1
    assert after["pybroker_activation_tasks_aborted_total"][("orders",)] == 0
    assert after["pybroker_activation_tasks_running"][("orders",)] == 0
    assert after["pybroker_conversation_endpoints"] == {(): 2 * sent}
    assert after["pybroker_transmission_queue_messages"] == {(): 0}
    counters = [metric.full_name for _, metric, _ in every_metric() if metric.kind == "counter"]
    for earlier, later in pairwise([before, *scrapes, after]):
        for counter in counters:
            for labels, value in earlier.get(counter, {}).items():
                assert later[counter][labels] >= value, counter
        assert 0 <= later["pybroker_queue_ready_messages"][("orders",)] <= sent
    application.close()


def scraped_once(url: str) -> Numbers:
    with measured(url) as port:
        return scrape(port)


def send_orders(database: Database) -> None:
    with database.connect() as session:
        for number in range(SENT_BY_EACH):
            session.execute(
                "select broker.send(broker.begin_dialog('//senders', '//orders'), 'DEFAULT', %s::text)",
                (str(number),),
            )


def test_a_queue_that_is_off_and_a_conversation_that_is_set_aside_are_seen(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    psql.send(psql.dialog())
    handle = psql.value("select conversation_handle from broker.queue_messages")
    for _ in range(5):
        psql.rows("select broker.note_failure(%s, 'out of paper')", handle)
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    found = now_measured(shop)
    assert found["pybroker_quarantined_conversations"] == {("warehouse",): 1}
    assert found["pybroker_queue_enabled"][("warehouse",)] == 0


def test_the_expiry_of_a_certificate_is_its_date(shop: Shop, tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "pybroker",
            "certificate",
            "create",
            "far",
            "--key-directory",
            str(tmp_path),
            "--days",
            "30",
        ],
        check=True,
        capture_output=True,
    )
    assert made.returncode == 0
    shop.psql.rows("select broker.create_certificate('far', %s, 'far')", (tmp_path / "far.pem").read_text())
    expiry = now_measured(shop)["pybroker_certificate_expiry_timestamp_seconds"][("far",)]
    assert abs(expiry - time.time() - 30 * 86400) < 86400


def test_every_metric_of_the_catalogue_is_exposed_with_its_type(shop: Shop) -> None:
    with measured(shop.database.url) as port:
        _, text = get(port, "/metrics")
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert {metric.full_name: kinds.get(f"pybroker_{metric.name}") for _, metric, _ in every_metric()} == {
        metric.full_name: metric.kind for _, metric, _ in every_metric()
    }
    assert "process_cpu_seconds" in kinds


def test_a_name_with_quotes_and_lines_breaks_no_line(shop: Shop) -> None:
    name = 'a"b\\c\nd'
    shop.psql.rows("select broker.create_queue(%s)", name)
    assert now_measured(shop)["pybroker_queue_enabled"][(name,)] == 1


def test_a_database_that_is_away_takes_nothing_from_the_others(shop: Shop) -> None:
    gone = psycopg.conninfo.make_conninfo(shop.database.url, dbname="not_there")
    with measured(shop.database.url, gone) as port:
        _, text = get(port, "/metrics")
        status, said = get(port, "/readyz")
    up = {
        sample.labels["database"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "pybroker_database_up"
    }
    assert up == {shop.database.name: 1, "not_there": 0}
    assert (status, said) == (503, "database not_there can't be read\n")


def test_many_scrapers_cost_the_database_as_one(shop: Shop) -> None:
    now = 0.0
    collector = DatabaseCollector([shop.database.url], clock=lambda: now)
    try:
        first = list(collector.collect())
        shop.psql.send(shop.psql.dialog())
        assert list(collector.collect()) == first
        now = 5.0
        assert list(collector.collect()) != first
    finally:
        collector.close()


def test_an_ordinary_role_reads_what_it_may_see(shop: Shop) -> None:
    role = shop.database.role()
    shop.psql.rows(f"select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{role}')")
    with measured(shop.database.server.url(shop.database.name, user=role)) as port:
        found = scrape(port)
    assert list(found["pybroker_queue_ready_messages"]) == [("warehouse",)]
    assert "pybroker_transmission_queue_messages" not in found


def test_a_worker_tells_its_health_until_it_is_asked_to_stop(shop: Shop) -> None:
    command = [
        sys.executable,
        "-m",
        "pybroker",
        "worker",
        "--log-format",
        "json",
        "--database-url",
        shop.database.url,
    ]
    with subprocess.Popen([*command, "--metrics-port", "0"], stderr=subprocess.PIPE, text=True) as worker:
        port = next_event(worker, "metrics_ready")["port"]
        next_event(worker, "worker_ready")
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (200, "ok\n")
        until(lambda: "pybroker_periodic_task_last_run_timestamp_seconds" in scrape(port))
        assert get(port, "/")[0] == 404
        worker.terminate()
        assert worker.stderr is not None
        said = worker.stderr.read()
    assert worker.returncode == 0, said


def test_a_service_program_serves_the_same_pages(shop: Shop) -> None:
    app, port = pybroker.App(shop.database.url), free_port()
    handled = threading.Event()

    @app.service_program("warehouse")
    def fulfil(_: object) -> None:
        handled.set()

    running = in_background(lambda: app.run(metrics_port=port))
    try:
        shop.psql.send(shop.psql.dialog(), body=b"1")
        assert handled.wait(PATIENCE)
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (200, "ok\n")
        # Names of one database, whoever serves its numbers.
        assert scrape(port).keys() >= now_measured(shop).keys()
    finally:
        app.stop()
        running.result(PATIENCE)
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE)


def test_a_service_program_without_the_extra_says_what_to_install(database: Database) -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import pybroker
app = pybroker.App(sys.argv[1])
app.service_program("orders")(print)
app.run(metrics_port=0)
"""
    with database.connect() as session:
        session.execute("select broker.create_queue('orders')")
    run = subprocess.run(
        [sys.executable, "-c", code, database.url],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert 'prometheus_client is not installed: pip install "pybroker[telemetry]"' in run.stderr


def test_a_port_that_is_taken_is_wrong_usage(shop: Shop) -> None:
    with measured(shop.database.url) as port:
        command = [sys.executable, "-m", "pybroker", "worker", "--database-url", shop.database.url]
        refused = subprocess.run(
            [*command, "--metrics-port", str(port)], capture_output=True, text=True, check=False
        )
    assert refused.returncode == 2
    assert "in use" in refused.stderr


def program(name: str) -> str:
    """Where a program of Debian's package prometheus is."""
    found = shutil.which(name)
    if found is None:
        missing.skip(name, "apt-get install prometheus")
    return found


@pytest.mark.parametrize("name", ["rules", "metrics"])
def test_promtool_finds_no_fault(name: str, shop: Shop, tmp_path: Path) -> None:
    promtool = program("promtool")
    if name == "rules":
        (tmp_path / "rules.yml").write_text(files.rules())
        checked = subprocess.run(
            [promtool, "check", "rules", "rules.yml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    else:
        with measured(shop.database.url) as port:
            _, text = get(port, "/metrics")
        ours = "".join(line for line in text.splitlines(keepends=True) if "pybroker_" in line)
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=ours, capture_output=True, text=True, check=False
        )
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout + checked.stderr


def test_prometheus_beside_the_demo_reads_both_workers_and_knows_the_rules(
    shop: Shop, tmp_path: Path
) -> None:
    prometheus = program("prometheus")
    composition = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    config = (DOCKER / "monitoring/prometheus.yml").read_text()
    # What the file names is what the composition has.
    (job,) = yaml.safe_load(config)["scrape_configs"]
    (targets,) = (each["targets"] for each in job["static_configs"])
    for target in targets:
        name, _, port = target.partition(":")
        assert composition[name]["environment"]["PYBROKER_METRICS_PORT"] == port
    mounted = [volume for volume in composition["prometheus"]["volumes"] if "/etc/pybroker" in volume]
    assert mounted == ["monitoring-files:/etc/pybroker:ro"]
    assert yaml.safe_load(config)["rule_files"] == ["/etc/pybroker/rules.yml"]
    (tmp_path / "rules.yml").write_text(files.rules())
    shop.psql.send(shop.psql.dialog())
    with ExitStack() as opened:
        for target in targets:
            config = config.replace(target, f"127.0.0.1:{opened.enter_context(measured(shop.database.url))}")
        config = config.replace("/etc/pybroker", str(tmp_path)).replace("15s", "1s")
        (tmp_path / "prometheus.yml").write_text(config)
        port = free_port()
        running = opened.enter_context(
            subprocess.Popen(
                [
                    prometheus,
                    f"--config.file={tmp_path / 'prometheus.yml'}",
                    f"--storage.tsdb.path={tmp_path / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        opened.callback(running.terminate)

        def answer(path: str) -> Any:
            try:
                status, text = get(port, f"/api/v1/{path}")
            except OSError:
                return None
            return json.loads(text)["data"] if status == 200 else None

        def ready() -> list[str]:
            found = answer("query?query=pybroker_queue_ready_messages{queue='warehouse'}".replace("'", "%22"))
            return sorted(each["value"][1] for each in found["result"]) if found else []

        until(lambda: ready() == ["1", "1"])
        rules = [rule for group in answer("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {
        metric.alert.name for _, metric, _ in every_metric() if metric.alert
    }


def test_grafana_beside_the_demo_finds_its_prometheus_and_the_dashboard() -> None:
    composition = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    monitoring = DOCKER / "monitoring"
    (source,) = yaml.safe_load((monitoring / "grafana-datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert set(composition["prometheus"]["networks"]) & set(composition["grafana"]["networks"])
    (provider,) = yaml.safe_load((monitoring / "grafana-dashboards.yaml").read_text())["providers"]
    assert f"monitoring-files:{provider['options']['path']}:ro" in composition["grafana"]["volumes"]
    (made,) = composition["monitoring-files"]["command"]
    (volume,) = composition["monitoring-files"]["volumes"]
    place = volume.partition(":")[2]
    assert f"python -m pybroker.metrics.files dashboard > {place}/dashboard.json" in made
    assert f"python -m pybroker.metrics.files rules > {place}/rules.yml" in made
    for name, service in composition.items():
        is_beside = name in {"prometheus", "grafana", "monitoring-files"}
        assert service.get("profiles", []) == (["monitoring"] if is_beside else [])
        # On this host alone.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for mounted in service.get("volumes", ()):
            if mounted.startswith("./"):
                assert (DOCKER / mounted.partition(":")[0]).is_file()


def test_the_dashboard_asks_only_for_metrics_that_there_are() -> None:
    panels = json.loads(files.dashboard())["panels"]
    asked: Mapping[str, str] = {
        panel["title"]: panel["targets"][0]["expr"] for panel in panels if panel["type"] == "timeseries"
    }
    assert len(asked) == len(every_metric())
    assert [
        metric.full_name
        for _, metric, _ in every_metric()
        if metric.full_name not in asked[metric.help.rstrip(".")]
    ] == []
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_page_of_the_docs_is_the_catalogue() -> None:
    assert files.page() in (Path(__file__).parents[2] / "docs/metrics.md").read_text()
