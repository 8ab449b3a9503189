"""The papers' figures (examples/experiments/figures.py), on traces made by hand: tests/pytest tests/examples/experiments/figures.py"""
import types

import pytest

matplotlib = pytest.importorskip("matplotlib")
import numpy as np

import figures

matplotlib.use("Agg")


def traced(value, gradient=True):
    return types.SimpleNamespace(value=value, gradient=0.1 * value if gradient else None)


def trace_of(**quantities):
    """Two layers of three heads over five tokens, causal, in which the second layer's last head has the largest gradient."""
    lower, trace = np.tril(np.ones((5, 5))), {}
    for layer in range(2):
        pattern = (lower / lower.sum(1, keepdims=True))[None, None] * np.array([1, 2, 3 + layer]).reshape(1, 3, 1, 1)
        for name, value in {"scores": np.arange(75.0).reshape(1, 3, 5, 5) - 30, "pattern": pattern, **quantities}.items():
            trace[f"blocks.{layer}.attention.{name.replace('__', '.')}"] = traced(value, not name.endswith("base__bias"))
    return trace


GATED = trace_of(position__gates=np.full((1, 3, 5, 5), 0.5), position__wide=np.zeros((1, 3, 5, 7)))


def test_pairs():
    gates = figures.pairs(GATED, 1, "gates")
    assert gates.shape == (3, 5, 5) and np.isnan(gates[:, 0, 1:]).all() and (gates[:, 4] == 0.5).all()
    assert np.allclose(figures.pairs(GATED, 0, "position.gates", True)[2, 4], 0.05)
    assert figures.separators(["= ", "= ", "Title", " = =", "\n", "A", " line", "\n", "end"]) == [0, 4, 7]


@pytest.mark.parametrize("words, call", [
    ("'gats' given; one of scores, pattern, position.gates", lambda: figures.pairs(GATED, 0, "gats")), ("layer: 2", lambda: figures.maps(GATED, layer=2)),
    ("head: 3", lambda: figures.maps(GATED, head=3)), ("cdape", lambda: figures.network(trace_of()))])
def test_refusals(words, call):
    with pytest.raises(ValueError, match=words):
        call()


def test_maps():
    trace = trace_of(position__position_logit=np.log(np.arange(1.0, 6))[None, None, None].repeat(3, 1).repeat(5, 2))
    figure = figures.maps(trace, "position_alone", marks=[2])
    images = [axis.images[0].get_array() for axis in figure.axes if axis.images and axis.get_title()]
    assert len(images) == 6 and np.allclose(images[0][4], [0.2, 0.4, 0.6, 0.8, 1.0])  # exp(c - max c)
    around_zero = figures.maps(trace, "scores", 1, 0, gradient=True).axes[0].images[0]
    assert around_zero.norm.vmin == -around_zero.norm.vmax


def test_network():
    axes = figures.network(trace_of(position__base__bias=-np.ones((1, 3, 5, 5)), position__conv_bias=2 * np.ones((1, 3, 5, 5))), 1).axes
    assert [axis.get_title() for axis in axes] == ["layer 1: S, scores", "layer 1: B, bias of the base", "layer 1: f(S, B)"]
    assert [line.get_ydata().tolist() for line in axes[2].lines] == [[2] * 5] * 3
    assert axes[0].lines[1].get_ydata().tolist() == [15, 16, 17, 18, 19]  # head 1, the last query


def test_side_by_side(tmp_path):
    figure = figures.side_by_side({"cope": GATED, "rope": trace_of()})
    assert [axis.get_ylabel() for axis in figure.axes if "layer" in axis.get_ylabel()] == ["cope\nlayer 1, head 2", "rope\nlayer 1, head 2"]
    assert sum(axis.get_visible() for axis in figure.axes) == 2 * 3 + 2 * 2
    for form in ("pdf", "svg", "png"):
        figure.savefig(tmp_path / f"a.{form}")
        assert (tmp_path / f"a.{form}").stat().st_size > 1000
