"""One side of the play beside a PostgreSQL that is there already, as in docker/compose.yaml.

    python -m pybroker.demo.one_side trader       set the side up, and become its worker
    python -m pybroker.demo.one_side brokerage    the same for the other side
    python -m pybroker.demo.one_side check        beside the trader: wait until every order is through

The environment has PYBROKER_DATABASE_URL and PYBROKER_KEY_DIRECTORY; PYBROKER_DEMO_CERTIFICATES, a directory
through which the sides hand each other their public certificates; PYBROKER_DEMO_FAR_ADDRESS, the far
worker's; PYBROKER_DEMO_PORT, where this one listens; PYBROKER_DEMO_ORDERS. Started again, it leaves what was
done as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.connection_string import checked
from pybroker.demo.failures import DemoError
from pybroker.demo.sides import BROKERAGE, TRADER, define, enter, introduce
from pybroker.migrations import migrate

if TYPE_CHECKING:
    from pybroker.demo.sides import Side

_SIDES = {"trader": TRADER, "brokerage": BROKERAGE}
_BATCH = 50
# Seconds without any change after which something must be wrong.
_PATIENCE = 120.0

# An order agrees if it was acknowledged once, for its own amount, as a trade that no other order has.
_AGREEING = """
select pg_catalog.count(*) from (
  select order_id from public.acknowledgements
  group by order_id having pg_catalog.count(*) = 1
) once
join public.acknowledgements a using (order_id)
join public.orders o using (order_id)
where a.amount = o.amount and not exists (
  select from public.acknowledgements other where other.ack_id = a.ack_id and other.order_id <> a.order_id
)
"""


def play(side: Side) -> None:
    """Set this side up, enter the orders if it is the trader's, and replace this process by the worker.

    Raises:
        DemoError: The far side's certificate does not come.
        psycopg.Error: The database refuses something.
    """
    url = os.environ["PYBROKER_DATABASE_URL"]
    migrate(url)
    own_certificate = _publish_certificate(side)
    far_certificate = _far_certificate(side)
    # One transaction: a start that is cut off begins anew.
    with psycopg.connect(url) as connection:
        if not _is_defined(connection):
            define(connection, side)
            introduce(
                connection,
                side,
                certificate=own_certificate,
                port=int(os.environ["PYBROKER_DEMO_PORT"]),
                listener_ip="ALL",
                far_certificate=far_certificate,
                far_address=os.environ["PYBROKER_DEMO_FAR_ADDRESS"],
            )
    if side is TRADER:
        _enter_orders(url)
    # A person who watches is not to wait for what a network needs.
    worker = ("worker", "--reconnect-after", "0.5", "--retry-connect-after", "1")
    os.execv(sys.executable, [sys.executable, "-m", "pybroker", *worker])  # noqa: S606


def check() -> str:
    """Wait until no conversation of the trader's is open; say how many orders agree.

    Raises:
        DemoError: Not all agree, or nothing moves any more.
    """
    orders = _orders()
    with psycopg.connect(checked(os.environ["PYBROKER_DATABASE_URL"]), autocommit=True) as trader:
        seen, since = None, time.monotonic()
        while (now := _progress(trader))[0] < orders or now[-1] > 0:
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > _PATIENCE:
                raise DemoError(
                    f"nothing has moved for {_PATIENCE:.0f} seconds: {now[-1]} conversations are open"
                )
            time.sleep(0.2)
        row = trader.execute(_AGREEING).fetchone()
    agreeing = row[0] if row else 0
    said = f"{agreeing} of {orders} orders were booked and acknowledged once"
    if agreeing != orders:
        raise DemoError(said)
    return said


def _publish_certificate(side: Side) -> str:
    keys = Path(os.environ["PYBROKER_KEY_DIRECTORY"])
    made = keys / f"{side.name}.pem"
    if not made.exists():
        command = (sys.executable, "-m", "pybroker", "certificate", "create", side.name)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    certificate = made.read_text()
    published = _exchange() / f"{side.name}.pem"
    unfinished = published.with_suffix(".new")
    unfinished.write_text(certificate)
    unfinished.replace(published)
    return certificate


def _far_certificate(side: Side) -> str:
    file = _exchange() / f"{side.far_name}.pem"
    deadline = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise DemoError(f"the certificate of {side.far_name} did not come: does its side run?")
        time.sleep(0.2)
    return file.read_text()


def _exchange() -> Path:
    return Path(os.environ["PYBROKER_DEMO_CERTIFICATES"])


def _orders() -> int:
    return int(os.environ.get("PYBROKER_DEMO_ORDERS", "200"))


def _is_defined(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("select pg_catalog.to_regclass('public.progress') is not null").fetchone()
    return row is not None and bool(row[0])


def _enter_orders(url: str) -> None:
    orders = _orders()
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select pg_catalog.count(*) from public.orders").fetchone()
        entered = row[0] if row else 0
        for first in range(entered + 1, orders + 1, _BATCH):
            enter(connection, range(first, min(first + _BATCH, orders + 1)))


def _progress(trader: psycopg.Connection[Any]) -> tuple[int, int, int]:
    if not _is_defined(trader):
        return 0, 0, 0
    row = trader.execute("select sent, acknowledged, open_conversations from public.progress").fetchone()
    return row or (0, 0, 0)


def main() -> None:
    """Play the side, or check, as the only argument says."""
    wanted = sys.argv[1:]
    try:
        if wanted == ["check"]:
            sys.stdout.write(f"{check()}\n")
        elif len(wanted) == 1 and wanted[0] in _SIDES:
            play(_SIDES[wanted[0]])
        else:
            sys.exit("usage: python -m pybroker.demo.one_side trader|brokerage|check")
    except DemoError as error:
        sys.exit(f"pybroker demo: {error}")


if __name__ == "__main__":
    main()
