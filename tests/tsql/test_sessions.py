"""A script's statements do in their databases what SQL Server would do, or say why they don't."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cryptography import x509
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.workers.transport.dialog_security.key_files import public_key_of, read_private_key
from tests.activated import next_event, start_worker
from tests.sql.test_migrations import EMPTIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

    Make = Callable[[str], Database]


class Scripts:
    """Runs scripts of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, text: str, *options: str) -> Result:
        script = self.directory / "script.sql"
        script.write_text(text, "utf-8")
        return CliRunner().invoke(application, ["tsql", "run", str(script), *options])

    def done(self, text: str, *options: str) -> str:
        result = self.run(text, *options)
        assert result.exit_code == 0, result.output
        return result.output

    def failed(self, text: str, *options: str) -> str:
        result = self.run(text, *options)
        assert result.exit_code == 1, result.output
        return result.output.replace(f"{self.directory}/", "")


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def rows(database: Database | str, query: str, *arguments: Any) -> list[Any]:
    url = database if isinstance(database, str) else database.url
    with psycopg.connect(url, autocommit=True) as session:
        return session.execute(query.encode(), arguments or None).fetchall()


def queues(database: Database | str) -> list[str]:
    return [name for (name,) in rows(database, "select name from broker.service_queues order by 1")]


@contextmanager
def temporary_name(server: EmbeddedServer) -> Iterator[str]:
    name = f"Made_{uuid.uuid4().hex[:8]}"
    yield name
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database if exists "{name}" with (force)'.encode())


def test_use_leads_from_one_database_to_the_next(scripts: Scripts, make_database: Make) -> None:
    trader, brokerage = make_database("trader"), make_database("brokerage")
    output = scripts.done(
        "USE Trader1 CREATE QUEUE ours\nGO\nUSE [dmbrokerage]\nCREATE QUEUE theirs",
        *("--database", f"trader1={trader.url}", "--database", f"DMBrokerage={brokerage.url}"),
    )
    assert "Changed database context to 'Trader1'." in output
    assert (queues(trader), queues(brokerage)) == (["ours"], ["theirs"])


def test_a_database_that_nobody_named_is_refused_before_anything_runs(
    scripts: Scripts, database: Database
) -> None:
    output = scripts.failed("CREATE QUEUE q\nGO\n  USE Far", "--database-url", database.url)
    assert "script.sql:3:3: the database \"Far\" is not known: give --database 'Far=URL'" in output
    assert queues(database) == []


def test_create_database_makes_one_with_server_and_migrates_it(
    scripts: Scripts, server: EmbeddedServer
) -> None:
    with temporary_name(server) as name:
        script = f"CREATE DATABASE {name} ON PRIMARY (NAME = x, SIZE = 10MB)\nGO\nUSE {name}\nCREATE QUEUE q"
        output = scripts.done(script, "--server", server.url("postgres"))
        assert "ON PRIMARY (NAME = x , SIZE = 10 MB) has no meaning here" in output
        assert queues(server.url(name)) == ["q"]


def test_the_databases_of_a_server_are_there_for_the_next_script(
    scripts: Scripts, server: EmbeddedServer
) -> None:
    with temporary_name(server) as name:
        given = ("--server", server.url("postgres"), "--allow-drop")
        scripts.done(f"CREATE DATABASE {name}", *given)
        output = scripts.done(
            f"""
            SELECT name, is_broker_enabled FROM sys.databases WHERE name = '{name.lower()}'
            IF EXISTS (SELECT * FROM sys.databases WHERE name = '{name}') DROP DATABASE {name.upper()}
            GO
            CREATE DATABASE {name}
            GO
            USE {name.upper()} CREATE QUEUE q
            """,
            *("--database", f"master={server.url(name)}", *given),
        )
        assert f"{name} 1\n" in output
        assert "is there already" not in output
        assert queues(server.url(name)) == ["q"]


def test_a_database_of_the_server_with_the_tables_of_a_broker_alone_is_passed_over(
    scripts: Scripts, server: EmbeddedServer, make_database: Make
) -> None:
    half, whole = make_database("half"), make_database("whole")
    with half.connect() as session:
        session.execute(EMPTIED)
    output = scripts.done(
        "SELECT name FROM sys.databases",
        *("--server", server.url("postgres"), "--database", f"Shop={whole.url}"),
    )
    assert "Shop" in output
    assert half.name not in output


