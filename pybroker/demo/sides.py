"""The two sides of the play, and what each is told in its database, wherever that is."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SYMBOLS = ("ACME", "BLUE", "CORN", "DELTA", "EAST", "FERN", "GOLD")


@dataclass(frozen=True)
class Side:
    """A side of the play.

    Attributes:
        name: its database's, its certificate's, and that by which the far side knows it.
        scripts: what defines it, in this order.
        route: the name of the route to the far side.
        far_name: the far side's name.
        far_service: the far side's service.
    """

    name: str
    scripts: tuple[str, ...]
    route: str
    far_name: str
    far_service: str


TRADER = Side(
    "Trader1",
    ("common.sql", "trader1.sql"),
    "TradeEntry",
    "DMBrokerage",
    "//www.develop.com/DMBrokerage/TradeEntryService",
)
BROKERAGE = Side("DMBrokerage", ("common.sql", "dmbrokerage.sql"), "EnterTrade", "Trader1", "enterTrade")


def define(connection: psycopg.Connection[Any], side: Side) -> None:
    """Create message types, contract, queue, service and procedures of this side."""
    for script in side.scripts:
        _run_script(connection, script)


def introduce(
    connection: psycopg.Connection[Any],
    side: Side,
    *,
    certificate: str,
    port: int,
    listener_ip: str,
    far_certificate: str,
    far_address: str,
) -> None:
    """Tell this side where its worker listens, and who the far worker is; certificates are in PEM."""
    parameters = {
        "own_name": side.name,
        "own_certificate": certificate,
        "own_port": port,
        "own_ip": listener_ip,
        "far_name": side.far_name,
        "far_certificate": far_certificate,
        "far_address": far_address,
        "far_service": side.far_service,
        "route_name": side.route,
    }
    _run_script(connection, "transport.sql", parameters)


def enter(trader: psycopg.Connection[Any], numbers: Iterable[int]) -> None:
    """Enter the orders of these numbers in one transaction."""
    orders = [
        (
            f"Order{number}",
            _SYMBOLS[number % len(_SYMBOLS)],
            1 + number % 500,
            Decimal(1000 + number % 9000) / 100,
        )
        for number in numbers
    ]
    trader.execute(
        "select public.enter_order(o.order_id, o.symbol, o.shares, o.price)"
        " from unnest(%s::text[], %s::text[], %s::integer[], %s::numeric[])"
        " as o (order_id, symbol, shares, price)",
        [list(column) for column in zip(*orders, strict=True)],
    )


def _run_script(
    connection: psycopg.Connection[Any], name: str, parameters: Mapping[str, Any] | None = None
) -> None:
    script = resources.files("pybroker.demo").joinpath(name).read_bytes()
    # Parameters are put in here, not by the server, which takes them for a single statement only.
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(script, parameters)
