#!/usr/bin/env python3
"""Draws the papers' figures from one pass of a run: maps of attention, gates and biases, curves of one query, schemes side by side.

    examples/experiments/figures.py runs/cope --show gates --length 64 --out gates.pdf        CoPE, Fig. 6
    examples/experiments/figures.py runs/cope --show position_alone                           CoPE, Fig. 4
    examples/experiments/figures.py runs/dape --show network --layer 0                        DAPE, Fig. 1, 7-21; DAPE V2, Fig. 8-25
    examples/experiments/figures.py runs/cope runs/rope                                       each scheme's maps and their gradients

In a notebook each figure is a function of a trace:

    run = whence.load("runs/cope")
    figures.maps(run.trace(length=64), "gates", marks=figures.separators(run.tokens(length=64)))
"""
from __future__ import annotations

import argparse
import re
import sys
from typing import Any, Sequence

import outside
import packages

packages.require("matplotlib")
import matplotlib
import matplotlib.pyplot as plt
import numpy as np


def chosen(there: Sequence[int], one: int | None, what: str) -> Sequence[int]:
    if one is not None and one not in there:
        raise ValueError(f"{what}: {one} given; {there[0]} to {there[-1]} required")
    return there if one is None else [one]


def layers_of(trace: dict, layer: int | None = None) -> Sequence[int]:
    return chosen([int(found[1]) for name in trace if (found := re.match(r"blocks\.(\d+)\.attention\.pattern$", name))], layer, "layer")


def of_layer(trace: dict, layer: int) -> dict[str, Any]:
    """The quantities of pairs of tokens in a layer's attention: "pattern", "position.gates"."""
    head = f"blocks.{layer}.attention."
    tokens = trace[head + "pattern"].value.shape[2:]
    return {name[len(head):]: found for name, found in trace.items() if name.startswith(head) and found.value.ndim == 4
            and found.value.shape[2:] == tokens}


def pairs(trace: dict, layer: int, name: str, gradient: bool = False) -> np.ndarray:
    """[head, query, key] of a quantity, by its whole name or the part after the last dot. Masked keys of causal attention are NaN."""
    there = of_layer(trace, layer)
    fits = [each for each in there if name in (each, each.rsplit(".", 1)[-1])]
    if not fits:
        raise ValueError(f"{name!r} given; one of {', '.join(there)} required, which this scheme has")
    if gradient and there[fits[0]].gradient is None:
        raise ValueError(f"{fits[0]}: no gradient there; a quantity that depends on weights required")
    numbers = np.array((there[fits[0]].gradient if gradient else there[fits[0]].value)[0], float)
    later = np.triu(np.ones(numbers.shape[1:], bool), 1)
    if not there["pattern"].value[0][:, later].any():
        numbers[:, later] = np.nan
    return numbers


def separators(tokens: list[str]) -> list[int]:
    """Tokens where a line ends or a title such as "= = Description = =" begins: the plus signs of CoPE's Fig. 4."""
    found, line, begin = [], "", 0
    for number, token in enumerate(tokens):
        begin, line = begin if line else number, line + token
        if "\n" in token or number + 1 == len(tokens):
            text = line.strip()
            found += [begin] * (len(text) > 1 and text[0] == text[-1] == "=") + [number] * ("\n" in token)
            line = ""
    return found


def sheet(down: int, across: int, wide: float, high: float) -> tuple[plt.Figure, np.ndarray]:
    figure, axes = plt.subplots(down, across, figsize=(across * wide + 1, down * high + 0.4), sharex=True, squeeze=False, layout="constrained")
    plt.close(figure)  # a notebook then shows it once, as the return value
    figure.supxlabel("key j", fontsize=9)
    for axis in axes.flat:
        axis.tick_params(labelsize=7)
    return figure, axes


def map_on(axis: plt.Axes, numbers: np.ndarray, title: str, marks: Sequence[int] = (), **more: Any) -> Any:
    """Queries down, keys across; masked pairs are grey."""
    axis.set_facecolor("#8884")
    axis.set_title(title, fontsize=8)
    axis.plot(marks, marks, "+", color="#e00070", markersize=5)
    return axis.imshow(numbers, interpolation="nearest", **more)


def maps(trace: dict, name: str = "pattern", layer: int | None = None, head: int | None = None, *, gradient: bool = False,
         marks: Sequence[int] = (), side: float = 2.0) -> plt.Figure:
    """Layers down, heads across, in one scale. "position_alone": the pattern of the positional part of the logits alone, with the largest weight of
    each query set to 1."""
    found = {}
    for each in layers_of(trace, layer):
        numbers = pairs(trace, each, "position_logit" if name == "position_alone" else name, gradient)
        if name == "position_alone":
            numbers = np.exp(numbers - np.nanmax(numbers, axis=2, keepdims=True))
        found[each] = {k: numbers[k] for k in chosen(range(len(numbers)), head, "head")}
    seen = np.concatenate([each[np.isfinite(each)] for row in found.values() for each in row.values()])
    span = {"vmin": -np.abs(seen).max(), "vmax": np.abs(seen).max(), "cmap": "RdBu_r"} if gradient else {"vmin": seen.min(), "vmax": seen.max()}
    figure, axes = sheet(len(found), len(next(iter(found.values()))), side, side + 0.2)
    figure.supylabel("query i", fontsize=9)
    for line, (each, row) in zip(axes, found.items()):
        for axis, (k, numbers) in zip(line, row.items()):
            image = map_on(axis, numbers, f"layer {each}, head {k}", marks, **span)
    figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02).ax.tick_params(labelsize=7)
    figure.suptitle(f"dLoss/d {name}" if gradient else name.replace("_", " "), fontsize=10)
    return figure


