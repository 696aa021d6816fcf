"""The tree of what is around Service Broker; a clause without a meaning is kept as it is printed."""

from __future__ import annotations

from dataclasses import dataclass

from pybroker.tsql.tree import Name, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(Statement):
    """USE."""

    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase(Statement):
    """CREATE DATABASE; of its clauses only a broker's action has a meaning here."""

    database: str
    clauses: tuple[str, ...] = ()
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterDatabase(Statement):
    """ALTER DATABASE … SET; options have their values."""

    database: str
    action: str | None = None
    honor_broker_priority: bool | None = None
    clauses: tuple[str, ...] = ()
    termination: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase(Statement):
    """DROP DATABASE."""

    databases: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePrincipal(Statement):
    """CREATE LOGIN, USER or ROLE; `windows` is an account of Windows."""

    kind: str
    name: str
    owner: str | None = None
    clauses: tuple[str, ...] = ()
    windows: bool = False

    @property
    def login(self) -> str | None:
        """Whose user it is made, by FOR LOGIN."""
        found = [clause for clause in self.clauses if clause.startswith("FOR LOGIN [")]
        return found[0][len("FOR LOGIN [") : -1].replace("]]", "]") if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPrincipal(Statement):
    """DROP LOGIN, USER or ROLE."""

    kind: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Statement):
    """ALTER ROLE … ADD or DROP MEMBER."""

    role: str
    verb: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKey(Statement):
    """CREATE MASTER KEY."""

    password: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKey:
    """A private key's file, and the passwords that it is and is to be encrypted with."""

    file: str | None = None
    decryption: str | None = None
    encryption: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Statement):
    """CREATE CERTIFICATE: from a file, from bytes, or made for a subject."""

    name: str
    owner: str | None = None
    file: str | None = None
    binary: str | None = None
    private_key: PrivateKey | None = None
    password: str | None = None
    subject: str | None = None
    start_date: str | None = None
    expiry_date: str | None = None
    active: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterCertificate(Statement):
    """ALTER CERTIFICATE … WITH ACTIVE FOR BEGIN_DIALOG."""

    name: str
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupCertificate(Statement):
    """BACKUP CERTIFICATE."""

    name: str
    file: str
    private_key: PrivateKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Statement):
    """CREATE or ALTER ENDPOINT FOR SERVICE_BROKER; `windows` is how accounts of Windows are told."""

    verb: str
    name: str
    owner: str | None = None
    state: str | None = None
    port: int | None = None
    ip: str | None = None
    service_broker: bool = False
    certificate: str | None = None
    windows: str | None = None
    encryption: str | None = None
    algorithm: str | None = None
    forwarding: str | None = None
    forward_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNotification(Statement):
    """CREATE EVENT NOTIFICATION; without a queue its scope is DATABASE or SERVER."""

    name: str
    scope: str
    queue: Name | None = None
    fan_in: bool = False
    events: tuple[str, ...]
    service: str
    broker_instance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropEventNotification(Statement):
    """DROP EVENT NOTIFICATION."""

    names: tuple[str, ...]
    scope: str
    queue: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCollection(Statement):
    """CREATE XML SCHEMA COLLECTION; the text holds one schema or several."""

    name: Name
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(Statement):
    """CREATE SCHEMA."""

    name: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropObject(Statement):
    """DROP of what is named by `kind`, in T-SQL's words."""

    kind: str
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Securable:
    """What has an owner and permissions."""

    name: Name
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization(Statement):
    """ALTER AUTHORIZATION; without an owner it is the schema's."""

    securable: Securable
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission(Statement):
    """GRANT, REVOKE or DENY."""

    verb: str
    permissions: tuple[str, ...]
    securable: Securable | None = None
    principals: tuple[str, ...]
    option: bool = False
    cascade: bool = False
    grantor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMeaning(Statement):
    """What changes nothing here; `text` is its T-SQL, and `why` a reason."""

    text: str
    why: str
