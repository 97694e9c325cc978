"""The server: only this machine, only GET, messages instead of tracebacks, several tabs."""

import concurrent.futures
import dataclasses
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy as np
import pytest

from limitformer.cli import serve as command
from limitformer.cli.serve import serve
from limitformer.explore import panels
from limitformer.explore.network import network
from limitformer.explore.server import Explorer, Moves, Stale
from limitformer.explore.settings import CONTROLS, Range, Settings


def get(explorer, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def raw(explorer, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", explorer.server_port), timeout=60) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_it_listens_on_loopback_only(explorer):
    assert explorer.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/?heads=4&tokens=16", "text/html"),
        ("/style.css", "text/css"),
        ("/plots.js", "text/javascript"),
        ("/explore.js", "text/javascript"),
        ("/api/texts", "application/json"),
        ("/no-such-page", "text/html"),
    ],
)
def test_every_answer_forbids_what_is_not_ours(explorer, path, kind):
    response, body = get(explorer, path)
    assert response.headers["Content-Type"] == f"{kind}; charset=utf-8"
    policy = dict(
        p.strip().split(" ", 1) for p in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert all(value in ("'none'", "'self'", "'self' data:") for value in policy.values())
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "http://" not in body.replace("http://www.w3.org/2000/svg", "").replace(
        explorer.address, ""
    )
    assert "https://" not in body and "//cdn" not in body


def test_the_page_stands_at_its_permalink(explorer):
    _, body = get(explorer, "/?heads=4&tokens=16&norm=pre&activation=erf&skip=0.75")
    assert 'id="tokens" name="tokens" min="2" max="64" step="1" value="16"' in body
    assert 'name="norm" value="pre" checked' in body
    assert '<option value="erf" selected>' in body
    assert 'data-values="1,2,3,4,6,8,12,16,inf" value="3"' in body
    assert 'value="0.75"' in body


def test_answers_are_the_panels(explorer):
    s = Settings(tokens=3, depth=2)
    for name, panel in (("theory", panels.theory), ("twin", panels.twin)):
        response, body = get(explorer, f"/api/{name}?{s.query}&stage=1&tab=a&move=1")
        assert response.status == 200
        assert json.loads(body) == panel(s, 1, explorer.cache, lambda: None)
    assert json.loads(get(explorer, f"/api/texts?{s.query}")[1]) == panels.texts(s)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("tokens=1000000000", "from 2 to 64"),
        ("depth=-1", "from 1 to 24"),
        ("qk_std=NaN", "from 0 to 4"),
        ("stage=7", "expected a whole number below 3"),
        ("move=x", "expected a whole number"),
        ("move=" + "9" * 400, "expected a whole number"),
        ("tab=" + "t" * 100, "at most 64"),
        ("evil=<script>", "is no setting"),
        ("tokens=%zz%ff", "cannot be read"),
        ("a" * 5000, "longer than 4096"),
        ("heads=4;drop", "expected one of"),
    ],
)
def test_bad_queries_get_a_message(explorer, query, text):
    response, body = get(explorer, f"/api/theory?{query}")
    assert response.status == 400
    assert text in json.loads(body)["error"]
    assert "Traceback" not in body
    if "=" in query and query.split("=")[0] in ("tokens", "depth", "evil"):
        response, body = get(explorer, f"/?{query}")
        assert response.status == 400
        assert response.headers["Content-Type"].startswith("text/html")
        assert "<script>" not in body and "Start from the beginning" in body


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/style.css/../server.py",
        "/server.py",
        "/explore.js%00",
        "/api/",
        "/api/theory/..",
    ],
)
def test_there_are_no_other_files(explorer, path):
    response, body = get(explorer, path)
    assert response.status == 404
    assert "import" not in body and "root:" not in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "[::1]:1", ""])
def test_another_name_for_this_machine_is_refused(explorer, host):
    """A page elsewhere whose name leads here (DNS rebinding) must not read answers."""
    for path in ("/", "/api/texts"):
        response, body = get(explorer, path, Host=host)
        assert response.status == 421
        assert "limitformer = 1" not in body
    assert get(explorer, "/api/texts", Host=f"LOCALHOST:{explorer.server_port}")[0].status == 200