def test_create_database_migrates_an_empty_one_and_refuses_one_that_is_used(
    scripts: Scripts, server: EmbeddedServer
) -> None:
    with temporary_name(server) as name:
        server.create_database(name)
        given = ("--database", f"Shop={server.url(name)}")
        with psycopg.connect(server.url(name), autocommit=True) as session:
            session.execute("create table used ()")
        assert "Msg 1801: " in scripts.failed("CREATE DATABASE Shop", *given)
        with psycopg.connect(server.url(name), autocommit=True) as session:
            session.execute("drop table used")
        scripts.done("CREATE DATABASE Shop", *given)
        assert "is there already" in scripts.done("CREATE DATABASE Shop", *given)
        assert queues(server.url(name)) == []


def test_drop_database_needs_a_word_of_the_caller(scripts: Scripts, server: EmbeddedServer) -> None:
    with temporary_name(server) as name:
        script = f"CREATE DATABASE {name}\nGO\nUSE {name} CREATE QUEUE q USE master\nDROP DATABASE {name}\nCREATE DATABASE {name}"
        given = ("--database", f"{name}={server.url(name)}", "--database", f"master={server.url('postgres')}")
        assert ":4:1: DROP DATABASE removes" in scripts.failed(script, *given)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url(name))
        scripts.done(script, *given, "--allow-drop")
        assert queues(server.url(name)) == []


def test_alter_database_changes_the_broker(scripts: Scripts, database: Database) -> None:
    state = "select is_broker_enabled, is_broker_priority_honored, service_broker_guid from broker.databases"
    [(_, _, guid)] = rows(database, state)
    given = ("--database", f"Shop={database.url}")
    output = scripts.done(
        "ALTER DATABASE Shop SET DISABLE_BROKER WITH ROLLBACK IMMEDIATE\n"
        "ALTER DATABASE [shop] SET HONOR_BROKER_PRIORITY ON, TRUSTWORTHY ON",
        *given,
    )
    assert "SET TRUSTWORTHY ON has no meaning here" in output
    assert rows(database, state) == [(False, True, guid)]
    scripts.done("ALTER DATABASE CURRENT SET NEW_BROKER", *given)
    [(enabled, honored, new_guid)] = rows(database, state)
    assert (enabled, honored) == (True, True)
    assert new_guid != guid


def test_rollback_immediate_ends_the_transactions_of_others(scripts: Scripts, database: Database) -> None:
    with database.connect(autocommit=False) as other:
        other.execute("lock table broker_private.messages in access share mode")
        scripts.done(
            "ALTER DATABASE Shop SET NEW_BROKER WITH ROLLBACK IMMEDIATE",
            *("--database", f"Shop={database.url}"),
        )
        with pytest.raises(psycopg.OperationalError):
            other.execute("select 1")


def test_what_belongs_to_the_instance_goes_to_the_home_database(
    scripts: Scripts, make_database: Make
) -> None:
    home, shop = make_database("home"), make_database("shop")
    scripts.done(
        """
        USE msdb
        CREATE ROUTE Incoming WITH SERVICE_NAME = 'far', ADDRESS = 'LOCAL'
        GO
        CREATE ROUTE AlsoIncoming WITH SERVICE_NAME = 'farther', ADDRESS = 'LOCAL'
        USE Shop
        CREATE ROUTE Outgoing WITH SERVICE_NAME = 'far', ADDRESS = 'TCP://far:4022'
        CREATE ENDPOINT Listening STATE = STARTED AS TCP (LISTENER_PORT = 4022, LISTENER_IP = (10.0.0.1))
          FOR SERVICE_BROKER (ENCRYPTION = SUPPORTED ALGORITHM AES, MESSAGE_FORWARDING = ENABLED)
        ALTER ENDPOINT Listening STATE = STOPPED
        CREATE LOGIN Far WITH PASSWORD = 'secret'
        GRANT CONNECT ON ENDPOINT::Listening TO Far
        """,
        *(
            "--database",
            f"master={home.url}",
            "--database",
            f"msdb={home.url}",
            "--database",
            f"Shop={shop.url}",
        ),
    )
    routes = "select name, scope from broker.routes where name not like 'Auto%%' order by 1"
    assert rows(home, routes) == [("AlsoIncoming", "WORKER"), ("Incoming", "WORKER")]
    assert rows(shop, routes) == [("Outgoing", "DATABASE")]
    endpoint = "select name, state_desc, port, host(ip_address::inet), is_message_forwarding_enabled, encryption_desc"
    found = rows(home, f"{endpoint} from broker.service_broker_endpoints")
    assert found == [("Listening", "STOPPED", 4022, "10.0.0.1", True, "SUPPORTED")]
    granted = "select grantee_principal_id, permission_name from broker.database_permissions"
    assert rows(home, granted) == [("Far", "CONNECT")]


