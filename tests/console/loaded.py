"""Two databases on two servers, their workers, and an application that never pauses: what a console is looked at beside."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from tests.brokers import Site, two_sites
from tests.conftest import NEWEST
from tests.console.conftest import PASSWORD
from tests.patience import PATIENCE, until
from tests.shop import END_DIALOG, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

ORDERS = 10
# Between orders: twenty messages a second. Four times as many took most of a processor, and the pages waited for it.
_PAUSE_SECONDS = 0.5
# What the application handled is noted in the transaction that receives it, so a second time would be an error.
_OF_SHOP = "create table public.sent (body text primary key)"
_OF_WAREHOUSE = f"""
create table public.handled (body text primary key);
create procedure public.handle_orders() language plpgsql as $$
declare
  message record;
begin
  for message in select * from broker.receive('warehouse', timeout => '200 ms') loop
    if message.message_type_name = 'order' then
      insert into public.handled values (convert_from(message.message_body, 'UTF8'));
      if message.message_sequence_number = {ORDERS - 1} then
        perform broker.send(message.conversation_handle, 'ack', ''::bytea);
        perform broker.end_conversation(message.conversation_handle);
      end if;
    end if;
  end loop;
end
$$;
select broker.create_queue('side');
select broker.create_service('//side', 'side', '{{ordering}}');
select broker.grant('SEND', 'SERVICE', '//side', 'public');
select broker.create_service('//sealed', 'side', '{{ordering}}');
select broker.grant('SEND', 'SERVICE', '//sealed', 'shop_user');
"""
_SHOP_READS = f"""
do $$
declare
  message record;
begin
  for message in select * from broker.receive('shop', timeout => '200 ms') loop
    if message.message_type_name = '{END_DIALOG}' then
      perform broker.end_conversation(message.conversation_handle);
    end if;
  end loop;
end
$$
"""


class Loaded:
    """A shop and a warehouse whose application talks all the time; `//side` and `//sealed` are the tests' own."""

    def __init__(self, shop: Site, warehouse: Site) -> None:
        self.shop, self.warehouse = shop, warehouse
        shop.psql.rows(_OF_SHOP)
        warehouse.psql.rows(_OF_WAREHOUSE)
        shop.route("//side", warehouse)
        shop.route("//sealed", warehouse)
        shop.psql.rows("select broker.create_remote_service_binding('sealed', '//sealed', 'warehouse_user')")
        self.errors: list[psycopg.Error] = []
        self._is_over = threading.Event()
        loads = [
            (shop, self._order),
            (shop, lambda session: session.rows(_SHOP_READS)),
            (warehouse, lambda session: session.rows("call public.handle_orders()")),
            (warehouse, lambda session: session.rows("call public.handle_orders()")),
        ]
        self._threads = [threading.Thread(target=self._repeat, args=one, daemon=True) for one in loads]

    @property
    def urls(self) -> tuple[str, str]:
        """What a console is given: address and database."""
        shop, warehouse = (
            f"postgresql://127.0.0.1:{site.server.port}/{site.name}" for site in (self.shop, self.warehouse)
        )
        return shop, warehouse

    def role(self, options: str = "") -> str:
        """Create a role that may log in at both servers by PASSWORD."""
        name = f"role_{uuid.uuid4().hex[:12]}"
        for site in (self.shop, self.warehouse):
            site.psql.connection.execute(
                sql.SQL("create role {} login {} password {}").format(
                    sql.Identifier(name), sql.SQL(options), sql.Literal(PASSWORD)
                )
            )
        return name

    def sent(self, *bodies: bytes, to: str = "//side", encryption: bool = False) -> UUID:
        """Send these from the shop on one dialog, and return its handle there."""
        with self.shop.psql.connection.transaction():
            handle: UUID = self.shop.psql.value(
                "select broker.begin_dialog('//shop', %s, 'ordering', encryption => %s)", to, encryption
            )
            for body in bodies:
                self.shop.psql.send(handle, "order", body)
        return handle

    def arrived(self, handle: UUID, count: int = 1) -> UUID:
        """Wait until so many messages of a dialog of the shop are in the warehouse, and return its handle there."""
        conversation = self.shop.psql.value(
            "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", handle
        )
        there = (
            "select e.conversation_handle from broker.conversation_endpoints e where e.conversation_id = %s"
        )
        far: UUID = until(lambda: self.warehouse.psql.rows(there, conversation))[0][0]
        waiting = "select count(*) from side where conversation_handle = %s"
        until(lambda: self.warehouse.psql.value(waiting, far) >= count)
        return far

    def quarantined(self, count: int = 1, error: str = "no such item") -> list[UUID]:
        """Send on so many dialogs what fails in the warehouse; return the handles there."""
        self.warehouse.psql.rows("select broker.alter_queue('side', poison_action => 'QUARANTINE')")
        handles = [self.arrived(handle) for handle in [self.sent(b"an order") for _ in range(count)]]
        for handle in handles:
            for _ in range(5):
                self.warehouse.psql.rows("select broker.note_failure(%s, %s)", handle, error)
        return handles

    def start(self) -> None:
        """Start workers and application, and wait until orders flow."""
        for site in (self.shop, self.warehouse):
            site.start_worker()
        for thread in self._threads:
            thread.start()
        self.flows()

    def flows(self) -> None:
        """Wait until orders that are sent from now on are handled."""
        handled = "select count(*) from public.handled"
        before = self.warehouse.psql.value(handled)
        until(lambda: self.warehouse.psql.value(handled) > before)

    def stop(self) -> None:
        """Let the application end: everything that it sent was handled, and nothing twice."""
        self._is_over.set()
        for thread in self._threads[:1]:
            thread.join(PATIENCE)
        sent = set(self.shop.psql.rows("select body from public.sent"))
        session = self.warehouse.psql

        def missing() -> int:
            session.rows("call public.handle_orders()")
            return len(sent - set(session.rows("select body from public.handled")))

        until(lambda: missing() == 0)
        for thread in self._threads:
            thread.join(PATIENCE)
        assert self.errors == []

    def _order(self, session: Session) -> None:
        with session.connection.transaction():
            handle = session.value(
                "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
            )
            name = uuid.uuid4().hex
            for number in range(ORDERS):
                body = f"{name} {number}"
                session.rows("insert into public.sent values (%s)", body)
                session.send(handle, "order", body.encode())
        self._is_over.wait(_PAUSE_SECONDS)

    def _repeat(self, site: Site, work: Callable[[Session], object]) -> None:
        """Work until it is over; a server that went away is come back to."""
        while not self._is_over.is_set():
            try:
                with psycopg.connect(site.server.url(site.name), autocommit=True) as connection:
                    session = Session(connection)
                    while not self._is_over.is_set():
                        work(session)
            except psycopg.OperationalError:
                self._is_over.wait(_PAUSE_SECONDS)
            except psycopg.Error as error:
                self.errors.append(error)
                return


@contextmanager
def loaded(directory: Path, server_for: Callable[[str, int], EmbeddedServer]) -> Iterator[Loaded]:
    """Yield the two databases under load; at the end everything that was sent must have been handled once."""
    with two_sites(directory, versions=(NEWEST, NEWEST), server_for=server_for) as (shop, warehouse):
        found = Loaded(shop, warehouse)
        found.start()
        yield found
        found.stop()
