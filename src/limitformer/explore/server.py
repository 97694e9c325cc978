"""The explorer's page over HTTP: this machine only, GET only, nothing from elsewhere."""

from __future__ import annotations

import collections
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from . import panels
from .page import message, page
from .runs import Cache
from .settings import BadSettings, Settings, read

_FILES = {
    "/style.css": "text/css",
    "/plots.js": "text/javascript",
    "/explore.js": "text/javascript",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OTHERS = frozenset({"stage", "tab", "move"})
_AT_ONCE = 4
_LONGEST = 4096


class Stale(Exception):
    """The page has moved on."""


class Moves:
    """The last move of every tab, so that answers nobody waits for are given up."""

    def __init__(self, tabs: int = 256):
        self._last: collections.OrderedDict[str, int] = collections.OrderedDict()
        self._tabs, self._lock = tabs, threading.Lock()

    def made(self, tab: str, move: int) -> None:
        with self._lock:
            self._last[tab] = max(move, self._last.pop(tab, move))
            while len(self._last) > self._tabs:
                self._last.popitem(last=False)

    def check(self, tab: str, move: int) -> None:
        if self._last.get(tab, move) > move:
            raise Stale


class Explorer(ThreadingHTTPServer):
    """The server; `address` is its URL. It listens on the loopback interface only.

    Example:
        >>> with Explorer(0) as server:
        ...     server.address.startswith("http://127.0.0.1:")
        True
    """

    daemon_threads = True
    # on Windows, reuse lets two servers take one port
    allow_reuse_address = sys.platform != "win32"

    def __init__(self, port: int, start: Settings = Settings()):  # noqa: B008
        super().__init__(("127.0.0.1", port), Handler)
        self.start = start
        self.cache, self.moves = Cache(), Moves()
        self.room = threading.BoundedSemaphore(_AT_ONCE)
        self.stopping = threading.Event()

    def go_on(self) -> None:
        """Raise where the server is being stopped."""
        if self.stopping.is_set():
            raise Stale

    def stop(self) -> None:
        """Let computations end, because Python cannot be torn down under them."""
        self.stopping.set()
        for _ in range(_AT_ONCE):
            self.room.acquire(timeout=2.0)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is no error."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Explorer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "limitformer", ""
    timeout: ClassVar[float] = 60.0  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            # another name for this address: DNS rebinding
            return self._say(421, f"open {self.server.address} instead")
        url = urlsplit(self.path)
        try:
            if len(self.path) > _LONGEST:
                raise BadSettings(f"the address is longer than {_LONGEST} characters")
            if url.path == "/":
                start = read(url.query) if url.query else self.server.start
                return self._send(200, "text/html", page(start))
            if url.path in _FILES:
                return self._send(200, _FILES[url.path], _file(url.path))
            if url.path in ("/api/theory", "/api/twin", "/api/texts"):
                return self._answer(url.path, url.query)
            self._say(404, f"there is no {url.path[:80]!r} here; open {self.server.address}")
        except BadSettings as error:
            self._say(400, str(error))
        except Stale:
            self._say(409, "the page has moved on")
        except ConnectionError:
            raise
        except Exception as error:
            self.close_connection = True
            self._say(500, f"this should not happen ({type(error).__name__}): please report it")

    def _answer(self, path: str, query: str) -> None:
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return self._say(403, "numbers are for the explorer's own page")
        settings = read(query, _OTHERS)
        stage, tab, move = _request(query)
        if path == "/api/texts":
            return self._json(panels.texts(settings))
        self.server.moves.made(tab, move)

        def check() -> None:
            self.server.go_on()
            self.server.moves.check(tab, move)

        with self.server.room:
            check()
            panel = panels.theory if path == "/api/theory" else panels.twin
            found = panel(settings, stage, self.server.cache, check)
        self._json(found)

    def _json(self, found: Any) -> None:
        self._send(
            200, "application/json", json.dumps(found, allow_nan=False, separators=(",", ":"))
        )

    def _say(self, status: int, text: str) -> None:
        """A message for people, as JSON to the page's script and as HTML otherwise."""
        if self.path.startswith("/api/"):
            return self._send(status, "application/json", json.dumps({"error": text}))
        self._send(status, "text/html", message(text))

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == 405:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses, without its page: other methods, bad requests."""
        self.close_connection = True
        self.request_version = self.protocol_version  # an older one has no headers
        self.path = getattr(self, "path", "/")
        self.command = getattr(self, "command", None) or "GET"
        if code == 501:
            return self._say(405, "only GET is answered here")
        self._say(code, message or "the request cannot be read")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


def _request(query: str) -> tuple[int, str, int]:
    """Which stage is asked for, and by which move of which tab."""
    given = {name: values[-1] for name, values in parse_qs(query).items() if name in _OTHERS}
    stage, move, tab = given.get("stage", "0"), given.get("move", "0"), given.get("tab", "")
    if stage not in map(str, range(panels.STAGES)):
        raise BadSettings(f"stage={stage[:40]!r}: expected a whole number below {panels.STAGES}")
    if not (move.isascii() and move.isdigit() and len(move) < 16) or len(tab) > 64:
        raise BadSettings("move: expected a whole number; tab: expected at most 64 characters")
    return int(stage), tab, int(move)


def _file(path: str) -> str:
    return resources.files("limitformer.explore").joinpath(path[1:]).read_text("utf-8")