def test_what_a_login_may_connect_to_its_users_may(scripts: Scripts, database: Database) -> None:
    # Certificates are the users', and CONNECT is granted to the login.
    login, user, other = (f"{kind}_{uuid.uuid4().hex[:8]}" for kind in ("Login", "User", "Other"))
    only = ("--database", f"Only={database.url}")
    scripts.done(
        f"""
        CREATE ENDPOINT Listening STATE = STARTED AS TCP (LISTENER_PORT = 4022) FOR SERVICE_BROKER (ENCRYPTION = SUPPORTED)
        CREATE LOGIN [{login}] WITH PASSWORD = 'secret'
        CREATE USER [{user}] FOR LOGIN [{login.upper()}]
        CREATE USER [{other}] WITHOUT LOGIN
        GRANT CONNECT ON ENDPOINT::Listening TO [{login}]
        """,
        *only,
    )
    granted = "select grantee_principal_id from broker.database_permissions where permission_name = 'CONNECT' order by 1"
    assert rows(database, granted) == [(login,), (user,)]
    scripts.done(f"REVOKE CONNECT ON ENDPOINT::Listening FROM [{login}]", *only)
    assert rows(database, granted) == []


def test_users_own_services_and_get_permissions(scripts: Scripts, database: Database) -> None:
    user = f"User_{uuid.uuid4().hex[:8]}"
    output = scripts.done(
        f"""
        CREATE USER {user} WITHOUT LOGIN
        CREATE USER {user} FOR LOGIN somebody WITH DEFAULT_SCHEMA = dbo
        CREATE SCHEMA trading
        CREATE QUEUE trading.Orders
        CREATE SERVICE s AUTHORIZATION {user} ON QUEUE Orders
        CREATE SERVICE t ON QUEUE Orders
        ALTER AUTHORIZATION ON SERVICE::t TO {user}
        ALTER AUTHORIZATION ON OBJECT::trading.Orders TO {user}
        ALTER AUTHORIZATION ON DATABASE::Shop TO sa
        ALTER AUTHORIZATION ON SERVICE::t TO dbo
        GRANT SEND ON SERVICE::s TO guest, [Far user]
        GRANT RECEIVE ON trading.Orders TO [Far user]
        REVOKE SEND ON SERVICE::s FROM guest CASCADE
        """,
        *("--database", f"Shop={database.url}"),
    )
    assert "ALTER AUTHORIZATION ON DATABASE has no meaning here" in output
    owners = rows(database, "select name, principal_id from broker.services order by 1")
    assert owners == [("s", user), ("t", "postgres")]
    assert rows(database, "select principal_id from broker.service_queues") == [(user,)]
    granted = "select grantee_principal_id, permission_name from broker.database_permissions order by 2"
    assert rows(database, granted) == [("Far user", "RECEIVE"), ("Far user", "SEND")]


def test_dbo_is_the_owner_of_the_database_in_definitions_too(scripts: Scripts, database: Database) -> None:
    scripts.done(
        "CREATE MESSAGE TYPE m AUTHORIZATION dbo VALIDATION = NONE\n"
        "CREATE CONTRACT c AUTHORIZATION [dbo] (m SENT BY ANY)\nCREATE QUEUE q\n"
        "CREATE SERVICE s AUTHORIZATION DBO ON QUEUE q (c)\nCREATE ROUTE r AUTHORIZATION dbo WITH ADDRESS = 'LOCAL'",
        "--database-url",
        database.url,
    )
    owners = "select principal_id = current_user from broker.services where name = 's'"
    assert rows(database, owners) == [(True,)]


