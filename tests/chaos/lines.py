"""What lies between two workers: packets in network namespaces of their own where that can be had, else proxies.

In the namespaces every packet passes through this process, which delays, reorders, loses or holds back each by
itself. That takes root and /dev/net/tun, and nothing of the kernel's traffic control.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.brokers import Site

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_PACKET_BYTES = 9000
_IPV4, _TCP, _RST = 4, 6, 4
_ADDRESSES = ("198.18.0.1", "198.18.0.2")
_LONGEST_DELAY, _LOSS, _RESETS = 0.03, 0.02, 0.15


class Line(Protocol):
    """The way between two sites, both directions of it."""

    kind: str

    def join(self, sites: tuple[Site, Site]) -> None:
        """Put the sites' workers at the ends, before they listen and start."""

    def route(self, sites: tuple[Site, Site], services: tuple[str, str]) -> None:
        """Lead each site's messages for the other's service over the line."""

    def cut(self) -> None:
        """Let nothing through until `heal`."""

    def disturb(self, chance: random.Random) -> None:
        """Delay what passes until `heal`, and more where the line can."""

    def reset(self, chance: random.Random) -> None:
        """End connections in the midst of what they carry, now and then until `heal`."""

    def heal(self) -> None: ...


class Namespaces:
    """A network namespace for each worker. They end with this process, whatever ends it."""

    kind = "network namespaces: packets delayed, reordered, lost; connections reset"

    def __init__(self) -> None:
        self._is_cut = False
        self._chance: random.Random | None = None
        self._resets: random.Random | None = None
        self._holders: list[subprocess.Popen[bytes]] = []
        self._ends: list[int] = []
        self._stop, self._stopped = os.pipe()
        self._carrying: threading.Thread | None = None
        try:
            for number, address in enumerate(_ADDRESSES):
                self._open(f"pb{os.getpid()}.{number}", address)
        except BaseException:
            self.close()
            raise
        self._carrying = threading.Thread(target=self._carry, daemon=True)
        self._carrying.start()

    def _open(self, device: str, address: str) -> None:
        holder = subprocess.Popen(
            # It ends when its input does, and the namespace with it.
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise PermissionError("no network namespace can be made")
        end = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        self._ends.append(end)
        fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TUN | _IFF_NO_PI))
        _run("ip", "link", "set", device, "netns", str(holder.pid))
        inside = self._enter(holder)
        _run(*inside, "ip", "address", "add", f"{address}/30", "dev", device)
        _run(*inside, "ip", "link", "set", device, "mtu", str(_PACKET_BYTES), "up")
        _run(*inside, "ip", "link", "set", "lo", "up")

    @staticmethod
    def _enter(holder: subprocess.Popen[bytes]) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{holder.pid}/ns/net")

    def join(self, sites: tuple[Site, Site]) -> None:
        for site, address, holder in zip(sites, _ADDRESSES, self._holders, strict=True):
            site.host, site.prefix = address, self._enter(holder)

    def route(self, sites: tuple[Site, Site], services: tuple[str, str]) -> None:
        sites[0].route(services[1], sites[1])
        sites[1].route(services[0], sites[0])

    def cut(self) -> None:
        self._is_cut = True

    def disturb(self, chance: random.Random) -> None:
        self._chance = random.Random(chance.random())

    def reset(self, chance: random.Random) -> None:
        self._resets = random.Random(chance.random())

    def heal(self) -> None:
        self._is_cut, self._chance, self._resets = False, None, None

    def _carry(self) -> None:
        # By the time when each is due; the number keeps the order of those that are due at once.
        held: list[tuple[float, int, int, bytes]] = []
        numbers = count()
        while True:
            pause = max(0.0, held[0][0] - time.monotonic()) if held else None
            ready = select.select([*self._ends, self._stop], [], [], pause)[0]
            if self._stop in ready:
                return
            now = time.monotonic()
            for end in ready:
                packet = os.read(end, _PACKET_BYTES)
                chance = self._chance
                if self._is_cut or (chance is not None and chance.random() < _LOSS):
                    continue
                if (resets := self._resets) is not None and resets.random() < _RESETS:
                    packet = as_reset(packet)
                delay = chance.uniform(0, _LONGEST_DELAY) if chance is not None else 0.0
                other = self._ends[1 - self._ends.index(end)]
                heapq.heappush(held, (now + delay, next(numbers), other, packet))
            while held and held[0][0] <= now:
                _, _, end, packet = heapq.heappop(held)
                # A full device loses the packet, as any line would.
                with contextlib.suppress(OSError):
                    os.write(end, packet)

    def close(self) -> None:
        os.write(self._stopped, b"\0")
        if self._carrying is not None:
            self._carrying.join()
        for descriptor in (*self._ends, self._stop, self._stopped):
            os.close(descriptor)
        for holder in self._holders:
            holder.communicate()


class Proxies:
    """A TCP proxy in each direction."""

    kind = "proxies: connections delayed, refused, reset"

    def __init__(self) -> None:
        self._proxies: list[Proxy] = []

    def join(self, sites: tuple[Site, Site]) -> None:
        self._proxies = [Proxy(site.port) for site in sites]

    def route(self, sites: tuple[Site, Site], services: tuple[str, str]) -> None:
        sites[0].route(services[1], self._proxies[1])
        sites[1].route(services[0], self._proxies[0])

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.is_down = True
            proxy.cut()

    def disturb(self, chance: random.Random) -> None:
        for proxy in self._proxies:
            proxy.delay = chance.uniform(0, _LONGEST_DELAY)

    def reset(self, chance: random.Random) -> None:  # noqa: ARG002 - all of them, once
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.is_down, proxy.delay = False, 0.0

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()


@contextlib.contextmanager
def a_line() -> Iterator[Line]:
    """Yield the best line that can be had here."""
    line: Namespaces | Proxies
    try:
        line = Namespaces()
    except (OSError, subprocess.CalledProcessError):
        line = Proxies()
    try:
        yield line
    finally:
        line.close()


def as_reset(packet: bytes) -> bytes:
    """Return a TCP packet without what it carries and as the end of its connection; another packet as it is."""
    header = (packet[0] & 15) * 4
    if packet[0] >> 4 != _IPV4 or packet[9] != _TCP:
        return packet
    tcp = bytearray(packet[header : header + 20])
    # No options, no bytes; the flag alone.
    tcp[12], tcp[13], tcp[16:18] = 5 << 4, _RST, b"\0\0"
    tcp[16:18] = _checksum(packet[12:20] + struct.pack(">HH", _TCP, len(tcp)) + tcp)
    ip = bytearray(packet[:header])
    ip[2:4], ip[10:12] = struct.pack(">H", header + len(tcp)), b"\0\0"
    ip[10:12] = _checksum(bytes(ip))
    return bytes(ip + tcp)


def _checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
