"""From a tree to T-SQL: what is printed is read again as an equal tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pybroker.tsql.administration import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pybroker.tsql.tree import Name, Statement

_PASSWORD = re.compile(r"PASSWORD = (?:N?'(?:[^']|'')*'|0x[0-9A-F]*)", re.IGNORECASE)


def print_statement(statement: Statement) -> str:
    """Return a statement's T-SQL, in one form whatever the script's was."""
    return " ".join(part for part in TABLE[type(statement)](statement) if part) + ";"


def without_passwords(source: str) -> str:
    """Return a printed statement as others may see it."""
    return _PASSWORD.sub("PASSWORD = '…'", source)


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _name(name: Name) -> str:
    return ".".join(_bracketed(one) for one in (name.schema, name.name) if one is not None)


def _text(value: str) -> str:
    return "N'" + value.replace("'", "''") + "'"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_bracketed, names))


def _given(before: str, value: Any, write: Callable[[Any], str] = str) -> str:
    return "" if value is None else before + write(value)


def _if_exists(one: Any) -> str:
    return "IF EXISTS" if one.if_exists else ""


def _use(one: tree.Use) -> Iterable[str]:
    return (f"USE {_bracketed(one.database)}",)


def _create_database(one: tree.CreateDatabase) -> Iterable[str]:
    kept = [clause for clause in one.clauses if not clause.startswith("WITH ")]
    options = [clause.removeprefix("WITH ") for clause in one.clauses if clause.startswith("WITH ")]
    options += [one.action] if one.action else []
    return (
        f"CREATE DATABASE {_bracketed(one.database)}",
        *kept,
        f"WITH {', '.join(options)}" if options else "",
    )


def _alter_database(one: tree.AlterDatabase) -> Iterable[str]:
    honored = one.honor_broker_priority
    options = [
        *([one.action] if one.action else []),
        *([] if honored is None else [f"HONOR_BROKER_PRIORITY {'ON' if honored else 'OFF'}"]),
        *one.clauses,
    ]
    return (
        f"ALTER DATABASE {_bracketed(one.database)} SET {', '.join(options)}",
        _given("WITH ", one.termination),
    )


def _drop_database(one: tree.DropDatabase) -> Iterable[str]:
    return "DROP DATABASE", _if_exists(one), _names(one.databases)


def _create_principal(one: tree.CreatePrincipal) -> Iterable[str]:
    return (
        f"CREATE {one.kind} {_bracketed(one.name)}",
        _given("AUTHORIZATION ", one.owner, _bracketed),
        *one.clauses,
    )


def _drop_principal(one: tree.DropPrincipal) -> Iterable[str]:
    return f"DROP {one.kind}", _if_exists(one), _bracketed(one.name)


def _member(one: tree.Member) -> Iterable[str]:
    return (f"ALTER ROLE {_bracketed(one.role)} {one.verb} MEMBER {_bracketed(one.member)}",)


def _master_key(one: tree.MasterKey) -> Iterable[str]:
    return "CREATE MASTER KEY", _given("ENCRYPTION BY PASSWORD = ", one.password, _text)


def _private_key(one: tree.PrivateKey) -> str:
    options = (
        _given("FILE = ", one.file, _text),
        _given("DECRYPTION BY PASSWORD = ", one.decryption, _text),
        _given("ENCRYPTION BY PASSWORD = ", one.encryption, _text),
    )
    return f"PRIVATE KEY ({', '.join(option for option in options if option)})"


def _certificate(one: tree.Certificate) -> Iterable[str]:
    options = (
        _given("SUBJECT = ", one.subject, _text),
        _given("START_DATE = ", one.start_date, _text),
        _given("EXPIRY_DATE = ", one.expiry_date, _text),
    )
    made = ", ".join(option for option in options if option)
    return (
        f"CREATE CERTIFICATE {_bracketed(one.name)}",
        _given("AUTHORIZATION ", one.owner, _bracketed),
        _given("FROM FILE = ", one.file, _text),
        _given("FROM BINARY = ", one.binary),
        _given("ENCRYPTION BY PASSWORD = ", one.password, _text),
        made and f"WITH {made}",
        _given("WITH ", one.private_key, _private_key),
        "" if one.active is None else f"ACTIVE FOR BEGIN_DIALOG = {'ON' if one.active else 'OFF'}",
    )


def _alter_certificate(one: tree.AlterCertificate) -> Iterable[str]:
    return (
        f"ALTER CERTIFICATE {_bracketed(one.name)} WITH ACTIVE FOR BEGIN_DIALOG ="
        f" {'ON' if one.active else 'OFF'}",
    )


def _backup_certificate(one: tree.BackupCertificate) -> Iterable[str]:
    return (
        f"BACKUP CERTIFICATE {_bracketed(one.name)} TO FILE = {_text(one.file)}",
        _given("WITH ", one.private_key, _private_key),
    )


def _endpoint(one: tree.Endpoint) -> Iterable[str]:
    ip = _given("LISTENER_IP = ", one.ip, lambda ip: "ALL" if ip == "ALL" else f"({_text(ip)})")
    tcp = ", ".join(part for part in (_given("LISTENER_PORT = ", one.port), ip) if part)
    ways = " ".join(
        way for way in (_given("", one.windows), _given("CERTIFICATE ", one.certificate, _bracketed)) if way
    )
    encryption = _given("ENCRYPTION = ", one.encryption) + _given(" ALGORITHM ", one.algorithm)
    options = (
        ways and f"AUTHENTICATION = {ways}",
        encryption,
        _given("MESSAGE_FORWARDING = ", one.forwarding),
        _given("MESSAGE_FORWARD_SIZE = ", one.forward_size),
    )
    return (
        f"{one.verb} ENDPOINT {_bracketed(one.name)}",
        _given("AUTHORIZATION ", one.owner, _bracketed),
        _given("STATE = ", one.state),
        tcp and f"AS TCP ({tcp})",
        f"FOR SERVICE_BROKER ({', '.join(option for option in options if option)})"
        if one.service_broker
        else "",
    )


def _scope(one: tree.EventNotification | tree.DropEventNotification) -> str:
    return f"ON {one.scope}" + _given(" ", one.queue, _name)


def _event_notification(one: tree.EventNotification) -> Iterable[str]:
    return (
        f"CREATE EVENT NOTIFICATION {_bracketed(one.name)} {_scope(one)}",
        "WITH FAN_IN" if one.fan_in else "",
        f"FOR {', '.join(one.events)} TO SERVICE {_text(one.service)}"
        + _given(", ", one.broker_instance, _text),
    )


def _drop_event_notification(one: tree.DropEventNotification) -> Iterable[str]:
    return (f"DROP EVENT NOTIFICATION {_names(one.names)} {_scope(one)}",)


def _schema_collection(one: tree.SchemaCollection) -> Iterable[str]:
    return (f"CREATE XML SCHEMA COLLECTION {_name(one.name)} AS {_text(one.text)}",)


def _schema(one: tree.Schema) -> Iterable[str]:
    return (
        "CREATE SCHEMA",
        _given("", one.name, _bracketed),
        _given("AUTHORIZATION ", one.owner, _bracketed),
    )


def _drop_object(one: tree.DropObject) -> Iterable[str]:
    return f"DROP {one.kind}", _if_exists(one), _name(one.name)


def _securable(one: tree.Securable) -> str:
    return _given("", one.kind, lambda kind: f"{kind}::") + _name(one.name)


def _authorization(one: tree.Authorization) -> Iterable[str]:
    owner = "SCHEMA OWNER" if one.owner is None else _bracketed(one.owner)
    return (f"ALTER AUTHORIZATION ON {_securable(one.securable)} TO {owner}",)


def _permission(one: tree.Permission) -> Iterable[str]:
    return (
        f"{one.verb} {', '.join(one.permissions)}",
        _given("ON ", one.securable, _securable),
        f"{'FROM' if one.verb == 'REVOKE' else 'TO'} {_names(one.principals)}",
        "WITH GRANT OPTION" if one.option else "",
        "CASCADE" if one.cascade else "",
        _given("AS ", one.grantor, _bracketed),
    )


def _no_meaning(one: tree.NoMeaning) -> Iterable[str]:
    return (one.text,)


TABLE: dict[type[Statement], Callable[[Any], Iterable[str]]] = {
    tree.Use: _use,
    tree.CreateDatabase: _create_database,
    tree.AlterDatabase: _alter_database,
    tree.DropDatabase: _drop_database,
    tree.CreatePrincipal: _create_principal,
    tree.DropPrincipal: _drop_principal,
    tree.Member: _member,
    tree.MasterKey: _master_key,
    tree.Certificate: _certificate,
    tree.AlterCertificate: _alter_certificate,
    tree.BackupCertificate: _backup_certificate,
    tree.Endpoint: _endpoint,
    tree.EventNotification: _event_notification,
    tree.DropEventNotification: _drop_event_notification,
    tree.SchemaCollection: _schema_collection,
    tree.Schema: _schema,
    tree.DropObject: _drop_object,
    tree.Authorization: _authorization,
    tree.Permission: _permission,
    tree.NoMeaning: _no_meaning,
}
