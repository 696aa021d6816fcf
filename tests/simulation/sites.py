"""Two databases on a server of their own, made once for many seeds and put back to their first state by each."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from pybroker.workers.self_signed import common_name
from tests.simulation.spares import Spares

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOP, WAREHOUSE = "shop", "warehouse"
PORT = 4022
# After so many seeds tables are emptied by truncation, which makes each session plan anew. Else rows are deleted:
# others then lie behind them, in the same order.
_THOROUGH = 50
# Simulated time begins here.
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
# Bytes that a moment has in the file of a server's clock: first what it shows, then when the server was started.
_MOMENT = 32
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # A deadlock is found before anybody could take it for a mere wait.
    "deadlock_timeout": "5ms",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
_DEFINITIONS = """
select broker.create_message_type('order'), broker.create_message_type('ack');
select broker.create_contract('ordering', sent_by_initiator => '{order}', sent_by_target => '{ack}');
create table sent (place bigint generated always as identity, dialog text, number integer, life integer);
create table received (place bigint generated always as identity, dialog text, number integer, life integer);
create table dialogs (
  name text primary key, handle uuid, is_ended boolean not null default false, timers_fired integer not null default 0
);
create table ends (place bigint generated always as identity, dialog uuid, kind text, body text);
"""
_OF = {
    SHOP: """
select broker.create_queue('shop', poison_message_handling => false);
select broker.create_service('//shop', 'shop');
""",
    WAREHOUSE: """
select broker.create_queue('warehouse', poison_message_handling => false);
select broker.create_service('//warehouse', 'warehouse', '{ordering}');
select broker.grant('SEND', 'SERVICE', '//warehouse', 'public');
""",
}
# The server's clock and its random identifiers are the simulation's. The others call no random function of
# their own but random(), which each session is given a seed for.
_SEEDED = """
create schema simulation;
grant usage on schema simulation to public;
create function simulation.clock() returns timestamptz language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ begin return pg_read_file('{clock}', 0, 32)::timestamptz; end $$;
create or replace function broker_private.clock() returns timestamptz language sql volatile
begin atomic select simulation.clock(); end;
create function simulation.started() returns timestamptz language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$ begin return pg_read_file('{clock}', 32, 32)::timestamptz; end $$;
create function simulation.random_uuid() returns uuid language sql volatile
begin atomic select md5(random()::text || random()::text)::uuid; end;
do $$
declare definition text;
begin
  for definition in
    select pg_get_functiondef(p.oid) from pg_proc p
    where p.pronamespace in ('broker'::regnamespace, 'broker_private'::regnamespace) and p.prokind = 'f'
      and pg_get_functiondef(p.oid) ~ 'gen_random_uuid|pg_postmaster_start_time'
  loop
    definition := replace(definition, 'gen_random_uuid()', 'simulation.random_uuid()');
    execute replace(definition, 'pg_postmaster_start_time()', 'simulation.started()');
  end loop;
end $$;
"""
# What a seed leaves behind is taken away: rows by truncation where there were none, else by putting them back.
REMEMBER = """
create table simulation.tables as
select
  c.oid::regclass as name, format('simulation.%I', 'kept_' || c.relname) as kept, false as was_empty,
  format('simulation.%I', 'copied_' || c.relname) as copied, c.relpersistence = 'p' as is_in_backups
from pg_class c where c.relkind = 'r' and c.relnamespace in ('broker_private'::regnamespace, 'public'::regnamespace);
create table simulation.sequences as
select
  s.seqrelid::regclass as name, null::bigint as last_value, null::boolean as is_called,
  s.seqstart as copied_value, false as copied_is_called, c.relpersistence = 'p' as is_in_backups
from pg_sequence s
join pg_class c on c.oid = s.seqrelid where c.relnamespace in ('broker_private'::regnamespace, 'public'::regnamespace);
do $$
declare t record;
begin
  for t in select * from simulation.tables loop
    execute format('update simulation.tables set was_empty = not exists (select from %s) where name = %L::regclass', t.name, t.name);
    execute format('create table %s as table %s', t.kept, t.name);
    execute format('create table %s as table %s with no data', t.copied, t.name);
  end loop;
  for t in select * from simulation.sequences loop
    execute format(
      'update simulation.sequences u set (last_value, is_called) = (select s.last_value, s.is_called from %s s)'
      ' where u.name = %L::regclass', t.name, t.name
    );
  end loop;
