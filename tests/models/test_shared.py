"""Layers that share weights: against layers that do not, and against finite networks."""

import functools

import jax
import numpy as np
import pytest
from tests.models import tiny

import limitformer as lf
from limitformer.models import (
    initial,
    limit_of,
    reinitialised,
    shared_profile,
    stream_profile,
)

IDS = np.array([0, 1, 2, 1])
ALBERT = {
    "model_type": "albert",
    "num_hidden_layers": 3,
    "hidden_size": 192,
    "num_attention_heads": 16,
    "intermediate_size": 384,
    "embedding_size": 192,
    "initializer_range": 0.07,
}


@functools.cache
def untied():
    with jax.numpy_dtype_promotion("standard"):
        profile = lf.depth_profile(limit_of(ALBERT, untied=True), IDS[None], draws=256)
    return profile["cosine"][-4:], profile.kernel.sem("cosine")[-4:]


@pytest.mark.slow
def test_groups_of_one_layer_are_independent_layers():
    found = shared_profile(ALBERT | {"num_hidden_groups": 3}, IDS, draws=256)
    mean, sem = untied()
    error = np.hypot(sem, found.sem("cosine")) + 1e-12
    assert found.layers == ("embedding", "layer 0", "layer 1", "layer 2")
    assert (np.abs(found.mean("cosine") - mean) < 6 * error).all()


@pytest.mark.slow
@pytest.mark.twin
def test_finite_networks_that_share_weights(key):
    shared = shared_profile(ALBERT, IDS, draws=256).mean("cosine")
    one_by_one, _ = untied()
    np.testing.assert_allclose(shared[:2], one_by_one[:2], atol=3e-3)  # one layer shares nothing
    found = np.array(
        [
            stream_profile(initial(ALBERT, key=k, tokens=4, vocabulary=3), IDS).mean("cosine")
            for k in jax.random.split(key, 80)
        ]
    )
    mean, sem = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(80)
    assert (np.abs(mean - shared) < 5 * sem + 1 / 192).all()
    assert np.abs(mean - one_by_one)[-1] > 6 * sem[-1]  # and independent layers have another limit


def test_weights_drawn_anew_are_shared_as_before(key):
    model = tiny.model()
    twice = lf.models.Model("twice", (model.sublayers[0], model.sublayers[0]), model.embedding)
    fresh = reinitialised(twice, key=key)
    first, second = (s.branch.W_Q for s in fresh.sublayers)
    assert first is second and not np.array_equal(first, model.sublayers[0].branch.W_Q)


def test_bad_input():
    with pytest.raises(ValueError, match="every layer of bert has weights of its own"):
        shared_profile({"model_type": "bert"}, IDS)
    with pytest.raises(ValueError, match=r"two or more whole numbers, got float64 \(4,\)"):
        shared_profile(ALBERT, IDS / 2)
    with pytest.raises(ValueError, match=r"uses 1 set of weights in 3 layers.*untied=True"):
        limit_of(ALBERT)
    with pytest.raises(ValueError, match="inner_group_num 2"):
        limit_of(ALBERT | {"inner_group_num": 2})
