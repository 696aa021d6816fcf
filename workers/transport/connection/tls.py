"""TLS on a pair of asyncio streams.

asyncio's own TLS closes a connection whose handshake failed without sending the alert, so the far side would
never learn that its certificate expired or is unknown. Here every alert is sent before the close.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

READ_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024
_WRITE_BYTES = 256 * 1024
_CLOSE_SECONDS = 2.0


class TlsStream:
    """A TLS connection: one task may read while others write."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        first: bytes = b"",
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming = ssl.MemoryBIO()
        # What was read already, to see that it is TLS.
        self._incoming.write(first)
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        # Two frames must not mix, and a large one is written in parts.
        self._writing = asyncio.Lock()
        # Bytes, by which a slow connection is told from a dead one.
        self.received = len(first)
        self.sent = 0

    async def handshake(self) -> None:
        """Agree on keys and verify the peer's certificate.

        Raises:
            ssl.SSLError: The handshake failed; the peer was told by an alert.
            OSError: The connection was lost.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                # The peer may be gone already; what counts is why the handshake failed.
                with contextlib.suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    @property
    def encryption(self) -> str:
        """The cipher, as TLS calls it."""
        cipher = self._tls.cipher()
        return cipher[0] if cipher else "NONE"

    @property
    def peer_certificate(self) -> bytes:
        """The peer's certificate as DER."""
        return self._tls.getpeercert(binary_form=True) or b""

    async def read(self) -> bytes:
        """Return what arrived, at least one byte; nothing once the peer has closed.

        Raises:
            ssl.SSLError: An alert or a damaged record arrived, or the connection was cut without a farewell.
            OSError: The connection was lost.
        """
        while True:
            try:
                return self._tls.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                await self._fill()
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes | bytearray) -> None:
        """Write all of `data`, and wait while the peer reads too slowly.

        Raises:
            OSError: The connection was lost.
        """
        async with self._writing:
            with memoryview(data) as view:
                for start in range(0, len(view), _WRITE_BYTES):
                    with view[start : start + _WRITE_BYTES] as part:
                        # The outgoing BIO takes everything, so a write is never partial.
                        self._tls.write(part)
                    try:
                        await self._flush()
                    except BaseException:
                        if start + _WRITE_BYTES < len(view):
                            # Cancelled in the middle: what is sent next would be read as the rest of this.
                            self._writer.transport.abort()
                        raise

    async def close(self) -> None:
        """Say farewell and close; never raises for a connection that is lost already."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._flush()
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            self._writer.write(data)
            await self._writer.drain()
            self.sent += len(data)

    async def _fill(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if data:
            self.received += len(data)
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