def test_numbers_are_not_for_pages_elsewhere(explorer):
    response, _ = get(explorer, "/api/texts", **{"Sec-Fetch-Site": "cross-site"})
    assert response.status == 403
    assert get(explorer, "/", **{"Sec-Fetch-Site": "cross-site"})[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
def test_only_get(explorer, method):
    response, body = get(explorer, "/", method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET"
    assert (body == "") == (method == "HEAD")


@pytest.mark.parametrize(
    "data",
    [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\xff\xfe\x00\x01\r\n\r\n"],
)
def test_what_is_no_request(explorer, data):
    found = raw(explorer, data)
    assert b"Traceback" not in found
    assert not found or found.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert get(explorer, "/style.css")[0].status == 200


def test_a_client_that_goes_away_leaves_no_trace(explorer, capfd):
    host = f"127.0.0.1:{explorer.server_port}".encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", explorer.server_port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /api/theory?tokens=48 HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert get(explorer, "/api/texts")[0].status == 200
    time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_two_tabs_at_once(explorer):
    queries = [f"tokens={3 + i % 3}&depth={1 + i % 2}&heads={1 + i % 3}" for i in range(12)]

    def one(i):
        tab = f"tab {i % 2}"
        query = urllib.parse.urlencode({"tab": tab, "move": 0})
        return get(explorer, f"/api/theory?{queries[i]}&{query}")

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(one, range(12)))
    assert [response.status for response, _ in found] == [200] * 12
    for i, (_, body) in enumerate(found):
        assert json.loads(body)["kernel"]["tokens"] == 3 + i % 3


def test_a_walk_of_moves_has_answers(explorer):
    """What `benchmarks/explorer.py` times, a little of it."""
    rng = np.random.default_rng(0)
    s = Settings()
    for move in range(25):
        name = rng.choice(list(CONTROLS))
        kind = CONTROLS[name].kind
        if isinstance(kind, Range):
            value = (
                kind.low + rng.integers(1 + round((kind.high - kind.low) / kind.step)) * kind.step
            )
            value = int(value) if kind.whole else round(float(value), 9)
        else:
            value = str(rng.choice(list(kind.names)))
        s = dataclasses.replace(s, **{name: value})
        for panel in ("theory", "twin"):
            response, body = get(explorer, f"/api/{panel}?{s.query}&tab=walk&move={move}")
            assert response.status == 200, (s, body)
            assert json.loads(body)["stage"] == 0


def test_an_answer_nobody_waits_for_is_given_up():
    moves = Moves(tabs=2)
    moves.made("a", 3)
    moves.made("b", 9)
    moves.made("a", 2)  # late
    moves.check("a", 3)
    with pytest.raises(Stale):
        moves.check("a", 2)
    moves.made("c", 1)
    moves.check("b", 1)  # forgotten, so answered


def test_the_page_moved_on(explorer):
    assert get(explorer, "/api/twin?tokens=2&depth=1&tab=x&move=5")[0].status == 200
    response, body = get(explorer, "/api/twin?tokens=2&depth=1&tab=x&move=4")
    assert response.status == 409
    assert json.loads(body)["error"] == "the page has moved on"


def test_what_should_not_happen_is_said_so(explorer, monkeypatch):
    monkeypatch.setattr(panels, "texts", lambda s: 1 / 0)
    response, body = get(explorer, "/api/texts")
    assert response.status == 500
    assert json.loads(body)["error"] == (
        "this should not happen (ZeroDivisionError): please report it"
    )


def test_a_port_in_use(explorer, capsys):
    assert serve(explorer.server_port, open_browser=False) == 1
    said = capsys.readouterr().err
    assert f"port {explorer.server_port} cannot be had" in said
    assert "limitformer explore --port 0" in said
    assert serve(99_999, open_browser=False) == 1
    assert "port 99999 cannot be had" in capsys.readouterr().err


def test_a_network_to_start_from(tmp_path, monkeypatch, capsys):
    s = Settings(depth=7, skip=0.75, heads="inf", norm="post")
    path = tmp_path / "net.toml"
    path.write_text(network(s).to_toml())
    started = []

    def stop(explorer, poll_interval):
        started.append(explorer.start)
        raise KeyboardInterrupt

    monkeypatch.setattr(Explorer, "serve_forever", stop)
    monkeypatch.setattr(command, "warm_up", lambda check: None)
    assert serve(0, open_browser=False, toml=str(path)) == 0
    assert serve(0, open_browser=False, toml=path.read_text()) == 0
    assert started == [s, s]
    assert "Stopped." in capsys.readouterr().out
    path.write_text('limitformer = 1\n[[layers]]\ntype = "Dense"\n')
    assert serve(0, open_browser=False, toml=str(path)) == 1
    assert "not one that the sliders reach" in capsys.readouterr().err
    assert serve(0, open_browser=False, toml=str(tmp_path / "none.toml")) == 1
    assert "none.toml" in capsys.readouterr().err


def test_it_opens_the_browser(monkeypatch):
    opened = threading.Event()
    monkeypatch.setattr(command, "warm_up", lambda check: None)
    monkeypatch.setattr(command.webbrowser, "open", lambda url: opened.set())

    def stop(explorer, poll_interval):
        assert opened.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(Explorer, "serve_forever", stop)
    assert serve(0) == 0


def test_ctrl_c_ends_it():
    code = (
        "import signal, sys; from limitformer.cli.serve import serve; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a job's is ignored
        "sys.exit(serve(0, False))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert "Explorer at http://127.0.0.1:" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Stopped." in out and "Traceback" not in err
