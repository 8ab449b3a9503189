#!/usr/bin/env python3
"""Scores multiple choice and cloze by the log-likelihood of a language model of `whence train lm`.

    examples/experiments/score.py runs/austen questions.jsonl --out answers.jsonl

A line of questions.jsonl is {"context": "The sky is", "choices": ["blue", "square"], "answer": 0} or, as a cloze,
{"context": "The sky is", "answer": "blue"}.

    log p(choice | context) = sum over the choice's tokens of log p(token | all before it)

The answer is the choice of the largest log p, or of the largest log p / its characters, or / its bytes. lm-evaluation-harness has the first two as
acc and acc_norm. Context and choice are one text when they become tokens, as in training.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
from typing import Any, Callable, Iterator

import outside
import packages

packages.require("numpy", "whence")
import numpy as np
import whence

SIZES = {"by_sum": None, "per_character": "characters", "per_byte": "bytes"}
NAMES = {"by_sum": "accuracy %, sum of log p", "per_character": "accuracy %, log p per character", "per_byte": "accuracy %, log p per byte"}


def tokeniser(folder: str, tokenizer: str = "") -> tuple[Callable[[str], list[int]], int | None]:
    """Returns the tokeniser's function from text to numbers, and its <|endoftext|>, or None."""
    path = pathlib.Path(folder) / "tokeniser.json"
    if not path.is_file():
        raise ValueError(f"{folder}: no {path.name} in it; a folder of `whence train lm` required")
    file = outside.read_json(path)
    if file.get("format") != "whence tokeniser":
        raise ValueError(f"{path}: no tokeniser of a run; the file of `whence train lm` required")
    if file["kind"] == "bytes":
        return lambda text: list(text.encode()), None
    import tokens
    found = tokens.read(tokenizer or path.with_name("tokenizer.json"))
    if tokens.bytes_of(found)[:file["vocabulary"]] != [each.encode("latin-1") for each in file["tokens"]]:
        raise ValueError(f"--tokenizer: its tokens are not those of {path}; the tokenizer.json of the run's token file required")
    return lambda text: found.encode(text).ids, found.token_to_id("<|endoftext|>")


def questions(path: str) -> Iterator[dict[str, Any]]:
    """Yields the file's questions; a cloze has one choice. A ValueError names file and line."""
    for number, line in enumerate(outside.read_bytes(path).split(b"\n"), 1):
        if not line.strip(b" \t\r"):
            continue
        try:
            found = outside.parsed(line.decode(), "a question of context, choices and answer")
            if not isinstance(found.get("context"), str):
                raise ValueError("no text 'context'; an object of context, choices and answer required")
            choices, answer = found.get("choices", [found.get("answer")]), 0
            if not isinstance(choices, list) or not all(isinstance(each, str) and each for each in choices):
                raise ValueError("an empty choice, or one that is no text; texts in 'choices', or a text as 'answer', required")
            if "choices" in found:
                answer = found.get("answer")
                if len(choices) < 2:
                    raise ValueError("fewer than two choices; without 'choices' the answer is a text")
                if type(answer) is not int or not 0 <= answer < len(choices):
                    raise ValueError(f"answer {json.dumps(answer)} given; a choice's number, 0 to {len(choices) - 1}, required")
            "".join([found["context"], *choices]).encode()  # refuses half of a surrogate pair
        except ValueError as problem:
            raise ValueError(f"{path}: line {number}: {problem}") from None
        yield {"place": f"{path}: line {number}", "context": found["context"], "choices": choices, "answer": answer}


def scored(run: Any, encode: Callable, end_of_text: int | None, question: dict, choice: str, options: Any) -> dict[str, Any]:
    """Scores one choice: log p in nats, its tokens, characters and bytes, and true if the model would write it itself."""
    before, place = encode(question["context"].rstrip(" \t\n\v\f\r")), question["place"]  # blanks at its end belong to the choice, as in BPE
    whole = encode(question["context"] + ("" if options.no_blank else " ") + choice)
    if not before:
        if end_of_text is None:
            raise ValueError(f"{place}: an empty context given; some text required, because the tokeniser has no <|endoftext|> to replace it")
        before, whole = [end_of_text], [end_of_text, *whole]
    own, reads = len(whole) - len(before), len(whole) - 1
    if own < 1:
        raise ValueError(f"{place}: a choice without tokens of its own given; a longer text required")
    if own > options.length or reads > options.length and options.too_long == "refuse":
        raise ValueError(f"{place}: {reads} tokens to read given; at most {options.length} required, {own} of them the choice's")
    read = whole[-options.length - 1:]
    logits = np.asarray(run.forward([read[:-1]]))[0, -own:].astype(np.float64)
    largest, targets, rows = logits.max(1), np.array(read[-own:]), np.arange(own)
    found = float((logits[rows, targets] - largest - np.log(np.exp(logits - largest[:, None]).sum(1))).sum())
    if not math.isfinite(found):
        raise ValueError(f"{place}: log p is {found}; finite logits required")
    return {"log_probability": found, "tokens": own, "characters": len(choice), "bytes": len(choice.encode()),
            "greedy": bool((logits.argmax(1) == targets).all()), "cut": reads > options.length}


