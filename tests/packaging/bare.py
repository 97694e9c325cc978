"""What `pip install limitformer` alone must do: kernels work, and each extra is named when missing.

python bare.py            in an environment without extras (`.ci/wheel`)
python bare.py --block    in any environment: imports of extras fail as if they were not there
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = {
    *("dask", "diffrax", "distributed", "fsspec", "gpjax", "matplotlib", "optax", "pandas"),
    *("pyarrow", "safetensors", "sklearn", "threadpoolctl", "tinygp", "tokenizers", "torch"),
    *("transformers", "zarr"),
}


class Absent:
    """An import hook for which no extra is installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def needs(extra: str, action) -> None:
    """The action fails, and says how to install the extra."""
    try:
        action()
    except ModuleNotFoundError as error:
        command = f'pip install "limitformer[{extra}]"'
        assert command in str(error), f"{extra}: expected {command!r} in {str(error)!r}"
    else:
        raise AssertionError(f"{extra}: nothing was missing")


def kernels() -> None:
    """A kernel of drawn scores, a file, a posterior, a finite network."""
    import jax
    import numpy as np

    import limitformer as lf

    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    net = lf.Serial(lf.Dense(), lf.Residual(lf.Attention()), lf.MeanPool())
    again = lf.files.loads(net.to_toml())
    k = again.kernel(x, kinds="nngp", draws=64)
    assert np.linalg.eigvalsh(k.nngp).min() > 0 and (k.nngp_sem > 0).all()
    post = lf.condition(lf.Serial(lf.Dense()), np.eye(3), np.arange(3.0), noise=1e-8)
    assert np.allclose(post.predict(np.eye(3)).mean, np.arange(3.0), atol=1e-4)
    assert net.twin(key=jax.random.key(0), features=2, width=8, heads=2)(x).shape == (3, 8)


def extras() -> None:
    """Every extra that is not there is named."""
    import numpy as np

    import limitformer as lf

    net, x = lf.Serial(lf.Dense()), np.eye(3)
    folder = Path(tempfile.mkdtemp())
    (folder / "t.parquet").touch()
    needs("sklearn", lambda: lf.data.digits())
    needs("sklearn", lambda: __import__("limitformer.sklearn"))
    needs("sklearn", lambda: lf.data.Embedder)
    needs("data", lambda: lf.data.sentences(folder / "t.parquet"))
    needs("save", lambda: lf.condition(net, x, x[0], noise=0.1).save(folder / "fit"))
    needs("ode", lambda: lf.gp.cross_entropy_flow(x, x, times=[1.0]))
    needs("tiles", lambda: lf.gram(net, x, store=f"{folder}/K.zarr"))
    needs("tinygp", lambda: lf.interop.tinygp_kernel(net))
    needs("gpjax", lambda: lf.interop.gpjax_kernel(net, shape=(3,)))

    from limitformer.plot import plot_ridge_path

    needs("plot", lambda: plot_ridge_path(lf.ridge_path(np.eye(3) + 1, np.arange(3.0))))

    from limitformer.models import hf

    needs("hf", lambda: hf.from_hf(None))


def command() -> None:
    """`python -m limitformer` says what it needs, or works."""
    if "--block" in sys.argv:
        return
    found = subprocess.run(
        [sys.executable, "-m", "limitformer", "--help"], capture_output=True, text=True
    )
    said = found.stdout + found.stderr
    assert found.returncode == 0 or 'pip install "limitformer[' in said, said


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())  # not the checkout
    if "--block" in sys.argv:
        sys.meta_path.insert(0, Absent())
    kernels()
    extras()
    command()
    print("kernels work without extras, and each missing extra is named")
