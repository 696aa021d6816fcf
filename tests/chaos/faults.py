"""Everything that fails, one function each: it does harm to a site or its line, and returns what heals it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import psycopg

from pybroker.workers.transport.dialog_security.key_files import master_key_path, rotate_master_key
from tests.chaos.stage import QUEUE
from tests.chaos.traffic import ROLLED_BACK
from tests.shop import until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.brokers import Site
    from tests.chaos.lines import Line
    from tests.chaos.traffic import Traffic

    Heal = Callable[[], None]


@dataclass(frozen=True)
class Victim:
    """Where a fault strikes, and the chance by which it decides how."""

    site: Site
    line: Line
    traffic: Traffic
    chance: random.Random

    def order(self, query: str, *arguments: object) -> None:
        """Do what an administrator does, again until the server takes it."""

        def is_done() -> bool:
            try:
                with psycopg.connect(self.site.server.url(self.site.name), autocommit=True) as session:
                    session.execute(query.encode(), arguments)
            except psycopg.OperationalError:
                return False
            return True

        until(is_done)


def kill_worker(victim: Victim) -> Heal:
    victim.site.kill_worker()
    return lambda: _start_worker(victim.site)


def stop_worker(victim: Victim) -> Heal:
    worker = victim.site.worker
    assert worker is not None
    # It may be frozen.
    worker.send_signal(signal.SIGCONT)
    victim.site.stop_worker()
    return lambda: _start_worker(victim.site)


def freeze_worker(victim: Victim) -> Heal:
    worker = victim.site.worker
    assert worker is not None
    worker.send_signal(signal.SIGSTOP)
    return lambda: worker.send_signal(signal.SIGCONT)


def kill_server(victim: Victim) -> Heal:
    """Kill every process of it at once, as a machine that loses its power does."""
    postmaster = psutil.Process(victim.site.server._postmaster)
    # So that it starts no further one meanwhile.
    postmaster.suspend()
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=30)
    return _restart(victim.site)


def crash_server(victim: Victim) -> Heal:
    victim.site.server.kill()
    return _restart(victim.site)


def end_sessions(victim: Victim) -> Heal:
    victim.order(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and random() < 0.7"
    )
    return lambda: None


def cut_line(victim: Victim) -> Heal:
    victim.line.cut()
    return victim.line.heal


def disturb_line(victim: Victim) -> Heal:
    victim.line.disturb(victim.chance)
    return victim.line.heal


def reset_connections(victim: Victim) -> Heal:
    victim.line.reset(victim.chance)
    return victim.line.heal


def disable_queue(victim: Victim) -> Heal:
    alter = f"select broker.alter_queue('{QUEUE}', status => %s)"
    victim.order(alter, False)
    return lambda: victim.order(alter, True)


def disable_broker(victim: Victim) -> Heal:
    alter = "select broker.alter_broker(%s)"
    victim.order(alter, "DISABLE_BROKER")
    return lambda: victim.order(alter, "ENABLE_BROKER")


def roll_readers_back(victim: Victim) -> Heal:
    victim.traffic.rollback[victim.site.name] = 1.0

    def heal() -> None:
        victim.traffic.rollback[victim.site.name] = ROLLED_BACK

    return heal


def stop_readers(victim: Victim) -> Heal:
    """Let a queue fill; it is read again after a round that leaves a backlog."""
    victim.traffic.stopped.add(victim.site.name)
    return lambda: None


def renew_master_key(victim: Victim) -> Heal:
    """Take a worker the key of all that it has sealed, and give it back as the one before the newest."""
    path = master_key_path(victim.site.keys)
    if not path.exists():
        # It is away already.
        return lambda: None
    away = path.rename(path.with_suffix(".away"))

    def heal() -> None:
        away.rename(path)
        rotate_master_key(victim.site.keys)

    return heal


FAULTS: dict[str, Callable[[Victim], Heal]] = {
    "worker killed (SIGKILL)": kill_worker,
    "worker stopped in order": stop_worker,
    "worker frozen (SIGSTOP)": freeze_worker,
    "PostgreSQL killed (SIGKILL, all processes)": kill_server,
    "PostgreSQL crashed (immediate)": crash_server,
    "sessions terminated": end_sessions,
    "line cut": cut_line,
    "line disturbed": disturb_line,
    "connections reset": reset_connections,
    "queue disabled": disable_queue,
    "broker disabled": disable_broker,
    "readers roll back": roll_readers_back,
    "queue full: readers stopped until a backlog stands": stop_readers,
    "master key gone, then another": renew_master_key,
}
# What strikes the line strikes both sites.
OF_THE_LINE = ("line cut", "line disturbed", "connections reset")


def _start_worker(site: Site) -> None:
    if site.worker is None or site.worker.poll() is not None:
        site.start_worker()


def _restart(site: Site) -> Heal:
    # At once: what heals the other faults asks the server.
    site.server.start()
    return lambda: None
