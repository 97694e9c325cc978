"""The explorer as a command: it says where it is, and runs until Ctrl-C."""

from __future__ import annotations

import errno
import sys
import threading
import webbrowser
from pathlib import Path

from limitformer import files
from limitformer.explore import panels
from limitformer.explore.network import settings_of
from limitformer.explore.runs import warm_up
from limitformer.explore.server import Explorer, Stale
from limitformer.explore.settings import Settings


def serve(port: int = 8765, open_browser: bool = True, toml: str | None = None) -> int:
    """Serve the explorer on this machine until Ctrl-C.

    Args:
        port: of the loopback interface; 0 takes a free one.
        open_browser: show the page.
        toml: a network to start from, as TOML text or the path of a file; one that the sliders
            reach, such as the page shows.

    Returns:
        The exit status of the command: 0 after Ctrl-C, 1 where it could not start; the reason is
        on standard error.
    """
    try:
        start = Settings() if toml is None else _start(toml)
        server = Explorer(port, start)
    except (OSError, OverflowError, ValueError) as error:
        print(f"limitformer explore: {_reason(error, port)}", file=sys.stderr)
        return 1
    with server:
        try:
            print(f"Explorer at {server.address} (this machine only). Ctrl-C ends it.", flush=True)
            threading.Thread(target=_warm_up, args=(server,), daemon=True).start()
            if open_browser:
                show = threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True)
                show.start()
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            server.stop()
            print("\nStopped.", flush=True)
    return 0


def _warm_up(server: Explorer) -> None:
    """What first answers need, while the page is being opened."""
    try:
        with server.room:
            panels.texts(server.start)  # imports what networks are made of
            warm_up(server.go_on)
    except Stale:
        pass


def _start(toml: str) -> Settings:
    return settings_of(files.loads(toml) if "\n" in toml else files.load(Path(toml)))


def _reason(error: Exception, port: int) -> str:
    taken = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
    if taken or isinstance(error, OverflowError):
        return (
            f"port {port} cannot be had ({error}); another explorer may be running: open "
            f"http://127.0.0.1:{port}/, or give another port: limitformer explore --port 0"
        )
    return str(error)
