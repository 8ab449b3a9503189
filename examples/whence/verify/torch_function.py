#!/usr/bin/env python3
"""Trains a PyTorch transformer twice in f64: with whence's attention, and with attention by the papers' formulas (formulas.py).

Needs torch and the wheel (pip install .packaging). From the repository's root:
    python3 examples/whence/verify/torch_function.py                    # cdape(kerple): both loss curves
    python3 examples/whence/verify/torch_function.py alibi cope fire    # other schemes
    python3 examples/whence/verify/torch_function.py all
Ends with 1 if two losses differ by more than the tolerance.
"""
import argparse
import copy
import sys

import torch
import torch.nn.functional as F
import whence

from formulas import attend

BATCH, HEADS, LENGTH, HEAD_DIM, LAYERS, VOCABULARY = 4, 4, 24, 8, 2, 11
DIM = HEADS * HEAD_DIM
BY_PAPER = ["cdape(kerple)", "dape(kerple)", "dape(alibi)", "cope", "kerple", "alibi", "rope", "fire", "none"]


class ByPaper(torch.nn.Module):
    """Attention by the formula with the same initial parameters, and PyTorch's own autograd."""

    def __init__(self, scheme, ours):
        super().__init__()
        self.scheme, self.held = scheme, copy.deepcopy(list(ours.parameters()))
        self.names = [name for name, _ in ours.named_parameters()]
        for k, parameter in enumerate(self.held):
            self.register_parameter(f"p{k}", parameter)

    def forward(self, q, k, v):
        return attend(self.scheme, {"q": q, "k": k, "v": v, **dict(zip(self.names, self.held))})["output"]


class Block(torch.nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.project, self.out = torch.nn.Linear(DIM, 3 * DIM), torch.nn.Linear(DIM, DIM)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(DIM, 4 * DIM), torch.nn.GELU(), torch.nn.Linear(4 * DIM, DIM))
        self.attend = attend

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for part in self.project(self.first(x)).chunk(3, -1))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.mlp(self.second(x))


def model(attends):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, DIM), *(Block(attend) for attend in attends),
                               torch.nn.LayerNorm(DIM), torch.nn.Linear(DIM, VOCABULARY))


def losses(network, steps, rate):
    optimiser, generator, curve = torch.optim.Adam(network.parameters(), lr=rate), torch.Generator().manual_seed(2), []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
        tokens[:, 1:] = torch.where(torch.arange(LENGTH) % 3 == 0, tokens[:, :1], tokens[:, 1:])  # something to learn
        loss = F.cross_entropy(network(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        curve.append(loss.item())
    return curve


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("schemes", nargs="*", help=f"of {', '.join(BY_PAPER)}; or all")
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--rate", type=float, default=1e-3, help="learning rate of Adam")
    arguments.add_argument("--executor", default="auto", help="whence's: auto, reference, tiled, strips")
    arguments.add_argument("--tolerance", type=float, default=1e-9)
    options = arguments.parse_args()
    torch.set_default_dtype(torch.float64)
    asked = BY_PAPER if options.schemes == ["all"] else options.schemes or ["cdape(kerple)"]
    for scheme in asked:
        if scheme not in BY_PAPER:
            arguments.error(f"{scheme}: no formula for it here; one of {', '.join(BY_PAPER)} required")
    good = True
    for scheme in asked:
        ours = [whence.torch_function(scheme, heads=HEADS, head_dim=HEAD_DIM, length=LENGTH, executor=options.executor, seed=layer)
                for layer in range(LAYERS)]
        theirs = [ByPaper(scheme, each) for each in ours]
        a, b = (losses(model(attends), options.steps, options.rate) for attends in (ours, theirs))
        if len(asked) == 1:
            print(f"step  {scheme + ' by whence':>26}{'by PyTorch':>22}  difference")
            for step, (x, y) in enumerate(zip(a, b)):
                print(f"{step:4}  {x:26.15f}{y:22.15f}{abs(x - y):12.1e}")
        moved = max(((p - q).abs().max().item() for x, y in zip(ours, theirs) for p, q in zip(x.parameters(), y.held)), default=0.0)
        worst = max(abs(x - y) for x, y in zip(a, b))
        good = good and worst <= options.tolerance
        print(f"{scheme}: loss {a[0]:.4f} to {a[-1]:.4f} in {options.steps} steps; largest difference {worst:.1e} of losses, "
              f"{moved:.1e} of the scheme's parameters at the end")
    print(f"{len(asked) * options.steps} losses compared: " + ("ok" if good else f"FAILED: a difference above {options.tolerance}"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
