"""The play: two brokers are set up, orders go through, and the books are compared."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pybroker.demo.broker import Broker, free_ports
from pybroker.demo.failures import DemoError
from pybroker.demo.progress import Watch
from pybroker.demo.reconciliation import Reconciliation, reconcile
from pybroker.demo.sides import BROKERAGE, TRADER, define, enter, introduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from pybroker.demo.progress import Display

# Orders in a transaction: enough that commits don't set the pace, few enough that a person sees them go.
_BATCH = 50
# Seconds without any change in either database after which something must be wrong.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Market:
    """Both brokers, set up and served."""

    trader: Broker
    brokerage: Broker

    def check_workers(self) -> None:
        """Do nothing while both workers run.

        Raises:
            DemoError: One has ended.
        """
        for broker in (self.trader, self.brokerage):
            broker.check_worker()


@contextmanager
def market(say: Callable[[str], None]) -> Iterator[Market]:
    """Set up both brokers and start their workers; at the end, stop and remove everything.

    Args:
        say: Told what is being done, a line each.

    Raises:
        DemoError: A worker does not serve.
        EmbeddedServerError: A server does not start.
    """
    trader_port, brokerage_port = free_ports(2)
    with ExitStack() as stack:
        say("Starting two PostgreSQL servers, Trader1 and DMBrokerage")
        trader = stack.enter_context(Broker(TRADER.name, "trader", trader_port))
        brokerage = stack.enter_context(Broker(BROKERAGE.name, "brokerage", brokerage_port))
        say("Creating message types, contract, queues and services in both")
        for broker, side in ((trader, TRADER), (brokerage, BROKERAGE)):
            with broker.connect() as connection:
                define(connection, side)
        say(f"Exchanging certificates; routes to {brokerage.address} and back to {trader.address}")
        _introduce(trader, brokerage)
        say("Starting a worker for each")
        for broker in (trader, brokerage):
            broker.start_worker()
        for broker in (trader, brokerage):
            broker.wait_for_worker()
        yield Market(trader, brokerage)


def trade(between: Market, orders: int, display: Display) -> Reconciliation:
    """Enter the orders, wait until every conversation is over, and compare the books.

    Raises:
        DemoError: A worker ended, or nothing moves any more.
    """
    with between.trader.connect() as trader, between.brokerage.connect() as brokerage:
        with display:
            watch = Watch(orders, trader, brokerage, display)
            for first in range(1, orders + 1, _BATCH):
                enter(trader, range(first, min(first + _BATCH, orders + 1)))
                watch.look()
                between.check_workers()
            while not watch.progress.is_over:
                between.check_workers()
                if watch.seconds_still > _PATIENCE:
                    raise DemoError(_why_still(between, trader, brokerage))
                watch.wait()
                watch.look()
        return reconcile(orders, trader, brokerage)


def _introduce(trader: Broker, brokerage: Broker) -> None:
    """Make a certificate for each worker, and tell each side of the other."""
    certificates = {broker.name: broker.create_certificate() for broker in (trader, brokerage)}
    for own, far, side in ((trader, brokerage, TRADER), (brokerage, trader, BROKERAGE)):
        with own.connect() as connection:
            introduce(
                connection,
                side,
                certificate=certificates[own.name],
                port=own.port,
                listener_ip="127.0.0.1",
                far_certificate=certificates[far.name],
                far_address=far.address,
            )


def _why_still(between: Market, trader: psycopg.Connection[Any], brokerage: psycopg.Connection[Any]) -> str:
    lines = [f"Nothing has moved for {_PATIENCE:.0f} seconds, and the orders are not through."]
    for broker, connection in ((between.trader, trader), (between.brokerage, brokerage)):
        rows = connection.execute(
            "select distinct transmission_status from broker.transmission_queue"
            " where transmission_status <> '' limit 5"
        )
        lines += [f"{broker.name} cannot send: {status}" for (status,) in rows]
        rows = connection.execute("select name from broker.service_queues where not is_receive_enabled")
        lines += [f'The queue "{name}" of {broker.name} is disabled.' for (name,) in rows]
        lines += [f"Last words of {broker.name}'s worker:", broker.last_words()]
    return "\n".join(lines)
