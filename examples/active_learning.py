# %% [markdown]
# # Active learning with the kernel
#
# Labels cost money. The kernel of an infinite network says, before it has seen a label, which image
# would tell it most. Here a pool of digits is labelled one image at a time: at random, or where the
# posterior is least certain. Needs `pip install "limitformer[report]"`.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

import limitformer as lf

QUICK = "--quick" in sys.argv
POOL, TEST, LABELS, SEEDS = (60, 30, 20, 2) if QUICK else (500, 500, 100, 5)
digits = lf.data.digits().take(POOL, TEST, key=0)
x, z = lf.data.standardise(digits.x_train), lf.data.standardise(digits.x_test)
net = lf.Serial(
    lf.Conv((3, 3), 1.4, 0.3),
    lf.Relu(),
    lf.AvgPool((2, 2)),
    lf.Conv((3, 3), 1.4, 0.3),
    lf.Relu(),
    lf.MeanPool(),
    lf.Dense(),
)

# %% [markdown]
# ## One kernel, many questions
#
# All images are compared once. After that a round is linear algebra with the rows that have labels.

# %%
K, K_test = net.kernel(x, kinds="nngp").nngp, net.kernel(z, x, kinds="nngp").nngp
noise = 1e-3 * np.trace(K) / POOL
targets = np.eye(10)[digits.y_train] - 0.1


def posterior(labelled, rows):
    """Mean `(rows, 10)` and variance of the classes' functions at rows of the pool or the test."""
    factor = scipy.linalg.cho_factor(K[np.ix_(labelled, labelled)] + noise * np.eye(len(labelled)))
    mean = rows[:, labelled] @ scipy.linalg.cho_solve(factor, targets[labelled])
    reduction = rows[:, labelled] * scipy.linalg.cho_solve(factor, rows[:, labelled].T).T
    return mean, reduction.sum(axis=1)


def least_certain(labelled, rng):
    """The image whose two best classes are closest, in standard deviations."""
    mean, reduction = posterior(labelled, K)
    best = np.sort(mean, axis=1)
    margin = (best[:, -1] - best[:, -2]) / np.sqrt(np.diagonal(K) - reduction + noise)
    margin[labelled] = np.inf
    return int(margin.argmin())


def at_random(labelled, rng):
    """Any image without a label."""
    return int(rng.choice(np.setdiff1d(np.arange(POOL), labelled)))


# %% [markdown]
# ## Two ways to spend a hundred labels


# %%
def run(choose, seed):
    """Accuracy on the test images after every label."""
    rng = np.random.default_rng(seed)
    labelled = list(rng.choice(POOL, 5, replace=False))
    curve = []
    while len(labelled) < LABELS:
        labelled.append(choose(labelled, rng))
        mean, _ = posterior(labelled, K_test)
        curve.append((mean.argmax(axis=1) == digits.y_test).mean())
    return curve


fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, choose in {"least certain": least_certain, "at random": at_random}.items():
    curves = np.array([run(choose, seed) for seed in range(SEEDS)])
    mean, error = curves.mean(axis=0), curves.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    labels = np.arange(6, LABELS + 1)
    ax.plot(labels, mean, label=name)
    ax.fill_between(labels, mean - 2 * error, mean + 2 * error, alpha=0.2)
    print(f"{name:14} accuracy with {LABELS} labels: {mean[-1]:.3f} ± {error[-1]:.3f}")
ax.set(xlabel="labels", ylabel="accuracy on other images")
ax.legend()
plt.show()