def test_a_caller_who_may_not_make_roles_has_broker_users(scripts: Scripts, database: Database) -> None:
    owner, login, known = (database.role() for _ in range(3))
    user = f"User_{uuid.uuid4().hex[:8]}"
    with database.connect() as session:
        session.execute(f'alter database "{database.name}" owner to {owner}'.encode())
    url = database.server.url(database.name, user=owner)
    scripts.done(
        f"CREATE USER {user} WITHOUT LOGIN CREATE QUEUE q CREATE SERVICE s ON QUEUE q GRANT SEND ON SERVICE::s TO {user}\n"
        f"CREATE USER {known} FOR LOGIN {login}",
        *("--database", f"Shop={url}"),
    )
    assert rows(database, "select grantee_principal_id from broker.database_permissions") == [(user,)]
    assert rows(database, "select from pg_roles where rolname = %s", user) == []


def test_certificates_go_from_one_side_to_the_other_in_files(
    scripts: Scripts, make_database: Make, tmp_path: Path
) -> None:
    shop, warehouse = make_database("shop"), make_database("warehouse")
    keys, files = tmp_path / "keys", tmp_path / "certs"
    given = (
        *("--database", f"Shop={shop.url}", "--database", f"Warehouse={warehouse.url}"),
        *("--key-directory", str(keys), "--path", rf"c:\temp={files}"),
    )
    output = scripts.done(
        r"""
        USE Shop
        CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'do not show me'
        CREATE CERTIFICATE [Shop's] WITH SUBJECT = 'CN=shop, O=DM', START_DATE = '2020-01-01', EXPIRY_DATE = '12/31/2098'
        BACKUP CERTIFICATE [Shop's] TO FILE = 'C:\Temp\shop.cer'
          WITH PRIVATE KEY (FILE = 'C:\Temp\shop.pvk', ENCRYPTION BY PASSWORD = 'p4')
        USE Warehouse
        CREATE MASTER KEY
        CREATE USER ShopUser WITHOUT LOGIN
        CREATE CERTIFICATE [Shop's] AUTHORIZATION ShopUser FROM FILE = 'C:/Temp/shop.cer' ACTIVE FOR BEGIN_DIALOG = OFF
        """,
        *given,
    )
    assert "do not show me" not in output
    pem = "select certificate_pem, principal_id, is_active_for_begin_dialog from broker.certificates"
    [(ours, owner, active)] = rows(shop, pem)
    [(theirs, user, theirs_active)] = rows(warehouse, pem)
    assert ours == theirs
    assert (owner, active, user, theirs_active) == ("postgres", True, "ShopUser", False)
    certificate = x509.load_pem_x509_certificate(ours.encode())
    assert certificate.subject.rfc4514_string() == "CN=shop,O=DM"
    assert (certificate.not_valid_before_utc.year, certificate.not_valid_after_utc.year) == (2019, 2098)
    key = read_private_key(next(keys.glob("Shop*.key")))
    assert public_key_of(key.public_key()) == public_key_of(certificate.public_key())
    assert (keys / "dialog-master.key").exists()

    output = scripts.failed(r"USE Shop BACKUP CERTIFICATE [Shop's] TO FILE = 'C:\Temp\shop.cer'", *given)
    assert "Msg 15234: " in output
    for outside in (r"D:\shop.cer", r"C:\Temp\..\..\shop.cer"):
        output = scripts.failed(rf"USE Shop BACKUP CERTIFICATE [Shop's] TO FILE = '{outside}'", *given)
        assert "Give --path" in output


def test_a_certificate_moves_with_its_private_key(
    scripts: Scripts, make_database: Make, tmp_path: Path
) -> None:
    shop, moved = make_database("shop"), make_database("moved")
    options = ("--path", f"files={tmp_path / 'files'}", "--key-directory")
    with_key = "WITH PRIVATE KEY (FILE = 'files/c.pvk'"
    scripts.done(
        "CREATE CERTIFICATE c WITH SUBJECT = 'shop'\n"
        f"BACKUP CERTIFICATE c TO FILE = 'files/c.cer' {with_key}, ENCRYPTION BY PASSWORD = 'right')",
        *("--database-url", shop.url, *options, str(tmp_path / "old")),
    )
    given = ("--database-url", moved.url, *options, str(tmp_path / "new"))
    restored = (
        f"CREATE CERTIFICATE c FROM FILE = 'files/c.cer' {with_key}, DECRYPTION BY PASSWORD = 'PASSWORD')"
    )
    output = scripts.failed(restored.replace("PASSWORD')", "wrong')"), *given)
    assert "Msg 15465: " in output
    assert "wrong" not in output
    assert rows(moved, "select name from broker.certificates") == []
    scripts.done(restored.replace("PASSWORD')", "right')"), *given)
    [old], [new] = (list((tmp_path / name).glob("c.key")) for name in ("old", "new"))
    assert old.read_bytes() == new.read_bytes()
    assert new.stat().st_mode & 0o077 == 0


