#!/usr/bin/env python3
"""Tests our attention, ops, steps and decoding against PyTorch's (examples/experiments/beside_torch.py): results are equal, and planted faults
are refused.
    python3 tests/examples/experiments/beside_torch.py
Needs torch and the module whence; ends with 77 if one is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import time

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "examples/experiments/beside_torch.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
import packages

packages.require("torch", "whence", skip=77)
import torch

import beside_torch
import by_pytorch
import formulas

TINY = ["--heads", "2", "--head-dim", "8", "--repetitions", "2", "--threads", "1", "--ways", "eager"]
compared = 0


def rows_of(*words):
    """Returns the exit code and the rows."""
    said, told = io.StringIO(), sys.argv
    sys.argv = ["beside_torch.py", *words, "--json"]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            code = beside_torch.main()
    finally:
        sys.argv = told
    return code, [json.loads(line) for line in said.getvalue().splitlines()]


def held(count, *words):
    """Checks that all rows are compared and timed."""
    global compared
    code, rows = rows_of(*words)
    assert code == 0 and len(rows) == count, (words, code, len(rows))
    for row in rows:
        assert 0 <= row["difference"] < (3e-3 if row.get("scheme") == "cope" else 1e-5), row
        assert min(row["ratio"], row["ours_ms"], row["theirs_ms"]) > 0, row
    compared += count
    return rows


def test_attention():
    schemes = ["none", "alibi", "kerple", "rope", "fire", "shaw", "dape(kerple)", "dape(alibi)", "cdape(kerple)", "cdape(alibi)", "forgetting",
               "carope", "repo", "selective_rope", "qk_norm", "ssmax", "sink", "gated_output", "window(alibi, n=8)"]
    rows = held(2 * len(schemes) + 4, "attention", "--schemes", ",".join([*schemes, "cope"]), "--lengths", "17,33", *TINY)
    assert {row["scheme"] for row in rows} == {*schemes, "cope"} and all(row["ours_backward_ms"] > 0 for row in rows)
    assert {row["gates"] for row in rows if row["scheme"] == "cope"} == {"initial", "sparse"}
    held(2, "attention", "--schemes", "none,alibi", "--lengths", "9", *TINY[4:], "--heads", "4", "--head-dim", "8", "--kv-heads", "2")
    for executor in ("reference", "strips", "tiled"):
        held(1, "attention", "--schemes", "kerple", "--lengths", "33", "--executor", executor, *TINY)


def test_ops():
    rows = held(9, "ops", "--scale", "0.001", "--repetitions", "1", "--threads", "1", "--ways", "eager")
    assert [row["op"] for row in rows] == list(by_pytorch.Op.FUNCTIONS)


def test_steps():
    rows = held(6, "step", "--models", "toy", "--schemes", "none,absolute,rope,alibi,cope,cdape(kerple)", "--repetitions", "1", "--threads", "1",
                "--ways", "eager")
    assert all((row["batch"], row["length"]) == (4, 40) for row in rows)
    assert all(row["difference"] < 1e-6 for row in rows if row["scheme"] != "cope")  # another form of GELU makes it 4e-6


def test_decoding():
    row = held(1, "decode", "--schemes", "alibi", "--prompt", "3", "--tokens", "2", "--repetitions", "1", "--threads", "2", "--ways", "eager")[0]
    assert "ours_backward_ms" not in row


def refused(words, *command):
    code, rows = rows_of(*command)
    assert code == 1 and len(rows) == 1 and words in rows[0]["refused"] and "ratio" not in rows[0], rows


def test_wrong_formulas_are_refused():
    """Faults planted in PyTorch's computation."""
    kerple = ["attention", "--schemes", "kerple", "--lengths", "9", *TINY]
    right = formulas.SCHEMES["kerple"]
    plants = [lambda p: {"bias": -right(p)["bias"]}, lambda p: {"bias": right(p)["bias"] * 1.01}, lambda p: {"bias": right(p)["bias"] * math.nan},
              lambda p: {"bias": right({**p, "rate": p["rate"].detach()})["bias"] + 0 * p["rate"].sum()}]  # the last one: no gradient alone
    for plant in plants:
        formulas.SCHEMES["kerple"] = plant
        try:
            refused("of its norm; at most", *kerple)
        finally:
            formulas.SCHEMES["kerple"] = right
    held(1, *kerple)


def test_wrong_models_are_refused():
    norm = by_pytorch.Transformer.norm
    by_pytorch.Transformer.norm = lambda self, x, name: norm(self, x, name) * (1.01 if name == "blocks.1.norm2" else 1)
    try:
        refused("at most 1.0e-04", "step", "--models", "toy", "--schemes", "none", "--repetitions", "1", "--ways", "eager")
    finally:
        by_pytorch.Transformer.norm = norm


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


def test_command_line():
    for words, said in (("attention --schemes path", "its formula goes pair by pair"), ("attention --schemes coep", "no formula for coep"),
                        ("attention --lengths 0", "'0' given"), ("attention --ways slow", "slow given"), ("step --models gpt9", "'gpt9' given"),
                        ("attention --schemes cope(interpolation=equation5)", "has no interpolation"),
                        ("attention --schemes none --executor fast", "fast")):
        words = words.split()
        ended = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
        assert ended.returncode in (1, 2) and said in ended.stderr and "Traceback" not in ended.stderr, (words, ended.stderr)
    command = [sys.executable, SCRIPT, "attention", "--schemes", "none", "--lengths", "9", *TINY]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "theirs / ours" in table.splitlines()[0] and table.splitlines()[1].split()[0] == "none"


if __name__ == "__main__":
    began = time.time()
    for name, test in [each for each in globals().items() if each[0].startswith("test_")]:
        test()
        print(f"{name[5:].replace('_', ' ')}: holds", flush=True)
    print(f"{compared} comparisons with PyTorch {torch.__version__}, {time.time() - began:.1f} s")
