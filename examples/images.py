# %% [markdown]
# # Images
#
# Convolutions and attention on images of digits (scikit-learn's own, 8 x 8 pixels), each in the
# limit of infinite width. Needs `pip install "limitformer[report]"`.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np

import limitformer as lf

QUICK = "--quick" in sys.argv
digits = lf.data.digits().take(*((30, 20) if QUICK else (300, 400)), key=0)
x, z = lf.data.standardise(digits.x_train), lf.data.standardise(digits.x_test)
print(digits)

# %% [markdown]
# ## Four ways to read an image
#
# Pixels as one vector; convolutions read out at every place (`Flatten`) or averaged (`MeanPool`);
# and attention among the places after two convolutions.


# %%
def conv():
    return lf.Serial(lf.Conv((3, 3), 1.4, 0.3), lf.Relu())


networks = {
    "pixels": lf.Serial(
        lf.Flatten(), lf.Dense(1.4, 0.3), lf.Relu(), lf.Dense(1.4, 0.3), lf.Relu(), lf.Dense()
    ),
    "flatten": lf.Serial(conv(), conv(), lf.Flatten(), lf.Dense()),
    "mean pool": lf.Serial(conv(), lf.AvgPool((2, 2)), conv(), conv(), lf.MeanPool(), lf.Dense()),
    "attention": lf.Serial(
        conv(),
        lf.AvgPool((2, 2)),
        conv(),
        lf.Attention(
            scale="linear", qk_std=1.0, position=lf.Position(lf.SquaredExponential(4.0), 0.8, 0.2)
        ),
        lf.Dense(1.4, 0.3),
        lf.Relu(),
        lf.MeanPool(),
        lf.Dense(),
    ),
}
if QUICK:
    networks = {name: networks[name] for name in ("flatten",)}
found = {}
for name, net in networks.items():
    model = lf.classify(net, x, digits.y_train)  # the ridge is chosen by leave-one-out
    found[name] = model.predict(z).probabilities
    accuracy, loss = (
        score(found[name], digits.y_test) for score in (lf.gp.accuracy, lf.gp.log_loss)
    )
    print(
        f"{name:10} accuracy {accuracy.value:.3f} ± {accuracy.sem:.3f}, "
        f"log loss {loss.value:.3f} ± {loss.sem:.3f}"
    )

# %% [markdown]
# ## The images that it is least sure of
#
# The title is the answer with its probability; the truth is in parentheses.

# %%
best = min(found, key=lambda name: lf.gp.log_loss(found[name], digits.y_test).value)
P = found[best]
least = np.argsort(P.max(axis=1))[:8]
fig, axes = plt.subplots(1, 8, figsize=(10, 1.8), layout="constrained")
for ax, row in zip(axes, least, strict=True):
    ax.imshow(digits.x_test[row, :, :, 0], cmap="gray_r")
    ax.set_title(f"{P[row].argmax()} {P[row].max():.2f} ({digits.y_test[row]})", fontsize=9)
    ax.axis("off")
plt.show()

# %% [markdown]
# ## What the kernel sees
#
# The Gram matrix of the training images, sorted by class: blocks are digits that the network takes
# for alike before it has seen any label.

# %%
order = np.argsort(digits.y_train, kind="stable")[:: 1 if QUICK else 3]
K = networks[best].kernel(x[order]).nngp
scale = np.sqrt(np.diagonal(K))
fig, ax = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
image = ax.imshow(K / np.outer(scale, scale), cmap="viridis")
ax.set(title=f"correlation of images, {best}", xlabel="image, by class")
fig.colorbar(image)
plt.show()
