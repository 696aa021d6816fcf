"""One connection between two endpoints: opened or accepted, greeted, then frames in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from pybroker.workers.transport.connection.certificate_check import alert_fault, verification_fault
from pybroker.workers.transport.connection.plain import PlainStream
from pybroker.workers.transport.connection.tls import READ_BYTES, TlsStream
from pybroker.workers.transport.protocol import faults, handshake, wire
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.transport.connection.certificate_check import Credentials, KnownPeer
    from pybroker.workers.transport.connection.limits import Limits
    from pybroker.workers.transport.protocol.wire import Frame, Hello

    Stream = TlsStream | PlainStream

_Expected = TypeVar("_Expected", wire.Hello, wire.Challenge, wire.Proof)

_CONNECT_SECONDS = 10.0
_GREETING_SECONDS = 10.0
# Seconds, and milliseconds for what the far host does not confirm: about 45 s until a dead host is noticed.
_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 45_000}


class _EncryptionIsDisabledError(TransportError):
    """The accepting side has encryption disabled, and the connecting side has begun with TLS."""

    def __init__(self, number: int = faults.NOTHING_IN_COMMON, text: str = "") -> None:
        super().__init__(number, text or "One endpoint asks for encryption, and the other has it disabled.")


@dataclass
class Traffic:
    """The frames of one connection, counted.

    Attributes:
        frames_sent: all frames, whatever is in them.
        frames_received: likewise.
        messages_sent: messages, and pieces of large ones, as often as they were sent.
        messages_received: likewise.
        unanswered: batches of this side that the far one has not answered.
        to_answer: batches of the far side that this one has not answered.
    """

    frames_sent: int = 0
    frames_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    unanswered: int = 0
    to_answer: int = 0

    def sending(self, frame: Frame) -> None:
        """Count a frame that is handed to the network."""
        self.frames_sent += 1
        if isinstance(frame, wire.Batch):
            self.messages_sent += len(frame.kinds)
            self.unanswered += 1
        elif isinstance(frame, (wire.Ack, wire.Refusal)):
            self.to_answer -= 1

    def received(self, frame: Frame) -> None:
        """Count a frame that has arrived."""
        self.frames_received += 1
        if isinstance(frame, wire.Batch):
            self.messages_received += len(frame.kinds)
            self.to_answer += 1
        elif isinstance(frame, wire.Ack) or (isinstance(frame, wire.Refusal) and frame.number is not None):
            self.unanswered -= 1


class Link:
    """A greeted connection to a peer who has CONNECT.

    Attributes:
        address: The far side's address, for people.
        peer: Whom the far side's certificate stands for.
        certificate: The far side's certificate as DER.
        encryption: The cipher of the connection, or NONE.
        is_outdated: This side's endpoint has another certificate by now.
        far: The far side's Hello.
        traffic: What has passed.
    """

    def __init__(
        self,
        stream: Stream,
        decoder: wire.FrameDecoder,
        address: str,
        peer: KnownPeer,
        far: Hello,
    ) -> None:
        self._stream = stream
        self._decoder = decoder
        self._closed_because: TransportError | None = None
        self.address = address
        self.peer = peer
        self.certificate = stream.peer_certificate
        self.encryption = stream.encryption
        self.is_outdated = False
        self.far = far
        self.traffic = Traffic()
        self._when_closed: Callable[[], None] | None = None
        self._limits: Limits | None = None
        self._counted = 0

    def limit(self, limits: Limits) -> None:
        """Count what comes in on it from now on."""
        self._limits = limits

    def when_closed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once this side begins to close the connection, whoever has ended it."""
        self._when_closed = tell

    @property
    def was_closed_here(self) -> bool:
        """Whether this side has closed it for a reason of its own."""
        return self._closed_because is not None

    @property
    def received(self) -> int:
        """Bytes that have arrived."""
        return self._stream.received

    @property
    def sent(self) -> int:
        """Bytes that were handed to the network."""
        return self._stream.sent

    async def send(self, frame: Frame) -> None:
        """Send one frame, and wait while the far side reads too slowly.

        Raises:
            TransportError: 9759, the connection was lost; 9736, the frame is larger than the far side takes.
        """
        self.traffic.sending(frame)
        await _send(self._stream, frame, self.far.maximum_frame_bytes)

    async def receive(self) -> Frame | None:
        """Return the next frame, or None once the far side has said farewell.

        May be cancelled and called again.

        Raises:
            TransportError: 9755, the connection was lost; 28040, what arrived is no frame.
            LimitError: More is coming in than the peer may have unfinished.
        """
        try:
            frame = await _receive(self._stream, self._decoder, self._count)
        except (OSError, TransportError) as error:
            if self._closed_because is not None:
                raise self._closed_because from error
            if isinstance(error, TransportError):
                raise
            raise TransportError(
                faults.RECEIVE_FAILED, f"The connection with {self.address} was lost: {_reason(error)}."
            ) from error
        if frame is not None:
            self.traffic.received(frame)
        return frame

    async def close(self, because: TransportError | None = None) -> None:
        """Close; the far side is told why, if there is a reason."""
        self._closed_because = because
        if self._limits is not None:
            self._limits.release(self.peer.user_name, self._counted)
            self._limits, self._counted = None, 0
        if self._when_closed is not None:
            self._when_closed()
            self._when_closed = None
        if because is not None:
            await _refuse(self._stream, because)
        await self._stream.close()

    def _count(self, unfinished: int) -> None:
        """Count the bytes of the frame that is coming in."""
        if self._limits is None:
            return
        more = unfinished - self._counted
        if more > 0:
            self._limits.hold(self.peer.user_name, more)
        else:
            self._limits.release(self.peer.user_name, -more)
        self._counted = unfinished


