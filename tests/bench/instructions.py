"""`make instructions`: how many instructions a call costs a PostgreSQL backend, counted by valgrind's callgrind.

Counts don't depend on what else the machine does, so they show what a rate on a busy machine hides. Each call is
its own transaction, in the extended protocol, with a prepared statement. Two sessions make the same call, one of them
more often: the difference, divided by the calls that it has more, is what one call costs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console
from rich.table import Table
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from pybroker.client import statements
from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from tests.bench import hop

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = b"x" * 100
DATABASE, OWNER, CLERK = "counted", "postgres", "clerk"
# What RECEIVE finds in the queue: more than all calls together take.
WAITING = 3000
WAITING_IN_BATCHES, BATCH = 24, 1000
FEW, CALLS = 20, 60
# Of a queue where RECEIVE has to pass what others hold, or what old snapshots see: dialogs, messages of each.
OTHERS, OTHERS_WAITING = 100, 40
HELD, HELD_WAITING = 8, 500
DELETED = 3000
# Conversations of one message: twice what the calls end on one side.
SHORT = 240
# Now and then RECEIVE samples (conversation/receive.sql), for as much as thirty calls cost: with this seed never
# while it is counted, so that no count is one of chance.
SEED = 91 / 1500
# A call that moves many messages is counted by fewer calls: it has most of its cost in each.
MANY = 100
DEFINITIONS = f"""
create role {CLERK} login;
select broker.create_queue('near');
select broker.create_queue('far');
select broker.create_queue('worn');
select broker.create_queue('beset');
select broker.create_service('near', 'near');
select broker.create_service('worn', 'worn', '{{DEFAULT}}');
select broker.create_service('beset', 'beset', '{{DEFAULT}}');
select broker.create_service('far', 'far', '{{DEFAULT}}');
select broker.create_queue('asking');
select broker.create_queue('asked');
select broker.create_service('asking', 'asking');
select broker.create_service('asked', 'asked', '{{DEFAULT}}');
select broker.create_route('away', 'tcp://127.0.0.1:1', 'away');
select broker.grant('RECEIVE', 'QUEUE', 'near', '{CLERK}');
select broker.grant('RECEIVE', 'QUEUE', 'far', '{CLERK}');
"""
QUEUE = "select q.queue_id from broker_private.queues q where q.name = '{}'"
FILL = """
do $$
declare
  dialogs uuid[] := array(
    select broker.begin_dialog('near', '{service}') from pg_catalog.generate_series(1, {dialogs})
  );
begin
  for turn in 1..{turns} loop
    perform broker.send_batch(d, 'DEFAULT', pg_catalog.array_fill('{body}'::bytea, array[{run}]))
    from pg_catalog.unnest(dialogs) d;
  end loop;
