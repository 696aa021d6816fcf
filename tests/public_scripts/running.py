"""Running a set of scripts, and saying where it departs from the table."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from pybroker.tsql.source import decode
from tests.public_scripts.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.public_scripts.table import Script, ScriptSet, Table

GO = re.compile(r"^[ \t]*GO[ \t;]*(?:--.*)?$", re.IGNORECASE | re.MULTILINE)
USE = re.compile(r"^\s*use\s+(\S+)", re.IGNORECASE | re.MULTILINE)
FILE = re.compile(r"\bfrom\s+file\b", re.IGNORECASE)
COUNT = re.compile(r"^\((\d+) rows affected\)$", re.MULTILINE)
CHANGES = re.compile(r"\b(send|dialog|exec|execute|receive|insert|end\s+conversation)\b", re.IGNORECASE)


class Shown(NamedTuple):
    """What a script has done: its exit code, and what it printed."""

    code: int
    output: str

    def rows(self) -> str:
        return " ".join(COUNT.findall(self.output))


def run_set(
    table: Table,
    scripts: ScriptSet,
    checkouts: Path,
    folder: Path,
    server: Callable[[int], EmbeddedServer],
    *,
    worker: bool = True,
) -> tuple[dict[Script, Shown], list[str]]:
    """Run a set on fresh databases.

    Args:
        checkouts: where owner/name is the checkout of each repository.
        folder: an empty one, for what the scripts write, and for logs.
        server: the server of this number; it has none of the set's databases.

    Returns:
        What each script has shown, and what is left of conversations on all servers.
    """
    files = folder / "files"
    files.mkdir(parents=True)
    shown: dict[Script, Shown] = {}
    parts = {script: _parts(table, scripts, script, checkouts) for script in scripts.scripts}
    texts: dict[int, str] = {}
    for script, theirs in parts.items():
        texts[script.server] = texts.get(script.server, "") + "\n".join(theirs)
    with ExitStack() as stack:
        instances = {}
        for n, text in texts.items():
            named = [one for one in scripts.databases if one.lower() in text.lower()]
            instances[n] = stack.enter_context(
                Instance(server(n), folder / f"server{n}", named, worker=worker)
            )

        def run(script: Script, part: str) -> Shown:
            at = folder / "script.sql"
            at.write_text(part)
            instance = instances[script.server]
            done = Shown(*instance.run(at, scripts.default, files))
            if CHANGES.search(part):
                instance.left()
            return done

        for number in range(max(map(len, parts.values()))):
            for script, theirs in parts.items():
                before = shown.get(script, Shown(0, ""))
                if number < len(theirs) and before.code == 0:
                    done = run(script, theirs[number])
                    shown[script] = Shown(done.code, before.output + done.output)
        if scripts.again:
            _run_again(shown, lambda script: run(script, "\nGO\n".join(parts[script])))
        left = [row for instance in instances.values() for row in instance.left()]
    return shown, left


def departures(scripts: ScriptSet, shown: dict[Script, Shown], left: list[str]) -> Iterator[str]:
    """Where a run departs from the table: a line each."""
    for script, now in shown.items():
        if bool(now.code) != script.stops():
            yield f"{script.path}: exit code {now.code}, but: {script.verdict}"
        elif not script.stops() and not _matches(script.rows, now.rows()):
            yield f"{script.path}: rows {now.rows() or 'none'} instead of {script.rows or 'none'}"
    if scripts.left is not None and tuple(left) != scripts.left:
        for sign, rows in (
            ("only now", set(left) - set(scripts.left)),
            ("no more", set(scripts.left) - set(left)),
        ):
            yield from (f"{scripts.name}: {sign}: {row}" for row in sorted(rows))


def _matches(expected: str, rows: str) -> bool:
    return (
        re.fullmatch(re.escape(expected).replace(r"\?", r"\d+"), re.escape(rows).replace("\\", ""))
        is not None
    )


def _parts(table: Table, scripts: ScriptSet, script: Script, checkouts: Path) -> list[str]:
    """The script's text, after edits; of a set with two passes, up to its first FROM FILE and from there on."""
    file = f"{scripts.repository}/{script.path}"
    text = table.edited(file, decode((checkouts / file).read_bytes(), scripts.encoding))
    text = text.replace("\r\n", "\n")
    if scripts.default and not re.search(r"create\s+database", text, re.IGNORECASE) and not USE.search(text):
        text = f"USE [{scripts.default}]\nGO\n{text}"
    if not scripts.two_passes:
        return [text]
    batches = GO.split(text)
    first = next((n for n, batch in enumerate(batches) if FILE.search(batch)), len(batches))
    used = USE.findall("\n".join(batches[:first]))[-1:]
    rest = [*(f"USE {name}" for name in used), *batches[first:]] if first < len(batches) else []
    return ["\nGO\n".join(part) for part in (batches[:first], rest) if part]


def _run_again(shown: dict[Script, Shown], run: Callable[[Script], Shown]) -> None:
    """Until no more of those that failed succeed."""
    failed = [script for script, now in shown.items() if now.code]
    while failed:
        for script in failed:
            shown[script] = run(script)
        still = [script for script in failed if shown[script].code]
        if len(still) == len(failed):
            return
        failed = still
