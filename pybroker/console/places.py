"""Where the console shows more of what a finding is about."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from uuid import UUID

if TYPE_CHECKING:
    from pybroker.console.accounts import Target
    from pybroker.diagnosis.findings import Finding

_QUEUES = range(201, 300)
_DELIVERY = range(301, 320)
_LEAKS = {104, 105, 106, 404}
_DEFINITIONS = {109, 110, 111, *range(320, 400)}


def place_of(finding: Finding, target: Target) -> tuple[str, str] | None:
    """Return what a link says, and its address; None where the console shows no more of it."""
    base = f"/database/{target.number}"
    about = finding.object
    if _is_handle(about):
        return "Conversation", f"{base}/conversation/{about}"
    if finding.number in _QUEUES:
        return f"Queue {about}", f"{base}/queue/{quote(about)}"
    if finding.number in _DELIVERY or finding.number == 103:  # noqa: PLR2004 - no worker, and messages wait
        return f"Transmission of {target.name}", f"{base}/transmission"
    if finding.number in _LEAKS:
        return f"Leaks and bloat of {target.name}", f"{base}/leaks"
    if finding.number in _DEFINITIONS:
        return f"Definitions of {about}", f"{base}/definitions?{urlencode({'search': about})}"
    return None


def _is_handle(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
