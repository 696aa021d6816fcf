"""Templates, and how numbers and ages are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from pybroker.console.places import place_of
from pybroker.console.trace_links import address_of

if TYPE_CHECKING:
    from datetime import datetime

_TRANSMISSION_COUNTED = 10_000
# A line may break before a time, not within it.
_ZONE = "\N{NO-BREAK SPACE}"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _count(number: int, is_estimate: bool = False) -> str:
    return f"about {number:,}" if is_estimate else f"{number:,}"


def _number(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1024:  # noqa: PLR2004 - as PostgreSQL counts
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}{_ZONE}{moment:%Z}"


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}{_ZONE}{moment:%Z}"


_environment = Environment(
    loader=PackageLoader("pybroker.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "age": _age,
    "count": _count,
    "number": _number,
    "moment": _moment,
    "instant": _instant,
    "bytes": _bytes,
    "place": place_of,
    "trace_address": address_of,
}
_environment.globals |= {"transmission_counted": _TRANSMISSION_COUNTED}


def page(name: str, status: int = 200, **shown: Any) -> HTMLResponse:
    """Return a page made of a template; whatever it shows is escaped."""
    return HTMLResponse(_environment.get_template(name).render(shown), status)