async def connect(
    address: str,
    credentials: Credentials,
    hello: Hello,
    meet: Callable[[bytes, Hello], None] | None = None,
) -> Link:
    """Open a connection to `tcp://host:port`.

    Args:
        address: where to.
        credentials: this side's.
        hello: what this side says of itself.
        meet: given the proven certificate (as DER) and the Hello of who answers, it may refuse him by a
            TransportError, before he learns who has called.

    Raises:
        TransportError: 9783, the name has no address; 9754, no connection; 28034, 28045, 28024, 28025 and
            others, one of the two sides refused the other.
    """
    credentials.check_own_validity()
    mode = credentials.endpoint.encryption
    try:
        return await _connect(address, credentials, hello, meet, is_encrypted=mode != "DISABLED")
    except _EncryptionIsDisabledError:
        if mode == "REQUIRED":
            raise
        # Nobody on the line gains by saying so falsely: the proofs in the clear say what each side could do.
        return await _connect(address, credentials, hello, meet, is_encrypted=False)


async def _connect(
    address: str,
    credentials: Credentials,
    hello: Hello,
    meet: Callable[[bytes, Hello], None] | None,
    *,
    is_encrypted: bool,
) -> Link:
    reader, writer = await _open(address)
    stream: Stream
    if is_encrypted:
        stream = TlsStream(reader, writer, credentials.client_context, server_side=False)
    else:
        stream = PlainStream(reader, writer)
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            return await _greet(stream, address, credentials, hello, meet, speaks_first=False)
    except TransportError:
        await stream.close()
        raise
    except (OSError, TimeoutError) as error:
        await stream.close()
        raise _handshake_fault(error, address, credentials) from error
    except BaseException:
        writer.transport.abort()
        raise


