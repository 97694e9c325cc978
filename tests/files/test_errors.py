"""What is wrong in a file is said with its name, the line, the place and what was expected."""

import re

import jax
import jax.numpy as jnp
import pytest

import limitformer as lf
from limitformer.files import NetworkFileError, from_dict, load, loads, to_toml


def failure(text: str, **options) -> NetworkFileError:
    with pytest.raises(NetworkFileError) as caught:
        loads(text, file="net.toml", **options)
    return caught.value


HEAD = """limitformer = 1

[[layers]]
type = "Dense"
w_std = 1.5

[[layers]]
"""


@pytest.mark.parametrize(
    "rest, message",
    [
        ('type = "Dens"', 'net.toml:8: layers[1].type: no layer is called "Dens", did you mean'),
        ('type = "layer_norm"', '"layer_norm", did you mean "LayerNorm"?'),
        ('type = "Zzz"', 'no layer is called "Zzz"; known are Abs, Activation, Alibi, Attention'),
        ('type = "Layer"', 'no layer is called "Layer"'),
        ('type = "Kernel"', 'no layer is called "Kernel"'),
        ('type = "os.system"', 'no layer is called "os.system"'),
        ("w_std = 1.0", 'net.toml:7: layers[1]: expected type = "...", the name of a layer such'),
        ("type = 3", 'net.toml:7: layers[1]: expected type = "..."'),
        (
            'type = "Dense"\nw_sdt = 2.0',
            'net.toml:9: layers[1].w_sdt: unknown argument, did you mean "w_std"?; Dense takes '
            "w_std, b_std, parametrisation, width",
        ),
        ('type = "Relu"\nslope = 0.1', "unknown argument; Relu takes no arguments"),
        ('type = "Conv"\nw_std = 2.0', "net.toml:7: layers[1]: Conv needs window"),
        ('type = "Dense"\nw_std = "big"', 'net.toml:9: layers[1].w_std: expected a number, got "b'),
        ('type = "Dense"\nw_std = true', "layers[1].w_std: expected a number, got true"),
        ('type = "Dense"\nw_std = {type = "Relu"}', "expected a number, got a Relu"),
        ('type = "Dense"\nwidth = 1.5', "layers[1].width: expected a whole number, got 1.5"),
        ('type = "Dense"\nw_std = nan', "net.toml:9: layers[1].w_std: nan is not a number"),
        (
            'type = "Dense"\nw_std = inf',
            "net.toml:9: layers[1].w_std: Dense: a hyper-parameter must be finite, got inf",
        ),
        ('type = "Dense"\nw_std = 1979-05-27', "expected a number, string, bool, list or layer"),
        ('type = "Erf"\nscale = "x"', 'layers[1].scale: expected a number, got "x"'),
        ('type = "Attention"\ncausal = 1', "layers[1].causal: expected true or false, got 1"),
        (
            'type = "Attention"\nqk_std = 0.5\nscale = "sqr"',
            "net.toml:10: layers[1].scale: Attention: scale='sqr' is not known; choose one of sqrt",
        ),
        (
            'type = "Attention"\nscale = "sqrt"\ntied = true\nb_std = 0.1',
            'net.toml:10: layers[1].tied: Attention: tied queries and keys at scale="sqrt" have',
        ),
        (
            'type = "Attention"\nmask = ["01", "00"]',
            "net.toml:9: layers[1].mask: Attention: the pair mask leaves queries [1] without",
        ),
        ('type = "Attention"\nheads = 0', "layers[1].heads: Attention: heads must be lf.inf or"),
        ('type = "Attention"\nposition = "rotary"', "layers[1].position: Attention: position must"),
        (
            'type = "Conv"\nw_std = 2.0\nwindow = [0]',
            "net.toml:10: layers[1].window: Conv: window must be one or two whole numbers",
        ),
        (
            'type = "Repeat"\nn = 0\nlayer = {type = "Dense"}',
            "net.toml:9: layers[1].n: Repeat needs a whole number of repetitions of at",
        ),
        (
            'type = "Residual"\nlayers = [\n  {type = "LayerNorm"},\n  {type = "Dense", w = 1},\n]',
            "net.toml:11: layers[1].layers[1].w: unknown argument; Dense takes",
        ),
        (
            'type = "Repeat"\nn = 2\nlayer = [\n  {type = "Dense"},\n  {type = "Gleu"},\n]',
            'net.toml:12: layers[1].layer[1].type: no layer is called "Gleu", did you mean "Gelu"?',
        ),
        ('type = "Serial"\nlayers = "Dense"', "layers[1].layers: expected a list of layers"),
        (
            'type = "Serial"\nlayers = ["Dense"]',
            'layers[1].layers[0]: expected a layer, such as {type = "Dense"}, got "Dense"',
        ),
        ('type = "Serial"\nlayers = [{type = "Rotary"}]', "Rotary is no layer by itself"),
        (
            'type = "Position"\n[layers.decay]\ntype = "SquaredExponential"\nrho = 2.0\nphi = -1.0',
            "net.toml:12: layers[1].decay.phi: SquaredExponential: phi must not be negative",
        ),
        ('type = "Activation"\nfn = "tanh"', "Activation takes a Python function, which a file c"),
        ('type = "RelativeBias"', 'which a file cannot hold; use a named type such as "Alibi"'),
        ('type = "Sum"\nweights = ["a"]', "layers[1].weights: expected a list of numbers, got ['a"),
        ('type = "Transformer"\ndepth = "2"', 'layers[1].depth: expected a whole number, got "2"'),
    ],
)
def test_values(rest, message):
    error = failure(HEAD + rest + "\n")
    assert message in str(error)
    assert error.file == "net.toml"
    assert error.line is not None and str(error).startswith(f"net.toml:{error.line}: layers[1]")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "net.toml:1: expected the version of the format first: limitformer = 1"),
        ("[[layers]]\ntype='Dense'", "net.toml:1: expected the version of the format first"),
        (
            "\n\nlimitformer = 2\nlayers = []",
            "net.toml:3: limitformer: the format is 2, but this limitformer reads 1; pip install",
        ),
        ("limitformer = true\nlayers = []", "the format is True"),
        ("limitformer = 1", "net.toml:1: expected layers: [[layers]], then type"),
        ("limitformer = 1\ntype = 'Rotary'", "Rotary belongs into a layer and is not a network"),
        ("limitformer = 1\nlayers = []\nname = 'x'", "net.toml:3: name: unknown argument; Serial"),
        ("limitformer = 1\n[[layers]\n", "net.toml:2: this is not TOML: "),
        ("limitformer = 1\nlayers = [", "net.toml:2: this is not TOML: "),
        ("limitformer = 1\nlimitformer = 1", "net.toml:2: this is not TOML: Cannot overwrite"),
    ],
)
def test_documents(text, message):
    assert str(failure(text)).startswith(message) or message in str(failure(text))


