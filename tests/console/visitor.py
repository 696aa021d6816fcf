"""A visitor that speaks HTTP with the console, with the cookies that it got."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Answer:
    """An answer after redirections."""

    status: int
    address: str
    text: str
    headers: dict[str, str]

    @property
    def token(self) -> str:
        """The token of its form."""
        return re.findall(r'name="token" value="([^"]+)"', self.text)[0]


class Visitor:
    """One browser's cookies."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str = "/", cookie: str | None = None) -> Answer:
        return self._ask(
            urllib.request.Request(self.address + path, headers={"Cookie": cookie} if cookie else {})
        )

    def post(self, path: str, **fields: str) -> Answer:
        return self._ask(urllib.request.Request(self.address + path, urlencode(fields).encode()))

    def login(self, role: str, password: str) -> Answer:
        return self.post("/login", token=self.get("/login").token, role=role, password=password)

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            answer = self._opener.open(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return Answer(answer.status, answer.url, answer.read().decode(), dict(answer.headers))


def asked(
    console: str, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: str = ""
) -> tuple[int, dict[str, str], str]:
    """Send what no browser would; return status, headers and text, without following anything."""
    place = urlsplit(console)
    connection = http.client.HTTPConnection(str(place.hostname), place.port or 80, timeout=PATIENCE)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": place.netloc, **(headers or {})}.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode())
        answer = connection.getresponse()
        found: dict[str, str] = {}
        for name, value in answer.getheaders():
            found[name.lower()] = ", ".join(filter(None, (found.get(name.lower()), value)))
        return answer.status, found, answer.read().decode()
    finally:
        connection.close()


def entered(console: str, role: str, password: str, address: str) -> str:
    """Log in at a console behind a proxy, from an address of its own; return the session's cookie."""
    far = {"X-Forwarded-For": address}
    _, headers, text = asked(console, "/login", headers=far)
    token = re.findall(r'name="token" value="([^"]+)"', text)[0]
    form = urlencode({"token": token, "role": role, "password": password})
    cookie = headers["set-cookie"].split(";")[0]
    status, headers, text = asked(console, "/login", "POST", {**far, "Cookie": cookie}, form)
    assert status == 303, text
    return re.findall(r"pybroker_console=[^;]+", headers["set-cookie"])[0]
