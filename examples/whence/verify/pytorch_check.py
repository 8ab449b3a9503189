#!/usr/bin/env python3
"""Holds the papers' formulas in PyTorch (formulas.py) against `whence probe`: values and all gradients in f64.

Needs torch, numpy and safetensors. Run from the repository's root after building:
    python3 examples/whence/verify/pytorch_check.py --whence build/release/whence
Prints the largest difference per scheme; exit code 1 when one is above the tolerance, or when the probe refuses its input.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from formulas import attend

BATCH, HEADS, LENGTH, HEAD_DIM = 2, 4, 7, 4
CAUSAL_ONLY = ["cope", "cope(p_max=2)"]
CASES = CAUSAL_ONLY + ["dape(kerple)", "cdape(kerple, kernel=3)", "shaw", "shaw(clip=2)", "transformer_xl", "fire", "fire(init_length=3)"]


def describe(whence, text):
    sizes = ["--heads", str(HEADS), "--head-dim", str(HEAD_DIM), "--length", str(LENGTH)]
    return json.loads(subprocess.run([whence, "probe", "--describe", text, *sizes], check=True, capture_output=True, text=True).stdout)


def draw(description, key_heads, generator):
    """Operands, parameters around the middle of where training starts, and both cotangents."""
    def normal(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    heads = {"q": HEADS, "k": key_heads, "v": key_heads, "cotangent": HEADS}
    tensors = {name: normal((BATCH, count, LENGTH, HEAD_DIM)) for name, count in heads.items()}
    tensors["cotangent_logits"] = normal((BATCH, HEADS, LENGTH, LENGTH))
    for parameter in description["parameters"]:
        value = 0.5 * normal(parameter["shape"])
        if "bounds" in parameter:  # KERPLE's numbers are positive
            value = value.abs() + 0.1
        if parameter["initial"] == "ones":
            value += 1
        tensors[parameter["name"]] = value
    return tensors


def by_pytorch(text, tensors, causal):
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items() if not name.startswith("cotangent")}
    copied = {name: leaves[name].repeat_interleave(HEADS // leaves[name].shape[1], 1) for name in "kv"}  # of each query head's group
    logits, pattern, output = attend(text, {**leaves, **copied}, causal)
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
    print(f"{'scheme':26}{'mask':15}{'key heads':>10}{'values':>10}{'gradients':>12}  largest at")
    for text in CASES:
        for causal, key_heads in itertools.product([True] if text in CAUSAL_ONLY else [True, False], [HEADS, 2, 1]):
            tensors = draw(describe(options.whence, text), key_heads, generator)
            values, gradients = by_pytorch(text, tensors, causal)
            with tempfile.TemporaryDirectory() as folder:
                found = by_probe(options.whence, text, tensors, causal, folder)
            of_values, _ = largest_difference(values, found)
            of_gradients, where = largest_difference(gradients, found, "gradient.")
            good = good and of_values <= options.tolerance and of_gradients <= options.tolerance
            print(f"{text:26}{'causal' if causal else 'bidirectional':15}{key_heads:10}{of_values:10.1e}{of_gradients:12.1e}  gradient.{where}")
    print("ok" if good else f"FAILED: a difference above {options.tolerance}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
