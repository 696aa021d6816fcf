"""Whether two services can talk: what SQL Server's `ssbdiagnose CONFIGURATION` looks at."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Any

from pybroker.diagnosis.asking import Services, ask_about
from pybroker.diagnosis.findings import Finding, Mend

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


_ROUTES = "select name from broker.routes"
_BINDINGS = "select name from broker.remote_service_bindings"


class _Side:
    """One database, and what is asked of it."""

    def __init__(self, connection: psycopg.Connection[Any], *, is_far: bool = False) -> None:
        self.connection = connection
        self.is_far = is_far
        self.database = connection.info.dbname

    def value(self, query: str, *arguments: object) -> Any:
        row = self.connection.execute(query.encode(), arguments).fetchone()
        return None if row is None else row[0]

    def has_service(self, name: str) -> bool:
        return bool(self.value("select pg_catalog.count(*) from broker.services where name = %s", name))

    def mend(self, statement: str) -> tuple[Mend, ...]:
        role = self.value(
            "select pg_catalog.pg_get_userbyid(datdba) from pg_catalog.pg_database"
            " where datname = pg_catalog.current_database()"
        )
        return (Mend(self.database, role, statement, is_destructive=False, is_far=self.is_far),)

    def unused(self, wanted: str, query: str) -> str:
        """Return the wanted name, or with a number if the query returns it."""
        used = {name for (name,) in self.connection.execute(query.encode())}
        names = chain((wanted,), (f"{wanted[:120]}_{n}" for n in count(2)))
        return next(name for name in names if name not in used)

    def messages(self, contract: str) -> dict[str, tuple[bool, bool, str]] | None:
        """Return who may send each type of a contract, and its validation; None without the contract."""
        if not self.value(
            "select pg_catalog.count(*) from broker.service_contracts where name = %s", contract
        ):
            return None
        rows = self.connection.execute(
            "select t.name, u.is_sent_by_initiator, u.is_sent_by_target, t.validation"
            " from broker.service_contract_message_usages u"
            " join broker.service_contracts c using (service_contract_id)"
            " join broker.service_message_types t using (message_type_id) where c.name = %s",
            (contract,),
        ).fetchall()
        return {
            name: (by_initiator, by_target, validation) for name, by_initiator, by_target, validation in rows
        }


def configuration(
    near: psycopg.Connection[Any], far: psycopg.Connection[Any] | None, services: Services
) -> list[Finding]:
    """Find what keeps a dialog between the two services from working.

    Args:
        near: the initiator's database.
        far: the target's, None if it is the same, or nobody may look into it.
        services: who is to talk to whom.
    """
    here = _Side(near)
    there = None if far is None else _Side(far, is_far=True)
    target = there or (here if here.has_service(services.target) else None)
    found = list(_services(here, there, services))
    found += _contracts(here, target, services)
    if target is not here:
        found += _ways(here, there, services)
    if there is not None:
        found += _rights(here, there, services)
    if target is None and not found:
        found += ask_about(near, services)
    return found


def _rights(here: _Side, there: _Side, services: Services) -> Iterator[Finding]:
    """Say whether SEND on the target is granted to whom the initiator's dialogs come as."""
    granted = {
        name
        for (name,) in there.connection.execute(
            "select p.grantee_principal_id from broker.database_permissions p"
            " join broker.services s on s.service_id = p.major_id"
            " where p.class_desc = 'SERVICE' and p.permission_name = 'SEND' and s.name = %s",
            (services.target,),
        )
    }
    if "public" in granted or not there.has_service(services.target):
        return
    who = '"public"'
    if services.encryption == "on":
        ours = {
            pem
            for (pem,) in here.connection.execute(
                "select c.certificate_pem from broker.certificates c"
                " join broker.services s on s.principal_id = c.principal_id where s.name = %s",
                (services.initiator,),
            )
        }
        users = {
            user
            for pem, user in there.connection.execute(
                "select certificate_pem, principal_id from broker.certificates"
            )
            if pem in ours
        }
        if users & granted:
            return
        who = f'"{min(users)}"' if users else "a user whose certificate is not known there"
    yield Finding(
        507,
        "error",
        services.target,
        f'Dialogs of "{services.initiator}" come as {who}, who may not send to "{services.target}".',
        "Each of them ends with an Error (8494). The far service's owner puts the user into the statement.",
        mend=there.mend(f"select broker.grant('SEND', 'SERVICE', {_quoted(services.target)}, 'USER')"),
    )


def _services(here: _Side, there: _Side | None, services: Services) -> Iterator[Finding]:
    for side, name in ((here, services.initiator), (there, services.target)):
        if side is not None and not side.has_service(name):
            contracts = f", array[{_quoted(services.contract)}]" if side is there else ""
            yield Finding(
                501,
                "error",
                name,
                f'The database "{side.database}" has no service "{name}".',
                "No dialog can begin without both services. Put its queue into the statement.",
                mend=side.mend(f"select broker.create_service({_quoted(name)}, 'QUEUE'{contracts})"),
            )


