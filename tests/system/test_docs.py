"""What the README and the docs tell a person to type works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pybroker.embedded import EmbeddedServer
from tests import missing
from tests.shop import DIALOG_TIMER, ERROR, Session, until

if TYPE_CHECKING:
    from tests.conftest import Database

ROOT = Path(__file__).parents[2]


def blocks(file: str, mark: str) -> list[str]:
    """Return the code blocks that follow this mark, an HTML comment that a reader doesn't see."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(rf"<!-- {mark} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def test_the_readme_s_conversation_in_psql_and_in_python(database: Database) -> None:
    (script,) = blocks("README.md", "psql")
    psql = subprocess.run(
        [database.server.binary("psql"), "-X", "-v", "ON_ERROR_STOP=1", "-At", database.url],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert psql.returncode == 0, psql.stderr
    assert '//shop/ack|{"id": 1}' in psql.stdout
    (program,) = blocks("README.md", "python")
    environment = {**os.environ, "PYBROKER_DATABASE_URL": database.url}
    python = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert python.returncode == 0, python.stderr
    assert "{'id': 3}" in python.stdout
    # Again, with what the first time left: the EndDialog of its dialog.
    again = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    with database.connect() as connection:
        ended = "select count(*) from broker.conversation_endpoints where state not in ('CD', 'DI')"
        assert Session(connection).value(ended) <= 2


def test_the_procedure_of_the_activation_page(database: Database) -> None:
    text = (ROOT / "docs/activation.md").read_text(encoding="utf-8")
    procedure, *others = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    with database.connect() as connection:
        session = Session(connection)
        (script,) = blocks("README.md", "psql")
        session.rows(script[: script.index("-- The shop begins")])
        session.rows(procedure)
        handle = session.value(
            "select broker.begin_dialog('//shop/orders', '//warehouse/fulfilment', '//shop/ordering')"
        )
        session.send(handle, "//shop/order", b"1")
        session.rows("call book_orders()")
        session.end(handle)
        session.rows("call book_orders()")
        assert session.rows("select body from bookings") == [(b"1",)]
        assert session.rows("select from fulfilment") == []
        for block in others:
            session.rows(block)
        session.rows("call book_orders()")


def test_the_file_of_the_page_on_definitions(database: Database, tmp_path: Path) -> None:
    (text,) = blocks("docs/definitions.md", "definitions")
    (tmp_path / "definitions.py").write_text(text)
    environment = {**os.environ, "PYBROKER_DATABASE_URL": database.url}

    def apply(*options: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "pybroker", "apply", "definitions.py", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    planned = apply("--dry-run")
    assert planned.count("\n") == 8
    assert (apply(), apply()) == (planned, "nothing to do\n")
    with database.connect() as connection:
        session = Session(connection)
        handle = session.value(
            "select broker.begin_dialog('//shop/orders', '//shop/warehouse', '//shop/ordering')"
        )
        session.rows("select broker.send(%s, '//shop/order', '{}')", handle)
        assert session.value("select count(*) from broker.receive('warehouse')") == 1


def test_the_program_of_the_page_on_service_programs(database: Database, tmp_path: Path) -> None:
    (program,) = blocks("docs/service-programs.md", "program")
    (tmp_path / "program.py").write_text(program)
    with database.connect() as connection:
        session = Session(connection)
        (script,) = blocks("README.md", "psql")
        session.rows(script[: script.index("-- The shop begins")])
        (table,) = blocks("docs/service-programs.md", "table")
        session.rows(table)
        handle = session.value(
            "select broker.begin_dialog('//shop/orders', '//warehouse/fulfilment', '//shop/ordering')"
        )
        session.send(handle, "//shop/order", b'{"id": 3}')
        environment = {**os.environ, "PYBROKER_DATABASE_URL": database.url}
        process = subprocess.Popen([sys.executable, "-W", "error", tmp_path / "program.py"], env=environment)
        try:
            until(lambda: session.rows("select id from bookings"))
        finally:
            process.terminate()
        assert process.wait() == 0
        assert session.receive("order_replies") == [("//shop/ack", 0, b'{"id":3}')]


def test_the_page_on_tests_runs_from_an_empty_directory(tmp_path: Path) -> None:
    for name, mark in (("warehouse", "program"), ("conftest", "conftest"), ("test_warehouse", "tests")):
        (text,) = blocks("docs/program-tests.md", mark)
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tmp_path]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout


# Django has no types of its own, so what its commands and models are is unknown to mypy.
TYPED = {
    "readme": ("README.md", ("python",)),
    "services": ("docs/service-programs.md", ("program", "state")),
    "definitions_of_shop": ("docs/definitions.md", ("definitions",)),
    "definitions": ("docs/frameworks.md", ("definitions",)),
    "of_sqlalchemy": ("docs/frameworks.md", ("sqlalchemy",)),
    "of_sqlalchemy_async": ("docs/frameworks.md", ("sqlalchemy async",)),
    "of_fastapi": ("docs/frameworks.md", ("fastapi",)),
    "warehouse": ("docs/program-tests.md", ("program",)),
    "test_warehouse": ("docs/program-tests.md", ("tests",)),
}


def test_a_reader_s_type_checker_takes_the_programs_as_they_are_printed(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        missing.skip("mypy", "make .venv/.linters")
    programs = {}
    for name, (page, marks) in TYPED.items():
        texts = [blocks(page, mark) for mark in marks]
        assert all(len(text) == 1 for text in texts), f"{page} has other blocks than {marks}"
        programs[name] = "\n".join(text for (text,) in texts)
    tutorial = (ROOT / "docs/python-client.md").read_text(encoding="utf-8")
    programs["tutorial"] = "\n".join(re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL))
    assert "broker.receive(" in programs["tutorial"]
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    # In our directory, where `make lint` has left what mypy knows of the package.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(tmp_path.glob("*.py"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(programs)} source files" in checked.stdout


def test_the_statements_of_the_page_on_traces(database: Database) -> None:
    (script,) = blocks("docs/traces.md", "traces")
    definitions = """
        select broker.create_queue('order_replies');
        select broker.create_service('//orders', 'order_replies', '{DEFAULT}');
        select broker.begin_dialog('//orders', '//orders') as dialog \\gset
    """
    psql = subprocess.run(
        [database.server.binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-At", database.url],
        input=definitions + script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert psql.returncode == 0, psql.stderr
    assert '{"id": 1}|00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' in psql.stdout


def test_the_page_on_queues_and_groups(database: Database) -> None:
    page = "docs/queues-and-groups.md"
    with database.connect() as connection:
        session = Session(connection)
        (script,) = blocks("README.md", "psql")
        session.rows(script[: script.index("-- The shop begins")])
        (retention,), (move,), (alter,), (receive,) = (
            blocks(page, mark) for mark in ("retention", "move", "alter service", "receive groups")
        )
        setting, look = retention.split(";\n\n")
        session.rows(setting)
        handles = []
        for number in range(2):
            dialog = session.value(
                "select broker.begin_dialog('//shop/orders', '//warehouse/fulfilment', '//shop/ordering')"
            )
            session.send(dialog, "//shop/order", b"%d" % number)
            handles.append(session.handle_of(dialog))
        session.rows("select broker.receive('fulfilment', top => 1)")
        assert [row[::2] for row in session.rows(look)] == [(0, "0"), (1, "1")]
        session.rows(move.replace(":first", "%s").replace(":later", "%s"), *handles)
        session.rows(alter)
        (row,) = session.rows(receive)
        assert row[1:] == ("//shop/order", "1")
        assert session.value("select count(distinct conversation_group_id) from annex") == 1
        assert [row[0] for row in session.rows(look.replace("fulfilment", "annex"))] == [0]


class Psql:
    """A psql that goes on, so that a page's blocks are typed one after the other in one session."""

    def __init__(self, database: Database) -> None:
        self._process = subprocess.Popen(
            [database.server.binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-At", database.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, block: str) -> list[str]:
        """Return the lines that it prints, but for those of a function that returns nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(block + "\n\\echo typed\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line == "typed\n":
                return [line for line in lines if line]
            lines.append(line.strip())
        raise AssertionError("\n".join(lines))

    def close(self) -> None:
        self._process.communicate()


def test_the_page_on_conversations(database: Database) -> None:
    text = (ROOT / "docs/conversations.md").read_text(encoding="utf-8")
    typed = re.findall(r"<!-- (psql|second psql|psql: a minute later) -->\n```\w+\n(.*?)```", text, re.DOTALL)
    first, second = Psql(database), Psql(database)
    (script,) = blocks("README.md", "psql")
    printed = [first.type(script[: script.index("-- The shop begins")])]
    for who, block in typed:
        if who == "psql: a minute later":
            with database.connect() as owner:
                owner.execute(
                    "create or replace function broker_private.clock() returns timestamptz language sql volatile"
                    " begin atomic select pg_catalog.clock_timestamp() + interval '1 minute'; end"
                )
                owner.execute("select broker_private.fire_timers()")
        printed.append((second if who == "second psql" else first).type(block))
    first.close()
    second.close()
    error = (
        '<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>50001</Code>'
        "<Description>We are out of paper.</Description></Error>"
    )
    waiting = "//nowhere/yet|//shop/order|"
    assert printed[1] == ["t|CO|//warehouse/fulfilment", "f|CO|//shop/orders"]
    assert printed[4] == ["1", "1"]
    assert printed[5:8] == [['{"id": 2}'], ['{"id": 2}', '{"id": 3}', '{"id": 4}', "0"], ['{"id": 2}']]
    assert printed[8:11] == [[], [DIALOG_TIMER], [error, "0"]]
    assert printed[11][0].startswith(waiting)
    assert printed[11][0] == waiting + printed[11][1]
    assert printed[12] == ["8"]


def test_the_statements_of_the_page_on_poison_messages(database: Database) -> None:
    """The page's order: a queue that five rollbacks turned off, the culprit found and ended, then quarantine."""
    text = (ROOT / "docs/poison-messages.md").read_text(encoding="utf-8")
    end_culprit, quarantine = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    (script,) = blocks("README.md", "psql")
    with database.connect() as connection, database.connect(autocommit=False) as reader:
        session = Session(connection)
        session.rows(script[: script.index("-- The shop begins")])
        dialog = session.value(
            "select broker.begin_dialog('//shop/orders', '//warehouse/fulfilment', '//shop/ordering')"
        )
        session.send(dialog, "//shop/order", b"culprit")
        for _ in range(5):
            reader.execute("select broker.receive('fulfilment')")
            reader.rollback()
        assert session.refused("select broker.receive('fulfilment')") == "S9617"
        psql = Psql(database)
        found, *_ = psql.type(end_culprit[: end_culprit.index("rollback;")] + "rollback;")
        handle, _, body = found.split("|")
        assert (handle, body) == (str(session.handle_of(dialog)), "culprit")
        psql.type(end_culprit[end_culprit.index("rollback;\n") + len("rollback;\n") :].replace("…", handle))
        psql.type(quarantine)
        psql.close()
        assert [kind for kind, _, _ in session.receive("order_replies")] == [ERROR]
        assert session.value("select poison_action from broker.service_queues where name = 'fulfilment'") == (
            "QUARANTINE"
        )


def test_two_databases_typed_by_hand(tmp_path: Path) -> None:
    with EmbeddedServer() as shop, EmbeddedServer() as warehouse:
        shop.create_database("shop")
        warehouse.create_database("warehouse")
        programs = f"{Path(sys.executable).parent}:{shop.binary('psql').parent}"
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SHOP_URL": shop.url("shop"),
            "WAREHOUSE_URL": warehouse.url("warehouse"),
        }
        page = "docs/two-databases.md"
        (workers,) = blocks(page, "shell: background")
        *preparation, conversation = blocks(page, "shell")
        script = "\n".join(["set -eu", *preparation, "exec 3>&1 >worker.log 2>&1", workers])
        script += f"\nexec >&3 2>&1\ntrap 'kill $(jobs -p); wait' EXIT\n{conversation}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "//shop/order      | one" in done.stdout, done.stdout


PAGES = sorted(
    str(p.relative_to(ROOT)) for folder in (".", "docs", "sql") for p in (ROOT / folder).glob("*.md")
)


@pytest.mark.parametrize("page", PAGES)
def test_no_link_leads_nowhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page} links to {target}"


APPENDIX_B = {
    "sys.sysdesend": "handle diagid initiator sendseq sendxact",
    "sys.sysdercv": "diagid initiator handle rcvseq rcvfrag status state lifetime contract svcid convgroup sysseq enddlgseq firstoorder"
    " lastoorder lastoorderfr dlgtimer dlgopened princid outseskey outseskeyid farprincid inseskey inseskeyid farsvc farbrkrinst priority",
    "sys.sysxmitqueue": "dlgid finitiator tosvc tobrkrinst fromsvc frombrkrinst svccontr msgseqnum msgtype unackmfn status enqtime rsndtime"
    " dlgerr msgid hdrpartlen hdrseclen msgenc msgbodylen msgbody",
}


@pytest.mark.parametrize("table", APPENDIX_B)
def test_the_internals_say_where_each_column_of_the_whitepaper_lives(table: str) -> None:
    text = (ROOT / "docs/internals.md").read_text(encoding="utf-8")
    section = text.split(f"## {table}\n")[1].split("\n## ")[0]
    named = [
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(named) == sorted(APPENDIX_B[table].split())


def test_the_internals_name_only_columns_that_there_are(database: Database) -> None:
    text = (ROOT / "docs/internals.md").read_text(encoding="utf-8")
    with database.connect() as connection:
        columns = connection.execute(
            "select c.relname || '.' || a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
            " where c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)"
        ).fetchall()
    tables = {name.split(".")[0] for (name,) in columns}
    named = {f"{table}.{column}" for table, column in re.findall(r"`(\w+)\.(\w+)`", text) if table in tables}
    assert named
    assert named <= {name for (name,) in columns}
