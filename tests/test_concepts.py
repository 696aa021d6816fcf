"""The count of what SEND and RECEIVE reach finds what is called, written and decided, and nothing that is only talked of."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def test_a_way_has_what_it_calls_and_the_triggers_of_what_it_writes(tmp_path: Path) -> None:
    (tmp_path / "migrations" / "versions").mkdir(parents=True)
    (tmp_path / "sql").mkdir()
    (tmp_path / "migrations" / "versions" / "0001.sql").write_text(TABLES)
    for name, text in (("send", SEND), ("noted", NOTED), ("never", NEVER), ("receive", RECEIVE)):
        (tmp_path / "sql" / f"{name}.sql").write_text(text)
    found = counts(tmp_path)
    send, receive = found["SEND"], found["RECEIVE"]
    assert (send.functions, send.files, send.tables, send.branches) == (3, 2, 1, 1)
    assert (send.inserts_of_messages, send.deletes_of_messages) == (1, 0)
    assert send.columns_that_steer == 2, "is_new and kind"
    assert (receive.functions, receive.deletes_of_messages) == (2, 1)
    assert receive.columns_that_steer == 0
