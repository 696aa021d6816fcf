"""The worker reads what strangers sent in a process of its own: what hurts that process hurts nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from pybroker.workers.validation.examination import Examination, ExaminerLostError, Limits
from pybroker.workers.validation.questions import Body, frame
from pybroker.xml import NOT_VALID, NOT_WELL_FORMED, Fault, SchemaCollection, SchemaCollectionError, fault_of
from tests.shop import ERROR, until
from tests.validating import TRADE_ENTRY, Worker, trade_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.shop import Shop

XSD = "http://www.w3.org/2001/XMLSchema"
LAUGHS = (
    b'<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
    b"<a>&c;</a>"
)


def schema(content: str, namespace: str | None = None) -> str:
    target = f' targetNamespace="{namespace}" xmlns="{namespace}"' if namespace else ""
    return f'<xs:schema xmlns:xs="{XSD}"{target}>{content}</xs:schema>'


# All ways to cut a text into pieces are tried one after the other: it takes for ever, and little memory.
SLOW_PATTERN = schema(
    '<xs:element name="id"><xs:simpleType><xs:restriction base="xs:string">'
    '<xs:pattern value="((a|aa)*(a|aa)*)*b"/></xs:restriction></xs:simpleType></xs:element>'
)


class Examining:
    """An examination that a test asks without being a coroutine."""

    def __init__(self, limits: Limits) -> None:
        self.examination = Examination(limits)
        self._runner = asyncio.Runner()

    def fault(self, body: bytes, collection: int | None = None) -> Fault | None:
        return self._runner.run(self.examination.fault_of(body, len(body), collection))

    def problem(self, collection: int, *documents: str) -> str | None:
        return self._runner.run(self.examination.read_schemas(collection, documents))

    def close(self) -> None:
        self._runner.run(self.examination.close())
        self._runner.close()


@pytest.fixture
def examining() -> Iterator[Examining]:
    made = Examining(Limits(processor_seconds=0.3))
    yield made
    made.close()


def children() -> list[psutil.Process]:
    # One that has ended, and that a test of another file left here, has no command line.
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "pybroker.workers.validation.examiner" in (child.as_dict(["cmdline"])["cmdline"] or [])
    ]


def test_a_body_that_takes_for_ever_is_given_up_and_the_next_is_read(examining: Examining) -> None:
    assert examining.problem(1, SLOW_PATTERN) is None
    fault = examining.fault(b"<id>" + b"a" * 40 + b"</id>", 1)
    assert fault is not None
    # On a fast machine libxml2 gives the pattern up before its time is over.
    if "Internal error" not in fault.reason:
        assert "processor time" in fault.reason
        assert not examining.examination.knows(1)
    assert examining.problem(1, SLOW_PATTERN) is None
    assert examining.fault(b"<id>ab</id>", 1) is None


def test_what_lost_the_process_is_told_from_a_message_that_is_bad(examining: Examining) -> None:
    assert examining.fault(b"<a/>") is None
    (child,) = children()
    child.kill()
    with pytest.raises(ExaminerLostError):
        examining.fault(b"<a/>")
    assert examining.fault(b"<a/>") is None
    (other,) = children()
    assert other.pid != child.pid


def test_a_process_that_does_not_answer_is_killed() -> None:
    examining = Examining(Limits())
    assert examining.fault(b"<a/>") is None
    (child,) = children()
    child.suspend()
    examining.examination._limits = Limits(patience=0.2)
    with pytest.raises(ExaminerLostError):
        examining.fault(b"<a/>")
    assert not child.is_running()
    examining.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (LAUGHS, "DTD"),
        (b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>', "DTD"),
        (b'<?xml version="1.0"?><!-- --><!DOCTYPE a SYSTEM "http://pybroker.invalid/a.dtd"><a/>', "DTD"),
        (b"<a>" * 300 + b"</a>" * 300, "depth"),
        (b"<a>" + b" " * (10 * 1024 * 1024) + b"</a>", "bytes"),
        (b"", "empty"),
        (b"<a>\xff</a>", "UTF-8"),
        ("<a/>".encode("utf-16"), "UTF-8"),
    ],
    ids=["laughs", "file", "network", "depth", "size", "nothing", "bytes", "utf-16"],
)
def test_a_body_that_does_more_than_say_something_is_refused(body: bytes, reason: str) -> None:
    fault = fault_of(body)
    assert fault is not None
    assert (fault.number, reason in fault.reason) == (NOT_WELL_FORMED, True), fault


def test_doctype_may_be_written_where_it_declares_nothing() -> None:
    assert fault_of(b"<!-- <!DOCTYPE a> --><a><![CDATA[<!DOCTYPE a>]]></a>") is None


def test_schemas_of_a_collection_find_each_other_and_nothing_else() -> None:
    number = schema('<xs:element name="number" type="xs:int"/>', "urn:number")
    date = schema('<xs:element name="date" type="xs:date"/>', "urn:number")
    user = schema(
        '<xs:import namespace="urn:number" schemaLocation="http://pybroker.invalid/number.xsd"/>'
        '<xs:element name="user"><xs:complexType><xs:sequence>'
        '<xs:element ref="n:number" xmlns:n="urn:number"/></xs:sequence></xs:complexType></xs:element>',
        "urn:user",
    )
    collection = SchemaCollection([user, number, date])
    assert (
        fault_of(b'<user xmlns="urn:user"><number xmlns="urn:number">1</number></user>', collection) is None
    )
    assert fault_of(b'<date xmlns="urn:number">2004-05-21</date>', collection) is None
    fault = fault_of(b'<user xmlns="urn:user"><number xmlns="urn:number">one</number></user>', collection)
    assert fault is not None
    assert fault.number == NOT_VALID
    for location in ("http://pybroker.invalid/a.xsd", "file:///etc/passwd", "/etc/passwd"):
        with pytest.raises(SchemaCollectionError):
            SchemaCollection([schema(f'<xs:include schemaLocation="{location}"/>')])


def test_a_worker_goes_on_after_a_message_that_ended_its_process(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_schema_collection('trade', array[%s])", TRADE_ENTRY)
    psql.rows("select broker.alter_message_type('order', 'VALID_XML', 'trade')")
    small = Limits(largest_body=1000)
    with Worker(shop.database.url, small) as worker:
        large, good = psql.dialog(), psql.dialog()
        psql.send(large, "order", trade_entry().encode() + b" " * 1000)
        psql.send(good, "order", trade_entry().encode())
        worker.work()
        assert psql.bodies() == [trade_entry().encode()]
        ((kind, _, body),) = psql.receive("shop")
        assert (kind, b"<Code>-9615</Code>" in (body or b"")) == (ERROR, True)
        (child,) = children()
        child.kill()
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        psql.send(good, "order", trade_entry("5").encode())
        with pytest.raises(ExaminerLostError):
            worker.look()
        worker.work()
        assert psql.bodies() == [trade_entry("5").encode()]


def test_the_reader_of_bodies_has_no_last_words_when_its_worker_is_killed() -> None:
    """Its traceback would push what the worker said out of sight."""
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-m", "pybroker.workers.validation.examiner", "10", str(2**30)],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
    ) as examiner:
        os.close(writing)
        _, errors = examiner.communicate(frame(Body(b"<order/>", None)))
    assert errors == b""
    assert examiner.returncode == -signal.SIGPIPE
