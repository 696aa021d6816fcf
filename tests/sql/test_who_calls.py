"""Who calls is proven: docs/security.md's two families of others' code, errors that escape, and languages.

Each table of docs/security.md has a row for each case here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer
from tests import missing
from tests.conftest import AUTOVACUUM_RESTS, SETTINGS, migrated_database
from tests.shop import Session, Shop, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What an attacker's code tries in somebody else's session. It claims each role that a session could have,
# and imitates a public function's frame in the text of its statement. A try that gains something is noted.
LAIR = """
create schema lair authorization "{clerk}";
set role "{clerk}";
create table lair.fired (by_role text);
create table lair.loot (what text);
grant usage on schema lair to public;
grant all on all tables in schema lair to public;
create function lair.rob() returns integer language plpgsql as $body$
declare
  claimed text;
  loot broker.message[];
  done boolean;
begin
  insert into lair.fired values (current_user);
  foreach claimed in array array[session_user, coalesce(nullif(current_setting('role'), 'none'), session_user), 'postgres'] loop
    begin
      loot := broker_private.receive(claimed, 'warehouse', 1, null, null, '0');
      if cardinality(loot) > 0 then
        insert into lair.loot values ('received as ' || claimed);
      end if;
    exception when insufficient_privilege then null;
    end;
    begin
      done := broker_private.grant(claimed, 'RECEIVE', 'QUEUE', 'warehouse', '{clerk}');
      if done then
        insert into lair.loot values ('granted as ' || claimed);
      end if;
    exception when insufficient_privilege then null;
    end;
    begin
      done := broker_private.vouch(claimed);
      insert into lair.loot values ('vouched as ' || claimed);
    exception when insufficient_privilege then null;
    end;
    begin
      done := broker_private.grant(claimed, 'RECEIVE', 'QUEUE', 'warehouse', '{clerk}') as "
PL/pgSQL function broker.grant(text,text,text,text) line 6 at assignment
";
      if done then
        insert into lair.loot values ('imitated as ' || claimed);
      end if;
    exception when insufficient_privilege then null;
    end;
  end loop;
  return 1;
