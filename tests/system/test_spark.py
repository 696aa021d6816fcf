"""The Spark data source: what passes a pipeline passes it once and in order, whichever process dies.

And Spark's accounts of `pybroker throughput`, which need a session too: starting one costs more than all that is asked of it here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from psycopg.conninfo import make_conninfo

from tests import missing
from tests.flaky import SPARK_IS_LATE
from tests.patience import NotStartedError, until
from tests.shop import Session
from tests.system.test_docs import Psql, blocks

pytest.importorskip("pyspark", reason=missing.reason("pyspark", "make .venv/.spark"))

from pyspark.errors import AnalysisException

from pybroker.spark import BrokerDataSource, finish_batch, install, start_session
from pybroker.spark.options import OptionError, read_options, write_options
from pybroker.spark.sink import StreamWriter
from pybroker.spark.source import COLUMNS
from pybroker.throughput.analysis import Work, analyse
from pybroker.throughput.matrix import Cell
from tests.faulty_run import faulty_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Row, SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

    from tests.conftest import Database

CONVERSATIONS, MESSAGES = 5, 60
# Neither Java nor Spark is to translate for the long run what a test runs once.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
SINK = {"from_service": "//shop", "to_service": "//ledger", "contract": "ordering", "message_type": "order"}
DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_contract('ordering', sent_by_any => '{order}');
select broker.create_queue('shop');
select broker.create_queue('warehouse');
select broker.create_queue('ledger');
select broker.create_service('//shop', 'shop');
select broker.create_service('//warehouse', 'warehouse', '{ordering}');
select broker.create_service('//ledger', 'ledger', '{ordering}');
"""
# A driver of its own, for a test to kill.
DRIVER = """
import sys
from pybroker.spark import BrokerDataSource, start_session
from tests.system.test_spark import QUICK, once, pipeline, sink_that_sends_a_part
url, checkpoint, sent = sys.argv[1:]
spark = start_session("local[2]", settings=QUICK)
spark.dataSource.register(BrokerDataSource)
spark.dataSource.register(sink_that_sends_a_part(once(sent)))
pipeline(spark, url, checkpoint, partitions=4, sink="partial").awaitTermination()
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # A task may fail three times; a local master lets none otherwise.
    session = start_session("local[4,4]", settings=QUICK)
    session.dataSource.register(BrokerDataSource)
    yield session
    session.stop()


@pytest.fixture
def shop(database: Database) -> Iterator[Session]:
    with database.connect() as connection:
        session = Session(connection)
        session.rows(DEFINITIONS)
        yield session


# Tasks can't import this module. What is made inside of a function travels to them by value.
def once(file: Path | str) -> Callable[[], bool]:
    """Return what is true for the first that asks, in whichever process, and for nobody after it."""

    def is_first() -> bool:
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    return is_first


def source_with(name: str, writer: type[StreamWriter]) -> type[BrokerDataSource]:
    format_name = name

    class Source(BrokerDataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, N802
            return writer(write_options(self.options), schema)

    return Source


def sink_that_dies(is_first: Callable[[], bool]) -> type[BrokerDataSource]:
    """One task is killed when its messages are committed and Spark does not know it."""

    class Dying(StreamWriter):
        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            sent = super().write(iterator)
            if sent.messages and is_first():
                os.kill(os.getpid(), signal.SIGKILL)
            return sent

    return source_with("dying", Dying)


def sink_that_sends_a_part(is_first: Callable[[], bool]) -> type[BrokerDataSource]:
    """One task sends its messages, and the others that have any wait until their driver is killed."""

    class Partial(StreamWriter):
        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            rows = list(iterator)
            if rows and not is_first():
                parent = os.getppid()
                while os.getppid() == parent:
                    time.sleep(0.1)
                raise SystemExit
            return super().write(iter(rows))

    return source_with("partial", Partial)


def pipeline(
    spark: SparkSession,
    url: str,
    checkpoint: str,
    *,
    partitions: int = 2,
    is_killed: Callable[[], bool] | None = None,
    sink: str = "pybroker",
) -> StreamingQuery:
    """Start what copies the warehouse's messages to the ledger, each conversation on one of its own, and then ends."""
    messages = (
        spark.readStream.format("pybroker")
        .options(database_url=url, queue="warehouse", max_messages=200, partitions=partitions)
        .load()
        .selectExpr("conversation_handle as conversation_key", "message_body")
    )
    if is_killed:

        def passes(batches: Any) -> Iterator[Any]:
            for batch in batches:
                yield batch
                if is_killed():
                    os.kill(os.getpid(), signal.SIGKILL)

        messages = messages.mapInArrow(passes, messages.schema)
    return (
        messages.writeStream.format(sink)
        .options(database_url=url, **SINK)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def until_spark_starts(run: Callable[[], object]) -> None:
    """Run a query, again while Spark gives up on a Python process that a busy machine has not started in ten seconds.

    Spark 4.3 has that as a constant, in PythonWorkerFactory.createSimpleWorker. So does a user, docs/spark.md says;
    nothing is lost or doubled by it.
    """

    def has_run() -> bool:
        try:
            run()
        except Exception as error:
            if SPARK_IS_LATE not in str(error):
                raise
            return False
        return True

    until(has_run, error=NotStartedError)


def fill(shop: Session) -> None:
    for _ in range(CONVERSATIONS):
        handle = shop.dialog()
        shop.rows(
            "select broker.send_batch(%s, 'order', %s::bytea[])", handle, [b"%d" % n for n in range(MESSAGES)]
        )


def ledger(shop: Session) -> list[list[int]]:
    """Return what came on each conversation, in order."""
    rows = shop.rows(
        "select array_agg(convert_from(message_body, 'UTF8')::integer order by queuing_order)"
        " from ledger group by conversation_handle"
    )
    return [numbers for (numbers,) in rows]


EVERYTHING_ONCE = [list(range(MESSAGES))] * CONVERSATIONS


def test_a_task_that_is_killed_while_it_reads_loses_and_doubles_nothing(
    spark: SparkSession, shop: Session, database: Database, tmp_path: Path
) -> None:
    fill(shop)
    killed = tmp_path / "killed"
    until_spark_starts(
        lambda: pipeline(
            spark, database.url, str(tmp_path / "checkpoint"), is_killed=once(killed)
        ).awaitTermination()
    )
    assert killed.exists()
    assert ledger(shop) == EVERYTHING_ONCE
    assert shop.value("select count(*) from warehouse") == 0


def test_a_task_that_is_killed_after_it_has_sent_sends_nothing_twice(
    spark: SparkSession, shop: Session, database: Database, tmp_path: Path
) -> None:
    fill(shop)
    killed = tmp_path / "killed"
    spark.dataSource.register(sink_that_dies(once(killed)))
    until_spark_starts(
        lambda: pipeline(spark, database.url, str(tmp_path / "checkpoint"), sink="dying").awaitTermination()
    )
    assert killed.exists()
    assert ledger(shop) == EVERYTHING_ONCE


@pytest.mark.nightly
def test_a_driver_that_is_killed_loses_and_doubles_nothing_whatever_the_partitions_are_next(
    spark: SparkSession, shop: Session, database: Database, tmp_path: Path
) -> None:
    fill(shop)
    checkpoint = tmp_path / "checkpoint"
    # One whose Spark could not be reached by its own processes ends before it has done anything.
    for _ in range(6):
        driver = psutil.Popen(
            [sys.executable, "-c", DRIVER, database.url, str(checkpoint), str(tmp_path / "sent")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: ledger(shop) or driver.poll() is not None)  # noqa: B023 - called at once
        finally:
            family = [driver, *([] if driver.poll() is not None else driver.children(recursive=True))]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family)
        if ledger(shop):
            break
    assert ledger(shop), f"the driver ended by itself, with {driver.returncode}"
    until_spark_starts(
        lambda: pipeline(spark, database.url, str(checkpoint), partitions=1).awaitTermination()
    )
    assert ledger(shop) == EVERYTHING_ONCE
    assert shop.value("select count(*) from warehouse") == 0


def test_a_batch_stays_what_it_is_until_it_is_finished(
    spark: SparkSession, shop: Session, database: Database
) -> None:
    fill(shop)
    options = {"database_url": database.url, "queue": "warehouse", "max_messages": "200"}

    def bodies() -> list[bytes]:
        rows = spark.read.format("pybroker").options(**options).load().collect()
        return sorted(bytes(row["message_body"]) for row in rows)

    first = bodies()
    assert len(first) == 200
    assert bodies() == first
    assert finish_batch(database.url, "warehouse") == 200
    second = bodies()
    finish_batch(database.url, "warehouse")
    # The loop of the page ends so: an empty frame, with a message's columns.
    nothing = spark.read.format("pybroker").options(**options).load()
    assert (nothing.count(), nothing.collect(), nothing.columns) == (0, [], list(COLUMNS))
    assert finish_batch(database.url, "warehouse") == 0
    assert sorted(first + second) == sorted(b"%d" % n for n in range(MESSAGES) for _ in range(CONVERSATIONS))


def test_a_batch_that_is_written_again_is_sent_once(
    spark: SparkSession, shop: Session, database: Database
) -> None:
    rows = (
        spark.range(10)
        .selectExpr("'one' as conversation_key", "cast(id as string) as message_body")
        .coalesce(1)
    )
    write = rows.write.format("pybroker").mode("append").options(database_url=database.url, **SINK)
    for batch in (1, 1, 2):
        write.options(query="nightly", batch=batch).save()
    assert ledger(shop) == [[*range(10), *range(10)]]


def test_a_pipeline_answers_and_ends_conversations(
    spark: SparkSession, shop: Session, database: Database
) -> None:
    handle = shop.dialog()
    shop.send(handle, "order", b"1")
    received = spark.read.format("pybroker").options(database_url=database.url, queue="warehouse").load()
    answers = received.selectExpr(
        "conversation_handle", "message_type_name", "cast('ack' as binary) as message_body"
    )
    write = answers.write.format("pybroker").mode("append").options(database_url=database.url)
    write.save()
    assert shop.receive("shop") == [("order", 0, b"ack")]
    finish_batch(database.url, "warehouse")
    shop.end(handle)
    # The source answers EndDialog by ending its own side.
    assert (
        spark.read.format("pybroker").options(database_url=database.url, queue="warehouse").load().count()
        == 1
    )
    assert shop.value("select count(*) from broker.conversation_endpoints where state <> 'CD'") == 0


def test_the_pipeline_of_the_page(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell,), (definitions, look), (program,) = (
        blocks("docs/spark.md", mark) for mark in ("shell", "psql", "spark")
    )
    monkeypatch.setenv("PYBROKER_DATABASE_URL", database.url)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    typed = subprocess.run(
        ["bash", "-euc", f'{shell}echo "$CHECKPOINT"'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert typed.returncode == 0, typed.stderr
    monkeypatch.setenv("CHECKPOINT", typed.stdout.splitlines()[-1])
    psql = Psql(database)
    psql.type(definitions)
    until_spark_starts(lambda: exec(program, {}))
    received = [line.split("|", 1) for line in psql.type(look)]
    psql.close()
    assert sorted(json.loads(body)["amount"] for _, body in received) == [500, 800]
    assert len({handle for handle, _ in received}) == 2


def test_the_page_s_advice_keeps_a_conversation_s_order_after_a_shuffle(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (definitions, _), (program,) = (blocks("docs/spark.md", mark) for mark in ("psql", "ordered"))
    monkeypatch.setenv("PYBROKER_DATABASE_URL", database.url)
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "checkpoint"))
    psql = Psql(database)
    psql.type(definitions)
    psql.close()
    with database.connect() as connection:
        shop = Session(connection)
        for _ in range(3):
            handle = shop.value(
                "select broker.begin_dialog('//shop/orders', '//warehouse/fulfilment', contract => '//shop/ordering')"
            )
            bodies = [b"%d" % number for number in range(MESSAGES)]
            shop.rows("select broker.send_batch(%s, '//shop/order', %s::bytea[])", handle, bodies)
        # Each row in another partition than its neighbours.
        shuffled = (
            spark.readStream.format("pybroker")
            .options(database_url=database.url, queue="fulfilment", max_messages=100)
            .load()
            .selectExpr("conversation_handle as conversation_key", "message_body", "position")
            .repartition(5, "message_body")
        )

        def run() -> None:
            exec(program, {"os": os, "shuffled": shuffled})

        until_spark_starts(run)
        rows = shop.rows(
            "select array_agg(convert_from(message_body, 'UTF8') order by queuing_order) from audit"
            " group by conversation_handle"
        )
    numbers = [found for (found,) in rows if len(found) == MESSAGES]
    assert numbers == [[str(number) for number in range(MESSAGES)]] * 3


def test_a_lost_a_doubled_and_a_swapped_message_are_each_counted_and_the_samples_summed_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    run, rows = faulty_run(tmp_path)
    found = analyse(spark, Cell("whitepaper", 18, 2, 3, 1, 100), run, tmp_path, seconds=1.0)
    assert (found.lost, found.doubled, found.swapped) == (1 + 5, 1 + 1, 1)
    assert found.has_failed
    assert found.rate == pytest.approx(rows / 10)
    assert found.by_second == [0, 0, rows, *[0] * 7]
    assert found.latency == pytest.approx([1.5] * 3)
    assert found.cores == pytest.approx(
        dict.fromkeys(("initiator1 server", "initiator2 server", "target server"), 0.25)
    )
    assert found.wal_per_message == pytest.approx(
        {"initiator1": 1200 / found.rate, "initiator2": 1200 / found.rate, "target": 600 / found.rate}
    )
    assert found.waits == {
        "initiator1": [("LWLock:WALWrite", 0.5), ("LWLock:BufferContent", 0.25), ("running", 0.25)],
        "initiator2": [],
        "target": [("Timeout:PgSleep", 1.0)],
    }
    assert found.bound_by == "the quota of the target server"
    # What another test left is nobody's work, and what came before or after the readings is not divided by them.
    assert found.work == {
        "initiator server": Work(12, pytest.approx(2.0)),
        "target server": Work(12, pytest.approx(1.0)),
        "clients": Work(17, pytest.approx(0.5)),
    }
    assert found.per_processor_second["clients"] == pytest.approx(34)
    assert found.others == pytest.approx(3 / 10 / (os.cpu_count() or 1))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"database_url": "postgresql:///shop"}, "queue"),
        ({"database_url": "postgresql:///shop", "queue": "q", "max_messages": "none"}, "max_messages"),
        ({"database_url": "postgresql:///shop", "queue": "q", "quue": "q"}, "quue"),
        (
            {"database_url": "postgresql:///shop", "queue": "q", "end_conversations": "maybe"},
            "end_conversations",
        ),
    ],
)
def test_an_option_that_is_no_use_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        read_options(given)


