"""Images before a network sees them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Num


def standardise(images: Num[np.ndarray, "n ..."]) -> Num[np.ndarray, "n ..."]:
    """Each image by its own mean and standard deviation.

    x_i -> (x_i - mean(x_i)) / std(x_i), over all pixels and channels of image i.

    Args:
        images: `(n, height, width, channels)`, or any array with one row per image.

    Returns:
        The same shape; float32 for integers and half precision, otherwise the type given.

    Raises:
        ValueError: an image is constant, or not finite.

    Example:
        >>> standardise(np.array([[0, 2], [5, 9]], np.uint8))
        array([[-1.,  1.], [-1.,  1.]], dtype=float32)

    Reference:
        The preprocessing of CIFAR-10 in Hron et al. (2020), Infinite attention.
    """
    x = np.asarray(images)
    out = x.dtype if x.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    standard = np.empty(x.shape, out)
    axes = tuple(range(1, x.ndim))
    for start in range(0, len(x), 1024):  # float64 work for some of the rows at a time
        part = x[start : start + 1024].astype(np.float64)
        mean = part.mean(axes, keepdims=True)
        std = part.std(axes, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(std) & (std > 0)).ravel())
        if len(bad):
            rows = ", ".join(str(start + i) for i in bad[:5])
            raise ValueError(
                f"images {rows} are constant or not finite, so they have no standard deviation "
                "to divide by; drop these rows"
            )
        standard[start : start + 1024] = (part - mean) / std
    return standard


def downsample(images: Num[np.ndarray, "n h w c"], factor: int) -> Num[np.ndarray, "n h2 w2 c"]:
    """The mean of each block of pixels: 32 x 32 images by a factor of 4 are 8 x 8.

    Args:
        images: `(n, height, width, channels)`.
        factor: the side of a block; has to divide height and width.

    Returns:
        `(n, height / factor, width / factor, channels)`; float32 for integers and half
        precision, otherwise the type given.

    Raises:
        ValueError: the factor does not divide the sides.

    Example:
        >>> downsample(np.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0]
        array([[ 2.5,  4.5], [10.5, 12.5]])
    """
    n, h, w, c = images.shape
    if factor < 1 or h % factor or w % factor:
        raise ValueError(f"factor={factor} does not divide images of {h} x {w} pixels")
    out = images.dtype if images.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    blocks = images.reshape(n, h // factor, factor, w // factor, factor, c)
    return blocks.mean((2, 4), dtype=np.float64).astype(out)
