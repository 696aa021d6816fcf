"""What each statement becomes: SQL, or nothing where the client itself does it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pybroker.tsql.administration import tree
from pybroker.tsql.administration.printing import without_passwords
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import DEFAULT_SCHEMA, OWNERS, call, identifier, literal, principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.tsql.tree import Name, Statement

# Who owns a database is dbo in it, and sa in the server.
_END_OF_SCHEMA = re.compile(r"</(?:[\w.-]+:)?schema\s*>")
_OWNED = {"SERVICE", "MESSAGE TYPE", "CONTRACT", "ROUTE", "REMOTE SERVICE BINDING", "XML SCHEMA COLLECTION"}
_TABLE_PERMISSIONS = {"SELECT", "INSERT", "UPDATE", "DELETE"}
_BROKER_PERMISSIONS = {
    "SEND": {"SERVICE"},
    "RECEIVE": {"QUEUE"},
    "REFERENCES": {"CONTRACT", "MESSAGE TYPE", "XML SCHEMA COLLECTION"},
    "CONNECT": {"ENDPOINT"},
}


@dataclass(frozen=True, slots=True)
class Administered:
    """The PostgreSQL form, if it is SQL alone, and what of the statement has no meaning here."""

    sql: str | None
    notes: tuple[str, ...] = ()
    at_home: bool = False


def translate(statement: Statement) -> Administered:
    """Return what a statement becomes.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    done: Administered = TABLE[type(statement)](statement)
    return done


def role(name: str) -> str:
    """Write the name of a role where a statement of PostgreSQL wants it."""
    if name.lower() in ("guest", "public"):
        return "public"
    return "current_user" if name.lower() in OWNERS else '"' + name.replace('"', '""') + '"'


def _refuse(statement: Statement, message: str) -> NoReturn:
    raise ScriptError(statement.position, message)


def _client(*notes: str, at_home: bool = False) -> Administered:
    return Administered(None, tuple(notes), at_home)


def _block(body: str) -> str:
    """Write a DO block; a name may hold any text, the end of the block too."""
    tag = "$do$"
    while tag in body:
        tag = f"$do{len(tag)}{tag[3:]}"
    return f"do {tag}\n{body}\n{tag};"


def _relation(name: Name) -> str:
    return ".".join(identifier(one) for one in (name.schema, name.name) if one is not None)


def _use(one: tree.Use) -> Administered:
    _check_database(one)
    return _client()


def _check_database(one: tree.Use | tree.AlterDatabase) -> None:
    # What psql's \connect and libpq take for more than a name leads to another server.
    if "=" in one.database or "://" in one.database:
        _refuse(
            one, f'"{one.database}" would be read as a connection: a database\'s name has no = and no ://'
        )


def _create_database(one: tree.CreateDatabase) -> Administered:
    for clause in one.clauses:
        if clause.startswith(("FOR ", "AS ")):
            _refuse(one, f"{clause} is not known here: leave it out, and restore the data with pg_restore")
    return _client(*(f"{clause} has no meaning here" for clause in one.clauses))


def _alter_database(one: tree.AlterDatabase) -> Administered:
    _check_database(one)
    notes = [f"SET {clause} has no meaning here" for clause in one.clauses]
    if one.termination and one.action not in ("NEW_BROKER", "ERROR_BROKER_CONVERSATIONS"):
        notes.append(f"WITH {one.termination} has no meaning here: nobody is in the way")
    elif one.termination not in (None, "ROLLBACK IMMEDIATE"):
        notes.append(f"WITH {one.termination} has no meaning here: it waits for the transactions of others")
    return _client(*notes)


def _create_principal(one: tree.CreatePrincipal) -> Administered:
    if one.name.lower() in (*OWNERS, "guest", "public"):
        _refuse(one, f'"{one.name}" is always there: choose another name')
    notes = [
        f"{without_passwords(clause)} has no meaning here: a principal does not log in"
        for clause in one.clauses
        if not (one.windows or clause.startswith("FOR LOGIN ["))
    ]
    if one.windows:
        notes.append("FROM WINDOWS has no meaning here: only a certificate proves who connects")
    name = literal(one.name)
    # Who may not create roles has broker users: certificates, bindings and permissions take any name.
    sql = _block(
        f"""declare
  login name;
  caller pg_catalog.pg_roles := (select r from pg_catalog.pg_roles r where r.rolname = current_user);
begin
  if (caller.rolsuper or caller.rolcreaterole)
    and not exists (select from pg_catalog.pg_roles r where r.rolname = {name})
  then
    create role {role(one.name)} nologin;
    if not caller.rolsuper then
      grant {role(one.name)} to current_user;
    end if;
  end if;{_membership(one)}
end"""  # noqa: S608 - the name is a literal
    )
    return Administered(sql, tuple(notes))


