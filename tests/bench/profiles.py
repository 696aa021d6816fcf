"""Where a line's time goes, looked at in one more run of it: in which functions, in which parts of PostgreSQL, in which of the workers' code.

Nothing of it needs root, but for PostgreSQL processes of another account; what can't be had is named, with the reason. The embedded servers have
no pg_stat_statements, and it would see only the calls from outside. The finest that PostgreSQL itself counts is a function.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

from tests.bench.waits import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Session = psycopg.Connection[Any]

# What a profile tells.
FUNCTIONS = "SQL functions alone, µs a message"
ENTRIES = "index entries read a message"
SERVERS = "the servers' processors"
WORKERS = "the workers"
HERTZ = 99
# What perf copies of a stack, for each sample: PL/pgSQL's are deep.
STACK_BYTES = 32_768
SHOWN = 6
START_SECONDS = 10
REPORT_SECONDS = 1.2
STOP_SECONDS = 60

# What the function that is nearest to the top of a stack stands for.
_PARTS = {
    "parsing and planning": ("pg_parse_query", "pg_analyze_and_rewrite_varparams", "pg_plan_query", "GetCachedPlan", "planner"),
    "setting statements up": ("standard_ExecutorStart", "ExecutorStart", "CreateQueryDesc", "InitPlan", "ExecInitNode"),
    "clearing statements away": ("standard_ExecutorEnd", "ExecutorEnd", "standard_ExecutorFinish", "FreeQueryDesc"),
    "locks": ("LockAcquireExtended", "LockReleaseAll", "LockRelease", "ProcSleep", "DeadLockCheck"),
    "searching indexes": ("index_getnext_slot", "index_getnext_tid", "index_beginscan", "index_rescan", "index_endscan"),
    "adding to indexes": ("ExecInsertIndexTuples",),
    "rows": ("heap_insert", "heap_multi_insert", "heap_delete", "heap_update", "heap_lock_tuple", "heap_toast_insert_or_update"),
    "WAL records": ("XLogInsert",),
    "flush of the WAL": ("XLogFlush",),
    "commit": ("CommitTransactionCommand", "CommitTransaction", "AtEOXact_GUC"),
    "snapshots": ("GetSnapshotData", "GetTransactionSnapshot"),
    "functions' own settings": ("fmgr_security_definer", "set_config_option", "set_config_with_handle"),
    "sorting and grouping": ("tuplesort_performsort", "ExecAgg", "ExecSort"),
    "PL/pgSQL": ("plpgsql_call_handler", "plpgsql_exec_function", "exec_stmts"),
    "statements, the rest": ("standard_ExecutorRun", "ExecutorRun"),
    "talk with the client": ("ReadCommand", "SocketBackend", "pq_getbyte", "secure_read", "secure_write", "internal_flush", "internal_flush_buffer"),
    "NOTIFY": ("ProcessNotifyInterrupt", "ProcessClientReadInterrupt", "PreCommit_Notify", "AtCommit_Notify"),
}  # fmt: skip
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}
# A process of these is that and nothing else, whatever it calls.
_PROCESS_OF = {
    "AutoVacWorkerMain": "autovacuum",
    "AutoVacLauncherMain": "autovacuum",
    "WalWriterMain": "WAL writer",
    "CheckpointerMain": "checkpointer",
    "BackgroundWriterMain": "background writer",
    "IoWorkerMain": "I/O workers",
}
_FUNCTIONS = "select schemaname || '.' || funcname, sum(self_time) from pg_stat_user_functions group by 1"
# Counted by the same sessions at the same time as the rest: who looks from outside counts others.
_ROWS = """
select relname || ' in', sum(n_tup_ins) from pg_stat_user_tables group by 1 union all select relname || ' out', sum(n_tup_del) from pg_stat_user_tables group by 1
"""
_ENTRIES = (
    "select indexrelname::text, sum(idx_tup_read) from pg_stat_user_indexes where idx_tup_read > 0 group by 1"
)


@dataclass(frozen=True)
class Profile:
    """Where a line's time went, each the greatest first.

    Attributes:
        messages: How many passed meanwhile.
        functions: Milliseconds that sessions were in a function and not in one that it called, running or waiting.
        entries: Entries of each index that were read.
        servers: Parts of PostgreSQL, each as a part of the servers' processor time.
        workers: Functions of the workers, with what they called of others, each as a part of the workers' time.
        missing: What could not be looked at, and why.
    """

    messages: float
    functions: Mapping[str, float]
    entries: Mapping[str, float]
    servers: Mapping[str, float]
    workers: Mapping[str, float]
    missing: Sequence[str]

    def said(self) -> dict[str, str]:
        """Return it in words, by what kind it is of."""
        messages = self.messages
        if not messages:
            return {"not profiled": "no message passed meanwhile"}
        found = {
            FUNCTIONS: _first(
                {name: value * 1e3 / messages for name, value in self.functions.items()}, _figure, 0.05
            ),
            ENTRIES: _first({name: value / messages for name, value in self.entries.items()}, _figure, 0.05),
            SERVERS: _first(self.servers, percent, 0.01),
            WORKERS: _first(self.workers, percent, 0.01),
            "not profiled": "; ".join(self.missing),
        }
        return {name: text for name, text in found.items() if text}


class Profiler:
    """Looks closely at one measurement.

    Args:
        name: What the files of stacks are called.
        folder: Where they are put, a line for each different stack, as flame graphs are drawn of.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._file = folder / re.sub(r"\W+", "-", name)
        self._profile: Profile | None = None

    def said(self) -> dict[str, str]:
        """Return what it has seen, in words, by what kind it is of."""
        return self._profile.said() if self._profile else {"not profiled": "it has no sessions"}

    @contextmanager
    def watch(
        self, servers: Sequence[str], databases: Sequence[str], workers: Sequence[int]
    ) -> Iterator[None]:
        """Look at servers, by a URL of each, at the databases of these URLs and at the worker processes while this lasts."""
        missing: list[str] = []
        with ExitStack() as stack:
            postmasters = [stack.enter_context(_counting_functions(url)) for url in servers]
            sessions = [
                stack.enter_context(closing(psycopg.connect(url, autocommit=True))) for url in databases
            ]
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sampling = [_perf(directory / "perf", postmasters)]
            sampling += [_py_spy(directory / f"worker {worker}", worker) for worker in workers]
            for each in sampling:
                stack.callback(each.stop)
            # A session tells once a second what it has counted; until here some may not have counted functions.
            time.sleep(REPORT_SECONDS)
            before = [_sums(sessions, query) for query in (_ROWS, _FUNCTIONS, _ENTRIES)]
            yield
            for each in sampling:
                each.stop()
            rows, functions, entries = (
                _sums(sessions, query) - then
                for query, then in zip((_ROWS, _FUNCTIONS, _ENTRIES), before, strict=True)
            )
            backends, *python = [each.stacks(missing) for each in sampling]
            own = sum((_at_work(stacks) for stacks in python), Counter[tuple[str, ...]]())
        _keep(self._file.with_suffix(".servers.txt"), backends)
        _keep(self._file.with_suffix(".workers.txt"), own)
        self._profile = Profile(
            max((count for name, count in rows.items() if name.startswith("messages ")), default=0)
            or max(rows.values(), default=0),
            dict(functions.most_common()),
            dict(entries.most_common()),
            _shares(backends, part_of),
            _shares(own, own_function),
            list(dict.fromkeys(missing)),
        )


