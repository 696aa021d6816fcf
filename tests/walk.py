"""`python -m tests.walk`: renews the line numbers of docs/walk.md; `--check` only says which are wrong."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/walk.md"
STEP = re.compile(r"\[`([\w./-]+):(\d+)`\]\(\.\./([\w./-]+)#L(\d+)\) \| `([^`]+)`")


def renewed(page: str) -> str:
    """The page, with the first line of each step's file that has its text.

    Raises:
        ValueError: if a file no longer has the text that a step names.
    """
    return STEP.sub(_renew, page)


def wrong(page: str) -> Iterator[str]:
    """What is wrong with the page: a line each."""
    for step in STEP.finditer(page):
        try:
            right = _renew(step)
        except (ValueError, OSError) as error:
            yield str(error)
        else:
            if right != step[0]:
                yield f"{step[3]}: docs/walk.md says line {step[4]}, run `python -m tests.walk`"


def _renew(step: re.Match[str]) -> str:
    path, text = step[3], step[5]
    lines = (ROOT / path).read_text().splitlines()
    line = next((number for number, content in enumerate(lines, start=1) if text in content), None)
    if line is None:
        raise ValueError(f"{path}: no line has `{text}`, as docs/walk.md says")
    return f"[`{path}:{line}`](../{path}#L{line}) | `{text}`"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(wrong(PAGE.read_text())) or None)
    PAGE.write_text(renewed(PAGE.read_text()))