def test_a_certificate_without_a_key_directory_is_refused_first(scripts: Scripts, database: Database) -> None:
    script = "CREATE QUEUE q CREATE CERTIFICATE c WITH SUBJECT = 's'"
    assert "give --key-directory" in scripts.failed(script, "--database-url", database.url)
    assert queues(database) == []


def test_events_and_schemas_are_defined_and_dropped(scripts: Scripts, database: Database) -> None:
    schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="{}"/></xs:schema>'
    given = ("--database-url", database.url)
    scripts.done(
        f"""
        CREATE XML SCHEMA COLLECTION dbo.Orders AS N'{schema.format("order")} {schema.format("item")}'
        CREATE MESSAGE TYPE m VALIDATION = VALID_XML WITH SCHEMA COLLECTION Orders
        CREATE QUEUE Watched
        CREATE QUEUE Events
        CREATE SERVICE Watcher ON QUEUE Events ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification])
        CREATE EVENT NOTIFICATION n ON QUEUE dbo.Watched WITH FAN_IN FOR QUEUE_ACTIVATION TO SERVICE 'Watcher', 'current database'
        """,
        *given,
    )
    assert rows(database, "select name, cardinality(documents) from broker.xml_schema_collections") == [
        ("Orders", 2)
    ]
    assert rows(database, "select name, type_desc, is_fan_in from broker.event_notifications") == [
        ("n", "QUEUE_ACTIVATION", True)
    ]
    for scope, where in {"DATABASE": "the database", "QUEUE Events": 'the queue "events"'}.items():
        said = scripts.failed(f"DROP EVENT NOTIFICATION n ON {scope}", *given)
        assert f'The event notification "n" is not found on {where}.' in said
    said = scripts.done(
        """
        CREATE EVENT NOTIFICATION n ON QUEUE Events FOR queue_activation, BROKER_QUEUE_DISABLED TO SERVICE 'Watcher'
        CREATE EVENT NOTIFICATION n ON DATABASE FOR BROKER_QUEUE_DISABLED TO SERVICE 'Watcher', 'current database'
        SELECT parent_class_desc, COUNT(*) AS many FROM sys.event_notifications WHERE name = 'n'
          GROUP BY parent_class_desc ORDER BY 1
        SELECT e.type_desc, COUNT(*) AS many FROM sys.event_notifications n JOIN sys.events e ON e.object_id = n.object_id
          WHERE e.is_trigger_event = 0 GROUP BY e.type_desc ORDER BY e.type_desc
        """,
        *given,
    )
    table = [" ".join(line.split()) for line in said.splitlines()]
    shown = {"DATABASE 1", "OBJECT_OR_COLUMN 2", "BROKER_QUEUE_DISABLED 2", "QUEUE_ACTIVATION 2"}
    assert shown <= set(table)
    scripts.done(
        "DROP EVENT NOTIFICATION n ON DATABASE DROP EVENT NOTIFICATION n ON QUEUE dbo.Events", *given
    )
    assert rows(database, "select name, parent_class from broker.event_notifications") == [("n", 1)]
    scripts.done(
        "DROP EVENT NOTIFICATION n ON QUEUE Watched DROP MESSAGE TYPE m DROP XML SCHEMA COLLECTION dbo.Orders"
        " DROP CERTIFICATE IF EXISTS missing",
        *given,
    )
    assert rows(database, "select name from broker.event_notifications") == []
    assert rows(database, "select name from broker.xml_schema_collections") == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("DENY SEND ON SERVICE::s TO u", "REVOKE"),
        ("GRANT CONTROL ON SERVICE::s TO u", "ALTER AUTHORIZATION"),
        ("GRANT CREATE QUEUE TO u", "grant it on an object"),
        (
            "CREATE ENDPOINT e AS TCP (LISTENER_PORT = 1) FOR SERVICE_BROKER (AUTHENTICATION = WINDOWS)",
            "CERTIFICATE",
        ),
        ("CREATE EVENT NOTIFICATION n ON SERVER FOR QUEUE_ACTIVATION TO SERVICE 's'", "ON DATABASE"),
        ("DROP EVENT NOTIFICATION n ON SERVER", "ON DATABASE"),
        (
            "CREATE EVENT NOTIFICATION n ON DATABASE FOR CREATE_TABLE, DROP_TABLE TO SERVICE 's'",
            "QUEUE_ACTIVATION and BROKER_QUEUE_DISABLED",
        ),
        ("BACKUP DATABASE x TO DISK = 'y'", "pg_dump"),
        ("EXEC sp_configure 'broker TCP listen port', 4022", "CREATE ENDPOINT"),
        ("ALTER ROLE db_owner ADD MEMBER u", "grant"),
        ("ADD SIGNATURE TO OBJECT::dbo.p BY CERTIFICATE c WITH PASSWORD = 'x'", "EXECUTE AS"),
        ("DROP COUNTER SIGNATURE FROM p BY CERTIFICATE c", "EXECUTE AS"),
        ("CREATE DATABASE d ON (FILENAME = 'd.mdf') FOR ATTACH WITH ENABLE_BROKER", "pg_restore"),
        ("CREATE DATABASE d ON (NAME = d, FILENAME = 'd.ss') AS SNAPSHOT OF e", "pg_restore"),
        ("DROP DATABASE d", "--allow-drop"),
        ("CREATE DATABASE d", "--server"),
    ],
)
def test_what_has_no_faithful_form_is_refused_with_what_to_write(
    scripts: Scripts, database: Database, script: str, why: str
) -> None:
    output = scripts.failed(f"CREATE QUEUE q\nGO\n {script}", "--database-url", database.url)
    assert output.startswith("script.sql:3:2: ")
    assert why in output
    assert queues(database) == []