end $$;
create procedure simulation.truncate() language plpgsql as $$
declare
  t record;
  filled text[] := '{}';
begin
  for t in select * from simulation.tables where was_empty and pg_relation_size(name) > 0 loop
    filled := filled || t.name::text
      || array(select c.conrelid::regclass::text from pg_constraint c where c.confrelid = t.name);
  end loop;
  if filled <> '{}' then
    execute 'truncate ' || array_to_string(filled, ', ');
  end if;
end $$;
-- Its statements are written out, so that they are planned once.
do $do$
declare body text;
begin
  select string_agg(
    case
      when t.was_empty then format('if exists (select from %1$s) then delete from %1$s; end if;', t.name)
      else format(
        'if exists ((table %1$s except all table %2$s) union all (table %2$s except all table %1$s)) then'
        ' delete from %1$s; insert into %1$s (%3$s) overriding system value select %3$s from %2$s; end if;',
        t.name, t.kept, l.list
      )
    end,
    ' '
  ) into body
  from simulation.tables t cross join lateral (
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) as list from pg_attribute a
    where a.attrelid = t.name and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  ) l;
  execute format(
    'create procedure simulation.reset() language plpgsql as %L',
    'begin ' || body || ' perform setval(s.name, s.last_value, s.is_called) from simulation.sequences s; end'
  );
end $do$;
"""
# All tables as one snapshot shows them. As after a crash, what is unlogged is not among them.
BACKUP = """
create procedure simulation.back_up() language plpgsql as $$
declare
  t record;
begin
  for t in select * from simulation.tables where is_in_backups loop
    execute format('delete from %s', t.copied);
    execute format('insert into %s table %s', t.copied, t.name);
  end loop;
  for t in select * from simulation.sequences where is_in_backups loop
    execute format(
      'update simulation.sequences u set (copied_value, copied_is_called) = (select s.last_value, s.is_called from %s s)'
      ' where u.name = %L::regclass', t.name, t.name
    );
  end loop;
end $$;
create procedure simulation.restore() language plpgsql as $$
declare
  t record;
begin
  set local session_replication_role = replica;
  for t in select s.*, l.list from simulation.tables s cross join lateral (
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) as list from pg_attribute a
    where a.attrelid = s.name and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  ) l loop
    execute format('delete from %s', t.name);
    execute format('insert into %1$s (%2$s) overriding system value select %2$s from %3$s', t.name, t.list, t.copied);
  end loop;
  perform setval(s.name, s.copied_value, s.copied_is_called) from simulation.sequences s;
