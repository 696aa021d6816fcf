"""`make docs`: builds the site into build/docs/site, which works without a server."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from sphinx.cmd.build import main

from tests.docs_site import screenshots
from tests.docs_site.pages import ROOT, write

BUILD = ROOT / "build" / "docs"


def fetch_mermaid(static: Path) -> None:
    """Fetch the script that draws pictures, where npm is; without it the pictures' text is shown."""
    if not shutil.which("npm"):
        sys.stderr.write("npm is not installed: pictures are shown as their text\n")
        return
    static.mkdir(parents=True)
    subprocess.run(
        ["npm", "pack", "--silent", "mermaid@11"], cwd=static, check=True, stdout=subprocess.DEVNULL
    )
    (package,) = static.glob("mermaid-*.tgz")
    with tarfile.open(package) as files, (static / "mermaid.min.js").open("wb") as script:
        shutil.copyfileobj(files.extractfile("package/dist/mermaid.min.js"), script)
    package.unlink()


if __name__ == "__main__":
    shutil.rmtree(BUILD, ignore_errors=True)
    pages, site = BUILD / "pages", BUILD / "site"
    write(pages)
    fetch_mermaid(pages / "_static")
    screenshots.add(pages)
    # A link that leads nowhere fails the build.
    strict = ["--quiet", "--fail-on-warning", "--keep-going"]
    places = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(BUILD / "read")]
    failed = main(["--builder", "html", *strict, *places, str(pages), str(site)])
    if not failed:
        sys.stdout.write(f"open {site / 'index.html'}\n")
    sys.exit(failed)
