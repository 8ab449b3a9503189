#!/usr/bin/env python3
"""The schemes that came after the papers, by their own papers' formulas in PyTorch, causal; run as a program it writes the worked
examples that tests/nn/positional/worked/later.cpp holds against ours: values, intermediates and all gradients in f64.

    python3 examples/whence/verify/later.py > tests/nn/positional/worked/later.json

A formula gets the tensors of a probe's file by name (`whence probe --describe "forgetting"`) and the options of the scheme's
text, and returns what it makes, by the names of our probes: "logits", "pattern" and "output" where they are not the usual ones.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

from formulas import scores, seen

BATCH, HEADS, LENGTH, HEAD_DIM = 1, 2, 5, 4
DIM = HEADS * HEAD_DIM


def forgetting(p, bias=0):
    """Lin et al. 2025: every token decides how much of what came before it stays."""
    kept = F.logsigmoid(F.linear(p["x"], p["gate.weight"], p["gate.bias"])).transpose(1, 2).cumsum(-1)  # [b h t]
    fading = (kept.unsqueeze(3) - kept.unsqueeze(2)).clamp(max=0)
    return {"log_kept": kept, "bias": fading, "logits": scores(p) + fading}


# Text, formula with the options that it needs, and the shape of each parameter.
CASES = [
    ("forgetting", forgetting, {}, {"gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}),
]


def attend(formula, p, options):
    """What the formula makes, and what follows from it."""
    made = formula(p, **options)
    allowed = seen(LENGTH, True)
    if "logits" in made:
        made["logits"] = made["logits"] * allowed
    if "pattern" not in made:
        made["pattern"] = made["logits"].masked_fill(allowed == 0, -math.inf).softmax(-1)
    if "output" not in made:
        made["output"] = made["pattern"] @ p["v"]
    return made


def entry(tensor):
    return {"shape": list(tensor.shape), "data": tensor.detach().flatten().tolist()}


def example(text, formula, options, parameters):
    generator = torch.Generator().manual_seed(sum(map(ord, text)))

    def normal(shape):  # three digits: short in the file
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 1000).round() / 1000

    by_head = (BATCH, HEADS, LENGTH, HEAD_DIM)
    given = {"q": normal(by_head), "k": normal(by_head), "v": normal(by_head), "x": normal((BATCH, LENGTH, DIM))}
    given.update((name, normal(shape)) for name, shape in parameters.items())
    cotangent = normal(by_head)
    leaves = {name: tensor.requires_grad_() for name, tensor in given.items()}
    made = attend(formula, leaves, options)
    inside = {name: value for name, value in made.items() if value.requires_grad and name not in ("logits", "pattern", "output")}
    gradients = torch.autograd.grad((made["output"] * cotangent).sum(), [*leaves.values(), *inside.values()], allow_unused=True)
    expected = dict(made)
    for name, gradient in zip([*leaves, *inside], gradients):
        if gradient is not None:
            expected["gradient." + name] = gradient
    for unread in [name for name in leaves if "gradient." + name not in expected]:
        del given[unread]
    return {"scheme": text, "given": {name: entry(t) for name, t in {**given, "cotangent": cotangent}.items()},
            "expected": {name: entry(t) for name, t in expected.items()}}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    rows = ",\n".join(json.dumps(example(*case)) for case in CASES)
    sys.stdout.write('{"made by": "examples/whence/verify/later.py",\n"examples": [\n' + rows + "\n]}\n")
