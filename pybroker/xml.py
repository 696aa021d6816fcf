"""What a message body must be to pass as XML: well-formed, without a DTD, and, if asked, as schemas demand.

The clients look before they send, and the worker looks before a message becomes ready. Nothing outside of a
body and its schemas is read, neither from the network nor from files.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from lxml import etree

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_WELL_FORMED = 9615
NOT_VALID = 9616
LARGEST_BODY = 10 * 1024 * 1024
"""The most bytes that a body may have that is to be XML."""

_SPACES = re.compile(rb"\s*")
_XSD = "http://www.w3.org/2001/XMLSchema"


class Fault(NamedTuple):
    """Why a body does not pass: Service Broker's number of the error, 9615 or 9616, and the reason."""

    number: int
    reason: str


_DTD_REFUSED = Fault(NOT_WELL_FORMED, "It has a DTD, which is refused.")


class SchemaCollectionError(ValueError):
    """Documents that are no usable XML schemas; the text says which and why."""


class SchemaCollection:
    """XML schemas that were read, ready to validate by; threads may share it."""

    def __init__(self, documents: Sequence[str]) -> None:
        """Read the documents of a collection, which may import each other's namespaces.

        Args:
            documents: whole XML schemas (XSD 1.0).

        Raises:
            SchemaCollectionError: one of them can't be read, or they don't go together.
        """
        namespaces: dict[str | None, list[str]] = {}
        schemas: dict[str, etree._Element] = {}
        for place, document in enumerate(documents, 1):
            root = _parsed(document.encode())
            if isinstance(root, Fault):
                raise SchemaCollectionError(f"Document {place} is not well-formed XML: {root.reason}")
            if root.tag != f"{{{_XSD}}}schema":
                raise SchemaCollectionError(f"Document {place} is no xs:schema of {_XSD}.")
            name = f"collection:{place}"
            schemas[name] = root
            namespaces.setdefault(root.get("targetNamespace"), []).append(name)
        for root in schemas.values():
            for imported in root.iterchildren(f"{{{_XSD}}}import"):
                # What the collection has is taken from there, wherever else it is said to be.
                if imported.get("namespace") in namespaces:
                    imported.attrib.pop("schemaLocation", "")
        contents = {name: etree.tostring(root) for name, root in schemas.items()}
        # One document for each namespace, which includes all that define it: a second import of the same
        # namespace would be skipped.
        imports = []
        for number, (namespace, names) in enumerate(namespaces.items()):
            whole = names[0]
            if len(names) > 1:
                whole = f"collection:namespace:{number}"
                includes = "".join(f'<xs:include schemaLocation="{name}"/>' for name in names)
                contents[whole] = _schema(namespace, includes)
            imports.append(_element("import", namespace=namespace, schemaLocation=whole))
        parser = _parser()
        parser.resolvers.add(_OnlyOf(contents))
        try:
            root = etree.fromstring(_schema("urn:pybroker:collection", "".join(imports)), parser)
            self._schema = etree.XMLSchema(root)
            # The errors of the last document are the schema's.
            self._lock = threading.Lock()
        except (etree.XMLSchemaParseError, etree.XMLSyntaxError) as error:
            raise SchemaCollectionError(_first_line(error)) from error

    def fault(self, root: etree._Element) -> Fault | None:
        """Return why a document does not match the schemas, or None."""
        try:
            with self._lock:
                if self._schema.validate(root):
                    return None
                errors: Any = self._schema.error_log
                return Fault(NOT_VALID, _line(errors[0].message) if len(errors) else "It does not match.")
        except etree.XMLSchemaValidateError as error:
            # A pattern that takes too many steps, for one.
            return Fault(NOT_VALID, _first_line(error))


def is_well_formed(body: bytes) -> bool:
    """Return whether `body` is one well-formed XML document, in UTF-8 and without a DTD."""
    return fault_of(body) is None


def fault_of(body: bytes, schemas: SchemaCollection | None = None) -> Fault | None:
    """Return why a body does not pass as XML, or None.

    As PostgreSQL does, the body is taken as UTF-8 whatever encoding its declaration names. A DTD is refused,
    and so are bodies above `LARGEST_BODY`, depths above 256 and texts above 10 million bytes.

    Args:
        body: what is to be one XML document.
        schemas: what it must match too.
    """
    root = _parsed(body)
    if isinstance(root, Fault):
        return root
    return schemas.fault(root) if schemas else None


def _parsed(body: bytes) -> etree._Element | Fault:
    if len(body) > LARGEST_BODY:
        return Fault(NOT_WELL_FORMED, f"It has {len(body)} bytes; XML has at most {LARGEST_BODY}.")
    # So the parser does not get to see entities.
    if _has_dtd(body):
        return _DTD_REFUSED
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return Fault(NOT_WELL_FORMED, "It is not UTF-8.")
    try:
        root = etree.fromstring(body, _parser())
    except (etree.XMLSyntaxError, ValueError) as error:
        return Fault(NOT_WELL_FORMED, _first_line(error))
    docinfo: Any = root.getroottree().docinfo
    return _DTD_REFUSED if docinfo.doctype else root


def _has_dtd(body: bytes) -> bool:
    """Return whether a document type declaration is where one can be: before the first element."""
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    while True:
        if spaces := _SPACES.match(body, start):
            start = spaces.end()
        for opening, closing in ((b"<?", b"?>"), (b"<!--", b"-->")):
            if body.startswith(opening, start):
                end = body.find(closing, start + len(opening))
                if end < 0:
                    return False
                start = end + len(closing)
                break
        else:
            return body.startswith(b"<!DOCTYPE", start)


class _OnlyOf(etree.Resolver):
    """Finds the documents of a collection, and nothing else in the world."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents

    def resolve(self, system_url: str, _public_id: str, context: Any) -> Any:  # type: ignore[override]
        content = self._contents.get(system_url)
        if content is None:
            raise SchemaCollectionError(f'"{system_url}" is not in the collection, and nothing else is read.')
        return self.resolve_string(content, context, base_url=system_url)


def _parser() -> etree.XMLParser:
    # One for each document: a parser has a lock, and callers parse in several threads.
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        no_network=True,
        huge_tree=False,
    )


def _schema(namespace: str | None, content: str) -> bytes:
    attributes = {} if namespace is None else {"targetNamespace": namespace}
    schema = etree.Element(f"{{{_XSD}}}schema", attributes, nsmap={"xs": _XSD})
    for child in etree.fromstring(f'<a xmlns:xs="{_XSD}">{content}</a>'):
        schema.append(child)
    return etree.tostring(schema)


def _element(name: str, **attributes: str | None) -> str:
    given = {name: value for name, value in attributes.items() if value is not None}
    return etree.tostring(etree.Element(f"{{{_XSD}}}{name}", given, nsmap={"xs": _XSD})).decode()


def _first_line(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return _line(text.splitlines()[0] if text else type(error).__name__)


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
