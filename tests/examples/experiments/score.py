#!/usr/bin/env python3
"""Tests choices by log-likelihood (examples/experiments/score.py) and token files (tokens.py):
    python3 tests/examples/experiments/score.py build/release/whence
Ends with 77 if numpy, safetensors, tokenizers or the module whence is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
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

packages.require("numpy", "safetensors", "tokenizers", "whence", skip=77)
import numpy as np
import safetensors.numpy
import tokenizers
import whence

import score
import tokens

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else str(whence.runs.PROGRAM)
TEXT = "".join("the cat sat on the mat.\n" if k % 3 == 0 else "a dog ran to the sea.\n" for k in range(300))
AWKWARD = ["", " ", "a", "  two  blanks ", "\n\n\r\n\t x\u00a0y\u3000z", "caf\u00e9 na\u00efve \u591c\u665a \U0001f600\u200d",
           "it's we'LL 'd I've", "12 x3 \u0663\u00bd\u2167", "e\u0301 \u0928\u093f", "\0\x7f\ufeff\ufffd", "<|endoftext|> </s>", "___--!?  \n end",
           "the " * 500, "a" * 3000, "\u00df\u0130\u01c5 \u1e9e\u2028|"]


def ran(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(data="text.txt"):
    out = f"run.{'bytes' if data == 'text.txt' else data}"
    ran("train", "lm", "--data", data, "--out", out, "--quiet",
        *"--dim 32 --layers 1 --heads 2 --length 24 --steps 150 --lr 3e-3 --warm-up 5 --evaluate-to 1 --threads 2".split())
    return out


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


def test_the_token_file_of_the_readme():
    """Runs the block and the lines as printed, and compares the numbers of a text, and the bytes of its tokens, with `tokenizers`."""
    text = (ROOT / "examples/experiments/README.md").read_text(encoding="utf-8")
    block, = [each for each in re.findall(r"```python\n(.*?)```", text, re.S) if "train_from_iterator" in each]
    line, = re.findall(r"^examples/experiments/tokens.py (.*--out .*?) *#", text, re.M)
    pathlib.Path("austen.txt").write_text(TEXT + "\n".join(AWKWARD), encoding="utf-8", newline="")
    names: dict = {}
    exec(block, names)
    tokens.main(line.split())
    trained("austen.safetensors")
    whole = safetensors.numpy.load_file("austen.safetensors")["tokens"]
    assert whole.tolist() == names["bpe"].encode(pathlib.Path("austen.txt").read_bytes().decode()).ids
    asked = [{"context": "", "choices": ["the cat", "xyz"], "answer": 0}]  # <|endoftext|> replaces an empty context
    code, said, _ = scored(asked, "run.austen.safetensors")
    assert code == 4 and "run.austen.safetensors/tokenizer.json" in said, said
    encode, end_of_text, _ = score.tokeniser("run.austen.safetensors", "tokenizer.json")
    kept = [each.encode("latin-1") for each in json.loads(pathlib.Path("run.austen.safetensors/tokeniser.json").read_text())["tokens"]]
    run = whence.load("run.austen.safetensors")
    for each in [*filter(None, AWKWARD), TEXT]:
        assert b"".join(kept[number] for number in encode(each)) == each.encode(), each
        if 1 < len(encode(each)) < 20 and "\r" not in each:  # which a pipe read as text loses
            assert run.generate(encode(each), tokens=1, temperature=0).startswith(each), each
            assert "".join(run.tokens(prompt=encode(each)))[:2] == each[:2] or not each.isprintable(), each
    assert end_of_text == names["bpe"].token_to_id("<|endoftext|>") and encode("<|endoftext|>") == [end_of_text]
    assert len(encode(" the cat")) == 2, encode(" the cat")
    code, said, found = scored(asked, "run.austen.safetensors", "--tokenizer", "tokenizer.json")
    assert code == 0 and found[0]["choices"][0]["tokens"] == 2, said
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save("other.json")
    assert "are not those of" in scored(asked, "run.austen.safetensors", "--tokenizer", "other.json")[1]


def test_any_tokenizer():
    """The bytes of the tokens spell the text for each kind of tokenizer.json, as far as it can be spelled; templates and special tokens are read."""
    models, cuts, decoders, trainers = tokenizers.models, tokenizers.pre_tokenizers, tokenizers.decoders, tokenizers.trainers
    pieces = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.pre_tokenizer, pieces.decoder = cuts.Whitespace(), decoders.WordPiece()
    pieces.train_from_iterator([TEXT], trainers.WordPieceTrainer(vocab_size=40, special_tokens=["[UNK]"], show_progress=False))
    unigram = tokenizers.Tokenizer(models.Unigram())
    unigram.pre_tokenizer, unigram.decoder = cuts.Metaspace(), decoders.Metaspace()
    unigram.train_from_iterator([TEXT], trainers.UnigramTrainer(vocab_size=60, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    vocabulary = {**{f"<0x{byte:02X}>": byte for byte in range(256)}, **{each: 256 + at for at, each in enumerate([*"\u2581thecas", "th", "\u2581th"])}}
    llama = tokenizers.Tokenizer(models.BPE(vocabulary, [("t", "h"), ("\u2581", "th")], byte_fallback=True))
    llama.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")])
    llama.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    llama.add_special_tokens(["<s>"])
    llama.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", llama.token_to_id("<s>"))])
    for made, text, spelled in ((pieces, "the cat sat", " the cat sat"), (unigram, "the cat sat", " the cat sat"),
                                (llama, "the c\u00e9 \u732b\n", "<s> the c\u00e9 \u732b\n")):
        made.save("any.json")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            tokens.main(["any.json", "--prompt", text])
        numbers, list_of = list(map(int, said.getvalue().split())), tokens.bytes_of(tokens.read("any.json"))
        assert numbers == made.encode(text).ids and b"".join(list_of[number] for number in numbers).decode() == spelled, (numbers, spelled)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert tokens.main(["text.txt", "--prompt", "a"]) == 3 and "text.txt: no JSON" in said.getvalue()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("text.txt").write_text(TEXT, encoding="utf-8")
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name[5:].replace('_', ' ')}: ok")
    os.chdir("/")