class _Sampling:
    """A tool that samples stacks until it is stopped; or why there is none.

    Args:
        what: What it looks at.
        command: The tool; it writes `file`, and ends by SIGINT.
        reading: Turns what it wrote into text, if it writes something else.
        why_not: Why the tool can't be started.
        is_asked: Whether it begins when it is told to, by a line to a descriptor, and says so by another: the last argument names both.
    """

    def __init__(
        self,
        what: str,
        file: Path,
        command: Sequence[str],
        *,
        reading: Sequence[str] = (),
        why_not: str = "",
        is_asked: bool = False,
    ) -> None:
        self._what = what
        self._file = file
        self._reading = reading
        self._why_not = why_not
        self._said = ""
        self._process: subprocess.Popen[str] | None = None
        self._pipes: tuple[int, ...] = ()
        if why_not:
            return
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        self._process = subprocess.Popen(
            [*command, f"--control=fd:{asked},{answer}"] if is_asked else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(asked, answer) if is_asked else (),
        )
        os.close(answer)
        # Kept until the end: it stops when it can't be told any more, and one that has ended already is told all the same.
        self._pipes = asked, ask, answered
        if is_asked:
            os.write(ask, b"enable\n")
            select.select([answered], [], [], START_SECONDS)

    def stop(self) -> None:
        """Let it write what it has."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            _, self._said = self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, self._said = self._process.communicate()
        self._process = None
        for descriptor in self._pipes:
            os.close(descriptor)

    def stacks(self, missing: list[str]) -> Counter[tuple[str, ...]]:
        """Return how often each stack was seen, the outermost function first; say in `missing` why there are none."""
        found: Counter[tuple[str, ...]] = Counter()
        if self._file.is_file() and not self._reading:
            found = _folded(self._file.read_text())
        elif self._file.is_file():
            found = _unfolded(
                subprocess.run(self._reading, capture_output=True, text=True, check=False).stdout
            )
        if not found:
            lines = [line.strip() for line in self._said.splitlines() if line.strip() not in ("", "Error:")]
            missing.append(f"{self._what}: {self._why_not or (lines[0] if lines else 'nothing was seen')}")
        return found


def part_of(stack: Sequence[str]) -> str:
    """Return what PostgreSQL does where its functions stand so, the outermost first."""
    for name in stack:
        if name in _PROCESS_OF:
            return _PROCESS_OF[name]
    for name in reversed(stack):
        if name in _PART_OF:
            return _PART_OF[name]
    return "other"


def own_function(stack: Sequence[str]) -> str:
    """Return the innermost function of the worker's own in a stack, as `name (file)`."""
    for frame in reversed(stack):
        if "_run_once (asyncio/" in frame:
            return "the event loop"
        if found := re.fullmatch(r"(.+) \((?:.*/)?pybroker/(?:.*/)?(\w+\.py):\d+\)", frame):
            return f"{found[1]} ({found[2]})"
    return "other"