end
$body$;
create function lair.pry(n integer) returns integer language plpgsql immutable as 'begin perform lair.rob(); return n; end';
create function lair.trigger() returns trigger language plpgsql as 'begin perform lair.rob(); return coalesce(new, old); end';
create table lair.bait (n integer primary key);
grant all on lair.bait to public;
reset role;
"""

# Code that PostgreSQL runs as another role than the session's: what the clerk prepares, and what the owner does then.
AS_ANOTHER = {
    "a referential action": (
        "create table lair.child (n integer references app.orders on delete cascade); insert into lair.child values (1);"
        "create trigger rob before delete on lair.child for each row execute function lair.trigger()",
        "delete from app.orders",
    ),
    "a referential action that sets null": (
        "create table lair.child (n integer references app.orders on delete set null); insert into lair.child values (1);"
        "create trigger rob before update on lair.child for each row execute function lair.trigger()",
        "delete from app.orders",
    ),
    "a security definer function": (
        "create function lair.helpful() returns integer language sql security definer as 'select lair.rob()'",
        "select lair.helpful()",
    ),
    "analyze": (
        "insert into lair.bait values (1); create index on lair.bait (lair.pry(n))",
        "analyze lair.bait",
    ),
    "reindex": (
        "insert into lair.bait values (1); create index on lair.bait (lair.pry(n))",
        "reindex table lair.bait",
    ),
    "cluster": (
        "insert into lair.bait values (1); create index pried on lair.bait (lair.pry(n))",
        "cluster lair.bait using pried",
    ),
    "vacuum full": (
        "insert into lair.bait values (1); create index on lair.bait (lair.pry(n))",
        "vacuum full lair.bait",
    ),
    "refresh": (
        "create materialized view lair.view as select lair.rob() with no data",
        "refresh materialized view lair.view",
    ),
    "autovacuum": (
        "create index on lair.bait (lair.pry(n));"
        "alter table lair.bait set (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);"
        "insert into lair.bait select generate_series(1, 100); delete from lair.fired",
        "select",
    ),
    "a deferred trigger of a security definer function": (
        "create constraint trigger rob after insert on lair.bait deferrable initially deferred"
        " for each row execute function lair.trigger();"
        "create function lair.helpful() returns void language sql security definer as 'insert into lair.bait values (7)'",
        "begin; select lair.helpful(); commit",
    ),
    "a deferred trigger of another role": (
        "create constraint trigger rob after insert on lair.bait deferrable initially deferred"
        " for each row execute function lair.trigger()",
        'begin; set local role "{clerk}"; insert into lair.bait values (7); reset role; commit',
    ),
    "an after trigger of another role": (
        "create trigger rob after insert on lair.bait for each row execute function lair.trigger()",
        'begin; set local role "{clerk}"; insert into lair.bait values (7); reset role; commit',
    ),
}

# Code that PostgreSQL runs as the session's role. Where another can change a table, a type or an operator that
# a session uses, that is inherent.
AS_THE_VICTIM = {
    "a trigger": (
        "create trigger rob before insert on lair.bait for each row execute function lair.trigger()",
        "insert into lair.bait values (1)",
    ),
    "a deferred trigger": (
        "create constraint trigger rob after insert on lair.bait deferrable initially deferred"
        " for each row execute function lair.trigger()",
        "insert into lair.bait values (1)",
    ),
    "a default": (
        "alter table lair.bait add m integer default lair.rob()",
        "insert into lair.bait (n) values (1)",
    ),
    "a generated column": (
        "alter table lair.bait add m integer generated always as (lair.pry(n)) stored",
        "insert into lair.bait (n) values (1)",
    ),
    "a cast": (
        "create type lair.money as (n integer);"
        "create function lair.of(n integer) returns lair.money language sql as 'select row(lair.rob())::lair.money';"
        "create cast (integer as lair.money) with function lair.of(integer) as implicit",
        "select 1::lair.money",
    ),
    "an operator": (
        "create function lair.same(a integer, b integer) returns boolean language sql as 'select lair.rob() = 1';"
        "create operator lair.=== (leftarg = integer, rightarg = integer, function = lair.same)",
        "select 1 operator(lair.===) 1",
    ),
    "a policy": (
        "alter table lair.bait enable row level security; create policy rob on lair.bait using (lair.rob() = 1);"
        "insert into lair.bait values (1)",
        "select * from lair.bait",
    ),
    "a rule": (
        "create rule rob as on insert to lair.bait do also select lair.rob()",
        "insert into lair.bait values (1)",
    ),
    "a check": (
        "alter table lair.bait add check (lair.rob() = 1)",
        "insert into lair.bait values (1)",
    ),
    "a view": (
        "create view lair.view as select lair.rob(); grant select on lair.view to public",
        "select * from lair.view",
    ),
}


class Attack:
    """A shop with a secret message, a clerk who has a schema of his own and REFERENCES on one table."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.clerk = shop.database.role()
        self.owner = shop.psql
        self.owner.send(self.owner.dialog(), "order", b"secret")
        self.owner.rows(
            f"create schema app; create table app.orders (n integer primary key); insert into app.orders values (1);"
            f'grant usage on schema app to "{self.clerk}"; grant references on app.orders to "{self.clerk}"'
        )
        self.owner.rows(LAIR.format(clerk=self.clerk))
        self.user = shop.session(user=self.clerk)

    def prepare(self, script: str) -> None:
        self.user.rows(script)
        self.owner.rows("delete from lair.fired; delete from lair.loot")

    def gained(self) -> list[Any]:
        """Return what the attack gained, after proof that it took place."""
        assert self.owner.rows("select by_role from lair.fired"), "the attacker's code did not run"
        gained = [what for (what,) in self.owner.rows("select what from lair.loot")]
        if self.user.refused("select broker.receive('warehouse')") != "S0229":
            gained.append("the clerk may receive")
        if self.owner.bodies() != [b"secret"]:
            gained.append("the message is gone")
        return gained


@pytest.fixture
def attack(shop: Shop) -> Attack:
    return Attack(shop)