def _membership(one: tree.CreatePrincipal) -> str:
    """Make the user a member of his login's role, so that GRANT CONNECT finds him."""
    login = one.login
    if login is None or login.lower() in (*OWNERS, "guest", "public", one.name.lower()):
        return ""
    name, owner = literal(one.name), literal(login)
    return f"""
  for login in
    select l.rolname from pg_catalog.pg_roles l, pg_catalog.pg_roles u
    where pg_catalog.lower(l.rolname) = pg_catalog.lower({owner}) and u.rolname = {name} and (
      caller.rolsuper or pg_catalog.pg_has_role(current_user, l.oid, 'MEMBER WITH ADMIN OPTION')
      or caller.rolcreaterole and current_setting('server_version_num')::integer < 160000
    )
  loop
    execute pg_catalog.format('grant %I to %I', login, {name});
  end loop;"""  # noqa: S608 - both are literals


def _drop_principal(one: tree.DropPrincipal) -> Administered:
    # What belongs to a server may be used by its other databases.
    return Administered(
        None, (f"DROP {one.kind} has no meaning here: DROP ROLE in psql removes a role of the server",)
    )


def _member(one: tree.Member) -> Administered:
    if one.role.lower().startswith(("db_", "sys")):
        _refuse(one, f"the role {one.role} is not known here: grant what its member needs")
    verb, word = ("grant", "to") if one.verb == "ADD" else ("revoke", "from")
    return Administered(f"{verb} {role(one.role)} {word} {role(one.member)};")


def _master_key(one: tree.MasterKey) -> Administered:
    note = "ENCRYPTION BY PASSWORD has no meaning here: the key is a file of the worker's key directory"
    return _client(*((note,) if one.password is not None else ()))


def _certificate(one: tree.Certificate) -> Administered:
    note = "ENCRYPTION BY PASSWORD has no meaning here: the key is a file that its owner alone may read"
    has_password = one.password is not None or (one.private_key and one.private_key.encryption is not None)
    return _client(*((note,) if has_password else ()))


def _alter_certificate(one: tree.AlterCertificate) -> Administered:
    return Administered(call("alter_certificate", one.name, active_for_begin_dialog=one.active))


def _backup_certificate(one: tree.BackupCertificate) -> Administered:
    if one.private_key is not None and None in (one.private_key.file, one.private_key.encryption):
        _refuse(one, "WITH PRIVATE KEY needs FILE = … and ENCRYPTION BY PASSWORD = …")
    return _client()


def _endpoint(one: tree.Endpoint) -> Administered:
    if one.verb == "CREATE" and one.port is None:
        _refuse(one, "CREATE ENDPOINT needs AS TCP (LISTENER_PORT = …)")
    if one.verb == "CREATE" and not one.service_broker:
        _refuse(one, "only endpoints FOR SERVICE_BROKER are known here")
    if one.windows is not None and one.certificate is None:
        _refuse(
            one, f"AUTHENTICATION = {one.windows} is not known here: write CERTIFICATE and a name instead"
        )
    notes = []
    if one.windows is not None:
        notes.append(f"AUTHENTICATION = {one.windows} has no meaning here: the certificate is used")
    if one.algorithm is not None:
        notes.append(f"ALGORITHM {one.algorithm} has no meaning here: TLS 1.3 chooses it")
    if one.owner is not None:
        notes.append(f"AUTHORIZATION [{one.owner}] has no meaning here: an endpoint is its database owner's")
    sql = call(
        f"{one.verb.lower()}_endpoint",
        one.name,
        listener_port=one.port,
        state=one.state,
        listener_ip=one.ip,
        certificate=one.certificate,
        encryption=one.encryption,
        message_forwarding=None if one.forwarding is None else one.forwarding == "ENABLED",
        message_forward_size=one.forward_size,
    )
    return Administered(sql, tuple(notes), at_home=True)


_EVENTS = ("QUEUE_ACTIVATION", "BROKER_QUEUE_DISABLED")


