"""Check the pages' language: no sentence of more than 25 words, no cell of a table that hides a page, one word for
priority.

    python -m tests.prose               what is too long on any page
    python -m tests.prose docs/a.md     what is too long on these pages

A code span counts as one word, as a reader takes it at once. Headings, code blocks and links' targets are no
sentences; nor is what a program wrote between two of the marks below. The comments of the SQL have the same limit (tests/sql_checks.py).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 25
MOST_CHARACTERS = 300
_MEASURED = re.compile(
    r"<!-- (?:measured|figures of make bench) -->.*?<!-- end of (?:measured|figures) -->", re.DOTALL
)
# The word for priority that docs/glossary.md rules out; findings, logs and isolation have levels.
_LEVEL = re.compile(r"\b(?:highest|higher|lower|lowest|their|its|of|as|one) level\b")
_ENDS = re.compile(r"(?<=[.?!])[\"')\]]*\s+|:\s+(?=[A-Z0-9])")


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph; what a colon introduces is another one if it begins as one."""
    return _ENDS.split(text)


def too_long(page: Path) -> Iterator[str]:
    """Yield what is too long on a page, each with its line.

    Args:
        page: from the checkout's root.
    """
    line, before = 0, ""
    text = _MEASURED.sub(lambda found: "\n" * found[0].count("\n"), (ROOT / page).read_text(encoding="utf-8"))
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            if before == "td_open" and len(token.content) > MOST_CHARACTERS:
                said = f"a cell of {len(token.content)} characters, at most {MOST_CHARACTERS}"
                yield f"{page}:{line}: {said}: {token.content[:60]}..."
            for sentence in sentences(_said(token.children or ())):
                if page.name != "glossary.md" and (found := _LEVEL.search(sentence)):
                    yield f'{page}:{line}: "{found[0]}": docs/glossary.md says priority: {sentence}'
                if (words := len(sentence.split())) > MOST_WORDS:
                    yield f"{page}:{line}: a sentence of {words} words, at most {MOST_WORDS}: {sentence}"
        before = token.type


def _said(parts: Sequence[Token]) -> str:
    said = {"code_inline": "Span", "softbreak": " ", "hardbreak": " "}
    return "".join(part.content if part.type == "text" else said.get(part.type, "") for part in parts)


def pages() -> list[Path]:
    """Return the pages that people read, from the checkout's root."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sql").glob("*.md")]
    return sorted(page.relative_to(ROOT) for page in found)


def main() -> int:
    """Print what is too long; return 1 if anything is."""
    named = [Path(name).resolve().relative_to(ROOT) for name in sys.argv[1:]]
    found = [finding for page in named or pages() for finding in too_long(page)]
    sys.stdout.write("".join(f"{finding}\n" for finding in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
