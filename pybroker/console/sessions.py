"""Who is logged in. A cookie holds a signed number; all else stays in memory and ends with the process."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field

from itsdangerous import BadSignature, URLSafeTimedSerializer

from pybroker.console.accounts import Account, Target
from pybroker.console.readings import Together

IDLE_SECONDS, LONGEST_SECONDS = 30 * 60.0, 8 * 3600.0
LOGIN_FORM_SECONDS = 3600
_SESSIONS = 200
# One role that logs in again and again takes no place of others.
_OF_ONE_ROLE = 20


@dataclass
class Session:
    """Somebody who is logged in."""

    account: Account
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    began_at: float = field(default_factory=time.monotonic)
    seen_at: float = field(default_factory=time.monotonic)

    def is_over(self, now: float) -> bool:
        """Tell whether it was idle for half an hour, or lasted eight."""
        return now - self.seen_at > IDLE_SECONDS or now - self.began_at > LONGEST_SECONDS


class Sessions:
    """All sessions; those of one role with one password share an account."""

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self._targets = targets
        self._together = Together()
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        key = secrets.token_bytes(32)
        self._signer = URLSafeTimedSerializer(key, salt="session")
        self._form_signer = URLSafeTimedSerializer(key, salt="login form")

    def login(self, role: str, password: str) -> str | None:
        """Return the cookie of a new session; None if no database lets the role in, or too many are here."""
        fresh = Account(role, password, self._targets, self._together)
        if not fresh.enters():
            fresh.close()
            return None
        number = secrets.token_urlsafe(32)
        with self._lock:
            self._leave_room(role)
            gone = self._without_ended()
            is_full = len(self._sessions) >= _SESSIONS
            account = fresh if is_full else self._accounts.setdefault((role, password), fresh)
            if not is_full:
                self._sessions[number] = Session(account)
        for one in [*gone, *([fresh] if is_full or account is not fresh else [])]:
            one.close()
        return None if is_full else self._signer.dumps(number)

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None for one that is forged or over."""
        number = self._number(cookie)
        with self._lock:
            gone = self._without_ended()
            session = None if number is None else self._sessions.get(number)
            if session is not None:
                session.seen_at = time.monotonic()
        for account in gone:
            account.close()
        return session

    def logout(self, cookie: str | None) -> None:
        """End a session, and forget the password with the last one of its role."""
        number = self._number(cookie)
        with self._lock:
            if number is not None:
                self._sessions.pop(number, None)
            gone = self._without_ended()
        for account in gone:
            account.close()

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            accounts = list(self._accounts.values())
            self._sessions, self._accounts = {}, {}
        for account in accounts:
            account.close()

    def login_form(self) -> str:
        """Return a token for the login form, which its cookie must repeat."""
        return self._form_signer.dumps(secrets.token_urlsafe(16))

    def is_login_form(self, token: str, cookie: str | None) -> bool:
        """Tell whether a form is one that this browser got from here within the hour."""
        if cookie is None or not hmac.compare_digest(token.encode(), cookie.encode()):
            return False
        try:
            self._form_signer.loads(token, max_age=LOGIN_FORM_SECONDS)
        except BadSignature:
            return False
        return True

    def _leave_room(self, role: str) -> None:
        """End those sessions of a role that were unseen longest, so that it may have one more."""
        own = [number for number, session in self._sessions.items() if session.account.role == role]
        own.sort(key=lambda number: self._sessions[number].seen_at)
        for number in own[: max(0, len(own) - _OF_ONE_ROLE + 1)]:
            del self._sessions[number]

    def _number(self, cookie: str | None) -> str | None:
        if cookie is None:
            return None
        try:
            return str(self._signer.loads(cookie, max_age=int(LONGEST_SECONDS)))
        except BadSignature:
            return None

    def _without_ended(self) -> list[Account]:
        """Drop sessions that are over, and return the accounts that nobody is left of."""
        now = time.monotonic()
        self._sessions = {
            number: session for number, session in self._sessions.items() if not session.is_over(now)
        }
        used = {id(session.account) for session in self._sessions.values()}
        gone = {key: account for key, account in self._accounts.items() if id(account) not in used}
        for key in gone:
            del self._accounts[key]
        return list(gone.values())
