"""One explorer for all tests of the server and of the page, and a browser."""

import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time

import pytest

from limitformer.explore.server import Explorer


@pytest.fixture(scope="session")
def explorer():
    """A running server on a free port."""
    with Explorer(0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
)
# the browser reads commands from descriptor 3 and writes answers to 4
_WITH_PIPES = """
import fcntl, os, sys
for given in (1, 2):
    sys.argv[given] = fcntl.fcntl(int(sys.argv[given]), fcntl.F_DUPFD, 10)
os.dup2(sys.argv[1], 3)
os.dup2(sys.argv[2], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """One tab of a headless browser, spoken to over a pipe (DevTools protocol)."""

    def __init__(self, binary: str, folder):
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        given = [str(read), str(write), binary, f"--user-data-dir={folder}", *_FLAGS]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _WITH_PIPES, *given],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._left, self._count, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.bringToFront")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # keys need a focus

    def call(self, method: str, **params):
        """The result of a command; what happens meanwhile is kept in `events`."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 120
        while True:
            found = self._next()
            assert time.monotonic() < end, f"the browser does not answer {method}"
            if found.get("id") == self._count:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _next(self):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._from], [], [], 60)
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._left += part
        message, self._left = self._left.split(b"\0", 1)
        return json.loads(message)

    def evaluate(self, expression: str):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 60):
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, (expression, self.troubles)
            time.sleep(0.05)
        return value

    def press(self, key: str):
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Tab": 9}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=codes[key])  # fmt: skip

    @property
    def troubles(self):
        """Exceptions and errors of the page, among them what its policy forbids."""
        return [
            e for e in self.events
            if e["method"] == "Runtime.exceptionThrown"
            or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
            or (e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] == "error")
        ]  # fmt: skip

    @property
    def requests(self):
        """Addresses that the page asked for."""
        sent = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        return [e["params"]["request"]["url"] for e in sent]

    def close(self):
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A browser; one for the module, because it takes seconds to start."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("no chromium on the PATH: the page is not tried in a browser")
    browser = Chromium(binary, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