def answered(question: dict, choices: list[dict]) -> dict[str, Any]:
    """A line of --out: the choices, and the best one by each measure."""
    value = lambda at, size: choices[at]["log_probability"] / (choices[at][size] if size else 1)
    best = {name: max(range(len(choices)), key=lambda at: value(at, size)) for name, size in SIZES.items()} if len(choices) > 1 else {}
    return {"place": question["place"], "answer": question["answer"], **best, "choices": choices}


def table(lines: list[dict]) -> Iterator[tuple]:
    """Yields the measure, its mean, the standard error over questions, their number, and the result of guessing."""
    several, cloze = ([line for line in lines if (len(line["choices"]) > 1) is wanted] for wanted in (True, False))
    share = {NAMES[name]: [line[name] == line["answer"] for line in several] for name in SIZES}
    share["cloze: greedy answers %"] = [line["choices"][0]["greedy"] for line in cloze]
    for name, right in share.items():
        if right:
            error = statistics.stdev(map(float, right)) / math.sqrt(len(right)) if len(right) > 1 else math.nan
            chance = math.nan if name.startswith("cloze") else statistics.fmean(1 / len(line["choices"]) for line in several)
            yield name, 100 * statistics.fmean(right), 100 * error, len(right), 100 * chance
    if cloze:
        mean = statistics.fmean(line["choices"][0]["log_probability"] for line in cloze)
        yield "cloze: perplexity of an answer", math.exp(-mean) if mean > -700 else math.inf, math.nan, len(cloze), math.nan


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of `whence train lm`")
    parser.add_argument("questions", help="JSON lines")
    parser.add_argument("--tokenizer", default="", help="tokenizer.json of a run of a token file (tokenizer.json in its folder)")
    parser.add_argument("--length", type=int, default=0, help="largest number of tokens that the model reads (its training length)")
    parser.add_argument("--too-long", choices=("cut", "refuse"), default="cut", help="cut: drop tokens on the left of the context (cut)")
    parser.add_argument("--no-blank", action="store_true", help="no blank between context and choice")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32", help="dtype of the computation (f32)")
    parser.add_argument("--out", help="file for a JSON line per question")
    options = parser.parse_args(words)
    if options.length < 0:
        raise ValueError(f"--length: {options.length} given; 0 or more required")
    if options.out and os.path.realpath(options.out) in map(os.path.realpath, (options.questions, options.run)):
        raise ValueError(f"--out: {options.out} given, which is read; another file required")
    if options.out and not pathlib.Path(options.out).absolute().parent.is_dir():
        raise ValueError(f"--out: {options.out} given; a file in an existing folder required")
    asked = list(questions(options.questions))
    if not asked:
        raise ValueError(f"{options.questions}: no line given; objects of context, choices and answer required")
    run, reads = whence.load(options.run, dtype=options.dtype), tokeniser(options.run, options.tokenizer)
    options.length = options.length or outside.read_json(pathlib.Path(options.run) / "run.json")["facts"]["model.length"]
    lines = [answered(each, [scored(run, *reads, each, choice, options) for choice in each["choices"]]) for each in asked]
    if options.out:
        pathlib.Path(options.out).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    texts = [choice for line in lines for choice in line["choices"]]
    if count := sum(each["cut"] for each in texts):
        print(f"note: {count} of {len(texts)} texts, each a context with a choice, are longer than {options.length} tokens: the left of the context "
              "was not read")
    print(f"{'what':31}{'value':>10}{'standard error':>16}{'questions':>11}{'by chance':>11}")
    for what, value, error, count, chance in table(lines):
        digits, (error, chance) = 3 if "perplexity" in what else 2, ("-" if math.isnan(each) else f"{each:.2f}" for each in (error, chance))
        print(f"{what:31}{value:10.{digits}f}{error:>16}{count:>11}{chance:>11}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
