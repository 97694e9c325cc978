"""Small random models of every kind of sublayer, with random biases and gains."""

import numpy as np

from limitformer.models import from_spec


def model(
    placement="pre",
    depth=3,
    heads=2,
    groups=None,
    d=6,
    dk=3,
    hidden=7,
    seed=0,
    mlp=True,
    gated=False,
    norm="layer",
    activation="gelu",
    dtype=np.float64,
    **attention,
):
    """Weights are as large as keeps tokens apart; nothing is zero or one."""
    rng = np.random.default_rng(seed)
    G = groups or heads

    def draw(*shape, std=1.0):
        return rng.normal(size=shape) * std

    def norm_of():
        bias = draw(d, std=0.3) if norm == "layer" else None
        return {"gain": 1 + draw(d, std=0.3), "bias": bias, "centred": norm == "layer"}

    def layer():
        made = {
            "attention": {
                "W_Q": draw(heads, d, dk),
                "W_K": draw(G, d, dk),
                "W_V": draw(G, d, dk) / np.sqrt(d),
                "W_O": draw(heads, dk, d) / np.sqrt(dk * heads),
                "b_Q": draw(heads, dk),
                "b_K": draw(G, dk),
                "b_V": draw(G, dk),
                "b_O": draw(d, std=0.3),
                **attention,
            },
        }
        if norm != "none":
            made["attention_norm"] = norm_of()
        if mlp:
            made["mlp"] = {
                "W_in": draw(d, hidden) / np.sqrt(d),
                "b_in": draw(hidden, std=0.5),
                "W_out": draw(hidden, d) / np.sqrt(hidden),
                "b_out": draw(d, std=0.3),
                "activation": activation,
            }
            if gated:
                made["mlp"] |= {"W_gate": draw(d, hidden), "b_gate": draw(hidden)}
            if norm != "none":
                made["mlp_norm"] = norm_of()
        return made

    spec = {
        "name": f"tiny {placement}",
        "placement": placement,
        "layers": [layer() for _ in range(depth)],
        "embedding": {"tokens": draw(20, d), "positions": draw(12, d)},
        "max_tokens": 12,
    }
    if placement == "pre" and norm != "none":
        spec["final"] = norm_of()
    return from_spec(spec, dtype=dtype)


KINDS = {
    "pre": {},
    "post": {"placement": "post"},
    "rms gated grouped": {"norm": "rms", "gated": True, "heads": 4, "groups": 2, "depth": 2},
    "causal relu": {"causal": True, "activation": "relu", "heads": 3, "depth": 2},
    "no mlp": {"mlp": False, "placement": "post"},
    "no norm": {"norm": "none", "activation": "tanh"},
    "rotary": {"rotary": {"frequencies": np.array([1.0])}, "activation": "silu", "window": 3},
}


def tokens(n=5, seed=1):
    return np.random.default_rng(seed).integers(0, 20, size=n)