def _event_notification(one: tree.EventNotification) -> Administered:
    if one.scope == "SERVER":
        _refuse(one, "ON SERVER is not known here: write ON DATABASE in each database")
    for event in one.events:
        if event.upper() not in _EVENTS:
            _refuse(one, f"{event} is not known here: the events are {' and '.join(_EVENTS)}")
    instance = one.broker_instance
    if instance is not None and instance.lower() == "current database":
        instance = "CURRENT DATABASE"
    sql = (
        f"select broker.create_event_notification({literal(one.name)},"
        f" {literal(one.queue.name.lower() if one.queue else None)}, {literal(', '.join(one.events))},"
        f" {literal(one.service)}"
        + (f", broker_instance => {literal(instance)}" if instance else "")
        + (", fan_in => true" if one.fan_in else "")
        + ");"
    )
    return Administered(sql)


def _drop_event_notification(one: tree.DropEventNotification) -> Administered:
    if one.scope == "SERVER":
        _refuse(one, "ON SERVER is not known here: write ON DATABASE in each database")
    return Administered("\n".join(_dropped_notification(name, one.queue) for name in one.names))


def _dropped_notification(name: str, queue: Name | None) -> str:
    """Drop a notification of this queue, or of the database; a queue's may have the name too."""
    if queue is not None:
        return f"select broker.drop_event_notification({literal(name)}, {literal(queue.name.lower())});"
    missing = literal(f'The event notification "{name}" is not found on the database.')
    return _block(
        f"""begin
  if not exists (select from broker.event_notifications where name = {literal(name)} and parent_id = 0) then
    raise exception using errcode = 'S0208', message = {missing};
  end if;
  perform broker.drop_event_notification({literal(name)});
end"""
    )


def _schema_collection(one: tree.SchemaCollection) -> Administered:
    documents, begin = [], 0
    for found in _END_OF_SCHEMA.finditer(one.text):
        documents.append(one.text[begin : found.end()].strip())
        begin = found.end()
    if one.text[begin:].strip():
        documents.append(one.text[begin:].strip())
    return Administered(call("create_schema_collection", one.name.name, documents=tuple(documents)))


def _schema(one: tree.Schema) -> Administered:
    name = "" if one.name is None else " " + identifier(one.name)
    owner = "" if one.owner is None else f" authorization {role(one.owner)}"
    if one.name is not None and one.name.lower() == "dbo":
        _refuse(one, '"dbo" is always there: leave this out')
    return Administered(f"create schema{name}{owner};")


def _drop_object(one: tree.DropObject) -> Administered:
    name = one.name.name
    if one.kind == "SCHEMA":
        exists = "if exists " if one.if_exists else ""
        return Administered(f"drop schema {exists}{identifier(name)};")
    function, view = {
        "CERTIFICATE": ("drop_certificate", "certificates"),
        "ENDPOINT": ("drop_endpoint", "service_broker_endpoints"),
        "XML SCHEMA COLLECTION": ("drop_schema_collection", "xml_schema_collections"),
    }[one.kind]
    at_home = one.kind == "ENDPOINT"
    if one.if_exists:
        condition = f"where exists (select from broker.{view} where name = {literal(name)})"
        return Administered(f"select broker.{function}({literal(name)}) {condition};", at_home=at_home)
    return Administered(call(function, name), at_home=at_home)


def _authorization(one: tree.Authorization) -> Administered:
    kind, name = one.securable.kind or "OBJECT", one.securable.name
    if one.owner is None:
        _refuse(one, "TO SCHEMA OWNER is not known here: name the owner")
    if kind == "DATABASE":
        return Administered(None, ("ALTER AUTHORIZATION ON DATABASE has no meaning here",))
    owner = principal(one.owner)
    if kind in ("OBJECT", "QUEUE"):
        queue = literal(name.name.lower())
        return Administered(
            _block(
                f"""begin
  if exists (select from broker.service_queues where name = {queue}) then
    perform broker.alter_authorization('QUEUE', {queue}, {owner});
  else
    alter table {_relation(name)} owner to {role(one.owner)};
  end if;
end"""
            )
        )
    if kind == "SCHEMA":
        return Administered(f"alter schema {identifier(name.name)} owner to {role(one.owner)};")
    if kind in _OWNED:
        return Administered(
            f"select broker.alter_authorization({literal(kind)}, {literal(name.name)}, {owner});"
        )
    if kind == "CERTIFICATE":
        _refuse(one, "a certificate keeps its user: drop it, and create it with AUTHORIZATION")
    _refuse(one, f"what is a {kind.lower()} has no owner here: leave this out")


