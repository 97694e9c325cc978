"""Each image by its own mean and standard deviation; blocks of pixels."""

import numpy as np
import pytest

from limitformer.data import downsample, standardise


@pytest.mark.parametrize(
    ("given", "out"),
    [("uint8", "float32"), ("float16", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_standardise(given, out):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (1030, 4, 4, 3)).astype(given)  # more than one block of rows
    standard = standardise(images)
    assert standard.dtype == out and standard.shape == images.shape
    flat = images.reshape(len(images), -1).astype(float)
    naive = (flat - flat.mean(1)[:, None]) / flat.std(1)[:, None]
    # the two round their float64 work differently, then once to the type of the result
    assert np.allclose(standard.reshape(len(images), -1), naive, atol=4 * np.finfo(out).eps, rtol=0)


def test_standardise_refuses():
    images = np.random.default_rng(0).normal(size=(4, 2, 2, 1))
    images[1] = 3
    images[2, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"images 1, 2 are constant or not finite.*drop"):
        standardise(images)


def test_downsample():
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 4, 3), dtype=np.uint8)
    small = downsample(images, 4)
    assert small.shape == (2, 2, 1, 3) and small.dtype == np.float32
    assert np.isclose(small[1, 1, 0, 2], images[1, 4:, :, 2].mean())
    with pytest.raises(ValueError, match="factor=3 does not divide images of 8 x 4"):
        downsample(images, 3)
