"""What of the worker validates messages, taken a look at a time by a test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database
from pybroker.workers.validation import Limits, Validation

if TYPE_CHECKING:
    from types import TracebackType

TRADE_ENTRY = """<?xml version="1.0"?>
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified"
  xmlns="http://www.develop.com/DMBrokerage/schemas/tradeEntry"
  targetNamespace="http://www.develop.com/DMBrokerage/schemas/tradeEntry">
  <xsd:element name="tradeEntry" type="tradeEntry"/>
  <xsd:complexType name="tradeEntry">
    <xsd:sequence>
      <xsd:element name="RICCODE" type="xsd:string"/>
      <xsd:element name="CustomerID" type="xsd:int"/>
      <xsd:element name="OrderID" type="xsd:int"/>
      <xsd:element name="Date" type="xsd:date"/>
      <xsd:element name="BuySell" type="xsd:string"/>
      <xsd:element name="Volume" type="xsd:int"/>
      <xsd:element name="Price" type="xsd:decimal"/>
    </xsd:sequence>
  </xsd:complexType>
</xsd:schema>"""
"""The schema of the book's listing 15-3: with the element that it declares nowhere, and BuySell a string, no date."""

TRADE_ACK = """<?xml version="1.0"?>
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified"
  xmlns="http://www.develop.com/DMBrokerage/schemas/tradeAck"
  targetNamespace="http://www.develop.com/DMBrokerage/schemas/tradeAck">
  <xsd:element name="tradeAck" type="tradeAck"/>
  <xsd:complexType name="tradeAck">
    <xsd:sequence>
      <xsd:element name="OrderID" type="xsd:int"/>
      <xsd:element name="AckId" type="xsd:int"/>
    </xsd:sequence>
  </xsd:complexType>
</xsd:schema>"""
"""The second one, which the book gives no name."""


def trade_entry(volume: str = "100") -> str:
    """Return a trade of that volume, which is valid if it is a number."""
    return (
        '<tradeEntry xmlns="http://www.develop.com/DMBrokerage/schemas/tradeEntry"><RICCODE>MSFT.O</RICCODE>'
        "<CustomerID>7</CustomerID><OrderID>1</OrderID><Date>2004-05-21</Date><BuySell>B</BuySell>"
        f"<Volume>{volume}</Volume><Price>25.5</Price></tradeEntry>"
    )


class Worker:
    """The part of a worker that validates the messages of one database, without the others."""

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        self._database = Database(url)
        self._validation = Validation(self._database, Clock(), limits)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Worker:
        self._runner.run(self._database.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._validation.close())
        self._runner.run(self._database.close())
        self._runner.close()

    def look(self) -> bool:
        """Look once."""
        return self._runner.run(self._validation.look())

    def work(self) -> None:
        """Validate until nothing is left to do."""
        while self.look():
            pass
