"""Sphinx's settings: a site in files, which works without a server."""

from pathlib import Path

_STATIC = Path(__file__).resolve().parents[2] / "build" / "docs" / "pages" / "_static"

project = "pybroker"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# '0' in a message is what one types.
smartquotes = False
html_theme = "furo"
html_title = "pybroker"
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4
# psql's own commands are no SQL.
suppress_warnings = ["misc.highlighting_failure"]
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
if (_STATIC / "mermaid.min.js").exists():
    html_static_path = [str(_STATIC)]
    html_js_files = ["mermaid.min.js", (None, {"body": "mermaid.initialize({startOnLoad: true})"})]