def test_a_principal_is_the_one_that_was_made_in_any_case(scripts: Scripts, database: Database) -> None:
    name = f"demo\\{uuid.uuid4().hex[:8]}$"
    output = scripts.done(
        f"""
        CREATE LOGIN [{name}] FROM WINDOWS
        CREATE QUEUE q CREATE SERVICE s ON QUEUE q
        GO
        GRANT SEND ON SERVICE::s TO [{name.upper()}]
        GRANT REFERENCES ON SCHEMA::dbo TO [{name}]
        GRANT VIEW DEFINITION TO [{name}]
        """,
        *("--database-url", database.url),
    )
    assert "VIEW DEFINITION has no meaning here: who has a permission on an object sees it" in output
    assert "REFERENCES has no meaning here: foreign keys need REFERENCES on their table" in output
    granted = (
        "select broker_private.principal_name(p.grantee) from broker_private.permissions p"
        " where p.permission = 'SEND'"
    )
    assert rows(database, granted) == [(name,)]


def test_columns_sessions_and_properties_can_be_asked_for(scripts: Scripts, database: Database) -> None:
    output = scripts.done(
        """
        CREATE TABLE Trades (id int IDENTITY NOT NULL, Amount decimal(9, 2), Twice AS Amount * 2)
        GO
        IF NOT EXISTS (SELECT * FROM sys.columns WHERE object_id = OBJECT_ID(N'dbo.Trades') AND name = N'Amount')
          ALTER TABLE Trades ADD Amount int
        IF NOT EXISTS (SELECT 1 FROM sys.columns WHERE Name = 'Missing' AND Object_ID = OBJECT_ID('Trades'))
          PRINT 'missing'
        IF EXISTS (SELECT 1 FROM sys.services s JOIN sys.tables t ON t.name = s.name) PRINT 'none'
        SELECT c.name, c.column_id, c.is_nullable, c.is_identity, c.is_computed FROM sys.tables t
          JOIN sys.columns c ON c.object_id = t.object_id WHERE t.name = N'TRADES' AND c.name IN ('ID', 'Twice')
          ORDER BY c.column_id
        SELECT COUNT(*) AS others FROM sys.tables t WHERE t.name <> 'TRADES'
        SELECT program_name, status FROM sys.dm_exec_sessions WHERE session_id = @@SPID AND is_user_process = 1
        SELECT DATABASEPROPERTYEX(DB_NAME(), N'Status') AS a, DATABASEPROPERTYEX('nowhere', 'UserAccess') AS b,
          DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS c
        GO
        CREATE PROCEDURE look AS
          SELECT DATABASEPROPERTYEX(DB_NAME(), 'USERACCESS') AS d, COUNT(*) AS e
          FROM sys.dm_exec_sessions WHERE session_id = @@SPID
        GO
        EXEC look
        """,
        *("--database-url", database.url),
    )
    lines = [" ".join(line.split()) for line in output.splitlines()]
    shown = {"id 1 0 1 0", "twice 3 1 0 1", "pybroker tsql running", "ONLINE NULL READ_WRITE", "MULTI_USER 1"}
    assert {*shown, "missing", "0"} <= set(lines)
    assert "none" not in lines


