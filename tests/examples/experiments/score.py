"""Choices by log-likelihood (examples/experiments/score.py) and token files (tokens.py): tests/pytest tests/examples/experiments/score.py"""
import json
import math
import os
import pathlib
import re
import subprocess

import pytest

for package in ("safetensors", "tokenizers", "whence"):
    pytest.importorskip(package)
import numpy as np
import safetensors.numpy
import tokenizers
import whence

import score
import tokens

TEXT = "".join("the cat sat on the mat.\n" if k % 3 == 0 else "a dog ran to the sea.\n" for k in range(300))
AWKWARD = ["", " ", "a", "  two  blanks ", "\n\n\r\n\t x\u00a0y\u3000z", "caf\u00e9 na\u00efve \u591c\u665a \U0001f600\u200d",
           "it's we'LL 'd I've", "12 x3 \u0663\u00bd\u2167", "e\u0301 \u0928\u093f", "\0\x7f\ufeff\ufffd", "<|endoftext|> </s>", "___--!?  \n end",
           "the " * 500, "a" * 3000, "\u00df\u0130\u01c5 \u1e9e\u2028|"]


def train(data, out):
    sizes = "--dim 32 --layers 1 --heads 2 --length 24 --steps 150 --lr 3e-3 --warm-up 5 --evaluate-to 1 --threads 2 --quiet".split()
    subprocess.run([os.environ["WHENCE"], "train", "lm", "--data", data, "--out", out, *sizes], check=True)
    return str(out)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "text.txt").write_text(TEXT)
    return train(folder / "text.txt", folder / "run")


