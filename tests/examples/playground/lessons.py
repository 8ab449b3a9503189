"""The numbers that the playground's lessons (examples/whence/playground/page/lessons.json) claim: the engine's must lie in each claimed range; also
the engine's as WebAssembly, if build/playground has it, which trains like the program, to 1e-6: tests/pytest tests/examples/playground/lessons.py"""
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LESSONS = json.loads((HERE.parents[2] / "examples/whence/playground/page/lessons.json").read_text())
NATIVE, MODULE = [os.environ["WHENCE"], "playground", "--answer"], HERE.parents[2] / "build/playground"
ENGINES = [NATIVE, *([["node", str(HERE / "node.js"), str(MODULE)]] if (MODULE / "playground.wasm").exists() else [])]


def answers(engine, questions):
    """Asks all questions of one process."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    said = subprocess.run(engine, input=lines, capture_output=True, text=True, check=True).stdout
    found = [json.loads(line) for line in said.splitlines()]
    for question, answer in zip(questions, found, strict=True):
        assert "error" not in answer, question
    return found


def lies_in(number, wanted):
    """`wanted`: "alive" (not 0), or the smallest and the largest value."""
    return number is not None and (number != 0 if wanted == "alive" else wanted[0] <= number <= wanted[1])


def share(look, lesson, claim):
    """Percentage of unmasked entries with one cause in the lesson's layer."""
    kinds, counts = [cause["kind"] for cause in look["page"]["causes"]], {}
    for shares in look["page"]["shares"]:
        if shares["probe"].split(".")[-1] == claim["share"] and shares["layer"] == lesson["show"]["layer"]:
            for kind, count in zip(kinds, shares["by"]):
                counts[kind] = counts.get(kind, 0) + count
    return 100 * counts.get(claim["cause"], 0) / sum(count for kind, count in counts.items() if kind != "masked")


def questions_of(lesson):
    """The lesson's set-up, then a look and a question for each claim."""
    begun = [{"ask": "begin", "model": at, **model} for at, model in enumerate(lesson["models"])]
    for question in begun[:]:
        slices = [min(1000, lesson["steps"] - done) for done in range(0, lesson["steps"], 1000)]
        begun += [{"ask": "train", "model": question["model"], "steps": steps} for steps in slices]
    asked = []
    for model in lesson.get("edited_models", [lesson["show"]["model"]]):  # the edits can be made
        begun.append({"ask": "look", "model": model, "sample": lesson["sample"], "edits": lesson["edits"]})
    for claim in lesson["claims"]:
        at = {"model": claim.get("model", 0)}
        edits = lesson["edits"] if claim.get("edited") else []
        asked.append({"ask": "look", **at, "sample": lesson["sample"], "edits": edits})
        if "errors" in claim:
            asked.append({"ask": "errors", **at, "sequences": 64})
        elif "value" in claim:
            asked.append({"ask": "value", **at, "what": claim["value"]})
        elif "loss" in claim or "share" in claim:
            asked.append(asked[-1])  # the look has the answer
        else:
            asked.append({"ask": "edit", **at, "edits": lesson["edits"]})
    return begun, asked


def holds(lesson, claim, look, answer):
    if "errors" in claim:
        return lies_in(answer["percent"][answer["sets"].index(claim["errors"])], claim["percent"])
    if "loss" in claim:
        return lies_in(look["loss"], claim["loss"])
    if "share" in claim:
        return lies_in(share(look, lesson, claim), claim["percent"])
    for kind in ("real", "predicted"):
        if kind in claim:
            return lies_in(answer["edits"][claim[kind]][kind], claim["is"])
    return (("is" not in claim or lies_in(answer["value"], claim["is"]))
            and ("gradient" not in claim or lies_in(answer["gradient"], claim["gradient"]))
            and ("cause" not in claim or answer["cause"] == claim["cause"]))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine[0])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson["key"])
def test_lesson(engine, lesson):
    begun, asked = questions_of(lesson)
    found = answers(engine, begun + asked)[len(begun):]
    for claim, look, answer in zip(lesson["claims"], found[::2], found[1::2], strict=True):
        assert holds(lesson, claim, look, answer), (claim, answer, look["loss"])


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("scheme", ["cope", "rope", "absolute", "cdape(kerple)", "stick_breaking"])
def test_training(engine, scheme):
    questions = [{"ask": "begin", "model": 0, "scheme": scheme, "steps": 20}, {"ask": "train", "model": 0, "steps": 20}]
    native, ours = (answers(each, questions)[1]["losses"] for each in (NATIVE, engine))
    assert len(ours) == 20 and ours == pytest.approx(native, rel=1e-6)
