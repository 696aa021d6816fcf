"""The pages of the site as files for Sphinx: those of docs/, the generated ones, and what they link to.

A page of docs/ links to README.md and to source files as they lie in the repository, so that the links work
there. On the site each such file is a page too, a source file with its lines numbered.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from tests import sql_checks
from tests.docs_site import errors, sql_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
START = Path(sql_reference.__file__).with_name("start.sql")
PARTS: Mapping[str, tuple[str, ...]] = {
    "Start": ("stock-trading", "two-databases", "service-programs", "program-tests"),
    "How to": (
        "definitions", "tsql", "tsql-procedures", "deployment", "neighbours", "migrations", "activation", "external-activation", "routing", "endpoints", "dialog-security",
        "permissions", "validation", "poison-messages", "diagnose", "console", "metrics", "traces", "spark", "frameworks",
    ),
    "Reference": (
        "sql-functions", "sql-views", "sql-errors", "python-client", "python-reference", "counters", "wire-format",
        "differences", "glossary", "changelog",
    ),
    "Explanation": (
        "conversations", "queues-and-groups", "architecture", "walk", "internals", "identity", "security", "performance",
        "whitepaper", "testing", "contributing", "reporting",
    ),
}  # fmt: skip
_AT_THE_TOP = {
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "reporting",
}
_PYTHON = """# Python reference

From the docstrings of the package. [The client](python-client.md) is the page to begin with.

```{eval-rst}
.. automodule:: pybroker
   :members:
   :imported-members:
```
"""
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_PICTURES = {".png", ".svg"}
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LANGUAGES = {
    ".py": "python",
    ".sql": "postgresql",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".sh": "bash",
}


def write(folder: Path) -> None:
    """Write every page into a folder, with links that lead from page to page.

    Raises:
        LookupError: if a page of docs/ is in no part of the site, or a part names one that is not there.
    """
    pages = {**_from_repository(), **_generated()}
    named = {name for part in PARTS.values() for name in part} | {"index"}
    top = {name for name in pages if "/" not in name}
    if named != top:
        raise LookupError(
            f"tests/docs_site/pages.py: {sorted(named ^ top)} is in PARTS or in docs/, and not in both"
        )
    pages["index"] += _contents()
    for name, text in pages.items():
        place = folder / f"{name}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        # What lies below a folder is in no part: pages link to it.
        place.write_text(f"---\norphan: true\n---\n\n{text}" if "/" in name else text)
    for picture in (each for each in (ROOT / "docs").rglob("*") if each.suffix in _PICTURES):
        place = folder / picture.relative_to(ROOT / "docs")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(picture.read_bytes())


def _contents() -> str:
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(names) + "\n```\n"
        for title, names in PARTS.items()
    )


def _generated() -> dict[str, str]:
    catalogue = errors.by_number(errors.refusals(sql_checks.project_files()))
    with EmbeddedServer() as server:
        server.create_database("reference")
        migrate(server.url("reference"))
        with psycopg.connect(server.url("reference")) as session:
            functions = sql_reference.functions(session)
            relations = sql_reference.relations(session)
    return {
        "sql-functions": sql_reference.functions_page(functions, START.read_text()),
        "sql-views": sql_reference.views_page(relations),
        "sql-errors": sql_reference.errors_page(catalogue, functions),
        "python-reference": _PYTHON,
    }


def _from_repository() -> dict[str, str]:
    """The pages of docs/ and those at the top, and each file that one of them links to, as far as links lead."""
    wanted = [*_AT_THE_TOP, *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
    found: dict[str, str] = {}
    while wanted:
        path = wanted.pop()
        if _name(path) in found:
            continue
        text = _text(path)
        if path.endswith(".md"):
            wanted += [target for match in _LINK.finditer(text) if (target := _target(path, match[1]))]
            text = _LINK.sub(lambda match, path=path: _led(path, match), text)
            # Where the script that draws it is missing, its text is shown.
            text = _MERMAID.sub(lambda match: f'<pre class="mermaid">\n{html.escape(match[1])}</pre>', text)
        found[_name(path)] = text
    return found


def _target(origin: str, link: str) -> str | None:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    if path.startswith("..") or Path(path).suffix in _PICTURES or not (ROOT / path).exists():
        return None
    return path


def _led(origin: str, link: re.Match[str]) -> str:
    path = _target(origin, link[1])
    if path is None:
        return link[0]
    there = posixpath.relpath(_name(path), posixpath.dirname(_name(origin)) or ".")
    return f"]({there}.md{link[2] or ''})"


def _name(path: str) -> str:
    if path.startswith("docs/"):
        return path.removeprefix("docs/").removesuffix(".md")
    return _AT_THE_TOP.get(path) or f"source/{path.removesuffix('.md')}"


def _text(path: str) -> str:
    place = ROOT / path
    if place.is_dir():
        parts = [f"## {each.name}\n\n{_fenced(each)}" for each in sorted(place.iterdir()) if each.is_file()]
        return "\n".join([f"# {path}\n", *parts])
    if path.endswith(".md"):
        return place.read_text()
    return f"# {path}\n\n{_fenced(place)}"


def _fenced(file: Path) -> str:
    language = _LANGUAGES.get(file.suffix, "text")
    return f"~~~~~~{{code-block}} {language}\n:linenos:\n\n{file.read_text().rstrip()}\n~~~~~~\n"
