"""Whatever stops a run, the same call again ends with the matrix of an undisturbed one."""

import errno
import os
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
# a commit between the two processes would make it another run
sys.modules["limitformer.tiles.gram"].revision = lambda: {revision!r}
test_faults.start({path!r})
"""


def killed_run(path, wait_for: int) -> None:
    """Start a run in another process and kill it once some tiles are there."""
    script = SCRIPT.format(
        folder=os.path.dirname(__file__), path=str(path), revision=manifest.revision()
    )
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


@pytest.mark.slow
def test_forty_kills_leave_no_corrupt_chunk(whole, tmp_path):
    path = tmp_path / "K"
    for kill in range(40):
        done = tiles.status(path).done if path.exists() else 0
        if done > 10:  # there must be something left to write
            chunks = [p for p in (path / "nngp/c").rglob("*") if p.is_file()]
            for chunk in chunks[: 5 + kill % 7]:
                chunk.unlink()
        left = sum(1 for p in (path / "nngp/c").rglob("*") if p.is_file())
        killed_run(path, left + 1)
        assert not tiles.verify(path, sample=0).damaged
    assert np.array_equal(np.asarray(start(path).nngp), whole)
    assert tiles.status(path).partial == 0
