"""How much the draws of attention scores gain over independent ones, and whether errors are honest.

    python benchmarks/draws.py [--quick]

Gain: standard deviation of K' (NNGP) and T' (NTK) of one softmax layer at scale "sqrt" with
independent normals over that with `limitformer.scores.normals`, at the same number of draws; the
root of the mean variance over all entries, and the least of any entry (noise if runs are few).
Both variances are those of one replicate of 1024 / replicates draws: the mean over independent
replicates has the same ratio.
Honest: Kolmogorov-Smirnov test of (mean - truth) / error against Student's t.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from limitformer.scores import (
    REPLICATES,
    attention_draws,
    draw_scores,
    draws_each,
    joint_features,
    mean_and_error,
    normals,
    ntk_sum,
    square,
)

DRAWS = 1024
SCALES = (0.25, 1.0, 2.0)
# The kernel of theory.md, section 0.
K0 = np.array(
    [
        [1.05, -0.20, 0.16, 0.21],
        [-0.20, 1.75, 0.60, -0.09],
        [0.16, 0.60, 1.51, -0.08],
        [0.21, -0.09, -0.08, 0.72],
    ]
)


def plain(*, key, draws, dims):
    """Independent normals."""
    return jax.random.normal(key, (draws, dims))


def layer(normals, Fx, Fy, s, key, draws):
    """K' and T' of one attention layer (s_OV = 1, T = 0, no bias): (2, tokens, tokens)."""
    f = Fx.shape[1]
    Z = square(normals(key=key, draws=draws, dims=f * f), f, f)[:, 0]
    K = Fx @ Fy.T
    P, R = (attention_draws(draw_scores(F, F, Z, s)) for F in (Fx, Fy))
    sums = ntk_sum(P, R, K, None, K, None, chunk=16)
    return jnp.stack([sums.K, 2 * sums.K + 2 * s * s * K * sums.S_K])


def sample(normals, Fx, Fy, draws, runs, batch=4):
    """Runs of one replicate at every scale: (scales, runs, 2, tokens, tokens), float64."""
    run = jax.jit(jax.vmap(lambda k, s: layer(normals, Fx, Fy, s, k, draws), in_axes=(0, None)))
    keys = jax.random.split(jax.random.key(7), (runs // batch, batch))
    return np.stack(
        [
            np.concatenate([np.asarray(run(k, jnp.float32(s)), np.float64) for k in keys])
            for s in SCALES
        ]
    )


def wishart(tokens, features, kind, seed):
    """Features of two random inputs: their own, or the factor of their joint token kernel."""
    x, y = np.random.default_rng(seed).normal(size=(2, tokens, features)) / np.sqrt(features)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    return (x, y) if kind == "raw" else joint_features(x @ x.T, y @ y.T, x @ y.T)


def gains(label, Fx, Fy, runs, replicates=REPLICATES):
    """Print one line: gain of NNGP / NTK at every scale."""
    start = time.perf_counter()
    each = draws_each(DRAWS, replicates)
    base, ours = (sample(n, Fx, Fy, each, runs).var(1, ddof=1) for n in (plain, normals))
    mean = np.sqrt(base.mean((2, 3)) / ours.mean((2, 3)))
    least = np.sqrt((base / ours).min((2, 3)))
    cells = " | ".join(
        f"{m[0]:5.2f} /{m[1]:5.2f} ({low[0]:.1f} /{low[1]:4.1f})"
        for m, low in zip(mean, least, strict=True)
    )
    print(f"{label:34s} {cells} | {runs} runs, {time.perf_counter() - start:.0f} s", flush=True)


def honest(label, Fx, Fy, runs):
    """Print one line: p-values of the standard errors of NNGP / NTK entry (1, 2) at every scale."""
    each = draws_each(DRAWS)
    v = sample(normals, Fx, Fy, each, runs * REPLICATES, batch=40)[..., 0, 1]
    truth = v.mean(1, keepdims=True)  # the error of the truth is 1 / sqrt(runs) of that of a run
    mean, error = mean_and_error(
        jnp.asarray(np.moveaxis(v.reshape(3, runs, REPLICATES, 2), 2, 0), jnp.float32)
    )
    z = np.asarray((mean - truth) / error)
    p = [
        [stats.kstest(z[s, :, e], stats.t(REPLICATES - 1).cdf).pvalue for e in (0, 1)]
        for s in range(3)
    ]
    print(f"{label:34s} " + " | ".join(f"{a:.2f} / {b:.2f}" for a, b in p), flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 tokens only")
    quick = parser.parse_args().quick
    print(f"{DRAWS} draws, {REPLICATES} replicates; gain NNGP / NTK (least of any entry)")
    print(f"{'tokens, features':34s} " + " | ".join(f"s_QK = {s:<18}" for s in SCALES))
    F0 = jnp.asarray(np.linalg.cholesky(K0), jnp.float32)
    gains("4, kernel of theory.md, x = y", F0, F0, 400)
    for features in (4, 8, 16):
        gains(f"4, joint factor, {features} features", *wishart(4, features, "joint", 1), 400)
    gains("4, raw, 4 features", *wishart(4, 4, "raw", 1), 400)
    if not quick:
        gains("16, joint factor, 32 features", *wishart(16, 32, "joint", 1), 60)
        gains("16, raw, 16 features", *wishart(16, 16, "raw", 1), 60)
        gains("64, joint factor, 128 features", *wishart(64, 128, "joint", 1), 12)
        for replicates in (4, 16):
            pair = wishart(4, 8, "joint", 1)
            gains(f"4, joint factor, R = {replicates}", *pair, 400, replicates)
    print(f"p-value, z of 500 runs against t with {REPLICATES - 1} degrees of freedom")
    honest("4, joint factor, 8 features", *wishart(4, 8, "joint", 1), 500)


if __name__ == "__main__":
    main()
