"""`pybroker certificate exchange`: two sides get to know each other, one command on each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from pybroker.commands.certificate_files import (
    KeyDirectory,
    create_files,
    fail,
    read_certificate,
    refuse_weak,
    thumbprint_of,
)
from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json

if TYPE_CHECKING:
    from psycopg import Connection

_VERSION = 1
_ENDPOINT = "endpoint"
_LARGEST_FILE = 2**20
# The broker's own: whoever got a route to one would be asked where everybody's messages go.
_OF_SYSTEM = ("sql/servicebroker/", "http://schemas.microsoft.com/")
_NAMED = 20


class Side(msgspec.Struct, forbid_unknown_fields=True):
    """What a side tells the other one. All of it is public."""

    version: int
    name: str
    address: str
    broker_instance: str
    services: list[str]
    # PEM: of the endpoint, and of the owners of the services.
    certificates: list[str]


def exchange(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="What this side is called by the other one; with --out."),
    ] = None,
    *,
    database_url: DatabaseUrl,
    key_directory: KeyDirectory | None = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Where the other side reaches this one; with --out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write what the other side needs; nothing is secret."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--in", metavar="FILE", help="Take in what the other side has written.")
    ] = None,
    known_as: Annotated[
        str | None,
        typer.Option("--as", metavar="USER", help="What the other side is called here; else as in FILE."),
    ] = None,
    service: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE", help="Route messages for it to the other side; with --in."),
    ] = None,
    bind: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE", help="Secure dialogs to this service of the other side; with --in."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE", help="Let the other side SEND to this service of ours; with --in."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Introduce two workers to each other.

    With --out this side gets what it has not yet: a key, its certificate, registered for whoever runs this,
    and a STARTED endpoint at the port of --address. What the other side needs is written to FILE.

    With --in the other side's certificates are registered for a user of its name, who gets CONNECT. --service
    makes a route to a service of the other side, --bind that and a remote service binding, --allow grants
    SEND. A file alone makes no route: it may name services that are somebody else's. What is there already
    stays as it is, so a command may be given again, and after a new certificate must be.

    FILE must come from the other side and nobody else: compare the fingerprints over the telephone.

    \b
    Example, for the shop, which begins dialogs to //warehouse/fulfilment, in turn:
      pybroker certificate exchange shop --out shop.json --address tcp://shop.example.com:4022 \\
        --key-directory keys --database-url postgresql://localhost/shop
      pybroker certificate exchange warehouse --in shop.json --out warehouse.json \\
        --address tcp://warehouse.example.com:4022 --service //shop/orders --allow //warehouse/fulfilment \\
        --key-directory keys --database-url postgresql://localhost/warehouse
      pybroker certificate exchange --in warehouse.json --bind //warehouse/fulfilment \\
        --database-url postgresql://localhost/shop

    Exit codes: 0 done, 1 refused or an unusable file, 2 wrong usage.
    """
    from pybroker.operator_session import broker_session

    if out is None and file is None:
        raise typer.BadParameter("give --out, --in, or both")
    if out is not None and (name is None or address is None or key_directory is None):
        raise typer.BadParameter("--out needs NAME, --address and --key-directory")
    if file is None and (service or bind or allow or known_as):
        raise typer.BadParameter("--as, --service, --bind and --allow need --in")
    far = None if file is None else _read_side(file)
    if far is not None and known_as is not None:
        far.name = known_as
    done: list[str] = []
    with broker_session(database_url, "pybroker certificate", autocommit=False) as connection:
        if out is not None:
            assert name is not None and address is not None and key_directory is not None  # noqa: S101, PT018
            own = _prepare(connection, name, address, key_directory, done)
            try:
                out.write_bytes(msgspec.json.format(msgspec.json.encode(own), indent=2) + b"\n")
            except OSError as error:
                fail(f"cannot write {out}: {error.strerror}")
            done.append(f"wrote {out} for the other side: " + _fingerprints(own))
        if far is not None:
            if known_as is None:
                _refuse_role(connection, far.name)
            _take_in(connection, far, [*(service or []), *(bind or [])], done)
            for one in bind or []:
                _bind(connection, far, one, done)
            for one in allow or []:
                connection.execute("select broker.grant('SEND', 'SERVICE', %s, %s)", (one, far.name))
                done.append(f'"{far.name}" may SEND to {one}')
    if as_json:
        say_json({"done": done})
    else:
        say(*done)


def _prepare(
    connection: Connection[Any], name: str, address: str, key_directory: Path, done: list[str]
) -> Side:
    """Make what this side lacks, and return what the other one needs."""
    from pybroker.workers.transport.dialog_security.key_files import certificate_path, private_key_path

    port = _port_of(address)
    pem_path = certificate_path(key_directory, name)
    if not pem_path.exists() and not private_key_path(key_directory, name).exists():
        create_files(name, key_directory)
        done.append(f"made the key and the certificate {pem_path}")
    read, pem = read_certificate(pem_path)
    found = connection.execute(
        "select thumbprint from broker.certificates where name = %s", (name,)
    ).fetchone()
    if found is None:
        connection.execute("select broker.create_certificate(%s, %s, current_user)", (name, pem))
        done.append(f'registered it as "{name}", for the role that runs this')
    elif found[0] != thumbprint_of(read):
        fail(f'this database has another certificate "{name}"; drop that one first, or take another name')
    if connection.execute("select from broker.service_broker_endpoints").fetchone() is None:
        connection.execute(
            "select broker.create_endpoint(%s, %s, state => 'STARTED', certificate => %s)",
            (_ENDPOINT, port, name),
        )
        done.append(f'made the endpoint "{_ENDPOINT}": it is STARTED and listens at port {port}')
    certificates = connection.execute(
        "select c.certificate_pem from broker.certificates c"
        " where c.name = %s"
        " or c.certificate_id in (select e.certificate_id from broker.service_broker_endpoints e)"
        " or c.principal_id in (select s.principal_id from broker.services s)"
        " order by c.certificate_id",
        (name,),
    ).fetchall()
    services = connection.execute(
        "select s.name from broker.services s where s.service_id >= 65536 order by s.name"
    ).fetchall()
    (instance,) = connection.execute("select service_broker_guid::text from broker.databases").fetchone() or (
        "",
    )
    return Side(
        _VERSION,
        name,
        address,
        instance,
        [service for (service,) in services],
        [certificate for (certificate,) in certificates],
    )


