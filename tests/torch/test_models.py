"""Transformers in PyTorch: on a run's weights and tokens, by `whence compare RUN` in f64, each quantity of every layer and all gradients; and trained
with whence's attention beside the formulas'."""
import json
import subprocess

import pytest
import torch
import torch.nn.functional as F
import whence
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from beside_torch import Transformer
from conftest import PROGRAM
from formulas import attend

LAYERS, HEADS, DIM, LENGTH, VOCABULARY = 2, 4, 32, 24, 11


class Recorded(Transformer):
    """Keeps its quantities by the names of `whence look RUN --numbers`."""

    def __init__(self, weights, heads, scheme):
        super().__init__(weights, heads, self.attended)
        self.scheme, self.made = scheme, {}

    def attended(self, p, layer, begin):
        path, found = f"blocks.{layer}.attention.", attend(self.scheme, {**p, **self.of_scheme(layer)})
        self.made |= {path + name: value for name, value in p.items()}
        self.made |= {path + ("" if name in ("scores", "logits", "pattern", "output") else "position.") + name: value
                      for name, value in found.items() if name != "allowed"}
        return found["output"]

    def linear(self, x, name):
        if name.endswith("mlp.out"):
            self.made[name.removesuffix("out") + "hidden"] = x
        return super().linear(x, name)


def pytest_generate_tests(metafunc):
    if "run" in metafunc.fixturenames:
        given = metafunc.config.getoption("run")
        metafunc.parametrize("run", given or ["none", "alibi", "rope", "cope", "dape(kerple)", "cdape(kerple)", "forgetting"], indirect=not given)


@pytest.fixture
def run(request, tmp_path):
    """A small run of a scheme."""
    sizes = "--steps 30 --length 16 --dim 32 --layers 2 --heads 2".split()
    subprocess.run([PROGRAM, "train", "flip_flop", "--scheme", request.param, "--out", tmp_path / "run", *sizes], check=True)
    return tmp_path / "run"


def test_whole_model(run, tmp_path):
    record = json.loads((run / "run.json").read_text())["options"]
    subprocess.run([PROGRAM, "look", run, "--numbers", "--out", tmp_path / "look.html"], check=True)
    read = load_file(tmp_path / "look.safetensors")
    weights = {name: each.double().requires_grad_() for name, each in load_file(run / "weights.safetensors").items()}
    model = Recorded(weights, record["heads"], record["scheme"])
    logits = model(read["tokens"])
    loss = F.cross_entropy(logits.flatten(0, 1), read["targets"].flatten(), ignore_index=-1)
    kept = {name: each for name, each in {**weights, **model.made}.items() if each.requires_grad}
    gradients = zip(kept, torch.autograd.grad(loss, list(kept.values()), allow_unused=True))
    mine = {"tokens": read["tokens"], "targets": read["targets"], **weights, **model.made, "answer.logits": logits, "loss": loss.reshape(1),
            **{"gradient." + name: each for name, each in gradients if each is not None}}
    save_file({name: each.detach().clone().contiguous() for name, each in mine.items()}, tmp_path / "mine.safetensors")
    done = subprocess.run([PROGRAM, "compare", run, tmp_path / "mine.safetensors", "--json"], stdout=subprocess.PIPE, text=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and said["compared"] > 0, said["headline"]


def curve(attention, parameters):
    """Losses of 20 steps of training."""
    generator, p = torch.Generator().manual_seed(2), {}
    shapes = {"embedding": (VOCABULARY, DIM), "norm": (DIM,)}
    for layer in range(LAYERS):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in {
            "norm1": (DIM,), "norm2": (DIM,), "mlp.in": (4 * DIM, DIM), "mlp.out": (DIM, 4 * DIM),
            **{f"attention.{name}": (DIM, DIM) for name in ("query", "key", "value", "output")}}.items()}
    for name, shape in shapes.items():
        p[name + ".weight"] = torch.randn(shape, generator=generator, dtype=torch.float64) / DIM**0.5 + (len(shape) == 1)
        p[name + ".bias"] = torch.zeros(shape[0], dtype=torch.float64)
    optimizer = torch.optim.Adam([each.requires_grad_() for each in p.values()] + parameters, lr=1e-3)
    model, losses = Transformer(p, HEADS, attention), []
    for _ in range(20):
        tokens = torch.randint(VOCABULARY, (4, LENGTH + 1), generator=generator)
        tokens[:, 1:] = torch.where(torch.arange(LENGTH) % 3 == 0, tokens[:, :1], tokens[:, 1:])  # something to learn
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("scheme", ["cdape(kerple)", "dape(kerple)", "dape(alibi)", "cope", "kerple", "alibi", "rope", "fire", "none"])
def test_training(scheme):
    ours = [whence.torch_function(scheme, heads=HEADS, head_dim=DIM // HEADS, length=LENGTH, dtype=torch.float64, seed=layer)
            for layer in range(LAYERS)]
    theirs = [{name: each.detach().clone().requires_grad_(each.requires_grad) for name, each in module.named_parameters()} for module in ours]
    assert_close(curve(lambda p, layer, _: ours[layer](p["q"], p["k"], p["v"]), [each for module in ours for each in module.parameters()]),
                 curve(lambda p, layer, _: attend(scheme, {**p, **theirs[layer]})["output"], [each for copies in theirs for each in copies.values()]),
                 rtol=0, atol=1e-9)
