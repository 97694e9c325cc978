"""One page about a model: does it lose rank with depth, and which paths carry its output?"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..depth.curves import Curves
from ..depth.paths import Paths, path_decomposition
from ..depth.paths_heads import Contributions, head_contributions
from ..depth.paths_signs import SignedSums, random_signs
from ..depth.profile import depth_profile
from ..report.files import check_target, write_report
from .initial import reinitialised
from .limit import limit_of
from .profile import AttentionProfile, profiles, stream_profile
from .spec import Model

GENERATOR = "limitformer rank"
SHOWN = ("residual", "cosine", "effective_rank")
_DRAWS = 64  # of scores, for the limit
_ANEW = 4  # models with weights drawn anew
_COLLAPSED = 0.05  # residual
_NEAR = 0.1  # relative distance at which paths are said to make up the output
_UNIFORM = 0.2  # Dobrushin coefficient of a head that barely looks at its query


@dataclasses.dataclass(frozen=True, eq=False)
class RankReport:
    """Everything on the page; made by `rank_report`.

    Attributes:
        trained, initial: collapse metrics of the stream, of the model and of four with its
            weights drawn anew.
        limit: the same metrics of `limit_of` the model's configuration at the embedding and after
            every block, by name; None where the limit is not known, for the reason in `no_limit`.
        attention, attention_initial: Dobrushin coefficients and entropies, of the model and of
            one with its weights drawn anew.
        paths: the output by path length.
        signs: sums over individual paths.
        heads: the output by the last head.
        verdict: in words.
        settings: what the numbers depend on; seconds: that they took.
    """

    trained: Curves
    initial: Curves
    limit: dict[str, np.ndarray] | None
    no_limit: str
    attention: AttentionProfile
    attention_initial: AttentionProfile
    paths: Paths
    signs: SignedSums
    heads: Contributions
    verdict: str
    settings: dict[str, Any]
    seconds: float


def rank_report(
    model: Model, x: Any, out: str | Path | None = None, *, key=None, command: str = ""
) -> RankReport:
    """Analyse a model on one input, and write an HTML page about it.

    Args:
        model: of `limitformer.models`.
        x: text, token ids, an image or a stream.
        out: file to write; None writes nothing.
        key: of the initial weights and the random signs; fixed unless given.
        command: what makes the page again, for the page.

    Raises:
        FileExistsError: `out` exists and is not such a report.
    """
    from .rank_page import rank_page

    if out is not None:
        check_target(Path(out), GENERATOR)
    start = time.perf_counter()
    key = jax.random.key(0) if key is None else key
    trained, attention = profiles(model, x)
    initial, attention_initial = _anew(model, x, jax.random.fold_in(key, 0))
    limit, no_limit = _limit(model, x)
    paths = path_decomposition(model, x)
    found = RankReport(
        trained,
        initial,
        limit,
        no_limit,
        attention,
        attention_initial,
        paths,
        random_signs(model, x, key=jax.random.fold_in(key, 1), draws=8),
        head_contributions(model, x),
        _verdict(trained, initial, attention, paths),
        {
            "model": model.name,
            "text": x if isinstance(x, str) else f"{len(paths.output)} tokens",
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "score draws of the limit": _DRAWS,
            "models drawn anew": _ANEW,
            "dtype": str(paths.output.dtype),
        },
        time.perf_counter() - start,
    )
    if out is not None:
        again = command or f"limitformer.models.rank_report(model, x, {str(out)!r})"
        write_report(Path(out), rank_page(model, found, again), GENERATOR)
    return found


def _anew(model: Model, x: Any, key) -> tuple[Curves, AttentionProfile]:
    """Metrics of some models with weights drawn anew, and the attention of the first."""
    first, *others = (reinitialised(model, key=k) for k in jax.random.split(key, _ANEW))
    curves, attention = profiles(first, x)
    every = [curves, *(stream_profile(other, x) for other in others)]
    values = {m: np.concatenate([c.values[m] for c in every]) for m in curves.values}
    return dataclasses.replace(curves, values=values, estimated=True), attention


def _limit(model: Model, x: Any) -> tuple[dict[str, np.ndarray] | None, str]:
    """Metrics of the network of infinite width and heads on tokens like these, or why not."""
    ids = model.tokenize(x) if isinstance(x, str) and model.tokenize is not None else np.asarray(x)
    if model.config is None:
        return None, "the model has no configuration"
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        return None, "the input is no list of token ids"
    try:
        net = limit_of(model)
    except ValueError as error:
        return None, str(error)
    profile = depth_profile(net, ids[None], draws=_DRAWS, dtype=np.float64)
    turns = [i for i, name in enumerate(profile.layers) if "Repeat" in name]
    kept = [turns[0] - 1, *turns]
    return {metric: profile[metric][kept] for metric in SHOWN}, ""


def _verdict(curves: Curves, initial: Curves, attention: AttentionProfile, paths: Paths) -> str:
    residual, cosine = curves.mean("residual"), curves.mean("cosine")
    ends = (
        f"{residual[0]:.2f} of their norm tells tokens apart at the input and "
        f"{residual[-1]:.2f} at the output, where two tokens have a cosine of {cosine[-1]:.2f}"
    )
    if residual[-1] < _COLLAPSED:
        state = f"The tokens have collapsed: {ends}."
    elif residual[-1] < 0.5 * residual[0]:
        state = f"The model loses rank: {ends}."
    else:
        state = f"No collapse: {ends}."
    at = int(np.argmin(np.diff(residual))) + 1
    fall = residual[at - 1] - residual[at]
    where = f"Nowhere does this part fall by more than {max(fall, 0):.2f} in one layer."
    if fall > 0.05:
        where = (
            f"It falls most in {curves.layers[at]}, from {residual[at - 1]:.2f} to "
            f"{residual[at]:.2f}."
        )
    fresh = f"With weights drawn anew it would be {initial.mean('residual')[-1]:.2f} at the output."
    return " ".join((state, where, fresh, _carried(paths), _heads(attention)))


def _carried(paths: Paths) -> str:
    """The shortest paths that make up the output."""
    missing = paths.output - np.cumsum(paths.S, axis=0)
    far = np.linalg.norm(missing, axis=(1, 2)) / np.linalg.norm(paths.output)
    length = int(np.flatnonzero(far <= max(_NEAR, far[-1]))[0])
    return (
        f"Paths through at most {length} of {len(far) - 1} attention layers give the output with "
        f"an error of {far[length]:.1%}."
    )


def _heads(attention: AttentionProfile) -> str:
    """How many heads barely look at their query."""
    tau = [
        (t, f"{layer}.{h}")
        for layer, row in enumerate(attention.dobrushin)
        for h, t in enumerate(row)
    ]
    low = sorted((t, name) for t, name in tau if t < _UNIFORM)
    some = f"{len(low)} of {len(tau)} heads attend nearly alike from all tokens"
    if not low:
        return f"All {len(tau)} heads attend differently from different tokens."
    named = ", ".join(name for _, name in low[:5])
    return f"{some} (layer.head {named}{', ...' * (len(low) > 5)}): they only average."
