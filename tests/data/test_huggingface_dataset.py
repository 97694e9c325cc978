"""Objects with the interface of Hugging Face's datasets."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from limitformer.data import huggingface


class Rows:
    """The part of `datasets.Dataset` that is used: columns by name."""

    def __init__(self, features=None, **columns):
        self.columns = columns
        self.features = features or {}

    @property
    def column_names(self):
        return list(self.columns)

    def __getitem__(self, name):
        return iter(self.columns[name])  # newer versions give a lazy column, not a list


def test_text_with_names_and_splits():
    features = {"label": SimpleNamespace(names=["neg", "pos"])}
    train = Rows(features, text=["good", "bad"], label=[1, 0])
    data = huggingface({"train": train, "test": Rows(text=["so"], label=[0])}, text="text")
    assert data.class_names == ("neg", "pos") and data.x_train.tolist() == ["good", "bad"]
    assert data.y_train.tolist() == [1, 0] and data.x_test.tolist() == ["so"]
    assert len(huggingface({"train": train}, text="text").x_test) == 0


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_images(mode):
    shape = (2, 4, 6) if mode == "L" else (2, 4, 6, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    images = [Image.fromarray(one) for one in pixels]
    data = huggingface(Rows(img=images, label=["cat", "dog"]), image="img")
    assert np.array_equal(data.x_train, pixels if mode == "RGB" else pixels[..., None])
    assert data.class_names == ("cat", "dog") and data.x_train.dtype == np.uint8
    odd = Rows(img=[np.zeros((2, 2)), np.zeros((3, 2))], label=[0, 1])
    with pytest.raises(ValueError, match=r"images of shapes \[\(2, 2\), \(3, 2\)\]"):
        huggingface(odd, image="img")


def test_columns():
    rows = Rows(a=[1, 2], b=[0.5, 1.5], y=[0.1, 0.2], s=["x", "y"])
    data = huggingface(rows, columns=["a", "b"], label="y")
    assert data.x_train.tolist() == [[1, 0.5], [2, 1.5]] and data.class_names == ()
    with pytest.raises(ValueError, match="column 's' is not numbers"):
        huggingface(rows, columns=["a", "s"], label="y")


def test_refuses():
    rows = Rows(text=["a", "b"], label=[0, -1])
    with pytest.raises(ValueError, match="labels down to -1; -1 stands for labels that were held"):
        huggingface(rows, text="text")
    with pytest.raises(ValueError, match="exactly one of text=, image=, columns=; given: none"):
        huggingface(rows)
    with pytest.raises(ValueError, match="given: text, image"):
        huggingface(rows, text="text", image="text")
    with pytest.raises(ValueError, match="no column 'body'; its columns are 'text', 'label'"):
        huggingface(rows, text="body")
    with pytest.raises(TypeError, match=r"expected a datasets.Dataset .* not list"):
        huggingface([1], text="text")
    with pytest.raises(ValueError, match="there is no split 'train'; there are dev"):
        huggingface({"dev": rows}, text="text")
