"""Whether a message body is a well-formed XML document."""

from __future__ import annotations

from lxml import etree


def is_well_formed(body: bytes) -> bool:
    """Tell whether the body is one well-formed XML document in UTF-8, without entity declarations."""
    try:
        body.decode("utf-8")
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False, load_dtd=False)
        root = etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError):
        return False
    document = root.getroottree().docinfo
    return document.internalDTD is None
