#!/usr/bin/env python3
"""Tests choices by log-likelihood (examples/experiments/score.py) and the README's tokeniser:
    python3 tests/examples/experiments/score.py build/release/whence
Ends with 77 if numpy, tokenizers or the module whence is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples/experiments"))
sys.dont_write_bytecode = True
import packages

packages.require("numpy", "tokenizers", "whence", skip=77)
import numpy as np
import whence

import score

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else str(whence.runs.PROGRAM)
TEXT = "".join("the cat sat on the mat.\n" if k % 3 == 0 else "a dog ran to the sea.\n" for k in range(300))
AWKWARD = ["", " ", "a", "  two  blanks ", "\n\n\r\n\t x\u00a0y\u3000z", "caf\u00e9 na\u00efve \u591c\u665a \U0001f600\u200d",
           "it's we'LL 'd I've", "12 x3 \u0663\u00bd\u2167", "e\u0301 \u0928\u093f", "\0\x7f\ufeff\ufffd", "<|endoftext|> </s>", "___--!?  \n end",
           "the " * 500, "a" * 3000, "\u00df\u0130\u01c5 \u1e9e\u2028|"]


def ran(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(tokeniser="bytes"):
    ran("train", "lm", "--data", "text.txt", "--tokeniser", tokeniser, "--out", f"run.{tokeniser}", "--quiet",
        *"--dim 32 --layers 1 --heads 2 --length 24 --steps 150 --lr 3e-3 --warm-up 5 --evaluate-to 1 --threads 2".split())
    return f"run.{tokeniser}"


def scored(lines, *words):
    """Returns the exit code, the output, and the lines of --out."""
    pathlib.Path("q.jsonl").write_text(lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    pathlib.Path("o.jsonl").unlink(missing_ok=True)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = score.main([words[0], "q.jsonl", "--out", "o.jsonl", *words[1:]])
    made = pathlib.Path("o.jsonl")
    return code, out.getvalue() + err.getvalue(), [json.loads(line) for line in made.read_text().splitlines()] if made.exists() else None


def test_what_its_text_says():
    code, said, found = scored([{"context": "the cat sat on", "choices": ["xyz qqq.", "the mat."], "answer": 1},
                                {"context": "the cat sat on the mat.\na dog ran", "choices": ["to the sea.", "on xyz."], "answer": 0},
                                {"context": "a dog ran to the", "answer": "sea."}], trained())
    assert code == 0 and said.startswith("note: 2 of 5 texts"), said
    assert [found[0]["by_sum"], found[1]["by_sum"], found[2]["choices"][0]["greedy"]] == [1, 0, True]
    assert re.search(r"sum of log p +100\.00 +0\.00 +2 +50\.00", said) and re.search(r"greedy answers % +100\.00 +- +1 +-", said), said
    assert found[1]["choices"][0]["cut"] and found[1]["choices"][0]["characters"] == 11


def test_standard_error():
    """For one right answer in two: sqrt(1/2) / sqrt(2)."""
    question = {"context": "the cat sat on", "choices": ["xyz qqq.", "the mat."]}
    said = scored([{**question, "answer": 0}, {**question, "answer": 1}], "run.bytes")[1]
    assert re.search(r"per byte +50\.00 +50\.00 +2 +50\.00", said), said


def test_per_character_and_per_byte():
    """A character is a code point: per byte, characters of two bytes would win."""
    _, _, found = scored([{"context": "It was", "choices": ["\u00e9\u00e9\u00e9\u00e9", "zqj"], "answer": 1}], "run.bytes")
    first = found[0]["choices"][0]
    assert (first["characters"], first["bytes"], first["tokens"]) == (4, 8, 9)
    choices = [{"log_probability": -49.5, "characters": 4, "bytes": 12}, {"log_probability": -21.7, "characters": 4, "bytes": 4}]
    best = score.answered({"place": "", "answer": 1}, choices)
    assert (best["by_sum"], best["per_character"], best["per_byte"]) == (1, 1, 0)


def test_the_sum():
    """log p token by token, each from a separate pass over the tokens before it."""
    question = {"context": "a dog  ", "choices": ["ran to", "sat"], "answer": 0}
    run, encode = whence.load("run.bytes", dtype="f64"), score.tokeniser("run.bytes")[0]
    for found, choice in zip(scored([question], "run.bytes", "--dtype=f64")[2][0]["choices"], question["choices"]):
        tokens, total = encode("a dog   " + choice), 0.0
        for at in range(len("a dog"), len(tokens)):
            row = np.asarray(run.forward([tokens[:at]]))[0, -1]
            total += row[tokens[at]] - math.log(np.exp(row).sum())
        assert abs(found["log_probability"] - total) < 1e-9, (found, total)
        assert found["tokens"] == 3 + len(choice)
    short, long = ([{"context": lead + "the cat sat on", "answer": "the mat."}] for lead in ("", 9 * "a dog "))
    left = [scored(each, "run.bytes", "--length=12")[2][0]["choices"][0] for each in (short, long)]
    assert left[0] == left[1] and left[0]["cut"]  # tokens that are cut off have no effect
    assert scored([question], "run.bytes", "--no-blank")[2][0]["choices"][1]["tokens"] == 2 + len("sat")


def test_refusals():
    for line, message in {'{"context": "a", "choices": [], "answer": 0}': "fewer than two",
                          '{"context": "a", "choices": ["b"], "answer": 0}': "fewer than two",
                          '{"context": "a", "choices": ["b", ""], "answer": 0}': "an empty choice",
                          '{"context": "a", "choices": ["b", 3], "answer": 0}': "no text",
                          '{"context": "a", "choices": "bc", "answer": 0}': "'choices'",
                          '{"context": "a", "choices": ["b", "c"], "answer": 2}': "answer 2 given",
                          '{"context": "a", "choices": ["b", "c"], "answer": true}': "answer true given",
                          '{"context": "a", "choices": ["b", "c"]}': "answer null",
                          '{"context": "a", "answer": ""}': "an empty choice",
                          '{"answer": "b"}': "no text 'context'",
                          '{"context": "a"': "delimiter",
                          '{"context": "a", "context": "b", "answer": "c"}': "'context' given twice",
                          "[1]": "context",
                          '{"context": "\\ud800", "answer": "b"}': "surrogates",
                          "[" * 100000: "line 2: ",
                          '{"context": " ", "answer": "b"}': "an empty context",
                          json.dumps({"context": "a", "answer": "b" * 24}): "at most 24 required, 25"}.items():
        code, said, found = scored("\n" + line, "run.bytes")
        assert code == 2 and found is None and "q.jsonl: line 2: " in said and message in said and said.count("\n") == 1, (line[:60], said)
    assert "26 tokens to read given" in scored([{"context": "a context of many bytes", "answer": "yes"}], "run.bytes", "--too-long=refuse")[1]
    assert scored("\n", "run.bytes")[1].endswith("q.jsonl: no line given; objects of context, choices and answer required\n")
    pathlib.Path("bad.jsonl").write_bytes(b'{"context": "\xff"}\n')
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert score.main(["run.bytes", "bad.jsonl"]) == 2 and score.main(["run.bytes", "none.jsonl"]) == 4
        assert score.main(["run.bytes", "q.jsonl", "--out", "./q.jsonl"]) == 2 and score.main(["rope", "q.jsonl"]) == 2
    assert "bad.jsonl: line 1: 'utf-8'" in said.getvalue() and "none.jsonl" in said.getvalue() and "which is read" in said.getvalue()


def test_the_tokeniser_of_the_readme():
    """Runs the block as printed, trains a model with its file, and compares numbers with `tokenizers`, with and without the program."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "examples/experiments/README.md").read_text(encoding="utf-8"), re.S)
    block, = [each for each in blocks if "train_from_iterator" in each]
    pathlib.Path("austen.txt").write_text(TEXT + "\n".join(AWKWARD), encoding="utf-8")
    names: dict = {}
    exec(block, names)
    os.rename("bpe.json", "bpe")
    encode, end_of_text, _ = score.tokeniser(trained("bpe"))
    for text in [*filter(None, AWKWARD), TEXT]:
        expected = names["bpe"].encode(text).ids
        if "<|endoftext|>" not in text:  # in a text whence reads <|endoftext|> as characters
            assert encode(text) == expected, text
        if "\0" not in text:
            cut = ran("tokenize", "--tokeniser", "bpe", "--text", text)
            assert re.search(r"^ids: ?(.*)$", cut, re.M)[1] == " ".join(map(str, encode(text))), text
    assert encode("") == names["bpe"].encode("").ids == [] and end_of_text == names["bpe"].token_to_id("<|endoftext|>")
    assert len(encode(" the cat")) == 2, encode(" the cat")
    code, said, found = scored([{"context": "", "choices": ["the cat", "xyz"], "answer": 0}], "run.bpe")  # <|endoftext|> replaces an empty context
    assert code == 0 and found[0]["choices"][0]["tokens"] == 2, said


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("text.txt").write_text(TEXT, encoding="utf-8")
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name[5:].replace('_', ' ')}: ok")
    os.chdir("/")
