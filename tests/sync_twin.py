"""Make the sync twin of each async module: `connect` from `connect_async`, in a file without `_async`.

    python -m tests.sync_twin           write the twins
    python -m tests.sync_twin --check   say which differ from what would be written, and fail

A twin is its source with words replaced, docstrings and comments included, then sorted and formatted by
ruff. What no word can say is a pair of names in pybroker/client/concurrency.py. A line of the source that
begins with `# sync: ` is a line of the twin.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pybroker/client", "pybroker/programs")

HEADER = "# Made from {source} by python -m tests.sync_twin: change that file.\n"
REPLACEMENTS = [
    (re.compile(pattern, re.MULTILINE), by)
    for pattern, by in (
        (r"^( *)# sync: ", r"\1"),
        (r"\b([Aa])n Async(?=[A-Z])", r"\1 "),
        (r"(?<![a-z])Async(?=[A-Z])", ""),
        (r"\basync (def|for|with)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
        (r"\basynccontextmanager\b", "contextmanager"),
        (r"\benter_async_context\b", "enter_context"),
        (r"(?<=[a-z])_async\b", ""),
        (r"\bmany tasks\b", "many threads"),
    )
]
LEFT = re.compile(r"async|await", re.IGNORECASE)


def twin_of(source: Path) -> Path:
    """Return where the twin of an async module is."""
    return source.with_name(source.name.replace("_async", ""))


def made_from(source: Path) -> str:
    """Return the text of a module's twin.

    Raises:
        ValueError: a word is left that only async code has.
    """
    text = source.read_text(encoding="utf-8")
    for pattern, by in REPLACEMENTS:
        text = pattern.sub(by, text)
    for number, line in enumerate(text.splitlines(), 1):
        if LEFT.search(line):
            raise ValueError(f"{source.relative_to(ROOT)}:{number} has no form without async: {line.strip()}")
    text = HEADER.format(source=source.name) + text
    name = f"--stdin-filename={twin_of(source)}"
    text = _ruff(text, "check", "--quiet", "--select=I", "--fix", name, "-")
    return _ruff(text, "format", "--quiet", name, "-")


def _ruff(text: str, *arguments: str) -> str:
    command = (sys.executable, "-m", "ruff", *arguments)
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


def sources() -> list[Path]:
    """Return every module that has a twin."""
    return sorted(path for folder in SOURCES for path in (ROOT / folder).glob("*_async.py"))


def stale_twins() -> dict[Path, str]:
    """Return the twins that differ from what their sources make, each with what it should be."""
    texts = {twin_of(source): made_from(source) for source in sources()}
    return {
        twin: text
        for twin, text in texts.items()
        if not twin.exists() or twin.read_text(encoding="utf-8") != text
    }


def main() -> None:
    """Write the twins, or check them."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    try:
        stale = stale_twins()
    except ValueError as error:
        sys.exit(str(error))
    for twin, text in stale.items():
        if sys.argv[1:]:
            sys.stderr.write(f"{twin.relative_to(ROOT)} is stale: run python -m tests.sync_twin\n")
        else:
            twin.write_text(text, encoding="utf-8")
    sys.exit(1 if stale and sys.argv[1:] else 0)


if __name__ == "__main__":
    main()
