# %% [markdown]
# # From a Hugging Face configuration to its limit
#
# A `config.json` says enough to know what the architecture does at its own initialisation, before
# anything is trained or downloaded: `lf.models.limit_of` turns it into a network whose limits are
# those of the model. Needs `pip install "limitformer[plot]"`.

# %%
import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf

QUICK = "--quick" in sys.argv
DEPTH = 1 if QUICK else 12

# %% [markdown]
# ## The configurations
#
# Any dictionary, such as `json.load(open("config.json"))` or `AutoConfig(...).to_dict()`. These are
# BERT base, GPT-2 and a LLaMA of the same depth.

# %%
configurations = {
    "BERT": {"model_type": "bert", "num_hidden_layers": DEPTH},
    "GPT-2": {"model_type": "gpt2", "n_layer": DEPTH},
    "LLaMA": {
        "model_type": "llama",
        "num_hidden_layers": DEPTH,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_attention_heads": 12,
    },
}
limits = {name: lf.models.limit_of(config) for name, config in configurations.items()}
limits = dict(list(limits.items())[: 1 if QUICK else None])
print(limits["BERT"])

# %% [markdown]
# ## What each does to twelve different words

# %%
ids = np.arange(4, 16)[None]
draws = 32 if QUICK else 256
fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, net in limits.items():
    profile = lf.depth_profile(net, ids, draws=draws)
    print(f"{name}: {profile.verdict()}")
    cosine = profile["cosine"]
    ax.plot(np.linspace(0, DEPTH, len(cosine)), cosine, label=name)
ax.set(xlabel="layer", ylabel="mean cosine of two tokens", ylim=(-0.05, 1.05))
ax.legend()
plt.show()

# %% [markdown]
# BERT normalises after each sublayer and starts with weights of standard deviation 0.02, so scores
# are small, attention is nearly a plain average, and tokens grow alike layer by layer. In GPT-2 the
# stream is added to without norms in between.
#
# ## Is that what a real one does?
#
# `initial` is the finite random model of the same configuration, here narrower than BERT base. Ten
# draws of its weights, against the limit.

# %%
small = {
    "model_type": "bert",
    "num_hidden_layers": DEPTH,
    "hidden_size": 96 if QUICK else 384,
    "intermediate_size": 192 if QUICK else 1536,
    "num_attention_heads": 6,
}
predicted = lf.depth_profile(lf.models.limit_of(small), ids, draws=draws)["cosine"][-1]
measured = [
    lf.models.stream_profile(lf.models.initial(small, key=key, vocabulary=20), ids[0]).mean(
        "cosine"
    )[-1]
    for key in jax.random.split(jax.random.key(0), 2 if QUICK else 10)
]
error = np.std(measured, ddof=1) / np.sqrt(len(measured))
print(f"cosine after {DEPTH} layers: limit {predicted:.4f}")
width = small["hidden_size"]
print(f"{len(measured)} random models of width {width}: {np.mean(measured):.4f} ± {error:.4f}")