def test_a_sink_needs_both_services_or_none() -> None:
    with pytest.raises(OptionError, match="to_service"):
        write_options({"database_url": "postgresql:///shop", "from_service": "//shop"})


def test_what_could_not_be_read_is_refused_at_load_by_the_option_s_name(
    spark: SparkSession, shop: Session, database: Database
) -> None:
    stranger = database.role()
    shop.rows(f"grant usage on schema broker to {stranger}")
    as_stranger = make_conninfo(database.url, user=stranger)
    for options, complaint in (
        ({"database_url": "postgresql://me:a b@127.0.0.1/shop", "queue": "warehouse"}, "database_url: .*%20"),
        ({"database_url": "postgresql://127.0.0.1:1/shop", "queue": "warehouse"}, "database_url: .*refused"),
        ({"database_url": database.url, "queue": "warehous"}, "queue: there is no 'warehous'"),
        ({"database_url": as_stranger, "queue": "warehouse"}, "queue: .* that this role may receive from"),
        ({"database_url": database.url}, "give the option queue"),
    ):
        with pytest.raises(AnalysisException, match=complaint):
            spark.read.format("pybroker").options(**options).load()
    # Who may receive, and may not make the tables, is told before a batch is half received.
    shop.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", stranger)
    reader = spark.read.format("pybroker").options(database_url=as_stranger, queue="warehouse")
    with pytest.raises(AnalysisException, match="may not create the schema pybroker_spark"):
        reader.load()
    install(database.url)
    with pytest.raises(AnalysisException, match="needs USAGE on the schema pybroker_spark"):
        reader.load()
    tables = "grant select, insert, update, delete on all tables in schema pybroker_spark"
    shop.rows(f"grant usage on schema pybroker_spark to {stranger}; {tables} to {stranger}")
    assert reader.load().count() == 0


def test_a_column_is_read_in_the_type_that_it_has(
    spark: SparkSession, shop: Session, database: Database
) -> None:
    fill(shop)
    options = {"database_url": database.url, "queue": "warehouse"}
    with pytest.raises(Exception, match="schema: message_body is binary, not string"):
        spark.read.format("pybroker").schema("message_body string").options(**options).load().count()
    chosen = "conversation_handle string, message_body binary"
    found = spark.read.format("pybroker").schema(chosen).options(**options).load()
    assert found.count() == CONVERSATIONS * MESSAGES
