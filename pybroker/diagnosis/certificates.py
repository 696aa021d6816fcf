"""Certificates that are soon over. The database keeps them as text, and can't read their dates."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql
from psycopg.rows import class_row

from pybroker.diagnosis.findings import Finding, Mend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import psycopg

# The worker's log begins to warn at the same time.
_SOON = timedelta(days=30)
_CERTIFICATES = """
select c.name, c.principal_id as user, c.certificate_pem as pem, e.name as endpoint,
  pg_catalog.pg_get_userbyid(d.datdba) as owner, pg_catalog.clock_timestamp() as now
from broker.certificates c
cross join (select datdba from pg_catalog.pg_database where datname = pg_catalog.current_database()) d
left join broker.service_broker_endpoints e on e.certificate_id = c.certificate_id
order by c.name
"""


class _Row(NamedTuple):
    name: str
    user: str
    pem: str
    endpoint: str | None
    owner: str
    now: datetime


class _Certificate(NamedTuple):
    row: _Row
    over: datetime

    @property
    def is_soon_over(self) -> bool:
        return self.over - self.row.now < _SOON


def expiring(connection: psycopg.Connection[Any]) -> list[Finding]:
    """Find the certificates of endpoint and users that expire within 30 days, or have expired.

    One that has a successor is none: of a user's valid certificates a worker takes the last to expire.
    """
    rows = connection.cursor(row_factory=class_row(_Row)).execute(_CERTIFICATES.encode()).fetchall()
    database = connection.info.dbname
    try:
        read = list(_read(rows))
    except ImportError:
        return [
            Finding(
                112,
                "information",
                database,
                "The dates of its certificates can't be read here.",
                "One may expire soon. This program lacks the library that reads them.",
                mend=(Mend(database, None, "pip install 'pybroker[worker]'", is_destructive=False),),
            )
        ]
    return [_finding(connection, one, last) for one, last in _last_ones(read) if one.is_soon_over]


def _read(rows: list[_Row]) -> Iterator[_Certificate]:
    if not rows:
        return
    from cryptography import x509  # noqa: PLC0415 - the client alone has none

    for row in rows:
        try:
            made = x509.load_pem_x509_certificate(row.pem.encode())
        except ValueError:
            # The worker's log says that it ignores this one.
            continue
        yield _Certificate(row, made.not_valid_after_utc)


def _last_ones(read: list[_Certificate]) -> Iterator[tuple[_Certificate, _Certificate]]:
    """Yield what is in use, each with the last to expire of the same user."""
    last: dict[str, _Certificate] = {}
    for one in sorted(read, key=lambda one: one.over):
        last[one.row.user] = one
    for one in read:
        # An endpoint goes on with the one that it names.
        if one.row.endpoint is not None or last[one.row.user] is one:
            yield one, last[one.row.user]


def _finding(connection: psycopg.Connection[Any], certificate: _Certificate, last: _Certificate) -> Finding:
    row = certificate.row
    successor = f"{row.name}_{row.now:%Y}"
    statements = []
    why = "Dialogs of this user can't be secured from then on, and no connection is proven by it."
    if row.endpoint is not None:
        why = "From then on no other worker accepts a connection with this one."
    if last.is_soon_over:
        why += (
            " Who holds its key makes the next one: pybroker certificate create. Put its text into the"
            " statement, and register it at the far sides too, before this one is over."
        )
        statements.append(
            sql.SQL("select broker.create_certificate({}, 'PEM', {})").format(successor, row.user)
        )
    else:
        successor = last.row.name
    if row.endpoint is not None:
        statements.append(
            sql.SQL("select broker.alter_endpoint({}, certificate => {})").format(row.endpoint, successor)
        )
    verb = "expires" if certificate.over > row.now else "has expired:"
    return Finding(
        112,
        "warning",
        row.name,
        f'The certificate of "{row.user}" {verb} {certificate.over:%Y-%m-%d %H:%M} UTC.',
        why,
        mend=(
            Mend(
                connection.info.dbname,
                row.owner,
                "; ".join(statement.as_string(connection) for statement in statements),
                is_destructive=False,
            ),
        ),
    )