def test_services_names_match_exactly_and_queues_in_any_case(scripts: Scripts, database: Database) -> None:
    output = scripts.done(
        """
        CREATE QUEUE Orders CREATE SERVICE [//Orders] ON QUEUE Orders
        GO
        SELECT q.name + ' ' + s.name AS both FROM sys.services s JOIN sys.service_queues q
          ON q.object_id = s.service_queue_id WHERE q.name = 'ORDERS' AND s.name = '//Orders'
        SELECT q.name + ' ' + s.name AS none FROM sys.services s JOIN sys.service_queues q
          ON q.object_id = s.service_queue_id WHERE q.name = 'ORDERS' AND s.name = '//orders'
        """,
        *("--database-url", database.url),
    )
    assert output.count("orders //Orders") == 1


def test_a_principal_of_an_earlier_run_is_meant_in_any_case(scripts: Scripts, database: Database) -> None:
    name = f"Demo\\{uuid.uuid4().hex[:8]}$"
    given = ("--database-url", database.url)
    scripts.done(f"CREATE QUEUE q CREATE SERVICE s ON QUEUE q CREATE LOGIN [{name}] FROM WINDOWS", *given)
    scripts.done(
        f"CREATE USER [{name.lower()}] FOR LOGIN [{name.upper()}]\nGO\nGRANT SEND ON SERVICE::s TO [{name.lower()}]",
        *given,
    )
    scripts.done(f"ALTER AUTHORIZATION ON SERVICE::s TO [{name.upper()}]", *given)
    assert rows(database, f"select rolname from pg_roles where lower(rolname) = lower('{name}')") == [(name,)]
    granted = (
        "select broker_private.principal_name(p.grantee) from broker_private.permissions p"
        " where p.permission = 'SEND'"
    )
    assert rows(database, granted) == [(name,)]
    assert rows(database, "select principal_id from broker.services where name = 's'") == [(name,)]
    # One that was made for another case alone, by others, is told from it.
    with database.connect() as session:
        session.execute(f'create role "{name.upper()}"'.encode())
    scripts.done(f"REVOKE SEND ON SERVICE::s FROM [{name}]", *given)
    assert rows(database, granted) == []


def test_the_upkeep_of_queues_has_no_meaning(scripts: Scripts, database: Database) -> None:
    output = scripts.done(
        "CREATE QUEUE q ALTER QUEUE q REBUILD WITH (MAXDOP = 2) ALTER QUEUE q MOVE TO [data] CREATE QUEUE r",
        *("--database-url", database.url),
    )
    assert "script.sql:1:16: REBUILD WITH (MAXDOP = 2) has no meaning here: autovacuum keeps queues" in output
    assert "MOVE TO [data] has no meaning here" in output
    assert queues(database) == ["q", "r"]


def test_drop_database_ends_a_worker_and_nobody_else(scripts: Scripts, server: EmbeddedServer) -> None:
    with temporary_name(server) as name:
        given = (
            "--database",
            f"{name}={server.url(name)}",
            "--server",
            server.url("postgres"),
            "--allow-drop",
        )
        scripts.done(f"CREATE DATABASE {name}", *given)
        worker = start_worker(server.url(name))
        try:
            next_event(worker, "worker_ready")
            with psycopg.connect(server.url(name), application_name="ours"):
                failed = scripts.failed(f"USE master DROP DATABASE {name}", *given)
                assert "is being accessed by other users" in failed
            scripts.done(f"USE master DROP DATABASE {name}", *given)
        finally:
            worker.terminate()
            worker.communicate()
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(server.url(name))


