"""Plans: arithmetic that a reader can do by hand."""

import pytest

from limitformer.tiles import plan


def test_whole_matrix():
    found = plan(1000, pair=0.36, workers=10, price=2.0, flops=1e9, read=1e6, iterations=3)
    assert found.pairs == 500_500 and found.bytes == 8 * 500_500
    assert found.gram_hours == pytest.approx(500_500 * 0.36 / 10 / 3600)
    assert found.cost == pytest.approx(found.gram_hours * 10 * 2.0)
    flops = 3 * 2 * 1000**2 * 10 + 4 * 1000 * 1000**2
    assert found.flops == pytest.approx(flops)
    assert found.solve_hours == pytest.approx((flops / 1e9 + 3 * 8 * 0.5005) / 3600)


def test_inducing_inputs_are_linear_in_inputs():
    one, two = (plan(n, pair=1e-6, inducing=100) for n in (10_000, 20_000))
    assert two.pairs - one.pairs == 100 * 10_000
    assert one.bytes == two.bytes == 8 * 100**2
    assert one.pairs == 100 * 10_000 + 5050
    assert "100 inducing inputs" in str(one)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"inputs=0, .* counts are at least 1 and rates above 0"):
        plan(0, pair=1e-6)
    with pytest.raises(ValueError, match=r"pair=0\.0"):
        plan(10, pair=0.0)
