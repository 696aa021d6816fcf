"""The check of the pages' language finds what a reader has to read twice, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import prose

if TYPE_CHECKING:
    from pathlib import Path

LONG = " ".join(["word"] * 26)
SHORT = " ".join(["word"] * 25)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{SHORT}.", 0),
        (f"{LONG}.", 1),
        (f"{SHORT}. {SHORT}! {SHORT}? {SHORT}: {SHORT.capitalize()}.", 0),
        (f"{SHORT}: {SHORT}", 1),
        # A line's end ends no sentence, and what is quoted or in brackets ends one as well.
        (LONG.replace(" ", "\n"), 1),
        (f'{SHORT}." ({SHORT}.) {SHORT}', 0),
        (f"{SHORT[:-5]} `a span of many words`.", 0),
        (f"[{SHORT}](https://example.org/a-b)", 0),
        (f"# {SHORT}\n\n```\n{LONG}\n```\n\n    {LONG}\n", 0),
        (f"- {SHORT}\n- {SHORT}", 0),
        (f"- {LONG}\n- {LONG}", 2),
        (f"| a | b |\n|---|---|\n| {SHORT} | {LONG} |", 1),
        (f"| a | b |\n|---|---|\n| {'`' + 'x' * 300 + '`'} | b |", 1),
    ],
)
def test_a_sentence_is_long_by_its_words_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: int
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert len(list(prose.too_long(page.relative_to(tmp_path)))) == found


@pytest.mark.parametrize(("text", "is_wrong"), [(SHORT, False), (LONG, True)])
def test_lint_fails_where_anything_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_wrong: bool
) -> None:
    (tmp_path / "page.md").write_text(f"{text}.")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["prose"])
    assert prose.main() == is_wrong


def test_what_a_program_wrote_is_no_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- measured -->\n{LONG}.\n<!-- end of measured -->\n\n{LONG}.")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    [found] = prose.too_long(page.relative_to(tmp_path))
    assert found.startswith("page.md:5: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [("The highest level leaves first.", 1), ("A finding has a level.", 0), ("An isolation level.", 0)],
)
def test_priority_has_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: int
) -> None:
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert len(list(prose.too_long((tmp_path / "page.md").relative_to(tmp_path)))) == found
