#!/usr/bin/env python3
"""Tests the papers' figures (examples/experiments/figures.py): python3 tests/examples/experiments/figures.py
Traces are made by hand, without module or run. Ends with 77 if matplotlib is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import pathlib
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/experiments"))
sys.dont_write_bytecode = True
import packages

packages.require("matplotlib", skip=77)
import matplotlib
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


def refused(words, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except ValueError as problem:
        assert words in str(problem), problem
        return
    raise AssertionError(f"{words}: not refused")


def test_pairs():
    trace = trace_of(position__gates=np.full((1, 3, 5, 5), 0.5), position__wide=np.zeros((1, 3, 5, 7)))
    gates = figures.pairs(trace, 1, "gates")
    assert gates.shape == (3, 5, 5) and np.isnan(gates[:, 0, 1:]).all() and (gates[:, 4] == 0.5).all()
    assert np.allclose(figures.pairs(trace, 0, "position.gates", True)[2, 4], 0.05)
    refused("'gats' given; one of scores, pattern, position.gates required", figures.pairs, trace, 0, "gats")
    refused("layer: 2 given; 0 to 1 required", figures.maps, trace, layer=2)
    refused("head: 3 given; 0 to 2 required", figures.maps, trace, head=3)


def test_maps():
    trace = trace_of(position__position_logit=np.log(np.arange(1.0, 6))[None, None, None].repeat(3, 1).repeat(5, 2))
    figure = figures.maps(trace, "position_alone", marks=[2])
    images = [axis.images[0].get_array() for axis in figure.axes if axis.images and axis.get_title()]
    assert len(images) == 6 and np.allclose(images[0][4], [0.2, 0.4, 0.6, 0.8, 1.0])  # exp(c - max c)
    around_zero = figures.maps(trace, "scores", 1, 0, gradient=True).axes[0].images[0]
    assert around_zero.norm.vmin == -around_zero.norm.vmax


def test_network():
    trace = trace_of(position__base__bias=-np.ones((1, 3, 5, 5)), position__conv_bias=2 * np.ones((1, 3, 5, 5)))
    figure = figures.network(trace, 1)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["layer 1: S, scores", "layer 1: B, bias of the base", "layer 1: f(S, B)"], titles
    assert [line.get_ydata().tolist() for line in figure.axes[2].lines] == [[2] * 5] * 3
    assert figure.axes[0].lines[1].get_ydata().tolist() == [15, 16, 17, 18, 19]  # head 1, the last query
    refused("a run of dape(...) or cdape(...) required", figures.network, trace_of())


def test_side_by_side():
    figure = figures.side_by_side({"cope": trace_of(position__gates=np.full((1, 3, 5, 5), 0.5)), "rope": trace_of()})
    rows = [axis.get_ylabel() for axis in figure.axes if "layer" in axis.get_ylabel()]
    assert rows == ["cope\nlayer 1, head 2", "rope\nlayer 1, head 2"], rows
    assert sum(axis.get_visible() for axis in figure.axes) == 2 * 3 + 2 * 2
    with tempfile.TemporaryDirectory() as folder:
        for form in ("pdf", "svg", "png"):
            figure.savefig(f"{folder}/a.{form}")
            assert pathlib.Path(f"{folder}/a.{form}").stat().st_size > 1000


def test_separators():
    tokens = ["= ", "= ", "Title", " = =", "\n", "A", " line", "\n", "end"]
    assert figures.separators(tokens) == [0, 4, 7]


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name[5:].replace('_', ' ')}: ok")
