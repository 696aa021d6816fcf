"""Whether a message body is well-formed XML, for servers that were built without libxml."""

from __future__ import annotations

from typing import Any

from lxml import etree


def is_well_formed(body: bytes) -> bool:
    """Return whether `body` is one well-formed XML document in UTF-8.

    As PostgreSQL does, the body is taken as UTF-8 whatever encoding its declaration names. A document that
    declares entities is refused, as are depths above 256 and texts above 10 million bytes; nothing outside
    of the body is read.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    # One parser for each call: a parser has a lock, and callers parse in several threads.
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        no_network=True,
        huge_tree=False,
    )
    try:
        root = etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError):
        return False
    dtd: Any = root.getroottree().docinfo.internalDTD
    return dtd is None or next(iter(dtd.iterentities()), None) is None
