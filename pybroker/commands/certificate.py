"""`pybroker certificate`: make keys and certificates, look at them, and register them in a home database."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.certificate_files import (
    DAYS,
    KeyDirectory,
    create_files,
    fail,
    make_key_directory,
    read_certificate,
)
from pybroker.commands.exchange import exchange
from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json

if TYPE_CHECKING:
    from cryptography import x509

certificate = typer.Typer(
    name="certificate",
    help="Make keys and certificates for dialogs and transport.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@certificate.command()
def create(
    name: Annotated[str, typer.Argument(help="The certificate's name, as in broker.create_certificate.")],
    *,
    key_directory: KeyDirectory,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=36500, help="Valid for so many days.")] = DAYS,
    as_json: Json = False,
) -> None:
    """Make a private key and its self-signed certificate.

    The key goes to NAME.key, readable by its owner alone, and never leaves the directory. The certificate
    goes to NAME.pem: install it in the home databases of this worker and of its peers. Nothing is ever
    overwritten. Where the directory has no master key for dialogs yet, one is made.

    \b
    Example:
      pybroker certificate create shop --key-directory /etc/pybroker/keys --days 730

    Exit codes: 0 made, 1 a file exists or cannot be written, 2 wrong usage.
    """
    from pybroker.workers.transport.dialog_security.key_files import certificate_path, private_key_path

    made = create_files(name, key_directory, days)
    key_path, pem_path = private_key_path(key_directory, name), certificate_path(key_directory, name)
    described = {
        "name": name,
        "key_file": str(key_path),
        "certificate_file": str(pem_path),
        **_describe(made),
    }
    _print(described, as_json=as_json)


@certificate.command()
def master_key(
    *,
    key_directory: KeyDirectory,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Put a new one in the place of that which is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the master key that session keys of dialogs are derived from.

    It goes to dialog-master.key, readable by its owner alone. Workers that serve the same databases need
    the same one. Without it messages wait whose dialogs have security. --rotate keeps the old one beside
    it under its number: dialogs that began with it still need it.

    \b
    Example:
      pybroker certificate master-key --key-directory /etc/pybroker/keys

    Exit codes: 0 made, 1 there is one, there is none to rotate, or it cannot be written; 2 wrong usage.
    """
    from pybroker.workers.transport.dialog_security.key_files import (
        make_master_key,
        master_key_path,
        rotate_master_key,
    )
    from pybroker.workers.transport.protocol.faults import TransportError

    path = master_key_path(key_directory)
    described: dict[str, str | bool] = {"key_file": str(path)}
    try:
        if rotate:
            made, kept = rotate_master_key(key_directory)
            described["old_key_file"] = str(kept)
        else:
            make_key_directory(key_directory)
            made = make_master_key(key_directory)
    except FileExistsError:
        fail(f"{path} exists; --rotate replaces it, and keeps it beside the new one")
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    except TransportError as fault:
        fail(fault.text)
    _print({"id": made.id.hex(), **described}, as_json=as_json)


@certificate.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate in PEM.")],
    *,
    as_json: Json = False,
) -> None:
    """Show whose a certificate is, how long it is valid, and its fingerprint (SHA-256).

    Compare the fingerprint with its maker's over the telephone before you install it.

    \b
    Example:
      pybroker certificate show warehouse.pem

    Exit codes: 0 valid today, 1 no certificate, or one whose key can be broken, 3 expired or not yet valid.
    """
    described = _describe(read_certificate(file)[0])
    _print(described, as_json=as_json)
    if not described["is_valid"]:
        raise typer.Exit(3)


@certificate.command()
def install(
    name: Annotated[str, typer.Argument(help="The name that it gets in the home database.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A certificate in PEM: this worker's or a peer's.")
    ],
    *,
    database_url: DatabaseUrl,
    user: Annotated[
        str,
        typer.Option(metavar="USER", help="Whom the certificate stands for; need not be a database role."),
    ],
    connect: Annotated[
        bool, typer.Option("--connect", help="Grant USER CONNECT on the endpoint, which must exist.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Register a certificate in the home database.

    A worker trusts the certificates in its home database, and lets in those whose users have CONNECT.
    A running worker sees the change within seconds.

    \b
    Example:
      pybroker certificate install warehouse warehouse.pem --user warehouse --connect \\
        --database-url postgresql://localhost/shop

    Exit codes: 0 installed, 1 refused or no certificate, 2 wrong usage.
    """
    from pybroker.operator_session import broker_session

    read, pem = read_certificate(file)
    with broker_session(database_url, "pybroker certificate", autocommit=False) as connection:
        connection.execute("select broker.create_certificate(%s, %s, %s)", (name, pem, user))
        if connect:
            endpoint = connection.execute("select name from broker.service_broker_endpoints").fetchone()
            if endpoint is None:
                connection.rollback()
                fail("the home database has no endpoint for --connect; make it with broker.create_endpoint")
            connection.execute("select broker.grant('CONNECT', 'ENDPOINT', %s, %s)", (endpoint[0], user))
        may_connect = connection.execute(
            "select from broker.database_permissions where class_desc = 'ENDPOINT'"
            " and permission_name = 'CONNECT' and grantee_principal_id in (%s, 'public')",
            (user,),
        ).fetchone()
    told = {"name": name, "user": user, "may_connect": may_connect is not None, **_describe(read)}
    _print(told, as_json=as_json)


certificate.command()(exchange)


def _describe(described: x509.Certificate) -> dict[str, str | bool]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from pybroker.workers.transport.connection.certificate_check import fingerprint

    begin, end = described.not_valid_before_utc, described.not_valid_after_utc
    return {
        "subject": described.subject.rfc4514_string(),
        "not_valid_before": begin.isoformat(),
        "not_valid_after": end.isoformat(),
        "is_valid": begin <= datetime.now(UTC) <= end,
        "fingerprint": fingerprint(described.public_bytes(Encoding.DER)),
    }


def _print(described: dict[str, str | bool], *, as_json: bool) -> None:
    if as_json:
        say_json(described)
        return
    for label, value in described.items():
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        say(f"{label.replace('_', ' ') + ':':18} {shown}")
