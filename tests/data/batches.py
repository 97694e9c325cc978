"""Writes CIFAR-10's formats, small; the Python 2 pickle is written by hand, opcode by opcode."""

import io
import pickle
import struct
import tarfile

import numpy as np

NAMES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
NAMES += ["test_batch"]


def images(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, n)


def flat(x):
    """Channels first, as the files have them."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2).reshape(len(x), -1))


def binary(x, y):
    return np.concatenate([y.astype(np.uint8)[:, None], flat(x)], axis=1).tobytes()


def python3(x, y, protocol=2):
    names = [b"image_%d.png" % i for i in range(len(x))]
    content = {b"data": flat(x), b"labels": y.tolist(), b"filenames": names}
    return pickle.dumps({b"batch_label": b"training batch", **content}, protocol=protocol)


def python2(x, y):
    """The instructions that Python 2's cPickle wrote for the published batches."""

    def text(value):
        value = value if isinstance(value, bytes) else value.encode()
        if len(value) < 256:
            return b"U" + struct.pack("<B", len(value)) + value
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        if value < 256:
            return b"K" + struct.pack("<B", value)
        return b"M" + struct.pack("<H", value)

    pixels = flat(x)
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
    array += text("b") + b"\x87Rq\x09(K\x01" + number(pixels.shape[0]) + number(pixels.shape[1])
    array += b"\x86cnumpy\ndtype\nq\x0a" + text("u1") + b"K\x00K\x01\x87Rq\x0b(K\x03"
    array += text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    array += text(pixels.tobytes()) + b"tb"
    labels = b"]q\x05(" + b"".join(number(int(label)) for label in y) + b"e"
    out = b"\x80\x02}q\x01(" + text("batch_label") + b"q\x02" + text("training batch 1 of 5")
    out += b"q\x03" + text("labels") + b"q\x04" + labels + text("data") + b"q\x06" + array
    out += text("filenames") + b"q\x0c]q\x0d(" + text("a.png") + text("b.png") + b"eu."
    return out


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
