"""From settings to inputs, network, TOML and Python, and from a network back to settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import limitformer as lf

from .settings import CONTROLS, Range, Settings

ACTIVATIONS = {
    "relu": lf.Relu,
    "gelu": lf.Gelu,
    "erf": lf.Erf,
    "sin": lf.Sin,
    "abs": lf.Abs,
}
TWIN_HEADS = 8
"""Heads of the finite networks that stand beside infinitely many."""
SMOOTHNESS = 20.0

_KERNELS = {
    "equal": "np.where(a[:, None] == a, 1.0, {c:g})",
    "near": "{c:g} ** abs(a[:, None] - a)",
    "groups": "np.where(a[:, None] == a, 1.0, {c:g} * ((a[:, None] < {half}) == (a < {half})))",
}


def input_kernel(s: Settings) -> np.ndarray:
    """K of the input's tokens, `(tokens, tokens)`.

    Example:
        >>> input_kernel(Settings(tokens=3, input="near", correlation=0.5)).tolist()
        [[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1.0]]
    """
    a, c = np.arange(s.tokens), s.correlation
    far = abs(a[:, None] - a)
    if s.input == "near":
        return c ** far.astype(float)
    first = a < s.tokens // 2
    alike = c * (first[:, None] == first) if s.input == "groups" else c
    return np.where(far == 0, 1.0, alike)


def inputs(s: Settings) -> np.ndarray:
    """One input `(1, tokens, features)` with that kernel."""
    return math.sqrt(s.tokens) * np.linalg.cholesky(input_kernel(s))[None]


def heads_of(s: Settings) -> float:
    """The number of heads, `lf.inf` for infinitely many."""
    return lf.inf if s.infinite else int(s.heads)


def network(s: Settings) -> Any:
    """The network: an embedding, a position code, blocks, a last layer; one output per token."""
    slopes = lf.Alibi(twin_heads(s))
    attention = lf.Attention(
        scale=s.scale,
        heads=heads_of(s),
        qk_std=s.qk_std,
        position=slopes if s.positions == "alibi" else None,
        causal=s.causal == "yes",
    )
    before = (lf.LayerNorm(),) if s.norm == "pre" else ()
    after = (lf.LayerNorm(),) if s.norm == "post" else ()
    if s.activation == "none":
        block: Any = lf.Serial(lf.Residual(*before, attention, skip=s.skip), *after)
    else:
        block = lf.Block(
            attention,
            ACTIVATIONS[s.activation](),
            placement=s.norm,
            skip=s.skip,
            w_std=s.w_std,
        )
    return lf.Serial(lf.Dense(), *_codes(s), lf.Repeat(block, s.depth), lf.Dense())


def _codes(s: Settings) -> tuple[Any, ...]:
    if s.positions == "onehot":
        return (lf.Position(lf.OneHot()),)
    if s.positions == "smooth":
        return (lf.Position(lf.SquaredExponential(SMOOTHNESS)),)
    return ()


def toml(s: Settings) -> str:
    """The network as a file for `lf.load`."""
    return network(s).to_toml()


def python(s: Settings) -> str:
    """The lines that compute what the page shows."""
    return "\n".join([*_python_input(s), "", *_python_network(s), "", *_python_results(s), ""])


def _python_input(s: Settings) -> list[str]:
    return [
        "import jax, numpy as np",
        "import limitformer as lf",
        "",
        f"a = np.arange({s.tokens})",
        f"K = {_KERNELS[s.input].format(c=s.correlation, half=s.tokens // 2)}",
        f"x = np.sqrt({s.tokens}) * np.linalg.cholesky(K)[None]",
    ]


def _python_network(s: Settings) -> list[str]:
    heads = "lf.inf" if s.infinite else s.heads
    given = [f'scale="{s.scale}"', f"heads={heads}", f"qk_std={s.qk_std:g}"]
    if s.positions == "alibi":
        given.append(f"position=lf.Alibi({twin_heads(s)})")
    if s.causal == "yes":
        given.append("causal=True")
    lines = [f"attention = lf.Attention({', '.join(given)})"]
    norm = "lf.LayerNorm(), "
    if s.activation == "none":
        before, after = (norm if s.norm == w else "" for w in ("pre", "post"))
        lines.append(f"layer = lf.Residual({before}attention, skip={s.skip:g})")
        lines.append(f"block = lf.Serial(layer{', ' + after[:-2] if after else ''})")
    else:
        lines += [
            "block = lf.Block(",
            f"    attention, lf.{ACTIVATIONS[s.activation].__name__}(),",
            f'    placement="{s.norm}", skip={s.skip:g}, w_std={s.w_std:g},',
            ")",
        ]
    code = {
        "onehot": "lf.Position(lf.OneHot()),",
        "smooth": f"lf.Position(lf.SquaredExponential({SMOOTHNESS:g})),",
    }.get(s.positions, "")
    lines += [
        "net = lf.Serial(",
        "    lf.Dense(),",
        *([f"    {code}"] if code else []),
        f"    lf.Repeat(block, {s.depth}),",
        "    lf.Dense(),",
        ")",
    ]
    return lines


def _python_results(s: Settings) -> list[str]:
    lines = ["key = jax.random.key(0)"]
    if s.random and not s.infinite:
        lines.append("law = net.law(x, key=key, draws=500)")
        lines.append("profile = lf.depth_profile(net, x).with_heads(key=key)")
    else:
        lines.append("kernel = net.kernel(x).nngp[0, 0]  # the token kernel")
        lines.append("profile = lf.depth_profile(net, x)")
    sizes = f"features={s.tokens}, tokens={s.tokens}, width={s.width}, heads={twin_heads(s)}"
    lines.append(f"twin = net.twin(key=key, {sizes})")
    lines.append("outputs = twin(x)[0, :, 0]")
    return lines


def twin_heads(s: Settings) -> int:
    """Heads of the finite network."""
    return TWIN_HEADS if s.infinite else int(s.heads)


def settings_of(net: Any) -> Settings:
    """The settings whose network this is; what a network does not say is at its default.

    Raises:
        ValueError: a network that the sliders cannot reach.

    Example:
        >>> settings_of(network(Settings(depth=5, skip=0.75))).query
        'depth=5&skip=0.75'
    """
    try:
        s = _read(net)
        found = network(s).to_toml() == net.to_toml()
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
        found, s = False, Settings()
    if not found:
        raise ValueError(
            "this network is not one that the sliders reach; expected lf.Serial(lf.Dense(), "
            "[lf.Position(...)], lf.Repeat(lf.Block(...), depth), lf.Dense()) with values on the "
            "sliders, such as the TOML that the page shows"
        )
    return s


def _read(net: Any) -> Settings:
    layers = net.layers
    repeat = next(layer for layer in layers if isinstance(layer, lf.Repeat))
    steps: Any = repeat.layer.layers  # pyright: ignore[reportAttributeAccessIssue]
    residual = steps[0]
    inside = residual.body.layers
    attention = next(layer for layer in inside if isinstance(layer, lf.Attention))
    given: dict[str, Any] = {
        "heads": "inf" if attention.heads == lf.inf else str(attention.heads),
        "qk_std": float(attention.qk_std),
        "scale": attention.scale,
        "causal": "yes" if attention.causal else "no",
        "depth": repeat.n,
        "skip": float(residual.skip),
        "norm": "none",
        "activation": "none",
        "positions": "none" if attention.position is None else "alibi",
    }
    if isinstance(inside[0], lf.LayerNorm):
        given["norm"] = "pre"
    elif isinstance(steps[-1], lf.LayerNorm):
        given["norm"] = "post"
    branches = [step for step in steps if isinstance(step, lf.Residual)]
    if len(branches) > 1:
        mlp: Any = [
            layer for layer in branches[1].body.layers if not isinstance(layer, lf.LayerNorm)
        ]
        given["w_std"] = float(mlp[0].w_std)
        given["activation"] = mlp[1].label.lower()
    for layer in layers:
        if isinstance(layer, lf.Position):
            given["positions"] = "onehot" if isinstance(layer.decay, lf.OneHot) else "smooth"
    s = Settings(**given)
    for name in given:
        kind = CONTROLS[name].kind
        kind.read(f"{given[name]:g}" if isinstance(kind, Range) else given[name])
    return s