@pytest.fixture
def scored(capsys, tmp_path, monkeypatch):
    """Returns the exit code, the output, and the lines of --out."""
    monkeypatch.chdir(tmp_path)

    def scored(lines, *words):
        pathlib.Path("q.jsonl").write_text(lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        pathlib.Path("o.jsonl").unlink(missing_ok=True)
        code, made = score.main([words[0], "q.jsonl", "--out", "o.jsonl", *words[1:]]), pathlib.Path("o.jsonl")
        return code, "".join(capsys.readouterr()), [json.loads(line) for line in made.read_text().splitlines()] if made.exists() else None
    return scored


def test_what_its_text_says(run, scored):
    code, said, found = scored([{"context": "the cat sat on", "choices": ["xyz qqq.", "the mat."], "answer": 1},
                                {"context": "the cat sat on the mat.\na dog ran", "choices": ["to the sea.", "on xyz."], "answer": 0},
                                {"context": "a dog ran to the", "answer": "sea."}], run)
    assert code == 0 and said.startswith("note: 2 of 5 texts"), said
    assert [found[0]["by_sum"], found[1]["by_sum"], found[2]["choices"][0]["greedy"]] == [1, 0, True]
    assert re.search(r"sum of log p +100\.00 +0\.00 +2 +50\.00", said) and re.search(r"greedy answers % +100\.00 +- +1 +-", said), said
    assert found[1]["choices"][0]["cut"] and found[1]["choices"][0]["characters"] == 11


def test_standard_error(run, scored):
    """For one right answer in two: sqrt(1/2) / sqrt(2)."""
    question = {"context": "the cat sat on", "choices": ["xyz qqq.", "the mat."]}
    said = scored([{**question, "answer": 0}, {**question, "answer": 1}], run)[1]
    assert re.search(r"per byte +50\.00 +50\.00 +2 +50\.00", said), said


def test_per_character_and_per_byte(run, scored):
    """A character is a code point: per byte, characters of two bytes would win."""
    _, _, found = scored([{"context": "It was", "choices": ["\u00e9\u00e9\u00e9\u00e9", "zqj"], "answer": 1}], run)
    first = found[0]["choices"][0]
    assert (first["characters"], first["bytes"], first["tokens"]) == (4, 8, 9)
    choices = [{"log_probability": -49.5, "characters": 4, "bytes": 12}, {"log_probability": -21.7, "characters": 4, "bytes": 4}]
    best = score.answered({"place": "", "answer": 1}, choices)
    assert (best["by_sum"], best["per_character"], best["per_byte"]) == (1, 1, 0)


def test_the_sum(run, scored):
    """log p token by token, each from a separate pass over the tokens before it."""
    question = {"context": "a dog  ", "choices": ["ran to", "sat"], "answer": 0}
    model, encode = whence.load(run, dtype="f64"), score.tokeniser(run)[0]
    for found, choice in zip(scored([question], run, "--dtype=f64")[2][0]["choices"], question["choices"]):
        tokens, total = encode("a dog   " + choice), 0.0
        for at in range(len("a dog"), len(tokens)):
            row = np.asarray(model.forward([tokens[:at]]))[0, -1]
            total += row[tokens[at]] - math.log(np.exp(row).sum())
        assert abs(found["log_probability"] - total) < 1e-9, (found, total)
        assert found["tokens"] == 3 + len(choice)
    short, long = ([{"context": lead + "the cat sat on", "answer": "the mat."}] for lead in ("", 9 * "a dog "))
    left = [scored(each, run, "--length=12")[2][0]["choices"][0] for each in (short, long)]
    assert left[0] == left[1] and left[0]["cut"]  # tokens that are cut off have no effect
    assert scored([question], run, "--no-blank")[2][0]["choices"][1]["tokens"] == 2 + len("sat")


@pytest.mark.parametrize("line, message", [
    ('{"context": "a", "choices": ["b"], "answer": 0}', "fewer than two"), ('{"context": "a", "choices": ["b", ""], "answer": 0}', "an empty choice"),
    ('{"context": "a", "choices": ["b", 3], "answer": 0}', "no text"), ('{"context": "a", "choices": "bc", "answer": 0}', "'choices'"),
    ('{"context": "a", "choices": ["b", "c"], "answer": 2}', "answer 2 given"), ('{"context": "a", "choices": ["b", "c"], "answer": true}', "answer true given"),
    ('{"context": "a", "answer": ""}', "an empty choice"), ('{"answer": "b"}', "no text 'context'"), ('{"context": "a"', "delimiter"),
    ('{"context": "a", "context": "b", "answer": "c"}', "'context' given twice"), ("[1]", "context"), ('{"context": "\\ud800", "answer": "b"}', "surrogates"),
    ("[" * 100000, "line 2: "), ('{"context": " ", "answer": "b"}', "an empty context"), (json.dumps({"context": "a", "answer": "b" * 24}), "at most 24 required, 25")],
    ids=lambda each: each[:40])
def test_refused_lines(line, message, run, scored):
    code, said, found = scored("\n" + line, run)
    assert code == 2 and found is None and "q.jsonl: line 2: " in said and message in said and said.count("\n") == 1


def test_refusals(run, scored, capsys):
    assert "26 tokens to read given" in scored([{"context": "a context of many bytes", "answer": "yes"}], run, "--too-long=refuse")[1]
    assert "q.jsonl: no line given" in scored("\n", run)[1]
    pathlib.Path("bad.jsonl").write_bytes(b'{"context": "\xff"}\n')
    for words, code, message in (([run, "bad.jsonl"], 2, "bad.jsonl: line 1: 'utf-8'"), ([run, "none.jsonl"], 4, "none.jsonl"),
                                 ([run, "q.jsonl", "--out", "./q.jsonl"], 2, "which is read"), (["rope", "q.jsonl"], 2, "q.jsonl")):
        assert score.main(words) == code and message in capsys.readouterr().err


def test_the_token_file_of_the_readme(scored):
    """Runs the block and the lines as printed, and compares the numbers of a text, and the bytes of its tokens, with `tokenizers`."""
    text = (pathlib.Path(score.__file__).parent / "README.md").read_text(encoding="utf-8")
    block, = [each for each in re.findall(r"```python\n(.*?)```", text, re.S) if "train_from_iterator" in each]
    line, = re.findall(r"^examples/experiments/tokens.py (.*--out .*?) *#", text, re.M)
    pathlib.Path("austen.txt").write_text(TEXT + "\n".join(AWKWARD), encoding="utf-8", newline="")
    names: dict = {}
    exec(block, names)
    tokens.main(line.split())
    own = train("austen.safetensors", "own")
    whole = safetensors.numpy.load_file("austen.safetensors")["tokens"]
    assert whole.tolist() == names["bpe"].encode(pathlib.Path("austen.txt").read_bytes().decode()).ids
    asked = [{"context": "", "choices": ["the cat", "xyz"], "answer": 0}]  # <|endoftext|> replaces an empty context
    code, said, _ = scored(asked, own)
    assert code == 4 and "own/tokenizer.json" in said, said
    encode, end_of_text, _ = score.tokeniser(own, "tokenizer.json")
    kept = [each.encode("latin-1") for each in json.loads(pathlib.Path("own/tokeniser.json").read_text())["tokens"]]
    model = whence.load(own)
    for each in [*filter(None, AWKWARD), TEXT]:
        assert b"".join(kept[number] for number in encode(each)) == each.encode(), each
        if 1 < len(encode(each)) < 20 and "\r" not in each:  # which a pipe read as text loses
            assert model.generate(encode(each), tokens=1, temperature=0).startswith(each), each
            assert "".join(model.tokens(prompt=encode(each)))[:2] == each[:2] or not each.isprintable(), each
    assert end_of_text == names["bpe"].token_to_id("<|endoftext|>") and encode("<|endoftext|>") == [end_of_text]
    assert len(encode(" the cat")) == 2, encode(" the cat")
    code, said, found = scored(asked, own, "--tokenizer", "tokenizer.json")
    assert code == 0 and found[0]["choices"][0]["tokens"] == 2, said
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save("other.json")
    assert "are not those of" in scored(asked, own, "--tokenizer", "other.json")[1]


def test_any_tokenizer(tmp_path, monkeypatch, capsys):
    """The bytes of the tokens spell the text for each kind of tokenizer.json, as far as it can be spelled; templates and special tokens are read."""
    monkeypatch.chdir(tmp_path)
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
        tokens.main(["any.json", "--prompt", text])
        numbers, list_of = list(map(int, capsys.readouterr().out.split())), tokens.bytes_of(tokens.read("any.json"))
        assert numbers == made.encode(text).ids and b"".join(list_of[number] for number in numbers).decode() == spelled, (numbers, spelled)
    (tmp_path / "text.txt").write_text(TEXT)
    assert tokens.main(["text.txt", "--prompt", "a"]) == 3 and "text.txt: no JSON" in capsys.readouterr().err
