"""Whatever stops a run, the same call again ends with the matrix of an undisturbed one."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

import limitformer as lf
from limitformer import tiles
from limitformer.tiles import manifest, schedule, store, task
from limitformer.tiles.check import verify

NET = lf.Serial(lf.Dense(1.3, 0.2), lf.Relu(), lf.Dense())
X = np.random.default_rng(0).normal(size=(40, 3))


def start(path, **options):
    return lf.gram(NET, X, kinds="nngp", store=path, tile=8, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return np.asarray(start(tmp_path_factory.mktemp("whole") / "K").nngp)


def computed(monkeypatch) -> list:
    """The tiles that are computed from here on."""
    seen = []
    plain = task.Tiles.__call__
    monkeypatch.setattr(
        task.Tiles, "__call__", lambda self, i, j: seen.append((i, j)) or plain(self, i, j)
    )
    return seen


def after(monkeypatch, count: int, error: BaseException):
    """Let the writing of a tile fail after some."""
    plain, left = store.TileStore.write, [count]

    def write(self, i, j, values):
        if not left[0]:
            raise error
        left[0] -= 1
        plain(self, i, j, values)

    monkeypatch.setattr(store.TileStore, "write", write)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_full_disk_and_interrupt(error, whole, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        after(patch, 6, error)
        with pytest.raises(type(error)) as raised:
            start(tmp_path / "K")
    if isinstance(error, OSError):
        assert "the same call again computes the others" in raised.value.__notes__[0]
    assert tiles.status(tmp_path / "K").done == 6
    with pytest.MonkeyPatch.context() as patch:
        seen = computed(patch)
        K = start(tmp_path / "K")
    assert len(seen) == 15 - 6
    assert np.array_equal(np.asarray(K.nngp), whole)


def test_half_written_and_flipped_chunks_are_computed_again(whole, tmp_path, monkeypatch):
    start(tmp_path / "K")
    chunks = tmp_path / "K/nngp/c"
    short, flipped, empty = chunks / "1/0", chunks / "3/2", chunks / "4/4"
    short.write_bytes(short.read_bytes()[:100])
    data = bytearray(flipped.read_bytes())
    data[77] ^= 4
    flipped.write_bytes(bytes(data))
    empty.write_bytes(b"")
    (chunks / "2/1.0123.partial").write_bytes(b"half")
    found = verify(tmp_path / "K", sample=2)
    assert found.damaged == ((3, 2),) and not found.sound
    assert found.missing == ((1, 0), (4, 4))
    assert tiles.status(tmp_path / "K").partial == 1
    with pytest.raises(tiles.DamagedTile, match=r"\(3, 2\).*limitformer gram resume"):
        tiles.Tiled(store.open_store(tmp_path / "K"), "nngp").tile(3, 2)
    seen = computed(monkeypatch)
    K = tiles.resume(tmp_path / "K")
    assert sorted(seen) == [(1, 0), (3, 2), (4, 4)]
    assert np.array_equal(np.asarray(K.nngp), whole)
    assert tiles.status(tmp_path / "K").partial == 0


def test_verify_finds_wrong_numbers_with_a_right_checksum(whole, tmp_path):
    start(tmp_path / "K")
    zarr.open_group(tmp_path / "K", mode="r+")["nngp"][17, 3] += 1e-6
    found = verify(tmp_path / "K", sample=100)
    assert found.wrong == ((2, 0),) and not found.damaged and not found.sound
    assert 1e-8 < found.difference < 1e-4
    assert verify(tmp_path / "K", sample=100, repair=True).sound
    again = verify(tmp_path / "K", sample=100)
    assert again.sound and again.difference == 0.0
    assert np.array_equal(np.asarray(tiles.open_gram(tmp_path / "K").nngp), whole)


def test_verify_finds_changed_inputs(tmp_path):
    start(tmp_path / "K")
    zarr.open_group(tmp_path / "K", mode="r+")["x/array0"][0, 0] += 1.0
    found = verify(tmp_path / "K")
    assert not found.inputs and not found.sound and "start a new store" in str(found)
    with pytest.raises(ValueError, match=r"cannot be continued here:\n  data.x: stored"):
        tiles.resume(tmp_path / "K")


def test_another_run_is_refused_with_what_differs(tmp_path, monkeypatch):
    start(tmp_path / "K")
    with pytest.raises(ValueError, match=r"tiles.tile: stored 8, asked for 9"):
        lf.gram(NET, X, kinds="nngp", store=tmp_path / "K", tile=9)
    with pytest.raises(ValueError, match=r"data.x: stored '\w{64}', asked for '\w{64}'"):
        lf.gram(NET, X + 1, kinds="nngp", store=tmp_path / "K", tile=8)
    with pytest.raises(ValueError, match=r"network: stored .*Relu.* asked for .*Erf"):
        net = lf.Serial(lf.Dense(1.3, 0.2), lf.Erf(), lf.Dense())
        lf.gram(net, X, kinds="nngp", store=tmp_path / "K", tile=8)
    monkeypatch.setattr(manifest, "metadata", SimpleNamespace(version=lambda name: "0.0"))
    with pytest.raises(ValueError, match=r"versions.jax: stored '0.*', asked for '0.0'"):
        start(tmp_path / "K")
    with pytest.raises(ValueError, match=r"versions.jax: stored"):
        tiles.resume(tmp_path / "K")
    with pytest.raises(RuntimeError, match="this process cannot continue"):
        task.tiles_of(store.open_store(tmp_path / "K"))


def test_a_commit_is_no_other_run_but_another_engine_is(tmp_path, monkeypatch):
    old = start(tmp_path / "K").store
    about = json.loads((tmp_path / "K/zarr.json").read_text())
    about["attributes"]["limitformer"]["revision"] = "0123456789abcdef"
    (tmp_path / "K/zarr.json").write_text(json.dumps(about))
    os.remove(tmp_path / "K/nngp/c/2/1")
    assert tiles.resume(tmp_path / "K").store.identity == old.identity
    assert start(tmp_path / "K").store.manifest["revision"] == "0123456789abcdef"
    monkeypatch.setattr(manifest, "engine", lambda: "f" * 64)
    says = (
        r"engine: stored '\w{64}', asked for 'f{64}'(.|\n)*git worktree add ../engine 0123456789ab"
    )
    for call in (lambda: start(tmp_path / "K"), lambda: tiles.resume(tmp_path / "K")):
        with pytest.raises(ValueError, match=says):
            call()
    with pytest.raises(RuntimeError, match=says):
        task.tiles_of(store.open_store(tmp_path / "K"))


def test_engine_is_its_code_and_not_its_words(monkeypatch, tmp_path):
    source = "def f(x):\n    'Twice.'\n    return 2 * x  # two\n"
    assert manifest.code(source) == manifest.code("def f(x):\n    return (2 * x)\n")
    assert manifest.code(source) != manifest.code(source.replace("2 *", "3 *"))
    root = tmp_path / "limitformer"
    for folder in ("duals", "kernel", "layers", "scores", "tiles"):
        shutil.copytree(os.path.join(os.path.dirname(lf.__file__), folder), root / folder)
    monkeypatch.setattr(manifest, "__file__", str(root / "tiles/manifest.py"))
    before = manifest.engine.__wrapped__()
    for name, differs in (("tiles/solve.py", False), ("tiles/compute.py", True)):
        with open(root / name, "a") as file:
            file.write("\nx = 1\n")
        assert (manifest.engine.__wrapped__() != before) == differs


def test_creation_that_was_stopped_starts_again(whole, tmp_path, monkeypatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_copy", lambda *a: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            start(tmp_path / "K")
    with pytest.raises(FileNotFoundError, match="there is no store"):
        tiles.status(tmp_path / "K")
    assert np.array_equal(np.asarray(start(tmp_path / "K").nngp), whole)


def test_lost_64_bit_switch_fails_at_the_write(tmp_path, monkeypatch):
    plain = task.Tiles.__call__
    monkeypatch.setattr(
        task.Tiles,
        "__call__",
        lambda self, i, j: {k: v.astype(np.float32) for k, v in plain(self, i, j).items()},
    )
    with pytest.raises(TypeError, match=r"came out as float32, but the store holds float64"):
        start(tmp_path / "K")
    assert tiles.status(tmp_path / "K").done == 0


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import test_faults
test_faults.start({path!r})
"""


