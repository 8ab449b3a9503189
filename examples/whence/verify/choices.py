#!/usr/bin/env python3
"""Log-likelihoods of choices under a small GPT-2 in PyTorch: the numbers that tests/examples/language/choices.cpp compares ours with.

Needs torch alone. One block, bytes as tokens, learned positions, every parameter set by a formula. The arithmetic is that
of lm-evaluation-harness: the sum of log p over the continuation's tokens, with the context cut on the left to 16 tokens. The
continuation begins with the blank. Prints C++ initialisers.
"""
import torch
import torch.nn.functional as F

VOCABULARY, LENGTH, DIM, HEADS = 256, 16, 8, 2
CASES = [
    ("The sky is", ["blue", "square"]),
    ("Q: one and one?  ", ["two", "three hundred", "a"]),
    ("a context that is longer than the model reads, by far", ["indeed", "no"]),
    ("caf\u00e9", ["cr\u00e8me", "th\u00e9"]),
]


def filled(shape, phase):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 0.7 + phase).sin().mul(0.6).view(shape)


P = {
    "embedding": filled((VOCABULARY, DIM), 1), "positions": filled((LENGTH, DIM), 2),
    "q": filled((DIM, DIM), 3), "k": filled((DIM, DIM), 4), "v": filled((DIM, DIM), 5), "o": filled((DIM, DIM), 6),
    "up": filled((4 * DIM, DIM), 7), "down": filled((DIM, 4 * DIM), 8),
    "norm1": filled((DIM,), 9), "norm2": filled((DIM,), 10), "norm3": filled((DIM,), 11),
}


def norm(x, weight):
    return F.layer_norm(x, (DIM,), weight, torch.zeros(DIM, dtype=torch.float64), 1e-5)


def log_probabilities(tokens):
    t = len(tokens)
    x = P["embedding"][tokens] + P["positions"][:t]
    y = norm(x, P["norm1"])
    split = lambda name: F.linear(y, P[name]).view(t, HEADS, DIM // HEADS).transpose(0, 1)
    out = F.scaled_dot_product_attention(split("q")[None], split("k")[None], split("v")[None], is_causal=True)[0]
    x = x + F.linear(out.transpose(0, 1).reshape(t, DIM), P["o"])
    x = x + F.linear(F.gelu(F.linear(norm(x, P["norm2"]), P["up"]), approximate="tanh"), P["down"])
    return F.log_softmax(norm(x, P["norm3"]) @ P["embedding"].t(), -1)


for context, choices in CASES:
    blanks = len(context) - len(context.rstrip())
    sums = []
    for choice in choices:
        continuation = list((context[len(context) - blanks:] + " " + choice).encode())
        before = list(context.rstrip().encode())
        read = (before + continuation)[-(LENGTH + 1):]
        logp = log_probabilities(torch.tensor(read[:-1]))[-len(continuation):]
        target = torch.tensor(read[-len(continuation):])
        sums.append(logp.gather(1, target[:, None]).sum().item())
    per_character = [s / len(c) for s, c in zip(sums, choices)]
    per_byte = [s / len(c.encode()) for s, c in zip(sums, choices)]
    print("{" + ", ".join(f"{s:.12f}" for s in sums) + "},", *(n.index(max(n)) for n in (sums, per_character, per_byte)))
