"""Refuses a malformed URL or connection string, in words that quote nothing of it."""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

_SCHEMES = ("postgresql://", "postgres://")
_BAD_PERCENT = re.compile(r"%(?:00|(?![0-9A-Fa-f]{2}))")


def checked(text: str) -> str:
    """Return a libpq URL or connection string as it came.

    libpq quotes what it can't read, and of a password with an @ or a / it takes the rest for a host or a
    database, which any later message may show. So both are refused here, and told without a quotation.

    Raises:
        psycopg.ProgrammingError: it is none, or some of its password would be read as another part.
    """
    reason = _fault(text)
    if reason is not None:
        raise psycopg.ProgrammingError(
            f"the connection string can't be read: {reason}; write postgresql://user@host:port/database,"
            " and percent-encode what is no letter or digit in a password"
        )
    return text


def _fault(text: str) -> str | None:
    try:
        given = conninfo_to_dict(text)
    except (psycopg.Error, ValueError):
        return _malformed(text)
    hosts = str(given.get("host") or "").split(",")
    # An abstract Unix socket begins with an @.
    if any("@" in host[1:] for host in hosts):
        return "its host holds an @, which in a password is %40"
    ports = str(given.get("port") or "").split(",")
    if not all(port == "" or (port.isascii() and port.isdigit()) for port in ports):
        return "its port is no number, and a / in a password is %2F"
    if text.startswith(_SCHEMES):
        authority, _, rest = text.split("://", 1)[1].partition("/")
        if ":" in authority and "@" not in authority and "@" in rest.split("?", 1)[0]:
            return "an @ follows its first /: a / in a password is %2F, and an @ in a database's name is %40"
    return None


def _malformed(text: str) -> str:
    if text.startswith(_SCHEMES):
        if _BAD_PERCENT.search(text):
            return "a % is not followed by the two hexadecimal digits of a character, and a % itself is %25"
        if any(character.isspace() for character in text):
            return "it holds a space, which is %20 in a URL"
        if "[" in text or "]" in text:
            return "its IPv6 address is not in brackets, or something else than a port follows them"
        return "libpq finds an option in it that has no value, or that it does not know"
    if "://" in text and "=" not in text.split("://", 1)[0]:
        return "its scheme is not postgresql"
    return "in it is a word that is no option=value, an option that libpq does not know, or an open quote"
