"""A pair of asyncio streams without encryption, for endpoints that have it disabled."""

from __future__ import annotations

import asyncio

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024
_CLOSE_SECONDS = 2.0


class PlainStream:
    """A connection in the clear, with the methods of TlsStream.

    Attributes:
        peer_certificate: The peer's certificate as DER, once `handshake.prove` has seen it proven.
    """

    encryption = "NONE"

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b""
    ) -> None:
        """Take over a pair of streams.

        Args:
            reader: what the peer says.
            writer: where to answer.
            first: what was read of it already.
        """
        self._reader = reader
        self._writer = writer
        self._first = first
        self._writing = asyncio.Lock()
        self.peer_certificate = b""
        # Bytes, by which a slow connection is told from a dead one.
        self.received = len(first)
        self.sent = 0

    async def read(self) -> bytes:
        """Return what arrived, at least one byte; nothing once the peer has closed.

        Raises:
            OSError: The connection was lost.
        """
        if self._first:
            first, self._first = self._first, b""
            return first
        data = await self._reader.read(_READ_BYTES)
        self.received += len(data)
        return data

    async def write(self, data: bytes | bytearray) -> None:
        """Write all of `data`, and wait while the peer reads too slowly.

        Raises:
            OSError: The connection was lost.
        """
        async with self._writing:
            for start in range(0, len(data), _WRITE_BYTES):
                part = bytes(data[start : start + _WRITE_BYTES])
                self._writer.write(part)
                try:
                    await self._writer.drain()
                except BaseException:
                    if start + _WRITE_BYTES < len(data):
                        # Cancelled in the middle: what is sent next would be read as the rest of this.
                        self._writer.transport.abort()
                    raise
                self.sent += len(part)

    async def close(self) -> None:
        """Close; never raises for a connection that is lost already."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
