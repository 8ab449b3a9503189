#!/usr/bin/env python3
"""Compares `whence probe` with the papers' formulas in PyTorch (formulas.py): values, intermediates and all gradients in f64.

Needs torch and safetensors. Run from the repository's root after building:
    python3 examples/whence/verify/pytorch_check.py --whence build/release/whence
    python3 examples/whence/verify/pytorch_check.py "cope(p_max=3)" "dape(fire)"
Prints the largest difference per scheme. Ends with 1 if a difference is above the tolerance, or if the probe refuses its input. Without
schemes it also runs the program in README.md.
"""
import argparse
import itertools
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

from formulas import attend

BATCH, HEADS, LENGTH, HEAD_DIM = 2, 4, 7, 4
CASES = ["none", "alibi", "kerple", "rope", "cope", "cope(p_max=2)", "dape(kerple)", "dape(alibi)", "dape(fire)", "cdape(kerple, kernel=3)",
         "cdape(alibi, kernel=5)", "shaw", "shaw(clip=2)", "transformer_xl", "fire", "fire(init_length=3)", "forgetting", "forgetting(gates=pairs)",
         "cable", "rope(scaling=ntk, factor=2)", "selective_rope", "carope", "repo", "pope", "xpos", "qk_norm", "stick_breaking", "path", "mta",
         "path + forgetting", "gated_output", "sink", "ssmax", "window(alibi, n=3)", "window(cope(p_max=3), n=4)"]


def describe(whence, text):
    sizes = ["--heads", str(HEADS), "--head-dim", str(HEAD_DIM), "--length", str(LENGTH)]
    return json.loads(subprocess.run([whence, "probe", "--describe", text, *sizes], check=True, capture_output=True, text=True).stdout)


def draw(description, key_heads, generator):
    """Draws operands, parameters near their initial values, and both cotangents."""
    def normal(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    heads = {"q": HEADS, "k": key_heads, "v": key_heads, "cotangent": HEADS}
    tensors = {name: normal((BATCH, count, LENGTH, HEAD_DIM)) for name, count in heads.items()}
    tensors["cotangent_logits"] = normal((BATCH, HEADS, LENGTH, LENGTH))
    if any(each["name"] == "x" for each in description["tensors"]):
        tensors["x"] = normal((BATCH, LENGTH, HEADS * HEAD_DIM))
    for parameter in description["parameters"]:
        value = 0.5 * normal(parameter["shape"])
        if "bounds" in parameter:  # KERPLE's numbers are positive
            value = value.abs() + 0.1
        if parameter["initial"] == "ones":
            value += 1
        tensors[parameter["name"]] = value
    return tensors


def by_pytorch(text, tensors, causal):
    """Returns values by name (zero for masked pairs), gradients of the inputs, and the mask of allowed pairs."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items() if not name.startswith("cotangent")}
    values = attend(text, leaves, causal)
    allowed = values.pop("allowed")
    values = {name: value * allowed if value.shape[-2:] == allowed.shape else value for name, value in values.items()}
    loss = (values["output"] * tensors["cotangent"]).sum() + (values["logits"] * tensors["cotangent_logits"]).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    zero = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves.values())]
    return {name: value.detach() for name, value in values.items()}, dict(zip(leaves, zero)), allowed


def by_probe(whence, text, tensors, causal, folder):
    given, made = folder / "in.safetensors", folder / "out.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, given)
    command = [whence, "probe", "--scheme", text, "--in", str(given), "--out", str(made)] + ([] if causal else ["--bidirectional"])
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{' '.join(command)}\n{finished.stderr}")
    return load_file(made)


def largest_difference(expected, found, prefix=""):
    worst, where = 0.0, ""
    for name, value in expected.items():
        if value.shape != found[prefix + name].shape:  # a key for several queries
            value = value[:, ::HEADS // found[prefix + name].shape[1]]
        difference = (value - found[prefix + name]).abs().nan_to_num(nan=math.inf).max().item()
        if difference >= worst:
            worst, where = difference, name
    return worst, where


def printed_program(whence):
    """Runs README.md's program as printed and with its planted fault. Returns the number of compared tensors, or 0 if either ends wrongly."""
    readme = pathlib.Path(__file__).with_name("README.md").read_text()
    code = re.search(r"```python\n(.*?)```", readme, re.S)[1]
    good_line, fault = "gates = torch.sigmoid(scores + mask)\n", "gates = torch.sigmoid(scores)\n"
    promised = re.search(r"```\n(The first that differs.*?)```", readme, re.S)[1].splitlines()
    compared = 0
    for text, code_wanted in ((code, 0), (code.replace(good_line, fault), 1)):
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([sys.executable, "-c", text, whence], capture_output=True, text=True, cwd=folder)
        lines = said.stdout.splitlines()
        tables = sum(line.endswith(("  ok", "  DIFFERS")) for line in lines)
        if said.returncode != code_wanted or (code_wanted and lines[1:3] != promised) or tables < 15:
            print(f"README.md: its program ended with {said.returncode}:\n{said.stdout}{said.stderr}")
            return 0
        compared += tables
    return compared


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("schemes", nargs="*", help="schemes to check (default: the list in this file)")
    arguments.add_argument("--whence", default="build/release/whence", help="the program")
    arguments.add_argument("--tolerance", type=float, default=1e-10, help="largest difference allowed")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    generator, began = torch.Generator().manual_seed(options.seed), time.time()
    good, compared = True, 0
    print(f"{'scheme':32}{'compared':>8}{'values':>10}{'gradients':>11}  largest at")
    for text in options.schemes or CASES:
        description, worst, count = describe(options.whence, text), [(0.0, "")] * 2, 0
        masks = [True] if description["claims"]["causal_only"] else [True, False]
        shared = [] if description["claims"]["by_key_head"] else [2, 1]  # the papers have these schemes with a key head per query head
        for causal, key_heads in itertools.product(masks, [HEADS, *shared]):
            tensors = draw(description, key_heads, generator)
            values, gradients, allowed = by_pytorch(text, tensors, causal)
            with tempfile.TemporaryDirectory() as folder:
                found = by_probe(options.whence, text, tensors, causal, pathlib.Path(folder))
            found.update((name, found[name] * allowed) for name in values.keys() & found if values[name].shape[-2:] == allowed.shape)
            where = f"{'causal' if causal else 'bidirectional'}, {key_heads} heads of keys"
            for kind, (of, expected) in enumerate((("", values), ("gradient.", gradients))):
                difference, name = largest_difference(expected, found, of)
                if difference >= worst[kind][0]:
                    worst[kind] = (difference, f"{of}{name}, {where}")
                count += len(expected)
        good = good and all(difference <= options.tolerance for difference, _ in worst)
        compared += count
        print(f"{text:32}{count:8}{worst[0][0]:10.1e}{worst[1][0]:11.1e}  {max(worst)[1]}")
    if not options.schemes:
        printed = printed_program(str(pathlib.Path(options.whence).resolve()))
        good, compared = good and printed > 0, compared + printed
    print(f"{compared} tensors compared in {time.time() - began:.1f} s: " + ("ok" if good else f"FAILED: a difference above {options.tolerance}"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