_WITHOUT_MEANING = {
    "CONNECT": "a principal does not log in",
    "CONNECT SQL": "a principal does not log in",
    "REFERENCES": "foreign keys need REFERENCES on their table",
    "VIEW DEFINITION": "who has a permission on an object sees it",
}


def _permission(one: tree.Permission) -> Administered:
    if one.verb == "DENY":
        _refuse(one, "DENY is not known here: what is not granted is denied, so write REVOKE")
    if one.option:
        _refuse(one, "WITH GRANT OPTION is not known here: only owners grant what is theirs")
    notes = []
    if one.grantor is not None:
        notes.append(f"AS [{one.grantor}] has no meaning here")
    if one.cascade:
        notes.append("CASCADE has no meaning here: nobody granted it further")
    sqls = []
    at_home = False
    for permission in one.permissions:
        for name in one.principals:
            sql, is_server = _one_permission(one, permission, name)
            if sql is None:
                notes.append(f"{permission} has no meaning here: {_WITHOUT_MEANING[permission]}")
            else:
                sqls.append(sql)
            at_home = at_home or is_server
    return Administered("\n".join(sqls) or None, tuple(notes), at_home)


def _one_permission(one: tree.Permission, permission: str, name: str) -> tuple[str | None, bool]:
    verb, word = ("grant", "to") if one.verb == "GRANT" else ("revoke", "from")
    if one.securable is None:
        if permission in _WITHOUT_MEANING and permission != "REFERENCES":
            return None, False
        _refuse(one, f"{permission} on the whole database is not known here: grant it on an object")
    kind, securable = one.securable.kind, one.securable.name
    if permission in _BROKER_PERMISSIONS and (
        kind in _BROKER_PERMISSIONS[permission] or (permission == "RECEIVE" and kind in (None, "OBJECT"))
    ):
        kind = "QUEUE" if permission == "RECEIVE" else kind
        object_name = securable.name.lower() if kind == "QUEUE" else securable.name
        arguments = ", ".join((*map(literal, (permission, kind, object_name)), principal(name)))
        sql = f"select broker.{verb}({arguments});"
        return (sql + _of_users(verb, object_name, name), True) if permission == "CONNECT" else (sql, False)
    if kind in (None, "OBJECT") and permission in _TABLE_PERMISSIONS:
        return f"{verb} {permission.lower()} on {_relation(securable)} {word} {role(name)};", False
    if kind in (None, "OBJECT") and permission in ("EXECUTE", "EXEC"):
        routine = f"{identifier(securable.schema or DEFAULT_SCHEMA)}.{identifier(securable.name)}"
        return f"{verb} execute on routine {routine} {word} {role(name)};", False
    if (permission, kind) in (("CONNECT", "DATABASE"), ("REFERENCES", "SCHEMA")):
        return None, False
    if permission == "VIEW DEFINITION":
        return None, False
    _refuse(
        one,
        f"{permission} on {(kind or 'object').lower()} is not known here:"
        " grant SEND, RECEIVE, REFERENCES, CONNECT, SELECT, INSERT, UPDATE, DELETE or EXECUTE,"
        " or change the owner by ALTER AUTHORIZATION",
    )


def _of_users(verb: str, endpoint: str, login: str) -> str:
    """Let a login's users connect too: a certificate is theirs, and the permission is the login's."""
    if login.lower() in (*OWNERS, "guest", "public"):
        return ""
    return f"""
select broker.{verb}('CONNECT', 'ENDPOINT', {literal(endpoint)}, pg_catalog.pg_get_userbyid(m.member))
from pg_catalog.pg_auth_members m
where pg_catalog.pg_get_userbyid(m.roleid) = {literal(login)}
  and pg_catalog.pg_get_userbyid(m.member) <> current_user;"""  # noqa: S608 - both are literals


def _no_meaning(one: tree.NoMeaning) -> Administered:
    return Administered(None, (f"{without_passwords(one.text)} has no meaning here: {one.why}",))


TABLE: dict[type[Statement], Callable[[Any], Administered]] = {
    tree.Use: _use,
    tree.CreateDatabase: _create_database,
    tree.AlterDatabase: _alter_database,
    tree.DropDatabase: lambda _: _client(),
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
