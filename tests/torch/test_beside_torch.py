"""Our attention, ops, steps and decoding against PyTorch's (examples/experiments/beside_torch.py): results are equal, and planted faults make it end
with an error."""
import json
import math
import subprocess
import sys

import pytest
import torch

import beside_torch
import formulas
from conftest import ROOT

TINY = ["--heads", "2", "--head-dim", "8", "--repetitions", "2", "--threads", "1", "--ways", "eager"]


@pytest.fixture
def rows_of(monkeypatch, capsys):
    """Returns the exit code and the rows."""
    def rows_of(*words):
        monkeypatch.setattr(sys, "argv", ["beside_torch.py", *words, "--json"])
        return beside_torch.main(), [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return rows_of


@pytest.fixture
def held(rows_of):
    """Checks that all rows are compared and timed."""
    def held(count, *words):
        code, rows = rows_of(*words)
        assert code == 0 and len(rows) == count, (words, code, len(rows))
        for row in rows:
            assert 0 <= row["difference"] < (3e-3 if row.get("scheme") == "cope" else 1e-5), row
            assert min(row["ratio"], row["ours_ms"], row["theirs_ms"]) > 0, row
        return rows
    return held


@pytest.fixture
def refused(rows_of):
    def refused(words, *command):
        code, rows = rows_of(*command)
        assert code == 1 and len(rows) == 1 and words in rows[0]["refused"] and "ratio" not in rows[0], rows
    return refused


def test_attention(held):
    schemes = ["none", "alibi", "kerple", "rope", "fire", "shaw", "dape(kerple)", "dape(alibi)", "cdape(kerple)", "cdape(alibi)", "forgetting",
               "carope", "repo", "selective_rope", "qk_norm", "ssmax", "sink", "gated_output", "window(alibi, n=8)"]
    rows = held(2 * len(schemes) + 4, "attention", "--schemes", ",".join([*schemes, "cope"]), "--lengths", "17,33", *TINY)
    assert {row["scheme"] for row in rows} == {*schemes, "cope"} and all(row["ours_backward_ms"] > 0 for row in rows)
    assert {row["gates"] for row in rows if row["scheme"] == "cope"} == {"initial", "sparse"}
    held(2, "attention", "--schemes", "none,alibi", "--lengths", "9", *TINY[4:], "--heads", "4", "--head-dim", "8", "--kv-heads", "2")
    for executor in ("reference", "strips", "tiled"):
        held(1, "attention", "--schemes", "kerple", "--lengths", "33", "--executor", executor, *TINY)


def test_ops_and_steps(held):
    more = ["--repetitions", "1", "--threads", "1", "--ways", "eager"]
    assert [row["op"] for row in held(9, "ops", "--scale", "0.001", *more)] == list(beside_torch.OPS)
    rows = held(6, "step", "--models", "toy", "--schemes", "none,absolute,rope,alibi,cope,cdape(kerple)", *more)
    assert all(row["difference"] < 1e-6 for row in rows if row["scheme"] != "cope")  # another form of GELU makes it 4e-6


def test_decoding(held):
    row = held(1, "decode", "--schemes", "alibi", "--prompt", "3", "--tokens", "2", "--repetitions", "1", "--threads", "2", "--ways", "eager")[0]
    assert "ours_backward_ms" not in row
    for kept in (formulas.allowed_of, formulas.alibi_bias, formulas.slopes, formulas.steps):
        kept.cache_clear()  # constants made in inference_mode, which autograd refuses


KERPLE = formulas.SCHEMES["kerple"]


@pytest.mark.parametrize("planted", [
    lambda p: {"bias": -KERPLE(p)["bias"]}, lambda p: {"bias": KERPLE(p)["bias"] * 1.01}, lambda p: {"bias": KERPLE(p)["bias"] * math.nan},
    lambda p: {"bias": KERPLE({**p, "rate": p["rate"].detach()})["bias"] + 0 * p["rate"].sum()}], ids=["sign", "size", "nan", "gradient alone"])
def test_a_wrong_formula_is_refused(planted, monkeypatch, refused, held):
    given = ["attention", "--schemes", "kerple", "--lengths", "9", *TINY]
    held(1, *given)
    monkeypatch.setitem(formulas.SCHEMES, "kerple", planted)
    refused("of its norm; at most", *given)


def test_a_wrong_model_is_refused(monkeypatch, refused):
    norm = beside_torch.Transformer.norm
    monkeypatch.setattr(beside_torch.Transformer, "norm", lambda self, x, name: norm(self, x, name) * (1.01 if name == "blocks.1.norm2" else 1))
    refused("at most 1.0e-04", "step", "--models", "toy", "--schemes", "none", "--repetitions", "1", "--ways", "eager")


def test_differences():
    largest = beside_torch.largest_difference
    filled = lambda value: torch.full((2, 3), value)
    assert largest({"output": filled(2.0)}, {"output": filled(2.0)}) == (0, "output")
    assert abs(largest({"output": filled(2.0)}, {"output": filled(2.5)})[0] - 0.2) < 1e-6
    for lacking in ({"gradient of q": filled(2.0)}, {"output": filled(2.0), "more": filled(1.0)}, {}):
        assert largest({"output": filled(2.0)}, lacking)[0] == math.inf
    assert largest({"output": filled(2.0)}, {"output": filled(math.nan)}) == (math.inf, "output")
    assert largest({"output": filled(math.nan)}, {"output": filled(2.0)}) == (math.inf, "output")
    # A gradient of rounding alone is compared relative to the others.
    ours, theirs = ({"gradient of q": filled(1.0), "gradient of b": filled(rounded)} for rounded in (1e-7, -2e-7))
    assert largest(ours, theirs)[0] < 1e-5


SCRIPT = [sys.executable, ROOT / "examples/experiments/beside_torch.py"]


@pytest.mark.parametrize("words, said", [
    ("attention --schemes path", "its formula goes pair by pair"), ("attention --schemes coep", "no formula for coep"), ("attention --lengths 0", "'0' given"),
    ("attention --ways slow", "slow given"), ("attention --schemes cope(interpolation=equation5)", "has no interpolation")])
def test_refusals(words, said):
    ended = subprocess.run([*SCRIPT, *words.split()], capture_output=True, text=True)
    assert ended.returncode in (1, 2) and said in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
