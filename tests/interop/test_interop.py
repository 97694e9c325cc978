"""What needs neither library: missing extras, arguments, and matrices for scikit-learn."""

import importlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import limitformer as lf
from limitformer.interop import gpjax, gpjax_kernel, tinygp, tinygp_kernel
from limitformer.interop.matrix import matrix, pair, prepared

NET = lf.Serial(lf.Dense(), lf.Relu(), lf.Dense())


@pytest.mark.parametrize(
    ("make", "cached", "name"),
    [(tinygp_kernel, tinygp._class, "tinygp"), (gpjax_kernel, gpjax._classes, "gpjax")],
)
def test_a_missing_library_says_the_command(monkeypatch, make, cached, name):
    real = importlib.import_module

    def missing(module, *rest):
        if module.split(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(module, *rest)

    cached.cache_clear()
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError) as caught:
        make(NET)
    assert str(caught.value) == f'{name} is not installed. Run: pip install "limitformer[{name}]"'
    cached.cache_clear()


def test_importing_interop_imports_no_library():
    code = (
        "import sys, limitformer.interop;"
        "print({'tinygp', 'gpjax'} & {m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_arguments():
    with pytest.raises(ValueError, match='kind=\'rbf\'; choose "nngp" or "ntk"'):
        prepared(NET, "rbf", None)
    with pytest.raises(ValueError, match=r"dtype=float64 while JAX's 64-bit switch is off"):
        prepared(NET, "nngp", np.float64)


def test_pairs_and_matrices_agree(x64):
    x = jax.numpy.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    net, dtype = prepared(NET, "ntk", None)
    pairs = jax.vmap(jax.vmap(lambda a, b: pair(net, a, b, "ntk", dtype), (None, 0)), (0, None))
    np.testing.assert_allclose(pairs(x, x), matrix(net, x, None, "ntk", dtype), rtol=1e-10)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_precomputed_grams_for_scikit_learn(kind):
    svm = pytest.importorskip("sklearn.svm")
    X, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    X, labels = X[:300] / 16, labels[:300]
    train, test = slice(200), slice(200, 300)
    K = getattr(NET.kernel(X[train]), kind)
    K_test = getattr(NET.kernel(X[test], X[train]), kind)
    machine = svm.SVC(kernel="precomputed", C=100.0).fit(K, labels[train])
    assert machine.score(K_test, labels[test]) > 0.85
