"""The two sites that chaos and soak play on: each begins dialogs with the other, and both send on all of them.

Each has two services on one queue. The other side has a binding for one of them, so its dialogs are sealed.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pybroker.embedded import EmbeddedServer
from tests.brokers import Site, introduce
from tests.chaos.lines import a_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.lines import Line

NAMES = ("left", "right")
QUEUE = "mailbox"
SEALED = "/sealed"
# A ledger is the user's own: it is written in the transaction of the SEND or of the RECEIVE.
DEFINITIONS = f"""
select broker.create_message_type('note');
select broker.create_contract('talk', sent_by_any => '{{note}}');
select broker.create_queue('{QUEUE}', poison_message_handling => false);
create table dialogs (name text primary key, handle uuid not null);
create table sent (dialog text, number integer, digest text not null, primary key (dialog, number));
create table received (dialog text not null, number integer not null, digest text not null, place bigserial);
create table failed (handle uuid not null, body bytea, place bigserial);
"""


@contextmanager
def a_stage(directory: Path, settings: dict[str, str]) -> Iterator[tuple[tuple[Site, Site], Line]]:
    """Yield two sites with a server each, and the line between their workers, which are not started yet."""
    with ExitStack() as stack:
        line = stack.enter_context(a_line())
        left, right = sites = (
            _site(stack, NAMES[0], directory, settings),
            _site(stack, NAMES[1], directory, settings),
        )
        line.join(sites)
        introduce(left, right)
        for site, far in (sites, sites[::-1]):
            site.psql.rows(DEFINITIONS)
            # Who may send to the sealed one is known by the certificate alone.
            for kind, sender in (("", "public"), (SEALED, f"{far.name}_user")):
                service = f"//{site.name}{kind}"
                site.psql.rows("select broker.create_service(%s, %s, '{talk}')", service, QUEUE)
                site.psql.rows("select broker.grant('SEND', 'SERVICE', %s, %s::name)", service, sender)
            site.psql.rows(
                "select broker.create_remote_service_binding('binding', %s, %s::name)",
                f"//{far.name}{SEALED}",
                f"{far.name}_user",
            )
        for kind in ("", SEALED):
            line.route(sites, (f"//left{kind}", f"//right{kind}"))
        yield sites, line


def _site(stack: ExitStack, name: str, directory: Path, settings: dict[str, str]) -> Site:
    server = stack.enter_context(EmbeddedServer(listen=True, settings=settings))
    site = Site(name, server, directory)
    # Its socket is a file, so a worker in another network namespace reaches it too.
    site.url = server.url(name)
    stack.callback(site.close)
    return site
