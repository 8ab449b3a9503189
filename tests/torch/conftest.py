"""Comparisons of whence with PyTorch, for a Python that has torch, safetensors and whence (pip install .packaging):

    pytest tests/torch -q
    pytest tests/torch -q -k "cope or errata"
    pytest tests/torch -q -k whole_model --run runs/a      # a run of `whence train`

All are skipped if a package is missing; with WHENCE_REQUIRED=1 that is an error. WHENCE names another program than the module's own.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("examples/whence/verify", "examples/experiments")]
missing = [name for name in ("torch", "safetensors", "whence") if not importlib.util.find_spec(name)]
if not missing:
    import torch
    import whence
    from safetensors.torch import load_file, save_file

    import formulas
    PROGRAM = os.environ.get("WHENCE") or str(whence.runs.PROGRAM)


def pytest_addoption(parser):
    parser.addoption("--run", action="append", type=pathlib.Path, help="a run of `whence train`, in place of small ones")


def pytest_pycollect_makemodule():
    if missing:
        reason = f"{', '.join(missing)} missing in {sys.executable}"
        pytest.exit(reason, 1) if os.environ.get("WHENCE_REQUIRED") == "1" else pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def probe(tmp_path):
    """The tensors that `whence probe` writes for given ones."""
    def made(scheme, tensors, *words):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "in")
        subprocess.run([PROGRAM, "probe", "--scheme", scheme, "--in", tmp_path / "in", "--out", tmp_path / "out", *words], check=True)
        return load_file(tmp_path / "out")
    return made


def draw(description, key_heads, generator):
    """Inputs, parameters near their initial values, and both cotangents, of the sizes that whence.describe() was given."""
    def normal(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    batch, heads, length, head_dim = next(each["shape"] for each in description["tensors"] if each["name"] == "q")
    tensors = {name: normal((batch, count, length, head_dim)) for name, count in
               {"q": heads, "k": key_heads, "v": key_heads, "cotangent": heads}.items()}
    tensors["cotangent_logits"] = normal((batch, heads, length, length))
    if any(each["name"] == "x" for each in description["tensors"]):
        tensors["x"] = normal((batch, length, heads * head_dim))
    for parameter in description["parameters"]:
        value = 0.5 * normal(parameter["shape"])
        if "bounds" in parameter:  # KERPLE's numbers are positive
            value = value.abs() + 0.1
        tensors[parameter["name"]] = value + 1 if parameter["initial"] == "ones" else value
    return tensors


def by_formula(scheme, tensors, causal=True):
    """Values and gradients by the scheme's formula, by the names of `whence probe`, and the mask of allowed pairs. Logits of other pairs are zero."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items() if not name.startswith("cotangent")}
    made = formulas.attend(scheme, leaves, causal)
    allowed = made.pop("allowed")
    made["logits"] = made["logits"] * allowed
    loss = sum((made[name] * tensors[cotangent]).sum() for name, cotangent in (("output", "cotangent"), ("logits", "cotangent_logits"))
               if cotangent in tensors)
    inside = {name: value for name, value in made.items() if value.requires_grad and name not in ("logits", "pattern", "output")}
    gradients = dict(zip([*leaves, *inside], torch.autograd.grad(loss, [*leaves.values(), *inside.values()], allow_unused=True)))
    gradients = {name: torch.zeros_like(leaves[name]) if found is None and name in leaves else found for name, found in gradients.items()}
    return {**{name: value.detach() for name, value in made.items()},
            **{"gradient." + name: found for name, found in gradients.items() if found is not None}}, allowed


def shown(tensors, allowed):
    """The tensors, with zeros at the pairs that the mask hides."""
    return {name: tensor * allowed if tensor.shape[-2:] == allowed.shape else tensor for name, tensor in tensors.items()}