def test_deep_nesting_is_refused():
    deep = "{type = 'Repeat', n = 1, layer = " * 5000 + "{type = 'Dense'}" + "}" * 5000
    assert "nested too deep" in str(failure(f"limitformer = 1\nlayers = [{deep}]"))


def test_files(tmp_path):
    path = tmp_path / "net.toml"
    path.write_bytes(b"limitformer = 1\n# caf\xe9\nlayers = []\n")
    with pytest.raises(NetworkFileError, match=r"net.toml:2: this is not UTF-8 text \(byte 0xe9\)"):
        load(path)
    path.write_bytes(b"\xef\xbb\xbflimitformer = 1\r\n\r\n[[layers]]\r\ntype = 'Dens'\r\n")
    with pytest.raises(NetworkFileError, match=re.escape(f"{path}:4: layers[0].type: no layer")):
        load(str(path))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.toml")


def test_dictionaries():
    with pytest.raises(NetworkFileError, match=r"^layers\[0\].w: unknown argument; Dense takes"):
        from_dict({"limitformer": 1, "layers": [{"type": "Dense", "w": 1.0}]})
    with pytest.raises(NetworkFileError, match=r"^expected the version"):
        from_dict({})
    with pytest.raises(TypeError):
        from_dict(3)  # type: ignore[arg-type]


def _function(x):
    return x


@pytest.mark.parametrize(
    "net, message",
    [
        (
            lf.Serial(lf.Residual(lf.Dense(), lf.Activation(_function))),
            "0.Residual/branch/1.Activation: fn is a Python function (_function), which a file "
            "cannot hold; use a named activation such as lf.Gelu() or lf.Polynomial(coefficients)",
        ),
        (
            lf.Repeat(lf.Attention(mask=_function), 2),
            "loop: mask is a Python function (_function), which a file cannot hold; give the array "
            "mask=fn(S) for the longest length S",
        ),
        (
            lf.Attention(position=lf.Position(_function)),
            "Attention.position: decay is a Python function (_function), which a file cannot hold; "
            "use lf.OneHot() or lf.SquaredExponential(phi, rho)",
        ),
        (
            lf.Attention(position=lf.RelativeBias(_function)),
            "Attention.position: fn is a Python function (_function), which a file cannot hold; "
            "use lf.Alibi(slopes)",
        ),
        (
            lf.Serial(jax.tree.map(lambda v: jnp.full((3,), v), lf.Dense())),
            "0.Dense: w_std is an array of shape (3,), but a file holds one network; take one "
            "entry, jax.tree.map(lambda v: v[i], net), or write one file per entry",
        ),
        (lf.Serial(lf.Erf(float("nan"))), "0.Activation: scale is not a number (nan)"),
    ],
)
def test_what_cannot_be_written(net, message):
    with pytest.raises(NetworkFileError) as caught:
        to_toml(net)
    assert str(caught.value) == message


def test_traced_networks_are_refused():
    def write(w_std):
        return len(to_toml(jax.tree.map(lambda _: w_std, lf.Dense())))

    with pytest.raises(NetworkFileError, match=r"^Dense: w_std is traced by a JAX transformation;"):
        jax.jit(write)(1.0)


def test_not_a_network():
    with pytest.raises(TypeError):
        to_toml(3)  # type: ignore[arg-type]