async def accept(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials, hello: Hello
) -> Link:
    """Greet who has connected.

    Raises:
        TransportError: 28034, 28045, 28024, 28025 and others, one of the two sides refused the other;
            9666, the endpoint is disabled.
    """
    address = caller_address(writer)
    _keep_alive(writer)
    stream: Stream = PlainStream(reader, writer)
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            first = await reader.read(1)
            if first == handshake.CLEAR_FIRST_BYTE:
                stream = PlainStream(reader, writer, first)
            elif credentials.endpoint.encryption == "DISABLED":
                # Read first: closed with unread bytes, the connection would be reset, and the alert lost.
                await reader.read(READ_BYTES)
                await stream.write(handshake.ENCRYPTION_IS_DISABLED)
                raise _EncryptionIsDisabledError  # noqa: TRY301 - closed and told as any other refusal
            else:
                stream = TlsStream(reader, writer, credentials.server_context, server_side=True, first=first)
            return await _greet(stream, address, credentials, hello, None, speaks_first=True)
    except TransportError:
        await stream.close()
        raise
    except (OSError, TimeoutError) as error:
        await stream.close()
        raise _handshake_fault(error, address, credentials) from error
    except BaseException:
        writer.transport.abort()
        raise


def caller_address(writer: asyncio.StreamWriter) -> str:
    """Return where a connection came from, for people."""
    host, port = (writer.get_extra_info("peername") or ("?", "?"))[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `tcp://host:port`.

    Raises:
        TransportError: 9754, it is no such address.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise TransportError(faults.CONNECT_FAILED, f'"{address}" is not an address like tcp://host:port.')
    return host, port


async def _open(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = host_and_port(address)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
    except socket.gaierror as error:
        raise TransportError(
            faults.NAME_NOT_RESOLVED, f"The name of {address} has no address: {_reason(error)}."
        ) from error
    except (OSError, TimeoutError, UnicodeError) as error:
        raise TransportError(
            faults.CONNECT_FAILED, f"The connection attempt to {address} failed: {_reason(error)}."
        ) from error
    if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
        # Where nobody listens, the kernel may choose that very port for our side, and connect us with
        # ourselves; the listener could not bind it then.
        writer.transport.abort()
        raise TransportError(faults.CONNECT_FAILED, f"The connection attempt to {address} met nobody.")
    _keep_alive(writer)
    return reader, writer


async def _greet(
    stream: Stream,
    address: str,
    credentials: Credentials,
    hello: Hello,
    meet: Callable[[bytes, Hello], None] | None,
    *,
    speaks_first: bool,
) -> Link:
    """Shake hands and exchange Hellos.

    The accepting side speaks first: a connecting side that has sent nothing when it is refused can read the
    reason, while unread bytes of its own would make the far kernel answer with a reset.
    """
    decoder = wire.FrameDecoder()
    claimed = None
    try:
        if isinstance(stream, PlainStream):
            claimed = await _prove(stream, decoder, address, credentials, accepts=speaks_first)
        else:
            await stream.handshake()
        peer = credentials.admit(stream.peer_certificate)
    except TransportError as fault:
        await _refuse(stream, fault)
        raise
    if speaks_first:
        await _send(stream, hello, wire.HELLO_FRAME_BYTES)
    far = await _expect(stream, decoder, wire.Hello, address)
    try:
        _check_common_ground(hello, far, claimed)
        if meet is not None:
            meet(stream.peer_certificate, far)
    except TransportError as fault:
        await _refuse(stream, fault)
        raise
    if not speaks_first:
        await _send(stream, hello, wire.HELLO_FRAME_BYTES)
    decoder.maximum_bytes = hello.maximum_frame_bytes
    return Link(stream, decoder, address, peer, far)


async def _prove(
    stream: PlainStream,
    decoder: wire.FrameDecoder,
    address: str,
    credentials: Credentials,
    *,
    accepts: bool,
) -> wire.Challenge:
    """Exchange challenges and proofs; return the far side's challenge, whose certificate is then proven."""
    own = handshake.challenge(credentials)
    if not accepts:
        await _send(stream, own, wire.HELLO_FRAME_BYTES)
    far = await _expect(stream, decoder, wire.Challenge, address)
    handshake.refuse_without_encryption(own.encryption, far.encryption)
    # Strangers are refused before their keys are used for anything.
    credentials.admit(far.certificate)
    connecting, accepting = (far, own) if accepts else (own, far)
    proof = wire.Proof(handshake.sign(credentials, connecting, accepting, accepts=accepts))
    if accepts:
        await _send(stream, own, wire.HELLO_FRAME_BYTES)
        await _send(stream, proof, wire.HELLO_FRAME_BYTES)
    shown = await _expect(stream, decoder, wire.Proof, address)
    handshake.verify(connecting, accepting, shown.signature, accepts=not accepts)
    if not accepts:
        await _send(stream, proof, wire.HELLO_FRAME_BYTES)
    stream.peer_certificate = far.certificate
    return far


async def _expect(
    stream: Stream, decoder: wire.FrameDecoder, kind: type[_Expected], address: str
) -> _Expected:
    frame = await _receive(stream, decoder)
    if isinstance(frame, wire.Refusal):
        raise TransportError(frame.error_number, f"Refused by {address}: {frame.text}")
    if not isinstance(frame, kind):
        raise TransportError(faults.RECEIVE_FAILED, f"{address} did not say {kind.__name__}.")
    return frame


def _check_common_ground(own: Hello, far: Hello, claimed: wire.Challenge | None) -> None:
    if claimed is not None and claimed.encryption != far.encryption:
        raise TransportError(faults.CORRUPTED, "The far endpoint said two things about encryption.")
    version = min(own.version, far.version)
    if version < max(own.oldest_version, far.oldest_version):
        raise TransportError(
            faults.NOTHING_IN_COMMON,
            f"No common protocol version: {own.oldest_version} to {own.version} here, "
            f"{far.oldest_version} to {far.version} there. Upgrade the older worker.",
        )
    if {own.encryption, far.encryption} == {"DISABLED", "REQUIRED"}:
        raise TransportError(
            faults.NOTHING_IN_COMMON, "One endpoint requires encryption, and the other has it disabled."
        )


async def _send(stream: Stream, frame: Frame, maximum_bytes: int) -> None:
    try:
        encoded = wire.encode(frame, maximum_bytes)
        await stream.write(encoded)
    except wire.ProtocolError as error:
        raise TransportError(faults.NOT_TRANSMITTED, f"Not sent: {error}.") from error
    except OSError as error:
        raise TransportError(faults.SEND_FAILED, f"The connection was lost: {_reason(error)}.") from error


async def _receive(
    stream: Stream, decoder: wire.FrameDecoder, count: Callable[[int], None] = lambda _: None
) -> Frame | None:
    try:
        while (frame := decoder.next_frame()) is None:
            count(decoder.unfinished)
            data = await stream.read()
            if not data:
                decoder.end()
                return None
            decoder.feed(data)
    except wire.ProtocolError as error:
        raise TransportError(faults.CORRUPTED, f"A corrupted message was received: {error}.") from error
    return frame


async def _refuse(stream: Stream, fault: TransportError) -> None:
    # Who is refused may be gone; the refusal stands all the same.
    with contextlib.suppress(TransportError, TimeoutError):
        async with asyncio.timeout(1):
            await _send(
                stream,
                wire.Refusal(None, fault.number, fault.text[: wire.TEXT_CHARACTERS]),
                wire.HELLO_FRAME_BYTES,
            )


def _handshake_fault(error: Exception, address: str, credentials: Credentials) -> TransportError:
    if isinstance(error, TimeoutError):
        return TransportError(faults.CONNECT_FAILED, f"The handshake with {address} took too long.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return verification_fault(error)
    # A connection that was cut off is an SSLEOFError, and not TLS's own fault.
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        if (error.reason or "").endswith(handshake.ENCRYPTION_IS_DISABLED_REASON):
            return _EncryptionIsDisabledError()
        return alert_fault(error, credentials)
    return TransportError(
        faults.RECEIVE_FAILED,
        f"The connection with {address} was lost during the handshake: {_reason(error)}.",
    )


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Not every system has all of them.
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLEOFError):
        return "closed by the far side"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
