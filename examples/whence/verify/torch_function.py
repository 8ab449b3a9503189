#!/usr/bin/env python3
"""A PyTorch transformer trained twice in f64: with whence's attention, and with attention written from the papers' formulas.

Needs torch and the wheel (pip install .packaging). From the repository's root:
    python3 examples/whence/verify/torch_function.py                    # cdape(kerple): both loss curves
    python3 examples/whence/verify/torch_function.py alibi cope fire    # other schemes
    python3 examples/whence/verify/torch_function.py all
Exit code 1 when two losses differ by more than the tolerance.
"""
import argparse
import copy
import math
import sys

import torch
import torch.nn.functional as F
import whence

BATCH, HEADS, LENGTH, HEAD_DIM, LAYERS, VOCABULARY = 4, 4, 24, 8, 2, 11
DIM = HEADS * HEAD_DIM


def distances(t):
    return (torch.arange(t).view(t, 1) - torch.arange(t).view(1, t)).clamp(min=0).double()


def scores(q, k):
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


# ---- Logits by the papers: (q, k, parameters by name) -> [b h i j], masked afterwards


def none(q, k, p):
    return scores(q, k)


def alibi(q, k, p):
    """Press et al. 2022: slopes 2^(-8 h / heads)."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1).double() / HEADS)
    return scores(q, k) - slopes.view(-1, 1, 1) * distances(q.shape[2])


def kerple_bias(p, prefix, t):
    """Chi et al. 2022, logarithmic."""
    strength, rate = p[prefix + "strength"].view(-1, 1, 1), p[prefix + "rate"].view(-1, 1, 1)
    return -strength * torch.log1p(rate * distances(t))


def kerple(q, k, p):
    return scores(q, k) + kerple_bias(p, "", q.shape[2])


def rope(q, k, p):
    """Su et al. 2021: pairs (m, m + d / 2) turned by t 10000^(-2m / d)."""
    def turn(x):
        t, d = x.shape[2:]
        angles = torch.arange(t).double().view(t, 1) * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
    return scores(turn(q), turn(k))


def cope(q, k, p):
    """Golovneva et al. 2024, Listing 1."""
    s = scores(q, k)
    gates = torch.sigmoid(s) * torch.ones(s.shape[-2:]).tril()
    positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=p["table"].shape[0] - 1)
    z = q @ p["table"].t()
    above, below = positions.ceil().long(), positions.floor().long()
    weight = positions - below
    return s + z.gather(-1, above) * weight + z.gather(-1, below) * (1 - weight)


def over_heads(s, b, p):
    x = torch.cat([s, b.expand_as(s)], 1).permute(0, 2, 3, 1)
    hidden = F.leaky_relu(F.linear(x, p["hidden.weight"], p["hidden.bias"]), 0.01)
    return s + b + F.linear(hidden, p["output.weight"], p["output.bias"]).permute(0, 3, 1, 2)


def dape_kerple(q, k, p):
    """Zheng et al. 2024, DAPE."""
    return over_heads(scores(q, k), kerple_bias(p, "base.", q.shape[2]), p)


def dape_alibi(q, k, p):
    s = scores(q, k)
    return over_heads(s, alibi(q, k, p) - s, p)


def cdape_kerple(q, k, p):
    """Zheng et al. 2024, DAPE V2: convolutions along the keys over what the causal mask leaves."""
    s = scores(q, k)
    b = kerple_bias(p, "base.", q.shape[2])
    x = torch.cat([s, b.expand_as(s)], 1) * torch.ones(s.shape[-2:]).tril()
    padding = (0, p["hidden.weight"].shape[-1] // 2)
    hidden = F.leaky_relu(F.conv2d(x, p["hidden.weight"], p["hidden.bias"], padding=padding), 0.01)
    return s + b + F.conv2d(hidden, p["output.weight"], p["output.bias"], padding=padding)


def fire(q, k, p):
    """Li et al. 2024, for init_length 512."""
    t = q.shape[2]
    c, threshold = p["distance_scale"], (p["threshold_scale"] * 512).abs()
    row = torch.maximum(torch.arange(t).double().view(t, 1), threshold)
    x = torch.log((c * distances(t)).abs() + 1) / (torch.log((c * row).abs() + 1) + 1e-6)
    hidden = F.relu(F.linear(x.unsqueeze(-1), p["in.weight"], p["in.bias"]))
    return scores(q, k) + F.linear(hidden, p["out.weight"], p["out.bias"]).permute(2, 0, 1)


BY_PAPER = {"cdape(kerple)": cdape_kerple, "dape(kerple)": dape_kerple, "dape(alibi)": dape_alibi, "cope": cope,
            "kerple": kerple, "alibi": alibi, "rope": rope, "fire": fire, "none": none}


class ByPaper(torch.nn.Module):
    """The same parameters, from the same numbers; PyTorch's own autograd."""

    def __init__(self, scheme, ours):
        super().__init__()
        self.logits, self.held = BY_PAPER[scheme], copy.deepcopy(list(ours.parameters()))
        self.names = [name for name, _ in ours.named_parameters()]
        for k, parameter in enumerate(self.held):
            self.register_parameter(f"p{k}", parameter)

    def forward(self, q, k, v):
        logits = self.logits(q, k, dict(zip(self.names, self.held)))
        t = q.shape[2]
        return logits.masked_fill(torch.ones(t, t).tril() == 0, -math.inf).softmax(-1) @ v


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
    arguments.add_argument("--rate", type=float, default=1e-3, help="of Adam")
    arguments.add_argument("--executor", default="auto", help="whence's: auto, reference, tiled, strips")
    arguments.add_argument("--tolerance", type=float, default=1e-9)
    options = arguments.parse_args()
    torch.set_default_dtype(torch.float64)
    asked = list(BY_PAPER) if options.schemes == ["all"] else options.schemes or ["cdape(kerple)"]
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
        moved = max((p - q).abs().max().item() for x, y in zip(ours, theirs) for p, q in zip(x.parameters(), y.held)) if list(ours[0].parameters()) else 0.0
        worst = max(abs(x - y) for x, y in zip(a, b))
        good = good and worst <= options.tolerance
        print(f"{scheme}: loss {a[0]:.4f} to {a[-1]:.4f} in {options.steps} steps; largest difference {worst:.1e} of losses, "
              f"{moved:.1e} of the scheme's parameters at the end")
    print("ok" if good else f"FAILED: a difference above {options.tolerance}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
