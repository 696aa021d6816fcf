"""Ports for the demo's workers: nobody has them, and no outgoing connection gets one of them before the worker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pybroker.demo.broker import free_ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL = 32_768


def test_no_outgoing_connection_takes_the_port() -> None:
    lowest = int(RANGE.read_text().split()[0]) if RANGE.exists() else 0
    if lowest < USUAL:
        pytest.skip("here outgoing connections get other ports than usual")
    assert max(free_ports(200)) < lowest


def test_the_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        assert not {*free_ports(50)} & {*ports}
    finally:
        for listener in listeners:
            listener.close()
