# %% [markdown]
# # What heads change
#
# With infinitely many heads a wide transformer is a Gaussian process. Real ones have a few, and
# at any width the attention scores of a head stay random: outputs are Gaussian only given the
# scores. This example shows how far that is from a Gaussian, and what it does to a prediction.
# Needs `pip install "limitformer[plot]"`.

# %%
import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf
from limitformer.heads.distance import distances

QUICK = "--quick" in sys.argv
DRAWS = 200 if QUICK else 20_000
HEADS = (1, 2) if QUICK else (1, 2, 4, 8, 16)
key = jax.random.key(0)
x = np.random.default_rng(0).normal(size=(1, 8, 32))
net = lf.Serial(lf.Dense(), lf.Attention(qk_std=2.0), lf.FirstToken(), lf.Dense())

# %% [markdown]
# ## The density of one output
#
# `law.density` is that of the mixture itself, not of a histogram, so that tails are exact.

# %%
laws = {H: net.with_heads(H).law(x, key=key, draws=DRAWS) for H in HEADS}
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
scale = np.sqrt(laws[HEADS[-1]].mean.value[0, 0])
y = np.linspace(0, 6, 100)
for H, law in laws.items():
    left.semilogy(y, law.density(y * scale).value * scale, label=f"{H} heads")
left.semilogy(y, np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi), "k--", lw=1, label="Gaussian")
left.set(xlabel="output / standard deviation", ylabel="density", ylim=(1e-8, 1))
left.legend(fontsize=8)
kurtosis = [laws[H].kurtosis for H in HEADS]
right.errorbar(
    HEADS,
    [np.ravel(k.value)[0] for k in kurtosis],
    [np.ravel(k.sem)[0] for k in kurtosis],
    fmt="o-",
    label="excess kurtosis",
)
right.plot(HEADS, [distances(laws[H]).kl.value for H in HEADS], "s-", label="KL to Gaussian, nats")
right.set(xscale="log", yscale="log", xlabel="heads", xticks=HEADS, xticklabels=HEADS)
right.legend(fontsize=8)
plt.show()
for H, law in laws.items():
    tail, sem = (np.ravel(part)[0] for part in (law.tail(4 * scale).value, law.tail(4 * scale).sem))
    print(f"{H:2} heads: P(|y| > 4 std) = {tail:.1e} ± {sem:.0e}")
print("Gaussian: P(|y| > 4 std) = 6.3e-05")

# %% [markdown]
# The excess kurtosis falls as 1/H and the divergence as 1/H²: four times the heads, a sixteenth of
# the divergence.
#
# ## A prediction
#
# Conditioned on data, the draws of scores that explain the data count more: with few heads the
# kernel itself is learned, with infinitely many it is fixed. The targets here depend on one token
# picked by its content. Judge by the evidence; 40 test inputs are few for the errors to differ.

# %%
rng = np.random.default_rng(1)
n = 24
inputs = rng.normal(size=(n + 40, 4, 3))
chosen = inputs[:, :, 0].argmax(axis=1)
targets = inputs[np.arange(n + 40), chosen, 1]
deep = lf.Serial(
    lf.Dense(), lf.Attention(qk_std=3.0), lf.Dense(), lf.Relu(), lf.MeanPool(), lf.Dense()
)
for H in () if QUICK else (lf.inf, 1, 4):
    post = lf.condition(
        deep.with_heads(H),
        inputs[:n],
        targets[:n],
        noise=0.05,
        key=key,
        draws=64 if H in (1, 4) else 1024,
    )
    error = np.sqrt(np.mean((np.ravel(post.predict(inputs[n:]).mean) - targets[n:]) ** 2))
    evidence = getattr(post.log_evidence, "value", post.log_evidence)
    print(f"heads {H!s:>3}: log evidence {evidence:7.2f}, root mean squared error {error:.3f}")
    if H in (1, 4):
        print(f"    {post.prior_ess:.1f} effective draws from the prior, {post.ess:.1f} afterwards")