def _contracts(here: _Side, target: _Side | None, services: Services) -> Iterator[Finding]:
    name = services.contract
    ours = here.messages(name)
    theirs = ours if target is None or target is here else target.messages(name)
    known = ours or theirs
    sides = [(here, ours)] if target is None or target is here else [(here, ours), (target, theirs)]
    for side, messages in sides:
        if messages is not None:
            continue
        yield Finding(
            502,
            "error",
            name,
            f'The database "{side.database}" has no contract "{name}".',
            "Both sides need it, with the same message types.",
            mend=side.mend(_contract_statement(name, known)) if known else (),
        )
    if target is not None and theirs is not None and target.has_service(services.target):
        accepts = target.value(
            "select pg_catalog.count(*) from broker.service_contract_usages u"
            " join broker.services s using (service_id)"
            " join broker.service_contracts c using (service_contract_id) where s.name = %s and c.name = %s",
            services.target,
            name,
        )
        if not accepts:
            yield Finding(
                503,
                "error",
                services.target,
                f'The service "{services.target}" does not accept the contract "{name}".',
                "It refuses every dialog on it with an Error (8408).",
                mend=target.mend(
                    f"select broker.alter_service({_quoted(services.target)},"
                    f" add_contracts => array[{_quoted(name)}])"
                ),
            )
    if target is not None and target is not here and ours is not None and theirs is not None:
        yield from _differences(name, here, target, ours, theirs)


def _differences(
    name: str,
    here: _Side,
    target: _Side,
    ours: dict[str, tuple[bool, bool, str]],
    theirs: dict[str, tuple[bool, bool, str]],
) -> Iterator[Finding]:
    unlike = sorted(
        kind
        for kind in ours.keys() | theirs.keys()
        if ours.get(kind, (None, None))[:2] != theirs.get(kind, (None, None))[:2]
    )
    if unlike:
        yield Finding(
            504,
            "error",
            name,
            f'The contract "{name}" is not the same on the two sides: {", ".join(unlike)}.',
            "A message that the far contract does not have, or has in the other direction, ends the dialog"
            " with an Error. Both owners must agree; a contract is dropped and created again to change it.",
        )
    for kind in sorted(ours.keys() & theirs.keys()):
        if ours[kind][2] != theirs[kind][2]:
            yield Finding(
                505,
                "error",
                kind,
                f'The message type "{kind}" is validated in another way on the two sides.',
                "A body that its sender may send may be refused where it arrives. No mend lowers a check.",
                mend=tuple(
                    mend
                    for side, other in ((here, theirs), (target, ours))
                    for mend in _validated(side, kind, other[kind][2].strip())
                ),
            )


def _validated(side: _Side, kind: str, validation: str) -> tuple[Mend, ...]:
    """Let the side check as the other one does; nothing, if that checks nothing."""
    if validation == "N":
        return ()
    return side.mend(
        f"select broker.alter_message_type({_quoted(kind)}, {_quoted(_VALIDATIONS[validation])})"
    )


_VALIDATIONS = {"N": "NONE", "E": "EMPTY", "X": "WELL_FORMED_XML", "J": "VALID_JSON"}


def _ways(here: _Side, there: _Side | None, services: Services) -> Iterator[Finding]:
    for side, to in ((here, services.target), (there, services.initiator)):
        if side is None:
            continue
        named = side.value(
            "select pg_catalog.count(*) from broker.routes where scope = 'DATABASE' and address <> 'LOCAL'"
            " and (lifetime is null or lifetime > pg_catalog.now())"
            " and (remote_service_name is null or remote_service_name = %s)",
            to,
        )
        if not named:
            yield Finding(
                506,
                "error",
                to,
                f'No route of the database "{side.database}" leads to the service "{to}".',
                "Messages to it wait, unless a worker serves both databases. Put its address into the"
                " statement.",
                mend=side.mend(
                    f"select broker.create_route({_quoted(side.unused(to, _ROUTES))},"
                    " address => 'tcp://HOST:PORT',"
                    f" service_name => {_quoted(to)})"
                ),
            )
    if services.encryption != "off" and not here.value(
        "select pg_catalog.count(*) from broker.remote_service_bindings where remote_service_name = %s",
        services.target,
    ):
        anonymous = ", anonymous => true" if services.encryption == "anonymous" else ""
        yield Finding(
            508,
            "error",
            services.target,
            f'No remote service binding names the service "{services.target}".',
            "An encrypted dialog to it waits (9727). Put the user of its certificate into the statement.",
            mend=here.mend(
                "select broker.create_remote_service_binding("
                f"{_quoted(here.unused(services.target, _BINDINGS))},"
                f" {_quoted(services.target)}, 'USER'{anonymous})"
            ),
        )


def _contract_statement(name: str, messages: dict[str, tuple[bool, bool, str]]) -> str:
    by = {True: [], False: [], None: []}  # type: dict[bool | None, list[str]]
    for kind, (by_initiator, by_target, _) in sorted(messages.items()):
        by[None if by_initiator and by_target else by_initiator].append(kind)
    lists = [
        f"{option} => array[{', '.join(map(_quoted, kinds))}]"
        for option, kinds in (
            ("sent_by_initiator", by[True]),
            ("sent_by_target", by[False]),
            ("sent_by_any", by[None]),
        )
        if kinds
    ]
    return f"select broker.create_contract({', '.join([_quoted(name), *lists])})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
