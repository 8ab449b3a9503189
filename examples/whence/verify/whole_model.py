#!/usr/bin/env python3
"""Runs a transformer in PyTorch on the weights and tokens of a run of `whence train`, and compares it by `whence compare RUN` in f64: every layer's
quantities by the formulas' names, logits, loss and all gradients. For models with the default layers of `train`.

Needs torch and safetensors. From the repository's root:
    build/release/whence train flip_flop --scheme cope --steps 100 --out runs/a
    python3 examples/whence/verify/whole_model.py runs/a
Ends with the exit code of `whence compare`: 1 if something differs."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from formulas import attend

SCHEMES = ["none", "alibi", "rope", "cope", "dape(kerple)", "cdape(kerple)", "forgetting"]


def forward(weights, tokens, scheme, layers, heads):
    """Returns values by the paths of whence's probes; the last is answer.logits."""
    made = {}

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"])

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    residual = weights["embedding.weight"][tokens]
    for layer in range(layers):
        block = f"blocks.{layer}."
        attention, position = block + "attention.", block + "attention.position."
        x = made[attention + "x"] = norm(residual, block + "norm1")
        given = {"x": x}
        for name, path in (("q", "query"), ("k", "key"), ("v", "value")):
            given[name] = made[attention + name] = linear(x, attention + path).unflatten(-1, (heads, -1)).transpose(1, 2)
        of_scheme = {name[len(position):]: each for name, each in weights.items() if name.startswith(position)}
        found = attend(scheme, {**given, **of_scheme}, True)
        for name in found.keys() - {"allowed", "output"}:
            made[(attention if name in ("scores", "logits", "pattern") else position) + name] = found[name]
        made[attention + "output"] = found["output"]
        residual = residual + linear(found["output"].transpose(1, 2).flatten(-2), attention + "output")
        hidden = made[block + "mlp.hidden"] = F.gelu(linear(norm(residual, block + "norm2"), block + "mlp.in"), approximate="tanh")
        residual = residual + linear(hidden, block + "mlp.out")
    made["answer.logits"] = norm(residual, "norm") @ weights["embedding.weight"].t()
    return made


def compare(run, whence, *more):
    """Runs `whence compare` on the run and on the same pass in PyTorch."""
    record = json.loads((run / "run.json").read_text())["options"]
    weights = {name: each.double().requires_grad_() for name, each in load_file(run / "weights.safetensors").items()}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([whence, "look", run, "--numbers", "--out", f"{folder}/look.html"], check=True, capture_output=True)
        read, mine = load_file(f"{folder}/look.safetensors"), f"{folder}/mine.safetensors"
        tokens, targets = read["tokens"], read["targets"]
        made = forward(weights, tokens, record["scheme"], record["layers"], record["heads"])
        last = made.pop("answer.logits")
        loss = F.cross_entropy(last.flatten(0, 1), targets.flatten(), ignore_index=-1)
        kept = {name: each for name, each in {**weights, **made}.items() if each.requires_grad}
        gradients = torch.autograd.grad(loss, list(kept.values()), allow_unused=True)
        found = {"tokens": tokens, "targets": targets, **weights, **made, "answer.logits": last, "loss": loss.reshape(1)}
        found.update({"gradient." + name: each for name, each in zip(kept, gradients) if each is not None})
        save_file({name: each.detach().clone().contiguous() for name, each in found.items()}, mine)
        return subprocess.run([whence, "compare", run, mine, *more], stdout=subprocess.PIPE, text=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=pathlib.Path, nargs="?", help="a run (default: trains small ones of several schemes)")
    arguments.add_argument("--whence", default="build/release/whence", help="the program")
    options = arguments.parse_args()
    if options.run:
        finished = compare(options.run, options.whence)
        print(finished.stdout, end="")
        return finished.returncode
    good, compared = True, 0
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            run = pathlib.Path(folder) / scheme
            sizes = "--steps 30 --length 16 --dim 32 --layers 2 --heads 2".split()
            subprocess.run([options.whence, "train", "flip_flop", "--scheme", scheme, "--out", run, *sizes], check=True, capture_output=True)
            finished = compare(run, options.whence, "--json")
            said = json.loads(finished.stdout.splitlines()[-1])
            good, compared = good and finished.returncode == 0, compared + said["compared"]
            print(f"{scheme}: {said['headline']}")
    print(f"{compared} tensors of {len(SCHEMES)} models compared: {'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