def test_what_is_there_is_asked_first(scripts: Scripts, server: EmbeddedServer, database: Database) -> None:
    with temporary_name(server) as name:
        script = f"""
            IF EXISTS (SELECT * FROM sys.databases WHERE name = N'{name.upper()}') DROP DATABASE {name}
            GO
            IF DB_ID('{name}') IS NULL
            BEGIN
              CREATE DATABASE {name}
              USE {name}
              CREATE QUEUE dbo.Made
            END
            ELSE
              USE master
            GO
            IF NOT EXISTS (SELECT TOP 1 1 FROM sys.service_queues q WHERE q.name = 'MADE' AND is_receive_enabled = 1)
              CREATE QUEUE NotMade
            ELSE CREATE QUEUE AlsoMade
            IF OBJECT_ID(N'[dbo].[Made]', 'SQ') IS NOT NULL DROP QUEUE Made
            IF EXISTS (SELECT name FROM sys.services WHERE name LIKE '//%') DROP SERVICE missing DROP QUEUE IF_x
            """
        script = script.replace(" DROP QUEUE IF_x", " CREATE QUEUE Last")
        given = ("--database", f"Home={database.url}", "--server", server.url("postgres"), "--allow-drop")
        for _ in range(2):
            scripts.done(script, *given, "--database", f"{name}={server.url(name)}")
        assert queues(server.url(name)) == ["alsomade", "last"]
    assert queues(database) == []


def test_settings_without_a_meaning_are_noted_once(scripts: Scripts, database: Database) -> None:
    script = "SET NOCOUNT ON; SET ANSI_NULLS, QUOTED_IDENTIFIER OFF\nRECONFIGURE\nGO 3"
    output = scripts.done(script, "--database-url", database.url)
    assert output.count("SET NOCOUNT ON has no meaning here") == 1
    assert "SET ANSI_NULLS, QUOTED_IDENTIFIER OFF has no meaning here: OFF is not obeyed" in output


def test_what_ran_before_a_failure_stays_and_that_is_said(scripts: Scripts, database: Database) -> None:
    script = "CREATE QUEUE a\nGO\nDROP QUEUE missing\nGO\nCREATE QUEUE b"
    output = scripts.failed(script, "--database-url", database.url)
    assert "script.sql:3:1: Msg 208: " in output
    assert "select broker.drop_queue('missing');" in output
    assert "are done and stay: 1; nothing behind it runs" in output
    assert queues(database) == ["a"]


def test_nothing_stays_of_a_single_transaction_that_fails(scripts: Scripts, database: Database) -> None:
    given = ("--database-url", database.url, "--single-transaction")
    assert "nothing stays" in scripts.failed("CREATE QUEUE a\nGO\nDROP QUEUE missing", *given)
    assert queues(database) == []
    scripts.done("CREATE QUEUE a\nGO\nCREATE QUEUE b", *given)
    assert queues(database) == ["a", "b"]


def test_a_single_transaction_is_of_one_database(
    scripts: Scripts, database: Database, make_database: Make
) -> None:
    output = scripts.failed(
        "USE a CREATE QUEUE q\nUSE b",
        *(
            "--database",
            f"a={database.url}",
            "--database",
            f"b={make_database('b').url}",
            "--single-transaction",
        ),
    )
    assert "script.sql:2:1: --single-transaction is of one database" in output
    assert queues(database) == []


def test_a_script_goes_on_behind_a_failed_batch_if_it_says_so(scripts: Scripts, database: Database) -> None:
    script = ":on error ignore\nDROP QUEUE missing CREATE QUEUE a\nGO\nCREATE QUEUE b"
    assert ":2:1: Msg 208: " in scripts.failed(script, "--database-url", database.url)
    assert queues(database) == ["b"]


def test_a_dry_run_shows_what_would_run_where(scripts: Scripts, database: Database) -> None:
    given = ("--database", f"a={database.url}", "--database", f"b={database.url}")
    output = scripts.done("USE b\nCREATE QUEUE q\nGO 2", *given, "--dry-run")
    assert "-- in b, 2 times\n" in output
    assert "select broker.create_queue('q', schema => 'dbo');" in output
    assert queues(database) == []


def test_no_name_of_a_script_moves_the_cursor(scripts: Scripts, database: Database) -> None:
    output = scripts.failed("USE [\x1b[2J]", "--database-url", database.url)
    assert "\x1b" not in output
    output = scripts.failed("DROP SERVICE [\x1b[2J]", "--database-url", database.url)
    assert "\x1b" not in output


def test_wrong_usage_has_its_own_exit_code(scripts: Scripts) -> None:
    assert scripts.run("CREATE QUEUE q").exit_code == 2
    assert scripts.run("CREATE QUEUE q", "--database", "no url").exit_code == 2
    assert scripts.run("CREATE QUEUE q", "--database", "a=no url").exit_code == 2