@pytest.fixture
def busy_autovacuum(shop: Shop) -> Iterator[None]:
    """Autovacuum looks each second."""
    shop.psql.rows("alter system set autovacuum_naptime = '1s'")
    shop.psql.rows("select pg_reload_conf()")
    yield
    shop.psql.rows(AUTOVACUUM_RESTS)
    shop.psql.rows("select pg_reload_conf()")


@pytest.mark.usefixtures("busy_autovacuum")
@pytest.mark.parametrize("name", AS_ANOTHER)
def test_code_that_runs_as_another_role_gains_nothing(attack: Attack, name: str) -> None:
    prepared, done = AS_ANOTHER[name]
    attack.prepare(prepared)
    for statement in done.format(clerk=attack.clerk).split("; "):
        attack.owner.rows(statement)
    if name == "autovacuum":
        until(lambda: attack.owner.rows("select from lair.fired"))
    by_role = {role for (role,) in attack.owner.rows("select by_role from lair.fired")}
    assert by_role == {attack.clerk} or ("deferred" in name and by_role == {"postgres"})
    assert attack.gained() == []


@pytest.mark.parametrize("name", AS_THE_VICTIM)
def test_code_that_runs_as_the_victim_has_no_more_than_the_victim(attack: Attack, name: str) -> None:
    prepared, done = AS_THE_VICTIM[name]
    attack.prepare(prepared)
    victim = attack.shop.session(user=attack.shop.database.role())
    victim.rows(done)
    roles = {role for (role,) in attack.owner.rows("select by_role from lair.fired")}
    assert victim.value("select current_user") in roles or name == "a view"
    assert attack.gained() == []


# PostgreSQL puts such a function's body in the place of the operator: what it calls sees the frame of the caller.
OPERATORS = """
create function lair.gain(a interval, b interval) returns boolean language sql
  as $$select broker_private.grant('postgres', 'RECEIVE', 'QUEUE', 'warehouse', '{clerk}')$$;
create operator lair.= (leftarg = interval, rightarg = interval, function = lair.gain)
"""


def test_no_public_function_looks_for_names_where_its_caller_does(attack: Attack) -> None:
    user = attack.user
    attack.owner.rows(f"select broker.grant('RECEIVE', 'QUEUE', 'shop', '{attack.clerk}')")
    attack.owner.rows(f"select broker.grant('REFERENCES', 'CONTRACT', 'ordering', '{attack.clerk}')")
    user.rows(OPERATORS.format(clerk=attack.clerk))
    wait = "select from broker.receive('shop', timeout => '1 ms')"
    # A frame names its function without the schema, if the path has that, so such a caller would not be believed.
    for path in ("lair, pg_catalog", "broker, lair, pg_catalog"):
        user.rows(f"set search_path = {path}")
        user.send(user.dialog(), "order", b"his own")
        assert user.rows(wait) == []
        assert user.refused("select broker.receive('warehouse')") == "S0229"
    # Only the setting that each public function has stands between.
    attack.owner.rows(
        "alter function broker.receive(text, integer, uuid, uuid, interval) reset search_path;"
        "alter function broker.send(uuid, text, bytea) reset search_path"
    )
    user = attack.shop.session(user=attack.clerk)
    user.rows("set search_path = broker, pg_catalog")
    dialog = user.dialog()
    assert user.refused("select broker.send(%s, 'order', 'x'::bytea)", dialog) == "42501"
    user.rows("set search_path = lair, pg_catalog")
    user.rows(wait)
    assert user.rows("select from broker.receive('warehouse')")


