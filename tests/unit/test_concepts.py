"""The count of what SEND and RECEIVE reach finds what is called, written and decided, and nothing that is only talked of."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tests import missing

if find_spec("pglast") is None:
    missing.skip("pglast", "make .venv/.linters")

from tests.concepts import counts

if TYPE_CHECKING:
    from pathlib import Path

TABLES = """
create table broker_private.messages (
  id bigint,
  is_new boolean not null,
  kind "char"
);
create table broker_private.gone (
  is_gone boolean
);
drop table broker_private.gone;
alter table broker_private.messages add column is_old boolean;
"""
SEND = """-- broker.send calls broker_private.never(), says this comment.
create function broker.send() returns void language plpgsql as $$
begin
  perform broker_private.send();
end
$$;

create function broker_private.send() returns void language plpgsql as $$
begin
  if is_new then
    insert into broker_private.messages (id, kind) values (1, 'M');
  end if;
  raise exception using hint = 'Try broker_private.never() instead.';
end
$$;
"""
NOTED = """create function broker_private.noted() returns trigger language plpgsql as $$
begin
  return null;
end
$$;

create trigger noted
after insert on broker_private.messages
for each row execute function broker_private.noted();
"""
NEVER = """create function broker_private.never() returns void language sql
begin atomic
  delete from broker_private.messages;
end;
"""
RECEIVE = """create function broker.receive() returns void language sql
begin atomic
  select broker_private.never();
end;
"""


REQUIRE = """create function broker_private.require() returns void language plpgsql as $$
begin
  if broker_private.is_owner() is not true then
    perform broker_private.refuse(229, 'No.', 'Ask.');
  end if;
end
$$;
"""
IS_OWNER = """create function broker_private.is_owner() returns boolean language sql return true;
"""
LOCKED = """create function broker_private.locked() returns void language plpgsql as $$
begin
  perform from broker_private.messages m where m.id = 1 for update;
  if not found then
    perform broker_private.refuse(229, 'No.', 'Ask.');
  end if;
end
$$;
"""
TWICE = """create function broker.receive() returns void language plpgsql as $$
begin
  perform broker_private.require(), broker_private.locked();
  update broker_private.messages m set is_old = true where m.is_new and m.kind = 'A' and m.id > 1000;
  update broker_private.messages m
  set is_old = true
  where m.is_new and m.kind = 'B' and m.id > 2000;
  update broker_private.messages m set is_new = true where m.is_new and m.kind = 'B' and m.id > 2000;
end
$$;
"""


def made(tree: Path, **files: str) -> Path:
    """Write a checkout with these functions, all in one chapter."""
    (tree / "migrations" / "versions").mkdir(parents=True)
    (tree / "sql" / "chapter").mkdir(parents=True)
    (tree / "migrations" / "versions" / "0001.sql").write_text(TABLES)
    for name, text in files.items():
        (tree / "sql" / "chapter" / f"{name}.sql").write_text(text)
    return tree


def test_what_only_refuses_is_counted_apart(tmp_path: Path) -> None:
    receive = counts(made(tmp_path, require=REQUIRE, is_owner=IS_OWNER, locked=LOCKED, receive=TWICE))[
        "RECEIVE"
    ]
    assert receive.functions == 2, "broker.receive, and locked, which holds a row besides"
    assert receive.functions_that_only_refuse == 2, "require, and is_owner, which nothing else calls"


def test_a_statement_said_again_is_known_by_more_than_its_letters(tmp_path: Path) -> None:
    receive = counts(made(tmp_path, require=REQUIRE, is_owner=IS_OWNER, locked=LOCKED, receive=TWICE))[
        "RECEIVE"
    ]
    assert receive.statements_said_again == 1, "other constants and other lines, but not another column"


def test_two_checkouts_stand_beside_each_other_in_a_page(tmp_path: Path) -> None:
    old = made(tmp_path / "old", receive=RECEIVE, never=NEVER)
    new = made(tmp_path / "new", receive=RECEIVE.replace("broker_private.never()", "1"), never=NEVER)
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- make concepts -->\nold\n<!-- end of concepts -->\nAfter.\n")
    run = [sys.executable, "-m", "tests.concepts", "--only", old, new, "--page", page, "--json"]
    said = subprocess.run(run, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert [found[str(place)]["RECEIVE"]["deletes_of_messages"] for place in (old, new)] == [1, 0]
    text = page.read_text()
    assert "| deletes of messages | 0 | 0 | 1 | 0 |" in text
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "\nold\n" not in text


def test_a_revision_that_is_nowhere_is_refused_in_one_line(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "tests.concepts", "no-such-revision"]
    said = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert "no-such-revision" in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_a_way_has_what_it_calls_and_the_triggers_of_what_it_writes(tmp_path: Path) -> None:
    found = counts(made(tmp_path, send=SEND, noted=NOTED, never=NEVER, receive=RECEIVE))
    send, receive = found["SEND"], found["RECEIVE"]
    assert (send.functions, send.files, send.tables, send.branches) == (3, 2, 1, 1)
    assert (send.inserts_of_messages, send.deletes_of_messages) == (1, 0)
    assert send.columns_that_steer == 2, "is_new and kind"
    assert (receive.functions, receive.deletes_of_messages) == (2, 1)
    assert receive.columns_that_steer == 0
