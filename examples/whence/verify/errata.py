#!/usr/bin/env python3
"""Checks errata on printed equations and dying gradients in numbers (nn/errata.md, A1, A5, A10). Compares `whence probe` on three tokens and one
head of one dim with results by hand or by the formulas. Needs torch and safetensors. Ends with 1 if a number differs.

    python3 examples/whence/verify/errata.py build/release/whence
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from formulas import attend

whence = sys.argv[1] if len(sys.argv) > 1 else "build/release/whence"
squares = torch.tensor([[0], [1], [4], [9]], dtype=torch.float64)  # e[n] = n^2, so that q.e[2] = 4
said, differing = [], []


def given(gate, **parameters):
    """Queries are 1, so keys are the gates' logits, all equal."""
    k = torch.full((1, 1, 3, 1), gate, dtype=torch.float64).logit()
    return {"q": torch.ones_like(k), "k": k, "v": torch.arange(3, dtype=k.dtype).reshape(k.shape), "cotangent": torch.ones_like(k), **parameters}


def last_row(name, scheme, p):
    """Returns the last row of one tensor of the probe."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(pathlib.Path(folder) / name) for name in ("in.safetensors", "out.safetensors")]
        save_file(p, files[0])
        subprocess.run([whence, "probe", "--scheme", scheme, "--in", files[0], "--out", files[1]], check=True, capture_output=True)
        return load_file(files[1])[name].flatten()[-3:]


def told(what, found, expected):
    good = torch.allclose(found, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)
    print(f"{what}: {[round(number, 3) for number in found.tolist()]}{'' if good else f', and not {expected}'}")
    said.append(what)
    differing.extend([] if good else [what])


def gradient_of_gates(p):
    """The same row by the formula in PyTorch."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in p.items()}
    made = attend("cope", leaves)
    return torch.autograd.grad((made["output"] * p["cotangent"]).sum(), made["gates"])[0].flatten()[-3:]


for weights, beside in ("listing", (3.997, 4.005)), ("equation5", (1.003, 8.995)):
    for p, expected in zip((1.999, 2.001), beside):
        row = last_row("position_logit", f"cope(p_max=3, interpolation={weights})", given(p / 3, table=squares))
        told(f"A1, {weights}: q.e[p] at p = {p}", row[:1], [expected])
for label, table in {"squares": squares, "zeros": 0 * squares}.items():
    told(f"a table of {label}: gradients of gates", last_row("gradient.gates", "cope(p_max=3)", given(0.4, table=table)),
         gradient_of_gates(given(0.4, table=table)))
told("A5, open gates: positions", last_row("positions", "cope(p_max=3)", given(1 - 1e-12, table=squares)), [3, 2, 1])
for sign, add in ("minus", -1), ("plus", 1):
    row = last_row("position_logit", f"cope_alibi(slopes=halving, sign={sign})", given(0.5))
    told(f"A10, cope_alibi, {sign}: added", row, [1.5 * add, add, 0.5 * add])
sys.exit(f"{len(differing)} of {len(said)} differ" if differing else print(f"{len(said)} statements hold"))
