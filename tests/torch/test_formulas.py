"""`whence probe` against the papers' formulas in PyTorch (formulas.py): values, intermediates and gradients in f64; the program in
examples/whence/verify/README.md; and nn/errata.md in numbers."""
import itertools
import re
import subprocess
import sys

import pytest
import torch
import whence
from torch.testing import assert_close

from conftest import PROGRAM, ROOT, by_formula, draw, shown

HEADS = 4
CASES = ["none", "alibi", "kerple", "rope", "cope", "cope(p_max=2)", "dape(kerple)", "dape(alibi)", "dape(fire)", "cdape(kerple, kernel=3)",
         "cdape(alibi, kernel=5)", "shaw", "shaw(clip=2)", "transformer_xl", "fire", "fire(init_length=3)", "forgetting", "forgetting(gates=pairs)",
         "cable", "rope(scaling=ntk, factor=2)", "selective_rope", "carope", "repo", "pope", "xpos", "qk_norm", "stick_breaking", "path", "mta",
         "path + forgetting", "gated_output", "sink", "ssmax", "window(alibi, n=3)", "window(cope(p_max=3), n=4)"]


@pytest.mark.parametrize("scheme", CASES)
def test_formula(scheme, probe):
    description, generator = whence.describe(scheme, heads=HEADS, head_dim=4, length=7, batch=2), torch.Generator().manual_seed(0)
    masks = [True] if description["claims"]["causal_only"] else [True, False]
    shared = [] if description["claims"]["by_key_head"] else [2, 1]  # the papers have these schemes with a key head per query head
    for causal, key_heads in itertools.product(masks, [HEADS, *shared]):
        tensors = draw(description, key_heads, generator)
        made, allowed = by_formula(scheme, tensors, causal)
        found, expected = probe(scheme, tensors, *([] if causal else ["--bidirectional"])), {}
        for name, value in made.items():
            if name.removeprefix("gradient.") in tensors or not name.startswith("gradient.") or key_heads == HEADS:
                is_shared = value.ndim == found[name].ndim and value.shape[1:2] != found[name].shape[1:2]  # a key for several queries
                expected[name] = (value[:, ::HEADS // key_heads] if is_shared else value).expand_as(found[name])
        assert_close(shown({name: found[name] for name in expected}, allowed), shown(expected, allowed), rtol=0, atol=1e-10,
                     msg=lambda said: f"{'causal' if causal else 'bidirectional'}, {key_heads} heads of keys: {said}")


def test_program_of_the_readme(tmp_path):
    """As printed, and with its planted fault."""
    readme = (ROOT / "examples/whence/verify/README.md").read_text()
    code, = re.findall(r"```python\n(.*?)```", readme, re.S)
    promised, = re.findall(r"```\n(The first that differs.*?)```", readme, re.S)
    good = "gates = torch.sigmoid(scores + mask)\n"
    for text, status in (code, 0), (code.replace(good, "gates = torch.sigmoid(scores)\n"), 1):
        done = subprocess.run([sys.executable, "-c", text, PROGRAM], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        assert done.returncode == status and (status == 0 or promised in done.stdout), done.stdout
        assert sum(line.endswith(("  ok", "  DIFFERS")) for line in done.stdout.splitlines()) == 15, done.stdout


@pytest.mark.parametrize("weights, p, product", [("listing", 1.999, 3.997), ("listing", 2.001, 4.005),
                                                 ("equation5", 1.999, 1.003), ("equation5", 2.001, 8.995)])
def test_errata_a1_a_position_between_two_rows(weights, p, product, probe):
    """Three tokens, one head of one dim. Queries are 1, so keys are the gates' logits, all equal."""
    k = torch.full((1, 1, 3, 1), p / 3, dtype=torch.float64).logit()
    squares = torch.tensor([[0], [1], [4], [9]], dtype=k.dtype)  # e[n] = n^2, so that q.e[2] = 4
    made = probe(f"cope(p_max=3, interpolation={weights})", {"q": torch.ones_like(k), "k": k, "v": torch.ones_like(k), "table": squares})
    assert made["position_logit"][0, 0, 2, 0].item() == pytest.approx(product, abs=1e-9)