end
$$
"""

RECEIVE_AND_END = "select broker.end_conversation(m.conversation_handle) from broker.receive('{}', 1) m"


@dataclass(frozen=True)
class Call:
    """A call that is counted: what it is called, its SQL, the role that makes it, the messages that it moves.

    Another session keeps a transaction open meanwhile that begins with what is held; a third one runs what follows,
    and what is to be run when the call was counted.
    """

    name: str
    statement: str
    role: str = OWNER
    messages: int = 1
    held: str = ""
    then: str = ""
    at_last: str = ""


TRACED = {"then": "select broker.start_trace(duration => '1 h')", "at_last": "select broker.stop_trace()"}


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def in_a_trace(statement: str) -> str:
    """Return a statement as a client runs it while a span records (pybroker.client.statements)."""
    return statements.traced(statement.removeprefix("select "), f"'{TRACEPARENT}'")


def calls(local: str, remote: str, related: str) -> list[Call]:
    """Return the calls that are counted, on these conversation handles; related is one of a group of three."""
    send = "select broker.send('{}', 'DEFAULT', '" + BODY.decode() + "'::bytea)"
    return [
        Call("select 1", "select 1"),
        Call("SEND, local", send.format(local)),
        Call("SEND, remote", send.format(remote)),
        Call("SEND, local, by a granted role", send.format(local), CLERK),
        Call("SEND, local, in a group of three", send.format(related)),
        # The rows above are what it costs while nobody traces.
        Call("SEND, local, traced", send.format(local), **TRACED),
        Call("RECEIVE TOP (1), traced", "select * from broker.receive('far', 1)", **TRACED),
        # As a client sends, and receives, that makes OpenTelemetry's spans.
        Call("SEND, local, with a trace context", in_a_trace(send.format(local))),
        Call("SEND, remote, with a trace context", in_a_trace(send.format(remote))),
        Call(
            "RECEIVE TOP (1), asked for its trace context",
            "select m.*, broker.get_traceparent(m) from broker.receive('far', 1) m",
        ),
        Call(
            "begin_dialog with a first SEND",
            f"select broker.send(broker.begin_dialog('near', 'far'), 'DEFAULT', '{BODY.decode()}'::bytea)",
        ),
        Call("RECEIVE TOP (1) and END, at the target", RECEIVE_AND_END.format("asked")),
        Call("RECEIVE TOP (1) and END, at the initiator", RECEIVE_AND_END.format("asking")),
        Call("RECEIVE TOP (1)", "select * from broker.receive('far', 1)"),
        Call("RECEIVE TOP (1), by a granted role", "select * from broker.receive('far', 1)", CLERK),
        Call("RECEIVE TOP (10)", "select * from broker.receive('far', 10)", messages=10),
        Call(
            "RECEIVE TOP (1) under an old snapshot",
            "select * from broker.receive('worn', 1)",
            held="begin isolation level repeatable read; select 1",
            then=(
                "delete from broker_private.messages m where m.id in (select x.id from broker_private.messages x"
                f" where x.queue_id = ({QUEUE.format('worn')}) order by x.id limit {DELETED});"
                # As a RECEIVE looks now and then.
                f" select broker_private.pick_above_floors(({QUEUE.format('worn')}), true)"
            ),
        ),
        Call(
            "RECEIVE TOP (1) behind 8 held groups",
            "select * from broker.receive('beset', 1)",
            held=(
                "begin; select from broker_private.groups g where g.group_no in (select x.group_no"
                f" from broker_private.messages x where x.queue_id = ({QUEUE.format('beset')})"
                f" order by x.id limit {HELD * HELD_WAITING}) for update"
            ),
        ),
        Call("RECEIVE TOP (100)", "select * from broker.receive('far', 100)", messages=100),
        Call("RECEIVE TOP (1000)", "select * from broker.receive('far', 1000)", messages=1000),
    ]


class NoValgrindError(Exception):
    """There is no valgrind here."""


def count(chosen: str = "", calls_more: int = CALLS) -> dict[str, int]:
    """Count instructions a message of each call whose name holds this text.

    Raises:
        NoValgrindError: valgrind isn't installed.
    """
    if shutil.which("valgrind") is None:
        raise NoValgrindError(
            "Instructions are counted by valgrind: install it (Debian: apt-get install valgrind)."
        )
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o711)
        data, programs = place / "data", place / "programs"
        with EmbeddedServer(data_directory=data) as server:
            server.create_database(DATABASE)
            migrate(server.url(DATABASE))
            with psycopg.connect(server.url(DATABASE), autocommit=True) as session:
                handles = _prepare(session)
            shapes = _chosen_shapes(chosen)
            if shapes:
                _prepare_hop(server, shapes)
            postgres = server.binary("postgres")
        programs.mkdir()
        account = data.stat()
        os.chown(programs, account.st_uid, account.st_gid)
        with _counted_server(postgres, data, programs) as url:
            counted = {
                call.name: _cost(call, url, programs, calls_more)
                for call in calls(*handles)
                if chosen in call.name
            }
            for shape in shapes:
                costs = _cost_of_batches(shape, programs)
                counted |= {name: cost for name, cost in costs.items() if chosen in name}
            return counted


def _prepare(session: psycopg.Connection[tuple[str]]) -> tuple[str, str, str]:
    """Define two services, open dialogs to a near and an absent one, and fill the near one's queue."""
    session.execute(DEFINITIONS.encode())
    handles = []
    for service, times in (("far", WAITING), ("away", 1)):
        row = session.execute("select broker.begin_dialog('near', %s)::text", (service,)).fetchone()
        assert row is not None
        handles.append(row[0])
        for _ in range(times):
            session.execute("select broker.send(%s::uuid, 'DEFAULT', %s::bytea)", (row[0], BODY))
    related = handles[0]
    for _ in range(2):
        row = session.execute(
            "select broker.begin_dialog('near', 'far', related_conversation => %s)::text", (handles[0],)
        ).fetchone()
        assert row is not None
        related = row[0]
        for _ in range(2):
            session.execute("select broker.send(%s::uuid, 'DEFAULT', %s::bytea)", (related, BODY))
    for service, dialogs, turns, run in (
        ("worn", OTHERS, OTHERS_WAITING, 1),
        ("beset", HELD, 1, HELD_WAITING),
        ("beset", OTHERS, OTHERS_WAITING, 1),
    ):
        text = FILL.format(service=service, dialogs=dialogs, turns=turns, run=run, body=BODY.decode())
        session.execute(text.encode())
    for _ in range(SHORT):
        session.execute("select broker.send(broker.begin_dialog('asking', 'asked'), 'DEFAULT', 'x')")
    for _ in range(SHORT // 2):
        session.execute(RECEIVE_AND_END.format("asked").encode())
    for _ in range(WAITING_IN_BATCHES):
        session.execute(
            "select broker.send_batch(%s::uuid, 'DEFAULT', array_fill(%s::bytea, array[%s::integer]))",
            (handles[0], BODY, BATCH),
        )
    session.execute("vacuum analyze")
    return handles[0], handles[1], related


def _chosen_shapes(chosen: str) -> list[hop.Shape]:
    return [shape for shape in hop.SHAPES if any(chosen in name for name in shape.names.values())]


def _prepare_hop(server: EmbeddedServer, shapes: list[hop.Shape]) -> None:
    for database in (hop.NEAR, hop.FAR):
        server.create_database(database)
        migrate(server.url(database))
    hop.prepare(server.url(hop.NEAR), server.url(hop.FAR), shapes)


@contextmanager
def _counted_server(postgres: Path, data: Path, programs: Path) -> Iterator[str]:
    """Run the server under callgrind, which writes a file for each process that ends; yield its URL."""
    account = data.stat()
    watch = ["valgrind", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={programs}/%p"]
    options = ["-k", programs, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
    with subprocess.Popen(
        [*watch, postgres, "-D", data, *options],
        user=account.st_uid,
        group=account.st_gid,
        extra_groups=[],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=programs,
    ) as process:
        url = f"host={programs} port=5432 dbname={DATABASE}"
        try:
            _connect(url, OWNER).close()
            yield url
        finally:
            process.terminate()


@retry(
    retry=retry_if_exception_type(psycopg.OperationalError), stop=stop_after_delay(120), wait=wait_fixed(0.3)
)
def _connect(url: str, role: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url, user=role, autocommit=True, prepare_threshold=0)


def _cost(call: Call, url: str, programs: Path, calls_more: int) -> int:
    if not call.held and not call.then:
        return _cost_alone(call, url, programs, calls_more)
    with _connect(url, OWNER) as holder, _connect(url, OWNER) as third:
        for session, text in ((holder, call.held), (third, call.then)):
            for statement in filter(None, text.split(";")):
                session.execute(statement.encode())
        try:
            return _cost_alone(call, url, programs, calls_more)
        finally:
            if call.at_last:
                third.execute(call.at_last.encode())


def _cost_alone(call: Call, url: str, programs: Path, calls_more: int) -> int:
    # The first session after a start fills what all sessions share.
    few = 1 if call.messages >= MANY else FEW
    more = min(calls_more, 5) if call.messages >= MANY else calls_more
    _, fewer, all_calls = (_instructions(call, url, programs, times) for times in (1, few, few + more))
    return (all_calls - fewer) // (more * call.messages)


def _cost_of_batches(shape: hop.Shape, programs: Path) -> dict[str, int]:
    near, far = (f"host={programs} port=5432 user={OWNER} dbname={name}" for name in (hop.NEAR, hop.FAR))
    _, few, many = (
        {
            step: _total(programs / str(process))
            for step, process in hop.move_batches(near, far, shape, times).items()
        }
        for times in (1, shape.few, shape.few + shape.more)
    )
    return {
        name: (many[step] - few[step]) // (shape.more * shape.messages) for step, name in shape.names.items()
    }


def _instructions(call: Call, url: str, programs: Path, times: int) -> int:
    with _connect(url, call.role) as session:
        process = session.info.backend_pid
        session.execute("select setseed(%s)", (SEED,))
        for _ in range(times):
            session.execute(call.statement.encode(), prepare=True).fetchall()
    return _total(programs / str(process))


@retry(
    retry=retry_if_exception_type((FileNotFoundError, TypeError)),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.2),
)
def _total(written: Path) -> int:
    """Return the instructions of a process; its file is whole once its last line is there."""
    found = re.search(r"^totals: (\d+)", written.read_text(errors="replace"), re.MULTILINE)
    if found is None:
        raise TypeError(f"{written.name}: callgrind has not written its totals")
    return int(found[1])


def main() -> int:
    """Count, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--call", default="", help="only calls whose name holds this")
    parser.add_argument(
        "--calls", type=int, default=CALLS, help=f"how many calls are counted (default {CALLS})"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [call.name for call in calls("", "", "")]
    names += [name for shape in hop.SHAPES for name in shape.names.values()]
    if options.calls < 1:
        parser.error(f"--calls is {options.calls}: give 1 or more")
    if not any(options.call in name for name in names):
        parser.error(f"no call's name holds {options.call!r}; there are: {'; '.join(names)}")
    try:
        counted = count(options.call, options.calls)
    except NoValgrindError as error:
        Console(stderr=True).print(str(error))
        return 2
    if options.json:
        sys.stdout.write(json.dumps(counted, indent=2) + "\n")
        return 0
    table = Table("call", "instructions a message")
    for name, instructions in counted.items():
        table.add_row(name, f"{instructions:,}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
