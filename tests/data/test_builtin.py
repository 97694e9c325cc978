"""What scikit-learn brings along, and what importing the loaders costs."""

import subprocess
import sys

import pytest

import limitformer.data as data


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1797, 8, 8, 1), 10),
        ("diabetes", (442, 10), 0),
        ("breast_cancer", (569, 30), 2),
        ("wine", (178, 13), 3),
    ],
)
def test_shapes(name, shape, classes):
    found = getattr(data, name)()
    assert found.x_train.shape == shape and len(found.class_names) == classes
    assert len(found.feature_names) == (0 if name == "digits" else shape[1])


def test_importing_imports_no_extra():
    code = (
        "import sys, limitformer.data as d; "
        "extras = {'sklearn', 'pyarrow', 'datasets', 'matplotlib', 'pandas'}; "
        "assert not extras & set(sys.modules), extras & set(sys.modules); "
        "d.Embedder; assert 'sklearn' in sys.modules; assert 'Vocabulary' in dir(d)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_scikit_learn(monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == "sklearn":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "limitformer.data.text_steps", raising=False)
    for use in (data.digits, lambda: data.Embedder):
        with pytest.raises(ModuleNotFoundError, match=r'pip install "limitformer\[sklearn\]"'):
            use()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = data.nothing