end $$;
"""


class Sites:
    """The server, its two databases, and the workers' keys.

    Attributes:
        urls: by name.
        keys: the key directory of each.
        spares: sessions for the workers and applications of each seed.
        monitor: a session for who watches the others.
        sessions: one in each database, for who looks at it.
    """

    monitor: psycopg.Connection[Any]
    sessions: dict[str, psycopg.Connection[Any]]

    def __init__(self, server: EmbeddedServer, directory: Path) -> None:
        self._server = server
        self.monitor_url = server.url("postgres")
        self.urls = {name: server.url(name) for name in (SHOP, WAREHOUSE)}
        self.keys = {name: directory / name for name in (SHOP, WAREHOUSE)}
        self._clocks: dict[str, int] = {}
        self.spares = Spares()
        self._resets = 0

    def make(self) -> None:
        """Make both."""
        certificates = {name: self._certificate(name, place) for place, name in enumerate((SHOP, WAREHOUSE))}
        for name, far in ((SHOP, WAREHOUSE), (WAREHOUSE, SHOP)):
            if name == SHOP:
                self._server.create_database(name)
                migrate(self.urls[name])
                with psycopg.connect(self.monitor_url, autocommit=True) as session:
                    session.execute(f"create database {far} template {name}".encode())
            clock = self._server.data_directory / f"clock_{name}"
            clock.touch()
            clock.chmod(0o644)
            self._clocks[name] = os.open(clock, os.O_WRONLY)
            self._set_both(name)
            with psycopg.connect(self.urls[name], autocommit=True) as session:
                session.execute((_DEFINITIONS + _OF[name]).encode())
                session.execute("select broker.alter_broker('NEW_BROKER')")
                session.execute(
                    "select broker.create_certificate(%s, %s, current_user)", (name, certificates[name])
                )
                session.execute(
                    "select broker.create_endpoint('endpoint', %s, state => 'STARTED', listener_ip => 'ALL',"
                    " certificate => %s, encryption => 'DISABLED')",
                    (PORT, name),
                )
                session.execute(
                    "select broker.create_certificate(%s, %s, %s::name)",
                    (far, certificates[far], f"{far}_user"),
                )
                session.execute(
                    "select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', %s::name)", (f"{far}_user",)
                )
                session.execute(
                    "select broker.create_route(%s, %s, service_name => %s)",
                    (far, f"tcp://{far}:{PORT}", f"//{far}"),
                )
                session.execute(_SEEDED.replace("{clock}", str(clock)).encode())
                session.execute(
                    b"update broker_private.broker_instance set service_broker_guid = md5(%s)::uuid", (name,)
                )
                session.execute("vacuum analyze")
                session.execute((REMEMBER + BACKUP).encode())

    def set_clock(self, name: str, seconds: float) -> None:
        """Set the clock of a database's server to so many seconds after the beginning."""
        self._write(name, seconds, 0)

    def set_started(self, name: str, seconds: float) -> None:
        """Have a database's server have been started so many seconds after the beginning."""
        self._write(name, seconds, _MOMENT)

    def back_up(self, name: str) -> None:
        """Copy a database, as a backup does."""
        self.sessions[name].execute("call simulation.back_up()")

    def restore(self, name: str) -> None:
        """Put a database back to its last copy; nobody may be in it."""
        self.sessions[name].execute("call simulation.restore()")

    def open(self) -> None:
        """Open the sessions of who looks on."""
        self.monitor = _session(self.monitor_url)
        self.sessions = {name: _session(url) for name, url in self.urls.items()}
        for session in self.sessions.values():
            # Tables are put back in any order. To set it by each call would be to plan anew.
            session.execute("set session_replication_role = replica")

    def close(self) -> None:
        """Close all sessions."""
        for session in (self.monitor, *self.sessions.values()):
            session.close()
        self.spares.close()

    def reset(self) -> None:
        """Put both databases back."""
        for name, session in self.sessions.items():
            self._set_both(name)
            if self._resets % _THOROUGH == 0:
                session.execute("call simulation.truncate()")
            session.execute("call simulation.reset()")
        self._resets += 1

    def _set_both(self, name: str) -> None:
        self.set_clock(name, 0.0)
        self.set_started(name, 0.0)

    def _write(self, name: str, seconds: float, place: int) -> None:
        moment = EPOCH + timedelta(seconds=seconds)
        os.pwrite(self._clocks[name], moment.isoformat(" ").encode().ljust(_MOMENT), place)

    def _certificate(self, name: str, place: int) -> str:
        """Return the certificate of a key that is the same whoever makes it, and write the key."""
        key = Ed25519PrivateKey.from_private_bytes(bytes([place + 1]) * 32)
        made = (
            x509.CertificateBuilder()
            .subject_name(common_name(name))
            .issuer_name(common_name(name))
            .public_key(key.public_key())
            .serial_number(place + 1)
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
            .sign(key, None)
        )
        directory = self.keys[name]
        directory.mkdir(mode=0o700)
        file = directory / f"{name}.key"
        file.touch(mode=0o600)
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return made.public_bytes(Encoding.PEM).decode()


@contextmanager
def made_sites(version: int = 18) -> Iterator[Sites]:
    """Start a server, in memory where there is room, and make both databases."""
    memory = Path("/dev/shm")
    before = tempfile.tempdir
    if "TMPDIR" not in os.environ and memory.is_dir() and os.statvfs(memory).f_bavail * 4096 > 2**30:
        tempfile.tempdir = str(memory)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pybroker-simulation-") as directory,
            EmbeddedServer(version=version, settings=SETTINGS) as server,
        ):
            sites = Sites(server, Path(directory))
            sites.make()
            sites.open()
            try:
                yield sites
            finally:
                sites.close()
    finally:
        tempfile.tempdir = before


def _session(url: str) -> psycopg.Connection[Any]:
    # What a process prepares its fork knows, but not the other way round.
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)
