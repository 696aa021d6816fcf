"""Pictures of the console in its page of the site, made by the test that looks at every page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MARK = "<!-- screenshots -->"
_SHOWN = {
    "overview": "The overview: problems first",
    "queue": "A queue: its messages, and who holds its groups",
    "conversation": "A conversation: both ends on one time line",
}
_TEST = "tests/console/test_every_page.py"


def add(pages: Path) -> None:
    """Put three pictures into the console's page; without a browser its text stays as it is."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        sys.stderr.write("chromium is not installed: the console's page has no pictures\n")
        return
    folder = pages / "_static" / "console"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", _TEST, "-k", "light"],
        env={**os.environ, "PYBROKER_SCREENSHOTS": str(folder)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    page = pages / "console.md"
    pictures = [
        f"![{words}](_static/console/{name}-desk-light.png)"
        for name, words in _SHOWN.items()
        if (folder / f"{name}-desk-light.png").exists()
    ]
    for picture in folder.glob("*.png"):
        if not any(f"/{picture.name})" in shown for shown in pictures):
            picture.unlink()
    page.write_text(page.read_text().replace(MARK, "\n\n".join(pictures)))