def killed_run(path, wait_for: int) -> None:
    """Start a run in another process and kill it once some tiles are there."""
    script = SCRIPT.format(folder=os.path.dirname(__file__), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", script])
    while process.poll() is None:
        chunks = path / "nngp/c"
        if chunks.exists() and sum(1 for p in chunks.rglob("*") if p.is_file()) >= wait_for:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    process.wait()


def test_killed_run_computes_only_what_is_missing(whole, tmp_path, monkeypatch):
    killed_run(tmp_path / "K", 3)
    done = tiles.status(tmp_path / "K").done
    seen = computed(monkeypatch)
    K = start(tmp_path / "K")
    assert len(seen) == 15 - done
    assert np.array_equal(np.asarray(K.nngp), whole)


def test_broken_executor_says_what_to_do(tmp_path):
    from concurrent.futures import BrokenExecutor, Executor, Future

    class Broken(Executor):
        def submit(self, fn, /, *args, **kwargs):
            future: Future = Future()
            future.set_exception(BrokenExecutor("a worker died"))
            return future

    with pytest.raises(BrokenExecutor) as error:
        start(tmp_path / "K", scheduler=Broken())
    assert error.value.__notes__ == [schedule._AGAIN]


WRITER = """
import os, signal, sys, warnings
from pathlib import Path
warnings.filterwarnings("ignore")  # of a fork beside threads: the child opens everything anew
from limitformer.tiles.store import open_store
path = Path(sys.argv[1])
store = open_store(path)
values = {"nngp": store.read("nngp", 0, 0)}
def partial():
    return sum(name.endswith(".partial") for name in os.listdir(path / "nngp/c/0"))
kills = 0
while partial() < 40:
    kills += 1
    assert kills < 2000, partial()
    before, child = partial(), os.fork()
    if not child:
        own = open_store(path)
        while True:
            own.write(0, 0, values)
    while partial() == before:
        pass
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not open_store(path).damaged([(0, 0)]), kills
"""


@pytest.mark.slow
def test_forty_kills_in_mid_write_leave_no_corrupt_chunk(tmp_path):
    """A process that does nothing but write is killed until 40 writes are left half done."""
    x = np.random.default_rng(0).normal(size=(1024, 2))
    K = lf.gram(NET, x, kinds="nngp", store=tmp_path / "K", tile=1024)
    before = np.asarray(K.nngp)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "K")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tiles.status(tmp_path / "K").partial == 40
    assert tiles.verify(tmp_path / "K").sound
    assert np.array_equal(np.asarray(tiles.resume(tmp_path / "K").nngp), before)
    assert tiles.status(tmp_path / "K").partial == 0