def _refuse_role(connection: Connection[Any], name: str) -> None:
    """Keep a file from making the other side one of this server's roles, with all that this one may do."""
    found = connection.execute(
        "select from pg_catalog.pg_roles where rolname = %s"
        " union all select where pg_catalog.lower(%s) = 'public'",
        (name, name),
    ).fetchone()
    if found is not None:
        fail(f'"{name}" is a role of this server, with rights of its own; give --as and another name')


def _take_in(connection: Connection[Any], far: Side, services: list[str], done: list[str]) -> None:
    """Register what the other side has told, with routes to those of its services that were asked for."""
    endpoint = connection.execute("select name from broker.service_broker_endpoints").fetchone()
    if endpoint is None:
        fail("this database has no endpoint; give --out, --address and --key-directory too, or make one")
    for number, pem in enumerate(far.certificates):
        _register(connection, far, number, pem, done)
    connection.execute("select broker.grant('CONNECT', 'ENDPOINT', %s, %s)", (endpoint[0], far.name))
    done.append(f'"{far.name}" may CONNECT to the endpoint "{endpoint[0]}"')
    for service in services:
        if service.lower().startswith(_OF_SYSTEM):
            fail(f'"{service}" is a name of the broker\'s own; broker.create_route makes such a route')
        if service not in far.services:
            fail(f'"{far.name}" has no service "{service}"; it has {_named(far.services) or "none"}')
        _route(connection, far, service, done)
    others = [one for one in far.services if one not in services and _needs_route(connection, one)]
    if others:
        done.append(f"made no route to what --service does not name: {_named(others)}")


def _register(connection: Connection[Any], far: Side, number: int, pem: str, done: list[str]) -> None:
    import cryptography.x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from pybroker.workers.transport.connection.certificate_check import fingerprint

    try:
        read = cryptography.x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        fail(f"certificate {number + 1} of the file is none")
    refuse_weak(read, f'the file of "{far.name}"')
    told = fingerprint(read.public_bytes(Encoding.DER))
    known = connection.execute(
        "select name, principal_id from broker.certificates where thumbprint = %s", (thumbprint_of(read),)
    ).fetchone()
    if known is not None and known[1] != far.name:
        fail(f'the certificate {told} is registered already, as "{known[0]}" of "{known[1]}"')
    if known is not None:
        done.append(f'knew the certificate of "{far.name}" already: {told}')
        return
    taken = connection.execute("select from broker.certificates where name = %s", (far.name,)).fetchone()
    name = far.name if taken is None else f"{far.name} {thumbprint_of(read).hex()[:16]}"
    connection.execute(
        "select broker.create_certificate(%s, %s, %s)",
        (name, read.public_bytes(Encoding.PEM).decode(), far.name),
    )
    done.append(f'registered the certificate "{name}" of "{far.name}": {told}')


def _route(connection: Connection[Any], far: Side, service: str, done: list[str]) -> None:
    if _needs_route(connection, service):
        connection.execute(
            "select broker.create_route(%s, %s, service_name => %s)", (service, far.address, service)
        )
        done.append(f"made a route to {service} at {far.address}")


def _needs_route(connection: Connection[Any], service: str) -> bool:
    """Tell whether there is no route to a service, and no such service here."""
    found = connection.execute(
        "select from broker.routes r where r.remote_service_name = %s and r.scope = 'DATABASE'"
        " union all select from broker.services s where s.name = %s",
        (service, service),
    ).fetchone()
    return found is None


def _named(services: list[str]) -> str:
    more = len(services) - _NAMED
    return ", ".join(services[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _bind(connection: Connection[Any], far: Side, service: str, done: list[str]) -> None:
    found = connection.execute(
        "select remote_principal_id from broker.remote_service_bindings where remote_service_name = %s",
        (service,),
    ).fetchone()
    if found is None:
        connection.execute(
            "select broker.create_remote_service_binding(%s, %s, %s)", (service, service, far.name)
        )
        done.append(f"bound {service}: dialogs to it are encrypted for {far.name}")
    elif found[0] != far.name:
        fail(f'{service} is bound to "{found[0]}" already; alter or drop that remote service binding')


def _read_side(file: Path) -> Side:
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE)
        side = msgspec.json.decode(content, type=Side)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except msgspec.DecodeError as error:
        fail(f"{file} was not written by pybroker certificate exchange --out: {error}")
    if side.version != _VERSION:
        fail(f"{file} was written by another version of pybroker: {side.version} instead of {_VERSION}")
    return side


def _fingerprints(side: Side) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from pybroker.workers.transport.connection.certificate_check import fingerprint

    return ", ".join(
        fingerprint(x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER))
        for pem in side.certificates
    )


def _port_of(address: str) -> int:
    try:
        port = urlsplit(address).port
    except ValueError:
        port = None
    if not address.startswith("tcp://") or port is None:
        raise typer.BadParameter(f"{address} is no address; write tcp://host:port")
    return port
