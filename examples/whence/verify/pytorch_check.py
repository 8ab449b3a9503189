#!/usr/bin/env python3
"""Holds PyTorch implementations, written from the papers' formulas, against `whence probe`: values and all gradients in f64.

Needs torch, numpy and safetensors. Run from the repository's root after building:
    python3 examples/whence/verify/pytorch_check.py --whence build/release/whence
Prints the largest difference per scheme; exit code 1 when one is above the tolerance, or when the probe refuses its input.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

BATCH, HEADS, LENGTH, HEAD_DIM = 2, 3, 7, 4


def distances(t):
    """n = i - j, one row per query."""
    return torch.arange(t).view(t, 1) - torch.arange(t).view(1, t)


def scores(q, k):
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


# ---- One function per scheme: (tensors, mask, causal) -> logits, and what the pattern adds to the values if anything.


def cope(p, mask, causal, p_max):
    """Golovneva et al. 2024, Listing 1: gates summed from j up to i, a table read between its rows."""
    s = scores(p["q"], p["k"])
    gates = torch.sigmoid(s) * mask
    positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=p_max)
    z = p["q"] @ p["table"].t()
    above, below = positions.ceil().long(), positions.floor().long()
    weight = positions - below
    return s + z.gather(-1, above) * weight + z.gather(-1, below) * (1 - weight), None


def kerple(p, mask, causal):
    """Chi et al. 2022, logarithmic: -r1 ln(1 + r2 n)."""
    n = distances(p["q"].shape[2])
    n = (n.clamp(min=0) if causal else n.abs()).double()
    return -p["base.strength"].view(-1, 1, 1) * torch.log1p(p["base.rate"].view(-1, 1, 1) * n)


def dape(p, mask, causal):
    """Zheng et al. 2024: a network over the heads of scores and biases, beside both."""
    s = scores(p["q"], p["k"])
    b = kerple(p, mask, causal).expand_as(s)
    x = torch.cat([s, b], 1).permute(0, 2, 3, 1)
    hidden = F.leaky_relu(F.linear(x, p["hidden.weight"], p["hidden.bias"]), 0.01)
    return s + b + F.linear(hidden, p["output.weight"], p["output.bias"]).permute(0, 3, 1, 2), None


def cdape(p, mask, causal, kernel):
    """Zheng et al. 2024, DAPE V2: two convolutions along the keys over what the causal mask leaves."""
    s = scores(p["q"], p["k"])
    b = kerple(p, mask, causal).expand_as(s)
    x = torch.cat([s, b], 1) * mask
    padding = (0, kernel // 2)
    hidden = F.leaky_relu(F.conv2d(x, p["hidden.weight"], p["hidden.bias"], padding=padding), 0.01)
    return s + b + F.conv2d(hidden, p["output.weight"], p["output.bias"], padding=padding), None


def shaw(p, mask, causal, limit):
    """Shaw et al. 2018: a vector per clipped distance on the key side, and one on the value side."""
    q = p["q"]
    index = (-distances(q.shape[2])).clamp(-limit, limit) + limit
    on_keys, on_values = p["key_table"][index], p["value_table"][index]  # [i, j, d]
    logits = (q @ p["k"].transpose(-1, -2) + torch.einsum("bhid,ijd->bhij", q, on_keys)) / math.sqrt(q.shape[-1])
    return logits, lambda pattern: torch.einsum("bhij,ijd->bhid", pattern, on_values)


def transformer_xl(p, mask, causal):
    """Dai et al. 2019: sinusoids of the distance through a projection, and a bias for each of the two products."""
    b, h, t, d = p["q"].shape
    n = distances(t) if causal else -distances(t)
    frequencies = 10000.0 ** (-2 * torch.arange(h * d // 2).double() / (h * d))
    angles = n.double().unsqueeze(-1) * frequencies
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)  # [i, j, h d]
    relative = F.linear(sinusoids, p["relative_projection"]).view(t, t, h, d)
    content = torch.einsum("bhid,bhjd->bhij", p["q"] + p["content_bias"].view(1, h, 1, d), p["k"])
    position = torch.einsum("bhid,ijhd->bhij", p["q"] + p["position_bias"].view(1, h, 1, d), relative)
    return (content + position) / math.sqrt(d), None


def fire(p, mask, causal, init_length):
    """Li et al. 2024: a network of the distance relative to where the query stands."""
    t = p["q"].shape[2]
    n = distances(t)
    n = (n.clamp(min=0) if causal else n.abs()).double()
    c = p["distance_scale"]
    threshold = (p["threshold_scale"] * init_length).abs()
    row = torch.maximum(torch.arange(t).double().view(t, 1), threshold)
    x = torch.log((c * n).abs() + 1) / (torch.log((c * row).abs() + 1) + 1e-6)
    hidden = F.relu(F.linear(x.unsqueeze(-1), p["in.weight"], p["in.bias"]))
    return scores(p["q"], p["k"]) + F.linear(hidden, p["out.weight"], p["out.bias"]).permute(2, 0, 1), None


CASES = [  # text, function, its constants, whether it has a meaning without a causal mask
    ("cope", cope, {"p_max": 64}, False),
    ("cope(p_max=2)", cope, {"p_max": 2}, False),
    ("dape(kerple)", dape, {}, True),
    ("cdape(kerple, kernel=3)", cdape, {"kernel": 3}, True),
    ("shaw", shaw, {"limit": 16}, True),
    ("shaw(clip=2)", shaw, {"limit": 2}, True),
    ("transformer_xl", transformer_xl, {}, True),
    ("fire", fire, {"init_length": 512}, True),
    ("fire(init_length=3)", fire, {"init_length": 3}, True),
]


def describe(whence, text):
    sizes = ["--heads", str(HEADS), "--head-dim", str(HEAD_DIM), "--length", str(LENGTH)]
    return json.loads(subprocess.run([whence, "probe", "--describe", text, *sizes], check=True, capture_output=True, text=True).stdout)


def draw(description, generator):
    """Operands, parameters around the middle of where training starts, and both cotangents."""
    def normal(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    by_head = (BATCH, HEADS, LENGTH, HEAD_DIM)
    tensors = {name: normal(by_head) for name in ("q", "k", "v", "cotangent")}
    tensors["cotangent_logits"] = normal((BATCH, HEADS, LENGTH, LENGTH))
    for parameter in description["parameters"]:
        value = 0.5 * normal(parameter["shape"])
        if "bounds" in parameter:  # KERPLE's numbers are positive
            value = value.abs() + 0.1
        if parameter["initial"] == "ones":
            value += 1
        tensors[parameter["name"]] = value
    return tensors


def by_pytorch(function, constants, tensors, causal):
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items() if not name.startswith("cotangent")}
    t = LENGTH
    mask = torch.ones(t, t).tril() if causal else torch.ones(t, t)
    logits, on_values = function(leaves, mask.double(), causal, **constants)
    pattern = logits.masked_fill(mask == 0, -math.inf).softmax(-1)
    output = pattern @ leaves["v"]
    if on_values:
        output = output + on_values(pattern)
    logits = logits * mask
    loss = (output * tensors["cotangent"]).sum() + (logits * tensors["cotangent_logits"]).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    zero = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves.values())]
    values = {"logits": logits, "pattern": pattern, "output": output}
    return {k: v.detach() for k, v in values.items()}, dict(zip(leaves, zero))


def by_probe(whence, text, tensors, causal, folder):
    given, made = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, given)
    command = [whence, "probe", "--scheme", text, "--in", given, "--out", made] + ([] if causal else ["--bidirectional"])
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{' '.join(command)}\n{finished.stderr}")
    return load_file(made)


def largest_difference(expected, found, prefix=""):
    worst, where = 0.0, ""
    for name, value in expected.items():
        difference = (value - found[prefix + name]).abs().max().item() if value.numel() else 0.0
        if not difference <= worst:
            worst, where = difference, name
    return worst, where


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--whence", default="build/release/whence", help="the program")
    arguments.add_argument("--tolerance", type=float, default=1e-10, help="largest difference allowed")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    generator = torch.Generator().manual_seed(options.seed)
    good = True
    print(f"{'scheme':26}{'mask':15}{'values':>10}{'gradients':>12}  largest at")
    for text, function, constants, bidirectional in CASES:
        for causal in [True] + [False] * bidirectional:
            tensors = draw(describe(options.whence, text), generator)
            values, gradients = by_pytorch(function, constants, tensors, causal)
            with tempfile.TemporaryDirectory() as folder:
                found = by_probe(options.whence, text, tensors, causal, folder)
            of_values, _ = largest_difference(values, found)
            of_gradients, where = largest_difference(gradients, found, "gradient.")
            good = good and of_values <= options.tolerance and of_gradients <= options.tolerance
            print(f"{text:26}{'causal' if causal else 'bidirectional':15}{of_values:10.1e}{of_gradients:12.1e}  gradient.{where}")
    print("ok" if good else f"FAILED: a difference above {options.tolerance}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
