"""How far the orders are, read from both databases: a live table for a person, else plain lines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from psycopg.rows import class_row
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    import psycopg
    from rich.console import Console

_Side = TypeVar("_Side")


@dataclass(frozen=True)
class Trader:
    """A row of Trader1's view `progress`."""

    sent: int
    in_transmission: int
    acknowledged: int
    failed: int
    open_conversations: int


@dataclass(frozen=True)
class Brokerage:
    """A row of DMBrokerage's view `progress`."""

    in_transmission: int
    delivered: int
    booked: int
    failed: int
    open_conversations: int


@dataclass(frozen=True)
class Progress:
    """Both sides, read one after the other."""

    orders: int
    trader: Trader
    brokerage: Brokerage

    @property
    def is_over(self) -> bool:
        """Whether every order was sent and no conversation is open on either side."""
        return (
            self.trader.sent == self.orders
            and self.trader.open_conversations == 0
            and self.brokerage.open_conversations == 0
        )

    @property
    def failed(self) -> int:
        """How many Error messages arrived, on either side."""
        return self.trader.failed + self.brokerage.failed


def read_progress(
    orders: int, trader: psycopg.Connection[Any], brokerage: psycopg.Connection[Any]
) -> Progress:
    """Read the views `progress` of both databases."""
    return Progress(orders, _only_row(trader, Trader), _only_row(brokerage, Brokerage))


def _only_row(connection: psycopg.Connection[Any], side: type[_Side]) -> _Side:
    with connection.cursor(row_factory=class_row(side)) as cursor:
        row = cursor.execute("select * from public.progress").fetchone()
    if row is None:
        raise LookupError("the view progress has no row")
    return row


class Display(Protocol):
    """Where progress is shown; a context manager."""

    # Seconds from one showing to the next.
    interval: float

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *error: object) -> None:
        """Leave what was shown last."""

    def show(self, progress: Progress) -> None:
        """Show the newest."""


class LiveTable:
    """A table that changes in place, for a person at a terminal."""

    interval = 0.2

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Redraw the table."""
        self._live.update(_table(progress), refresh=True)


class PlainLines:
    """A line now and then, where nobody watches: in a log, or for a program."""

    interval = 1.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, progress: Progress) -> None:
        """Print a line, unless it would say the same as the one before."""
        line = _line(progress)
        if line != self._last:
            self._console.print(line, soft_wrap=True)
            self._last = line


def _table(progress: Progress) -> Table:
    trader, brokerage = progress.trader, progress.brokerage
    table = Table(title="Stock trading: one conversation for each order", title_justify="left")
    table.add_column("")
    table.add_column("Trader1", justify="right", min_width=13)
    table.add_column("DMBrokerage", justify="right", min_width=13)
    table.add_row("sent", f"{trader.sent:,} of {progress.orders:,}", "")
    table.add_row("in transmission", f"{trader.in_transmission:,}", f"{brokerage.in_transmission:,}")
    table.add_row("delivered", "", f"{brokerage.delivered:,}")
    table.add_row("booked", "", f"{brokerage.booked:,}")
    table.add_row("acknowledged", f"{trader.acknowledged:,}", "")
    table.add_row("conversations open", f"{trader.open_conversations:,}", f"{brokerage.open_conversations:,}")
    if progress.failed:
        table.add_row("ended with an error", f"{trader.failed:,}", f"{brokerage.failed:,}", style="red")
    return table


def _line(progress: Progress) -> str:
    trader, brokerage = progress.trader, progress.brokerage
    failed = f", {progress.failed} ended with an error" if progress.failed else ""
    return (
        f"{trader.sent} of {progress.orders} sent, {trader.in_transmission + brokerage.in_transmission} in"
        f" transmission, {brokerage.delivered} delivered, {brokerage.booked} booked,"
        f" {trader.acknowledged} acknowledged, {trader.open_conversations} + {brokerage.open_conversations}"
        f" conversations open{failed}"
    )


class Watch:
    """Shows progress at the display's pace, and notices when nothing moves any more."""

    def __init__(
        self,
        orders: int,
        trader: psycopg.Connection[Any],
        brokerage: psycopg.Connection[Any],
        display: Display,
    ) -> None:
        self._orders = orders
        self._trader = trader
        self._brokerage = brokerage
        self._display = display
        self._next = 0.0
        self._moved = time.monotonic()
        self.progress = read_progress(orders, trader, brokerage)

    @property
    def seconds_still(self) -> float:
        """For how long nothing has changed in either database."""
        return time.monotonic() - self._moved

    def look(self) -> None:
        """Read and show, unless it is too early for that."""
        started = time.monotonic()
        if started < self._next:
            return
        progress = read_progress(self._orders, self._trader, self._brokerage)
        ended = time.monotonic()
        if progress != self.progress:
            self._moved = ended
        self.progress = progress
        self._display.show(progress)
        # The counts take longer as the tables grow; the trade itself shall have the machine.
        self._next = ended + max(self._display.interval, 10 * (ended - started))

    def wait(self) -> None:
        """Sleep until it is time to look again."""
        time.sleep(max(0.0, self._next - time.monotonic()))
