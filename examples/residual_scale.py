# %% [markdown]
# # Which residual scale for 96 layers?
#
# A transformer adds the output of each block to a running stream, h' = h + c · block(h). How should
# the scale c fall with depth? Attention averages tokens, so too large a scale makes them all
# equal; too small a scale, and the blocks do nothing. The kernel of the infinite network answers
# without training or even building one. Needs `pip install "limitformer[plot]"`.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf

QUICK = "--quick" in sys.argv
LAYERS = 6 if QUICK else 96
x = np.random.default_rng(0).normal(size=(2, 8, 64))  # two inputs of eight unlike tokens

# %% [markdown]
# ## The network
#
# Pre-norm blocks of attention and an MLP, and the same without norms. `branch` is c. `Repeat` is
# scanned, so 96 blocks compile like one.


# %%
def network(c, placement="pre"):
    block = lf.Block(lf.Attention(scale="linear"), placement=placement, branch=c)
    return lf.Serial(lf.Dense(), lf.Repeat(block, LAYERS), lf.LayerNorm())


scales = {
    "1": 1.0,
    "1 / sqrt(2 L), GPT-2's initialisation": (2 * LAYERS) ** -0.5,
    "1 / L": 1 / LAYERS,
}
fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, placement in zip(axes, ("pre", "none"), strict=True):
    for label, c in scales.items():
        profile = lf.depth_profile(network(c, placement), x)
        ax.plot(np.linspace(0, LAYERS, len(profile["cosine"])), profile["cosine"], label=label)
        print(f"placement={placement!r}, c = {label}: {profile.verdict()}")
    ax.set(xlabel="layer", title=f"norms: {placement}", ylim=(-0.05, 1.05))
axes[0].set_ylabel("mean cosine of two tokens")
axes[0].legend(fontsize=8)
plt.show()

# %% [markdown]
# A block's share of the stream is what counts. At scale 1 without norms every block adds as much as
# there is already; with pre-norm the stream grows, later blocks weigh less, and collapse is slower.
#
# ## The scale at which half of the difference is left
#
# `lf.critical` solves for the c at which a metric of the last layer meets a target.

# %%
for placement in ("pre", "none"):
    found = lf.critical(
        lambda c, placement=placement: network(c, placement),
        x,
        0.3 / LAYERS,
        2.0,
        target=0.5,
    )
    print(f"placement={placement!r}: cosine 0.5 after {LAYERS} layers at c = {found.value:.4f}")
print(f"for comparison: 1/sqrt(2 L) = {(2 * LAYERS) ** -0.5:.4f}, 1/L = {1 / LAYERS:.4f}")

# %% [markdown]
# ## How the critical scale falls with depth

# %%
depths = (2, 3) if QUICK else (6, 12, 24, 48, 96)
fig, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
for placement in ("none",) if QUICK else ("pre", "none"):
    values = []
    for depth in depths:

        def build(c, placement=placement, depth=depth):
            block = lf.Block(lf.Attention(scale="linear"), placement=placement, branch=c)
            return lf.Serial(lf.Dense(), lf.Repeat(block, depth), lf.LayerNorm())

        values.append(lf.critical(build, x, 0.3 / depth, 2.0, target=0.5).value)
    slope = np.polyfit(np.log(depths), np.log(values), 1)[0]
    ax.loglog(depths, values, "o-", label=f"norms: {placement}, slope {slope:.2f}")
ax.loglog(depths, (2 * np.array(depths)) ** -0.5, color="0.6", lw=1, label="1 / sqrt(2 L)")
ax.set(xlabel="layers L", ylabel="critical residual scale")
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# On two inputs of unlike tokens the critical scale falls like 1 / sqrt(L), with or without norms:
# GPT-2's rule has the right power, and a margin of two.
