"""What others name, for a terminal or a log that must not obey it."""

from __future__ import annotations


def printable(text: str) -> str:
    """Show what no terminal may obey: names of services and hosts come from strangers too."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
