"""What others wrote, for a terminal, a log or a table: neither obeyed nor read without end."""

from __future__ import annotations

import json
from typing import Any

# Characters. A role's message has up to a gigabyte, and to read it all would hold up the process.
LONGEST = 8_000


def printable(text: str) -> str:
    """Show what no terminal may obey: names of services and hosts come from strangers too."""
    return (
        text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    )


def printable_json(text: str) -> str:
    """Show the same of JSON in one line, so that it stays JSON."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def one_line(text: Any) -> str:
    """Return a text, or what an error says, in one line."""
    return " ".join(str(text)[:LONGEST].split())