def _perf(file: Path, postmasters: Sequence[int]) -> _Sampling:
    perf = shutil.which("perf")
    if perf is None:
        return _Sampling(SERVERS, file, (), why_not="perf is not installed")
    # Only root may look into the kernel, mostly; and a virtual machine has no counter of cycles.
    event = "cpu-clock" if os.geteuid() == 0 else "cpu-clock:u"
    processes = [
        process.pid
        for postmaster in postmasters
        for process in (psutil.Process(postmaster), *psutil.Process(postmaster).children())
    ]
    record = (
        perf, "record", "--quiet", f"--output={file}", f"--event={event}", f"--freq={HERTZ}",
        f"--call-graph=dwarf,{STACK_BYTES}", f"--pid={','.join(map(str, processes))}",
        # Attaching to a server takes a while; what its processes begin before is not seen.
        "--delay=-1",
    )  # fmt: skip
    read = (perf, "script", f"--input={file}", "--no-inline", "--fields=ip,sym")
    return _Sampling(SERVERS, file, record, reading=read, is_asked=True)


def _py_spy(file: Path, worker: int) -> _Sampling:
    py_spy = shutil.which(
        "py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if py_spy is None:
        return _Sampling(WORKERS, file, (), why_not="pip install --group bench")
    return _Sampling(
        WORKERS,
        file,
        (
            py_spy, "record", "--nonblocking", f"--rate={HERTZ}", "--format=raw", f"--output={file}",
            f"--pid={worker}", "--duration=unlimited",
        ),
    )  # fmt: skip


@contextmanager
def _counting_functions(url: str) -> Iterator[int]:
    """Let a server count what its functions take; yield its process."""
    with closing(psycopg.connect(url, autocommit=True)) as session:
        session.execute("alter system set track_functions = 'all'")
        session.execute("select pg_reload_conf()")
        for _ in range(500):
            if session.execute("show track_functions").fetchone() == ("all",):
                break
            time.sleep(0.01)
        postmaster = psutil.Process(session.info.backend_pid).ppid()
        try:
            yield postmaster
        finally:
            session.execute("alter system reset track_functions")
            session.execute("select pg_reload_conf()")


def _sums(sessions: Sequence[Session], query: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for session in sessions:
        found.update({name: float(value) for name, value in session.execute(query.encode()).fetchall()})
    return found


def _folded(text: str) -> Counter[tuple[str, ...]]:
    """Read stacks of which each is a line: `outer;inner 3`."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        found[tuple(stack.split(";"))] += int(count)
    return found


def _unfolded(text: str) -> Counter[tuple[str, ...]]:
    """Read stacks of which each is a paragraph of addresses and names, the innermost first."""
    found: Counter[tuple[str, ...]] = Counter()
    for paragraph in re.split(r"\n\s*\n", text):
        names = [
            line.split(None, 1)[1].strip() for line in paragraph.splitlines() if len(line.split(None, 1)) > 1
        ]
        if names:
            found[tuple(reversed(names))] += 1
    return found


def _at_work(stacks: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Leave out those that wait for a socket: py-spy can't always tell."""
    return Counter({stack: count for stack, count in stacks.items() if "Selector.select (" not in stack[-1]})


def _shares(stacks: Counter[tuple[str, ...]], kind: Callable[[Sequence[str]], str]) -> dict[str, float]:
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        found[kind(stack)] += count
    total = found.total()
    return {name: count / total for name, count in found.most_common()}


def _keep(file: Path, stacks: Counter[tuple[str, ...]]) -> None:
    if not stacks:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{';'.join(stack)} {count}\n" for stack, count in stacks.most_common()))


def _figure(value: float) -> str:
    return f"{value:,.1f}"


def _first(figures: Mapping[str, float], form: Callable[[float], str], least: float) -> str:
    shown = [(name, value) for name, value in figures.items() if value >= least][:SHOWN]
    return ", ".join(f"{name} {form(value)}" for name, value in shown)