@pytest.mark.parametrize("version", [15, 16, 18])
def test_what_a_subscription_applies_gains_nothing(
    version: int, start_server: Callable[[int], EmbeddedServer]
) -> None:
    start_server(version)
    settings = SETTINGS | {"wal_level": "logical"}
    with EmbeddedServer(version=version, listen=True, settings=settings) as server:
        here = migrated_database(server, "here", with_shop=True)
        there = migrated_database(server, "there")
        shop = Shop(here, is_defined=True)
        attack = Attack(shop)
        attack.prepare(
            "create trigger rob after insert on lair.bait for each row execute function lair.trigger();"
            "alter table lair.bait enable always trigger rob"
        )
        with there.connect() as session:
            session.execute("create schema lair; create table lair.bait (n integer primary key)")
            session.execute("create publication bait for table lair.bait")
            session.execute("select pg_create_logical_replication_slot('bait', 'pgoutput')")
            far = server.url("there").replace("'", "''")
            subscribe = f"create subscription bait connection '{far}' publication bait with (create_slot = false, slot_name = bait)"
            attack.owner.rows(subscribe)
            session.execute("insert into lair.bait values (1)")
            until(lambda: attack.owner.rows("select from lair.fired"))
            gained = attack.gained()
            by_role = attack.owner.value("select by_role from lair.fired")
            attack.owner.rows("alter subscription bait disable")
            attack.owner.rows("alter subscription bait set (slot_name = none)")
            attack.owner.rows("drop subscription bait")
            shop.close()
        assert gained == []
        assert by_role == (attack.clerk if version > 15 else "postgres")


# Errors that leave a call, and after which the transaction goes on.

WORKS = "select broker.send(%s, 'order', 'kept'::bytea)"


def escape(session: Session, shop: Shop, name: str) -> None:
    """Let an error leave a call, and take back what it did."""
    handle = session.value("select handle from app.dialog")
    session.rows("savepoint before")
    if name == "refused":
        assert session.refused("select broker.send(%s, 'no such type')", handle) == "S8428"
    else:
        holder = shop.session()
        holder.rows("begin")
        holder.rows(WORKS, handle)
        session.rows("set local lock_timeout = '1ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            session.rows(WORKS, handle)
        holder.rows("rollback")
    session.rows("rollback to savepoint before")


@pytest.mark.parametrize("error", ["refused", "lock timeout"])
@pytest.mark.parametrize("caller", ["login", "set role", "security definer"])
def test_an_error_that_was_caught_leaves_the_transaction_whole(shop: Shop, caller: str, error: str) -> None:
    psql, clerk, application = shop.psql, shop.database.role(), shop.database.role("nologin")
    handle = psql.dialog()
    psql.send(handle, "order", b"first")
    psql.rows(
        f"create schema app; create table app.dialog as select '{handle}'::uuid as handle;"
        f'grant usage, create on schema app to "{application}"; grant usage on schema app to public; grant select on app.dialog to public'
    )
    for role in (clerk, application):
        psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s::name)", role)
        psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", role)
    psql.rows(
        f'set role "{application}";'
        "create function app.send(handle uuid, type_name text, body text) returns void language plpgsql security definer"
        " set search_path = pg_catalog as 'begin perform broker.send(handle, type_name, body::bytea); end';"
        "create function app.forge(handle uuid) returns boolean language plpgsql security definer set search_path = pg_catalog"
        " as $$begin return broker_private.send('postgres', handle, 'order', 'forged'); end$$;"
        "reset role"
    )
    session = shop.session() if caller == "set role" else shop.session(user=clerk)
    session.rows("begin")
    if caller == "set role":
        session.rows(f'set local role "{clerk}"')
    for met in (error, "refused", "refused"):
        escape(session, shop, met)
        if caller == "security definer":
            session.rows("savepoint before")
            with pytest.raises(psycopg.Error) as caught:
                session.rows("select app.send(%s, 'no such type', '')", handle)
            assert caught.value.sqlstate == "S8428"
            session.rows("rollback to savepoint before")
            session.rows("select app.send(%s, 'order', 'kept')", handle)
        else:
            session.rows(WORKS, handle)
        # Nobody else profits from the doubt.
        session.rows("savepoint forge")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.rows("select app.forge(%s)", handle)
        session.rows("rollback to savepoint forge")
    session.rows("commit")
    assert psql.bodies() == [b"first", b"kept", b"kept", b"kept"]
    assert psql.rows("select from broker_private.vouchers") == []


