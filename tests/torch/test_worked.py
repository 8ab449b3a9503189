"""Worked examples of the schemes that came after the papers, and rotations at the sizes of real models: tests/nn/positional/worked/later.json
against the formulas in PyTorch. To add one, add its {"scheme": ...} to the file, for a rotation with "head dim" and "tokens". Then
this draws its inputs and writes its results; those of an example that has "given" alone are made from that:

    python3 tests/torch/test_worked.py
"""
import json

import pytest
import torch
import whence
from torch.testing import assert_close

from conftest import ROOT, by_formula, draw, shown
from formulas import parsed, rope_numbers

FILE = ROOT / "tests/nn/positional/worked/later.json"
WORKED = json.loads(FILE.read_text())


def tensors(entries):
    return {name: torch.tensor(each["data"], dtype=torch.float64).reshape(each["shape"]) for name, each in entries.items()}


def rotation(scheme, head_dim, tokens):
    name, _, options = parsed(scheme)
    return rope_numbers(head_dim, tokens, **options, **({"scaling": "linear"} if name == "interpolated" else {}))


@pytest.mark.parametrize("example", WORKED["examples"], ids=lambda each: each["scheme"])
def test_example(example):
    made, allowed = by_formula(example["scheme"], tensors(example["given"]))
    assert_close(shown(made, allowed), shown(tensors(example["expected"]), allowed), rtol=0, atol=1e-12)


@pytest.mark.parametrize("each", WORKED["rotations"], ids=lambda each: f"{each['scheme']}, {each['tokens']} tokens")
def test_rotation(each):
    theta, magnitude = rotation(each["scheme"], each["head dim"], each["tokens"])
    assert_close([*theta, magnitude], [*each["theta"], each["magnitude"]], rtol=0, atol=1e-12)


def completed(example):
    def entries(named):
        return {name: {"shape": list(each.shape), "data": each.flatten().tolist()} for name, each in named.items()}

    scheme, given = example["scheme"], tensors(example.get("given", {}))
    if not given:
        drawn = draw(whence.describe(scheme, heads=2, head_dim=4, length=5), 2, torch.Generator().manual_seed(sum(map(ord, scheme))))
        given = {name: each.mul(1000).round() / 1000 for name, each in drawn.items() if name != "cotangent_logits"}  # keeps the file short
    return {"scheme": scheme, "given": entries(given), "expected": entries(by_formula(scheme, given)[0])}


if __name__ == "__main__":
    for each in WORKED["examples"]:
        each |= {} if "expected" in each else completed(each)
    for each in WORKED["rotations"]:
        each |= {} if "theta" in each else dict(zip(("theta", "magnitude"), rotation(each["scheme"], each["head dim"], each["tokens"])))
    FILE.write_text('{"made by": "tests/torch/test_worked.py",\n' + ",\n".join(
        f'"{name}": [\n' + ",\n".join(map(json.dumps, WORKED[name])) + "\n]" for name in ("examples", "rotations")) + "}\n")
