"""A site gets an older copy of itself back under traffic: what is hurt by it ends in Errors, the rest goes on."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.patience import Patience, StalledError
from tests.chaos.stage import a_stage
from tests.chaos.traffic import Traffic, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.brokers import Site

# What a dialog has sent each way before the copy, may send until the restore, and may have sent in the end.
_BEFORE, _UNTIL, _IN_ALL = 5, 40, 60
# On so many of them nothing is said between the copy and the restore, so they go on.
_QUIET_ONE_IN = 3
# On so many of the others nobody sends any more after the restore.
_SILENT_ONE_IN = 3
_TWICE = "select count(*) - count(distinct (dialog, number)) from received"
# What was put back, what its far side is told, and what a side says that knows nothing of the dialog.
_EXPECTED_CODES = {-9719, -9720, -8462}
_CODES = "select substring(convert_from(body, 'UTF8') from '<Code>(-?[0-9]+)</Code>')::integer from failed"


@dataclass
class Restores:
    """What became of the dialogs.

    Attributes:
        hurt: Those that ended in an Error, on each side that knows them. That one side alone has heard of it would end the play.
        unhurt: Those of which everything arrived, and that are open on both sides. That one is neither would end the play: it hangs.
        gone: Those that were begun since the copy, and that neither side knows any more.
        silent_hurt: Those of the hurt on which nobody sent after the restore.
        quiet_hurt: Those that were hurt though nothing had happened on them. There must be none.
        afterwards: Messages on dialogs that were begun after the restores, which all arrived.
        codes: How often each code was received in an Error; None: in an Error without one.
    """

    restored: Counter[str] = field(default_factory=Counter)
    hurt: int = 0
    unhurt: int = 0
    gone: int = 0
    silent_hurt: int = 0
    quiet_hurt: int = 0
    twice: int = 0
    afterwards: int = 0
    codes: Counter[int | None] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        is_told = self.codes.keys() <= _EXPECTED_CODES
        return is_told and not (self.quiet_hurt or self.twice) and bool(self.afterwards)


def play_restores(
    directory: Path,
    *,
    restores: int,
    dialogs: int,
    seed: int,
    settings: dict[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Restores:
    """Restore one side after the other, each with dialogs of its own that both sides began.

    Raises:
        StalledError: A dialog hangs, or one side of it ended without an Error.
        Exception: What a session met that no restore explains.
    """
    begun = time.monotonic()
    with a_stage(directory, settings or {}) as (sites, _):
        for site in sites:
            site.start_worker()
        play = _Play(sites, directory / "copy", dialogs, random.Random(seed))
        for number in range(restores):
            play.restore(sites[number % 2])
            play.begin_anew()
            if watch is not None:
                watch(number + 1)
    play.report.seconds = time.monotonic() - begun
    return play.report


class _Play:
    """Two sites with running workers, one of which is restored at a time."""

    def __init__(self, sites: tuple[Site, Site], copy: Path, dialogs: int, chance: random.Random) -> None:
        self.report = Restores()
        self._sites = sites
        self._copy = copy
        self._dialogs = dialogs
        self._chance = chance

    def restore(self, victim: Site) -> None:
        """Restore a site in the midst of traffic, and wait until it is known of each dialog what becomes of it."""
        seed = self._chance.randrange(2**32)
        with Traffic(self._sites, self._dialogs, seed, survives_errors=True) as traffic:
            patience = Patience(self._sites, traffic)
            traffic.allow(_BEFORE)
            patience.wait_for("received", _BEFORE * self._dialogs)
            patience.until_nothing_waits()
            quiet = set(self._names()[::_QUIET_ONE_IN])
            traffic.quiet = quiet
            _copy(victim, self._copy)
            traffic.allow(_UNTIL)
            traffic.begin(self._dialogs // 4)
            busy = self._dialogs - len(quiet)
            each = self._chance.randint(1, _UNTIL - _BEFORE - 1)
            patience.wait_for("received", _BEFORE * self._dialogs + busy * each)
            names = self._names()
            silent = set(sorted(self._known_to_both() - quiet)[::_SILENT_ONE_IN])
            traffic.quiet = quiet | silent
            _restore(victim, self._copy)
            traffic.quiet = silent
            traffic.allow(_IN_ALL)
            try:
                patience.until(lambda: all(_outcomes(self._sites, names, silent).values()))
            except StalledError as stalled:
                open_ones = [
                    name for name, outcome in _outcomes(self._sites, names, silent).items() if not outcome
                ]
                stalled.add_note(f"neither hurt on each side that knows it nor whole: {open_ones}")
                raise
            outcomes = _outcomes(self._sites, names, silent)
        if traffic.failures:
            raise traffic.failures[0]
        self.report.restored[victim.name] += 1
        self.report.hurt += sum(outcome == "hurt" for outcome in outcomes.values())
        self.report.unhurt += sum(outcome == "unhurt" for outcome in outcomes.values())
        self.report.gone += sum(outcome == "gone" for outcome in outcomes.values())
        self.report.silent_hurt += sum(outcomes[name] == "hurt" for name in silent)
        self.report.quiet_hurt += sum(outcomes[name] == "hurt" for name in quiet)
        for site in self._sites:
            self.report.twice += site.psql.value(_TWICE)
            self.report.codes.update(code for (code,) in site.psql.rows(_CODES))

    def begin_anew(self) -> None:
        """Let messages pass on dialogs that are begun now, and forget what was."""
        self._forget()
        with Traffic(self._sites, self._dialogs, self._chance.randrange(2**32)) as traffic:
            patience = Patience(self._sites, traffic)
            traffic.allow(_BEFORE)
            patience.wait_for("received", _BEFORE * self._dialogs)
        left, right = self._sites
        there, back = compare(left, right), compare(right, left)
        if there.is_right and back.is_right:
            self.report.afterwards += there.received + back.received
        self._forget()

    def _names(self) -> list[str]:
        names = {name for site in self._sites for (name,) in site.psql.rows("select name from dialogs")}
        return sorted(names)

    def _known_to_both(self) -> set[str]:
        known = [{name for (name,) in site.psql.rows("select name from dialogs")} for site in self._sites]
        return known[0] & known[1]

    def _forget(self) -> None:
        for site in self._sites:
            site.psql.rows("truncate dialogs, sent, received, failed")


def _outcomes(sites: tuple[Site, Site], names: list[str], silent: set[str]) -> dict[str, str]:
    """Tell of each dialog whether it is hurt, unhurt or gone, or, as an empty text, not known yet."""
    handles = [dict(site.psql.rows("select name, handle from dialogs")) for site in sites]
    failed = [{handle for (handle,) in site.psql.rows("select handle from failed")} for site in sites]
    alive = [
        {
            handle
            for (handle,) in site.psql.rows(
                "select conversation_handle from broker.conversation_endpoints where state <> 'CD'"
            )
        }
        for site in sites
    ]
    counts = [
        Counter(dict(site.psql.rows(f"select dialog, count(*) from {ledger} group by dialog")))
        for site in sites
        for ledger in ("sent", "received")
    ]

    def outcome(name: str) -> str:
        mine = [handles[side].get(name) for side in (0, 1)]
        if mine == [None, None]:
            # Begun since the copy, and put back before the other side had heard of it.
            return "gone"
        # A side that the restore made forget the dialog has nothing to end.
        knowing = [side for side in (0, 1) if mine[side] is not None]
        is_failed = [mine[side] in failed[side] for side in knowing]
        is_alive = [mine[side] in alive[side] for side in (0, 1)]
        if all(is_failed) and not any(is_alive):
            return "hurt"
        if any(is_failed):
            return ""
        sent, received, sent_back, received_back = (
            count[name] for count in (counts[0], counts[3], counts[2], counts[1])
        )
        is_whole = sent == received and sent_back == received_back and all(is_alive)
        if is_whole and (name in silent or sent == sent_back == _IN_ALL):
            return "unhurt"
        return ""

    return {name: outcome(name) for name in names}


def _copy(site: Site, copy: Path) -> None:
    """Copy the data directory of a server that was stopped, as a snapshot of the storage is."""
    shutil.rmtree(copy, ignore_errors=True)
    site.psql.connection.close()
    site.server.stop()
    # Owner and rights come along.
    subprocess.run(["cp", "-a", site.server.data_directory, copy], check=True)
    site.server.start()
    site.reconnect()


def _restore(site: Site, copy: Path) -> None:
    site.psql.connection.close()
    site.server.kill()
    for entry in site.server.data_directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    subprocess.run(["cp", "-a", f"{copy}/.", site.server.data_directory], check=True)
    site.server.start()
    site.reconnect()