def test_every_call_that_was_refused_may_be_made_again(shop: Shop) -> None:
    """RECEIVE and its kin tell "nothing" from "not seen": after an error they wait, answer and lock as before."""
    psql = shop.psql
    handle = psql.dialog()
    psql.send(handle, "order", b"first")
    group = psql.value(
        "select conversation_group_id from broker.conversation_endpoints where not is_initiator"
    )
    psql.rows("begin")
    for _ in range(2):
        for wrong, again, answer in (
            (
                "select broker.receive('none')",
                "select count(*) from broker.receive('shop', timeout => '10 ms')",
                0,
            ),
            (
                "select broker.get_conversation_group('none')",
                "select broker.get_conversation_group('shop')",
                None,
            ),
            (
                "select broker.get_conversation_group('none')",
                "select broker.get_conversation_group('warehouse')",
                group,
            ),
            (
                "select broker.receive_groups('none', 2)",
                "select count(*) from broker.receive_groups('shop', 2, timeout => '10 ms')",
                0,
            ),
            (
                "select broker.get_transmission_status(null)",
                f"select broker.get_transmission_status('{handle}')",
                "",
            ),
            ("select broker.drop_route('none')", "select broker.drop_route('AutoCreatedLocal')", ""),
        ):
            psql.rows("savepoint wrong")
            psql.refused(wrong)
            psql.rows("rollback to savepoint wrong")
            psql.rows("savepoint again")
            assert psql.value(again) == answer, again
            psql.rows("rollback to savepoint again")
    assert psql.bodies() == [b"first"]
    psql.rows("rollback")


# Messages are translated where PostgreSQL was built so, as Debian's is.
LANGUAGES = ("zh_CN", "tr_TR", "ko_KR", "ja_JP", "de_DE")


@pytest.fixture
def translated_shop(
    request: pytest.FixtureRequest, start_server: Callable[[int], EmbeddedServer]
) -> Iterator[Shop]:
    """The shop on Debian's PostgreSQL, whose messages are in a language by the database's setting."""
    database = migrated_database(start_server(15), f"shop_{request.param.lower()}", with_shop=True)
    with database.connect() as session:
        try:
            session.execute(
                f"alter database {database.name} set lc_messages = '{request.param}.UTF-8'".encode()
            )
        except psycopg.errors.InvalidParameterValue:
            missing.skip("a locale", "apt-get install locales-all")
    shop = Shop(database, is_defined=True)
    yield shop
    shop.close()
    with psycopg.connect(database.server.url("postgres"), autocommit=True) as session:
        session.execute(f"drop database {database.name} with (force)".encode())


@pytest.mark.parametrize("translated_shop", LANGUAGES, indirect=True)
def test_who_calls_is_seen_in_every_language(translated_shop: Shop) -> None:
    shop = translated_shop
    psql = shop.psql
    assert "PL/pgSQL function broker" not in _frame(psql)
    attack = Attack(shop)
    handle = psql.dialog()
    psql.rows("begin")
    for _ in range(2):
        psql.rows("savepoint wrong")
        assert psql.refused("select broker.send(%s, 'no such type')", handle) == "S8428"
        psql.rows("rollback to savepoint wrong")
        psql.send(handle, "order", b"kept")
    psql.rows("commit")
    psql.rows("begin")
    assert len(psql.bodies()) == 1
    assert psql.bodies() == [b"kept", b"kept"]
    psql.rows("rollback")
    # The imitated frame, in this language and word for word.
    shown = _frame(psql)
    attack.user.rows(
        "create function lair.imitate() returns boolean language plpgsql as $body$ declare done boolean; begin"
        " done := broker_private.grant('postgres', 'RECEIVE', 'QUEUE', 'warehouse', 'public') as \"\n"
        f'{shown}\n{shown}\n"; return done; end $body$'
    )
    try:
        assert attack.user.value("select lair.imitate()") is None
    except psycopg.errors.InsufficientPrivilege:
        attack.user.rows("select")
    attack.user.rows("select lair.rob()")
    assert attack.owner.rows("select what from lair.loot") == []
    assert attack.user.refused("select broker.receive('warehouse')") == "S0229"


def _frame(psql: Session) -> str:
    """Return a public function's line of the call stack as this language writes it."""
    with pytest.raises(psycopg.Error) as caught:
        psql.rows("select broker.drop_queue('none')")
    context = caught.value.diag.context or ""
    (frame,) = [line for line in context.split("\n") if "broker.drop_queue(" in line]
    return frame.replace('"', "'")
