#!/usr/bin/env python3
"""Worked examples of the schemes that came after the papers, by the formulas in PyTorch (formulas.py), causal: values, intermediates and all
gradients in f64. tests/nn/positional/worked/later.cpp compares ours with the file that this script writes.

    python3 examples/whence/verify/later.py > tests/nn/positional/worked/later.json
    python3 examples/whence/verify/later.py --check tests/nn/positional/worked/later.json     # recomputes and compares it
"""
import argparse
import json
import sys

import torch

from formulas import attend, parsed, rope_numbers

BATCH, HEADS, LENGTH, HEAD_DIM = 1, 2, 5, 4
DIM = HEADS * HEAD_DIM


# Scheme text, the shape of each parameter, and the number of key heads if it is smaller.
CASES = [
    ("forgetting", {"gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}),
    ("selective_rope", {"down.weight": (16, DIM), "up.weight": (DIM // 2, 16), "convolution": (HEADS, 2, 4)}),
    ("selective_rope(rank=2, kernel=2, base=10, gate=yes)", {"down.weight": (2, DIM), "up.weight": (DIM // 2, 2), "convolution": (HEADS, 2, 2),
     "gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}),
    ("selective_rope(rank=2, base=10, activation=silu, bias=yes)", {"down.weight": (2, DIM), "up.weight": (DIM // 2, 2),
     "convolution": (HEADS, 2, 4), "bias": (HEADS, 1, 2)}),
    ("repo(base=100, width=3)", {"gate.weight": (3, DIM), "content.weight": (3, DIM), "position.weight": (HEADS, 3)}),
    ("carope", {"frequency.weight": (HEADS, DIM), "frequency.bias": (HEADS,)}),
    ("pope", {"phase": (HEADS, 1, HEAD_DIM)}),
    ("pope(base=50, phase=uniform)", {"phase": (HEADS, 1, HEAD_DIM)}),
    ("stick_breaking", {}),
    ("stick_breaking(rest=self)", {}),
    ("path(rank=3)", {"down.weight": (3, DIM), "up.weight": (DIM, 3), "convolution": (DIM, 3), "beta.weight": (HEADS, DIM), "beta.bias": (HEADS,)}),
    ("path(rank=3, convolution=0)", {"down.weight": (3, DIM), "up.weight": (DIM, 3), "beta.weight": (HEADS, DIM), "beta.bias": (HEADS,)}),
    ("path(rank=3) + forgetting", {"path.down.weight": (3, DIM), "path.up.weight": (DIM, 3), "path.convolution": (DIM, 3),
     "path.beta.weight": (HEADS, DIM), "path.beta.bias": (HEADS,), "forgetting.gate.weight": (HEADS, DIM), "forgetting.gate.bias": (HEADS,)}),
    ("mta(queries=2, keys=3)", {"convolution": (HEADS, 1, 2, 3), "pattern_mix": (1, HEADS, HEADS)}),
    ("mta(queries=3, keys=3, convolve=both, mix_scores=yes, heads=1)", {"convolution": (HEADS, 1, 3, 3), "pattern_convolution": (HEADS, 1, 3, 3),
     "scores_mix": (1, HEADS, HEADS)}),
    ("forgetting(gates=pairs, width=3)", {"gate_query.weight": (3 * HEADS, DIM), "gate_key.weight": (3 * HEADS, DIM)}),
    ("cable", {"step.weight": (HEADS, DIM), "step.bias": (HEADS,), "slope.weight": (HEADS, DIM)}),
    ("cable(weight=no, step=softplus)", {"step.weight": (HEADS, DIM), "step.bias": (HEADS,)}),
    ("gated_output", {"gate.weight": (DIM, DIM)}),
    ("gated_output(per=head)", {"gate.weight": (HEADS, DIM)}),
    ("sink", {"logit": (HEADS,)}),
    ("sink(start=1, fixed=yes)", {}),
    ("ssmax", {"strength": (HEADS,)}),
    ("ssmax(form=llama4, floor=2)", {}),
    ("rope(keep=0.5)", {}),
    ("rope(base=100, scaling=ntk, factor=3)", {}),
    ("rope(scaling=dynamic, factor=2, original=4)", {}),
    ("rope(base=50, scaling=llama3, factor=8, original=6)", {}),
    ("rope(layout=interleaved, scaling=longrope, original=4, short_factor=1:2, long_factor=1.5:6)", {}),
    ("rope(width=2, scaling=longrope, original=8, short_factor=3)", {}),
    ("window(forgetting, n=2)", {"base.gate.weight": (HEADS, DIM), "base.gate.bias": (HEADS,)}),
    ("window(cope(p_max=2), n=3)", {"base.table": (3, HEAD_DIM)}),
    ("xpos", {}),
    ("xpos(scale_base=4, layout=interleaved, width=2)", {}),
    ("xpos(gamma=1, scale_base=8)", {}),
    ("qk_norm", {"query_weight": (HEAD_DIM,), "key_weight": (HEAD_DIM,)}),
    ("qk_norm + rope", {"qk_norm.query_weight": (HEAD_DIM,), "qk_norm.key_weight": (HEAD_DIM,)}),
    ("rope + qk_norm(weight=none)", {}),
    ("xpos(scale_base=4)", {}, 1),  # grouped queries: one key head for both
    ("forgetting", {"gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}, 1),
    ("window(cope(p_max=3), n=3)", {"base.table": (4, HEAD_DIM)}, 1),
]


# Rotations at the sizes of real models: scheme text, head dim, tokens of the run.
ROTATIONS = [
    ("rope(base=500000, scaling=llama3, factor=8, original=8192)", 128, 1),
    ("rope(base=500000, scaling=llama3, factor=32, original=8192, low_freq_factor=2, high_freq_factor=3)", 64, 1),
    ("rope(scaling=dynamic, factor=4, original=64)", 32, 64),
    ("rope(scaling=dynamic, factor=4, original=64)", 32, 200),
    ("rope(scaling=ntk, factor=8)", 64, 1),
    ("interpolated(rope, factor=8)", 64, 1),
    ("rope(keep=0.25)", 256, 1),
    ("rope(keep=0.29)", 200, 1),
    *[("rope(scaling=longrope, factor=32, original=100, short_factor=1:1:1.1:1.5, long_factor=1:2.5:17:64)", 8, tokens)
      for tokens in (100, 101)],
]


def rotation(text, d, tokens):
    name, _, options = parsed(text)
    theta, magnitude = rope_numbers(d, tokens, **options, **({"scaling": "linear"} if name == "interpolated" else {}))
    return {"scheme": text, "head dim": d, "tokens": tokens, "theta": theta, "magnitude": magnitude}


def entry(tensor):
    return {"shape": list(tensor.shape), "data": tensor.detach().flatten().tolist()}


def example(text, parameters, key_heads=HEADS):
    generator = torch.Generator().manual_seed(sum(map(ord, text)))

    def normal(shape):  # three digits keep the file short
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 1000).round() / 1000

    by_head = (BATCH, HEADS, LENGTH, HEAD_DIM)
    by_key_head = (BATCH, key_heads, LENGTH, HEAD_DIM)
    drawn = {"q": normal(by_head), "k": normal(by_key_head), "v": normal(by_key_head), "x": normal((BATCH, LENGTH, DIM))}
    drawn.update((name, normal(shape)) for name, shape in parameters.items())
    cotangent = normal(by_head)
    leaves = {name: tensor.requires_grad_() for name, tensor in drawn.items()}
    made = attend(text, leaves)
    allowed = made.pop("allowed")
    made["logits"] = made["logits"] * allowed
    inside = {name: value for name, value in made.items() if value.requires_grad and name not in ("logits", "pattern", "output")}
    gradients = torch.autograd.grad((made["output"] * cotangent).sum(), [*leaves.values(), *inside.values()], allow_unused=True)
    expected = dict(made)
    for name, gradient in zip([*leaves, *inside], gradients):
        if gradient is not None:
            expected["gradient." + name] = gradient
    for unread in [name for name in leaves if "gradient." + name not in expected]:
        del drawn[unread]
    return {"scheme": text, "given": {name: entry(t) for name, t in {**drawn, "cotangent": cotangent}.items()},
            "expected": {name: entry(t) for name, t in expected.items()}}


def numbers_of(found, path=""):
    """Returns path -> number or text for a file's content."""
    if isinstance(found, (dict, list)):
        return {key: value for name, each in (found.items() if isinstance(found, dict) else enumerate(found))
                for key, value in numbers_of(each, f"{path}/{name}").items()}
    return {path: found}


def checked(made, path):
    """Exits with a message if the file at `path` differs from what was made by more than rounding."""
    ours, theirs = (numbers_of(json.loads(text)) for text in (made, open(path).read()))
    if ours.keys() != theirs.keys():
        sys.exit(f"{path}: {sorted(ours.keys() ^ theirs.keys())[0]} is in one of the two alone")
    differing = {key: abs(value - theirs[key]) if isinstance(value, float) and isinstance(theirs[key], float) else 0 if value == theirs[key] else 1
                 for key, value in ours.items()}
    worst = max(differing, key=differing.get)
    if not differing[worst] <= 1e-12:
        sys.exit(f"{path}: {worst} is {theirs[worst]}; {ours[worst]} by the formulas")
    print(f"{path}: {len(ours)} values in {len(CASES)} examples and {len(ROTATIONS)} rotations compared, largest difference {differing[worst]:.1e}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", metavar="FILE", help="compare this file with the formulas")
    options = arguments.parse_args()
    torch.set_default_dtype(torch.float64)
    rows = ",\n".join(json.dumps(example(*case)) for case in CASES)
    rotations = ",\n".join(json.dumps(rotation(*each)) for each in ROTATIONS)
    made = '{"made by": "examples/whence/verify/later.py",\n"examples": [\n' + rows + '\n],\n"rotations": [\n' + rotations + "\n]}\n"
    if options.check:
        checked(made, options.check)
    else:
        sys.stdout.write(made)


if __name__ == "__main__":
    main()
