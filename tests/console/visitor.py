"""A visitor that speaks HTTP with the console, with the cookies that it got."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.cookiejar import CookieJar
from urllib.parse import urlencode

from tests.patience import PATIENCE


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