def network(trace: dict, layer: int | None = None, query: int = -1) -> plt.Figure:
    """Over the keys of one query: scores S, the base's bias B, and the network's output f(S, B) in DAPE or CDAPE; a curve for each head."""
    rows = {}
    for each in layers_of(trace, layer):
        there = list(of_layer(trace, each))
        found = [name for name in there if name.endswith(("mlp_bias", "conv_bias"))]
        if not found:
            raise ValueError("network: no network over scores there; a run of dape(...) or cdape(...) required")
        base = [name for name in there if name.startswith(found[0].rsplit(".", 1)[0] + ".base.")]
        rows[each] = {"S, scores": "scores", **{"B, bias of the base": name for name in base}, f"f(S{', B' * len(base)})": found[0]}
    figure, axes = sheet(len(rows), max(map(len, rows.values())), 3.0, 2.3)
    for line, (each, row) in zip(axes, rows.items()):
        for axis, (title, name) in zip(line, row.items()):
            curves = pairs(trace, each, name)[:, query]
            for head, curve in enumerate(curves):
                axis.plot(curve, linewidth=1, label=f"head {head}", color=plt.cm.viridis(0.9 * head / max(1, len(curves) - 1)))
            axis.set_title(f"layer {each}: {title}", fontsize=9)
    axes[0][-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def side_by_side(traces: dict[str, dict], side: float = 1.7) -> plt.Figure:
    """For each trace the head whose pattern has the largest gradient: the pairs' quantities, and below each the size of its gradient. Colours run
    from the smallest number to the largest; gradients by decades, from 1e-4 of the largest."""
    rows = {}
    for label, trace in traces.items():
        sizes = np.array([np.nansum(pairs(trace, layer, "pattern", True) ** 2, axis=(1, 2)) for layer in layers_of(trace)])
        number, head = np.unravel_index(sizes.argmax(), sizes.shape)
        layer = layers_of(trace)[number]
        found = {name: each for name, each in of_layer(trace, layer).items() if each.value.shape[1] == sizes.shape[1]
                 and (name in ("scores", "pattern") or name.startswith("position."))}
        rows[f"{label}\nlayer {layer}, head {head}"] = [
            (name.rsplit(".", 1)[-1], pairs(trace, layer, name)[head], each.gradient is not None and np.abs(pairs(trace, layer, name, True)[head]))
            for name, each in found.items()]
    figure, axes = sheet(2 * len(rows), max(map(len, rows.values())), side, side + 0.3)
    for axis in axes.flat:
        axis.set_visible(False)
    for upper, lower, (label, row) in zip(axes[::2], axes[1::2], rows.items()):
        upper[0].set_ylabel(label, fontsize=8)
        lower[0].set_ylabel("query i", fontsize=8)
        for above, below, (name, value, gradient) in zip(upper, lower, row):
            above.set_visible(True)
            map_on(above, value, f"{name}\n{np.nanmin(value):.3g} to {np.nanmax(value):.3g}")
            if gradient is not False and (most := np.nanmax(gradient)) > 0:
                below.set_visible(True)
                map_on(below, np.log10(np.maximum(gradient, 1e-4 * most)), f"|gradient| to {most:.2g}", cmap="magma")
    return figure


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folder of `whence train`, or a scheme; several: side by side")
    add("--show", default="pattern", help="pattern, gates, positions, ..., position_alone or network (pattern)")
    add("--gradient", action="store_true", help="the gradient of the loss with respect to it")
    for name, about in (("layer", "this layer only"), ("head", "this head only"), ("sample", "which test sequence"), ("length", "tokens at most")):
        add(f"--{name}", type=int, help=about)
    add("--text", help="file to read with a language model")
    add("--out", default="figure.pdf", help="PDF, SVG or PNG file (figure.pdf)")
    options = parser.parse_args(words)
    packages.require("whence")
    import whence
    where = {name: value for name in ("sample", "length", "text") if (value := getattr(options, name)) is not None}
    runs = {name: whence.load(name) for name in options.runs}
    traces = {name: run.trace(**where) for name, run in runs.items()}
    (first, trace), *others = traces.items()
    figure = side_by_side(traces) if others else network(trace, options.layer) if options.show == "network" else maps(
        trace, options.show, options.layer, options.head, gradient=options.gradient, marks=separators(runs[first].tokens(**where)))
    figure.savefig(options.out, metadata={"Date": None} if options.out.endswith(".svg") else None)  # the same bytes each time
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "whence"
    sys.exit(main())
