"""What a browser sends with a form."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from starlette.requests import Request

BYTES = 16_384


async def fields_of(request: Request, longest: int = BYTES) -> dict[str, str]:
    """Read a form of so many bytes; a larger one has no fields, nor has one that never came whole."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > longest:
                return {}
    except ClientDisconnect:
        return {}
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}
