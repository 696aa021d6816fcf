"""What docs/deployment.md tells an operator: units and manifests that the tools' own validators accept, and a connection pooler."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import kubernetes_validate
import psycopg
import pytest
import yaml

import pybroker
from pybroker.demo.broker import free_ports
from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from tests import missing
from tests.shop import DEFINITIONS, in_background, until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "docker/systemd/pybroker-worker@.service"
MANIFESTS = ROOT / "docker/kubernetes/worker.yaml"
KUBERNETES = ("1.30", "1.33")
# systemd-analyze security goes from 0, everything is locked, to 10.
EXPOSURE_IN_TENTHS = 20
PASSWORD = "secret"


def tool(name: str, package: str) -> str:
    """Return the path of a program of one of Debian's packages."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        missing.skip(name, f"apt-get install {package}")
    return found


def test_the_systemd_unit_is_one_that_systemd_accepts_and_finds_locked(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    unit = tmp_path / UNIT.name
    # The only thing that this machine lacks is the command at its place.
    unit.write_text(UNIT.read_text().replace("/opt/pybroker/bin/pybroker", shutil.which("true") or ""))
    for look in (("verify", "--man=no"), ("security", "--offline=true", f"--threshold={EXPOSURE_IN_TENTHS}")):
        done = subprocess.run([analyze, *look, unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert unit.name not in done.stderr, done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_kubernetes_manifests_follow_its_schemas(version: str) -> None:
    documents = list(yaml.safe_load_all(MANIFESTS.read_text()))
    kinds = {document["kind"] for document in documents}
    assert kinds == {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    images = {container["image"] for container in documents[0]["spec"]["template"]["spec"]["containers"]}
    assert images == {f"pybroker-worker:{pybroker.__version__}"}
    misspelt = {**documents[0], "spec": {**documents[0]["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, version, strict=True)


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[str]:
    """The URL of the shop's database through PgBouncer, which gives a server session for a transaction only."""
    pgbouncer = tool("pgbouncer", "pgbouncer")
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(listen=True))
        server.create_database("shop")
        migrate(server.url("shop"))
        with psycopg.connect(server.url("shop"), autocommit=True) as session:
            session.execute(DEFINITIONS)
            session.execute(f"create role app login password '{PASSWORD}'")
            for granted in ("'SEND', 'SERVICE', '//warehouse'", "'SEND', 'SERVICE', '//shop'", "'RECEIVE', 'QUEUE', 'warehouse'",
                            "'REFERENCES', 'CONTRACT', 'ordering'", "'RECEIVE', 'QUEUE', 'shop'"):  # fmt: skip
                session.execute(f"select broker.grant({granted}, 'app')".encode())
        given = psycopg.conninfo.conninfo_to_dict(server.tcp_url("shop"))
        (port,) = free_ports(1)
        settings = tmp_path / "pgbouncer.ini"
        (tmp_path / "users").write_text(f'"app" "{PASSWORD}"\n')
        settings.write_text(
            f"[databases]\nshop = host=127.0.0.1 port={given['port']} dbname=shop\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = plain\n"
            f"auth_file = {tmp_path}/users\npool_mode = transaction\ndefault_pool_size = 2\n"
        )
        command = [pgbouncer, str(settings)]
        if os.geteuid() == 0:
            # It refuses to be root, and so has to reach its files.
            for folder in (tmp_path, *tmp_path.parents):
                if folder.owner() == "root" and folder.name.startswith(("pytest-", tmp_path.name)):
                    folder.chmod(0o755)
            command[1:1] = ["-u", "nobody"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        url = f"postgresql://app@127.0.0.1:{port}/shop?password={PASSWORD}"
        until(lambda: process.poll() is not None or _answers(url))
        assert process.returncode is None
        yield url


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_programs_send_receive_and_wait_through_a_pooler_in_transaction_mode(pooled: str) -> None:
    def take(receiver: pybroker.Broker) -> list[bytes | None]:
        with receiver.transaction():
            return [message.body for message in receiver.receive("warehouse", timeout=60)]

    received: list[bytes | None] = []
    with ExitStack() as stack:
        # More clients than server sessions, in turn: each transaction gets whichever is free.
        brokers = [
            pybroker.connect(stack.enter_context(psycopg.connect(pooled, prepare_threshold=None)))
            for _ in range(4)
        ]
        for number in range(12):
            sender, receiver = brokers[number % 4], brokers[(number + 1) % 4]
            taken = in_background(lambda receiver=receiver: take(receiver))
            with sender.transaction():
                dialog = sender.begin_dialog("//shop", "//warehouse", contract="ordering")
                dialog.send("order", str(number))
            received += taken.result(200)
    assert received == [str(number).encode() for number in range(12)]


def test_a_transaction_that_loses_its_session_behind_a_pooler_is_repeated_once(pooled: str) -> None:
    """A client stays with a session that is gone, or a message is lost, or sent by the first attempt too."""
    killed = lost = 0
    others = b"select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()"
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as administrator:
        for number in range(10):
            is_open = True
            while is_open:
                try:
                    with psycopg.connect(pooled, prepare_threshold=None) as session:
                        broker = pybroker.connect(session)
                        with broker.transaction():
                            dialog = broker.begin_dialog("//shop", "//warehouse", contract="ordering")
                            dialog.send("order", str(number))
                            if killed == number:
                                assert administrator.execute(others).rowcount
                                killed += 1
                        is_open = False
                except psycopg.Error:
                    # As the COMMIT finds both an error and the end, psycopg may call it an InternalError.
                    assert session.closed
                    lost += 1
    # One retry each, or two where the pooler had not noticed yet that another session was gone.
    assert killed == 10 <= lost <= 20
    with psycopg.connect(pooled, prepare_threshold=None) as session:
        broker = pybroker.connect(session)
        received: list[bytes | None] = []
        while len(received) < 10:
            with broker.transaction():
                received += [message.body for message in broker.receive("warehouse", timeout=60)]
        with broker.transaction():
            assert broker.receive("warehouse") == []
    assert sorted(map(str, received)) == sorted(str(str(number).encode()) for number in range(10))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_program_outlives_a_session_that_ends_before_its_commit(
    pooled: str, is_async: bool
) -> None:
    """A program that ends with its session answers nothing any more, until somebody starts it again."""
    others = b"select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()"
    app = pybroker.App(pooled)
    program = app.service_program("warehouse", top=1)
    seen: list[bytes | None] = []

    def kill_once(body: bytes | None) -> None:
        seen.append(body)
        if seen.count(body) == 1:
            with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as administrator:
                administrator.execute(others)

    if is_async:

        @program
        async def answer_async(conversation: pybroker.AsyncProgramConversation[None]) -> None:
            for message in conversation.messages:
                await conversation.send("ack", message.body or b"")
                kill_once(message.body)

    else:

        @program
        def answer(conversation: pybroker.ProgramConversation[None]) -> None:
            for message in conversation.messages:
                conversation.send("ack", message.body or b"")
                kill_once(message.body)

    with psycopg.connect(pooled, prepare_threshold=None) as session:
        broker = pybroker.connect(session)
        for number in range(5):
            with broker.transaction():
                broker.begin_dialog("//shop", "//warehouse", contract="ordering").send("order", str(number))
    running = in_background(app.run)
    try:
        until(lambda: running.done() or len(seen) >= 10)
        assert not running.done(), running.result()
        with psycopg.connect(pooled, prepare_threshold=None) as session:
            broker = pybroker.connect(session)
            answers: list[bytes | None] = []
            while len(answers) < 5:
                with broker.transaction():
                    messages = broker.receive("shop", timeout=60)
                assert messages, f"only {answers} were answered"
                answers += [message.body for message in messages]
    finally:
        app.stop()
        running.result(200)
    assert sorted(str(body) for body in answers) == [str(str(number).encode()) for number in range(5)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_program_behind_a_pooler_answers_every_message(pooled: str, is_async: bool) -> None:
    app = pybroker.App(pooled)
    program = app.service_program("warehouse", max_queue_readers=3, top=1)
    if is_async:

        @program
        async def answer_async(conversation: pybroker.AsyncProgramConversation[None]) -> None:
            for message in conversation.messages:
                await conversation.send("ack", message.body or b"")

    else:

        @program
        def answer(conversation: pybroker.ProgramConversation[None]) -> None:
            for message in conversation.messages:
                conversation.send("ack", message.body or b"")

    running = in_background(app.run)
    answers = set()
    try:
        with pybroker.connect(pooled) as broker:
            # Statements are prepared once they have been run a few times, so a few would show nothing.
            for number in range(30):
                broker.begin_dialog("//shop", "//warehouse", contract="ordering").send("order", str(number))
            while len(answers) < 30:
                messages = broker.receive("shop", timeout=60)
                assert messages, f"only {answers} were answered"
                answers.update(message.body for message in messages)
    finally:
        app.stop()
        running.result(200)
    assert answers == {str(number).encode() for number in range(30)}
