# %% [markdown]
# # Text classification with uncertainty
#
# A Gaussian process over sentences: the limit of an infinitely wide network on word vectors. There
# is no training loop, and every answer comes with a probability that can be checked.
#
# The data are film sentences (SST-2) and GloVe vectors, read from the folder that the environment
# variable `LIMITFORMER_DATA` names. Without these files a small set of made-up sentences takes
# their place, so that the example runs anywhere. Needs `pip install "limitformer[report,data]"`.

# %%
import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf

QUICK = "--quick" in sys.argv
FOLDER = Path(os.environ.get("LIMITFORMER_DATA", "data"))
TRAIN, TEST = (30, 30) if QUICK else (600, 600)

# %% [markdown]
# ## Sentences
#
# `lf.data.sentences` reads any parquet or CSV file with columns for text, label and split;
# `lf.data.glove` reads GloVe's own files.


# %%
def film_sentences():
    """SST-2 and GloVe from files, or made-up sentences and one vector per word."""
    try:
        data = lf.data.sentences(FOLDER / "sentence_sets.parquet", dataset="sst2")
        vectors = lf.data.glove(FOLDER / "glove6b_100d_top50k_f16.npz")
        return data.take(TRAIN, TEST, key=0), vectors
    except (FileNotFoundError, ModuleNotFoundError) as error:
        print(f"{error}\n-> going on with made-up sentences\n")
    rng = np.random.default_rng(0)
    good, bad = ["warm", "lovely", "quick", "clever"], ["dull", "slow", "cold", "tired"]
    plain = ["a", "film", "with", "some", "scenes", "and", "music", "actors"]

    def sentence(label):
        mood = (good, bad) if label else (bad, good)
        counts = rng.multinomial(4, (0.65, 0.35))  # mostly of one kind
        words = [*rng.choice(mood[0], counts[0]), *rng.choice(mood[1], counts[1])]
        return " ".join(rng.permutation([*words, *rng.choice(plain, 4)]))

    labels = np.arange(TRAIN + TEST) % 2
    texts = np.array([sentence(label) for label in labels], dtype=object)
    data = lf.data.Dataset("made up", texts[:TRAIN], labels[:TRAIN], texts[TRAIN:], labels[TRAIN:])
    words = (*good, *bad, *plain)
    return data, lf.data.Vectors(words, np.eye(len(words), dtype=np.float32))


data, vectors = film_sentences()
embed = lf.data.Embedder(vectors, max_tokens=32)
train, test = embed.fit_transform(data.x_train), embed.transform(data.x_test)
print(data.x_train[0])
print(train.report)

# %% [markdown]
# ## Two networks
#
# A convolution over three neighbouring words, and softmax attention among all words. Padding is
# masked: a padded sentence has exactly the kernel of the sentence itself.

# %%
window = lf.Serial(
    lf.Conv((3,), 1.4, 0.3), lf.Relu(), lf.MeanPool(), lf.Dense(1.4, 0.3), lf.Relu(), lf.Dense()
)
attention = lf.Serial(
    lf.Residual(lf.LayerNorm(), lf.Attention(scale="linear", qk_std=0.5)),
    lf.Dense(1.4, 0.3),
    lf.Relu(),
    lf.MeanPool(),
    lf.Dense(1.4, 0.3),
    lf.Relu(),
    lf.Dense(),
)

found = {}
for name, net in {"window": window, "attention": attention}.items():
    model = lf.classify(net, train.values, data.y_train, x_mask=train.mask)
    found[name] = model.predict(test.values, x_mask=test.mask).probabilities
    accuracy, loss = (score(found[name], data.y_test) for score in (lf.gp.accuracy, lf.gp.log_loss))
    print(
        f"{name:10} accuracy {accuracy.value:.3f} ± {accuracy.sem:.3f}, "
        f"log loss {loss.value:.3f} ± {loss.sem:.3f}"
    )

# %% [markdown]
# ## Can the probabilities be trusted?
#
# Left: of the sentences given a probability of .8, are 80 per cent right? Right: how the accuracy
# of the answers given grows when the least certain sentences are left to a person.

# %%
P = found["window"]
confidence, right = P.max(axis=1), P.argmax(axis=1) == data.y_test
order = np.argsort(-confidence)
answered = np.arange(1, len(order) + 1)

fig, (left, rest) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bins = np.linspace(0.5, 1, 6)
place = np.clip(np.digitize(confidence, bins) - 1, 0, 4)
for b in np.unique(place):
    hits = right[place == b]
    error = np.sqrt(hits.mean() * (1 - hits.mean()) / len(hits))
    left.errorbar(confidence[place == b].mean(), hits.mean(), error, fmt="o", color="C0")
left.plot([0.5, 1], [0.5, 1], color="0.6", lw=1)
left.set(xlabel="probability given", ylabel="fraction right", title="reliability")
rest.plot(answered / len(order), np.cumsum(right[order]) / answered, color="C0")
rest.set(xlabel="fraction of sentences answered", ylabel="accuracy", title="refusing the rest")
plt.show()

# %%
for row in [*order[:2], *order[-2:]]:
    says = f"{P[row].argmax()} with probability {confidence[row]:.2f}, truth {data.y_test[row]}"
    print(f"{says}: {str(data.x_test[row])[:90]}")
