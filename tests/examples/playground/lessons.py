"""Tests the numbers that the playground's lessons (examples/whence/playground/page/lessons.json) claim: the engine's number must be in each claimed
range. With the folder of a WebAssembly module its engine is tested too, and trains like the program, to 1e-6.

    python3 tests/examples/playground/lessons.py build/release/whence [build/playground]
"""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LESSONS = HERE.parents[2] / "examples/whence/playground/page/lessons.json"


def answers(engine, questions):
    """Asks all questions of one process; an invalid answer ends the test."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    said = subprocess.run(engine, input=lines, capture_output=True, text=True, check=True).stdout
    found = [json.loads(line) for line in said.splitlines()]
    for question, answer in zip(questions, found, strict=True):
        if "error" in answer:
            sys.exit(f"{engine[0]}: {question}: {answer['error']}")
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


def check(engine, lessons):
    """The number of claims."""
    count = 0
    for lesson in lessons:
        begun, asked = questions_of(lesson)
        found = answers(engine, begun + asked)[len(begun):]
        for claim, look, answer in zip(lesson["claims"], found[::2], found[1::2], strict=True):
            count += 1
            if not holds(lesson, claim, look, answer):
                sys.exit(f"{engine[0]}: lesson {lesson['key']}: {claim}: {answer}, loss {look['loss']}")
    return count


def losses(engine, scheme):
    return answers(engine, [{"ask": "begin", "model": 0, "scheme": scheme, "steps": 20}, {"ask": "train", "model": 0, "steps": 20}])[1]["losses"]


if __name__ == "__main__":
    program, *module = sys.argv[1:]
    native = [program, "playground", "--answer"]
    lessons = json.loads(LESSONS.read_text())
    print(f"{program}: {len(lessons)} lessons, {check(native, lessons)} claims hold")
    for folder in module:
        ours = ["node", str(HERE / "node.js"), folder]
        print(f"{folder}: {len(lessons)} lessons, {check(ours, lessons)} claims hold")
        for scheme in ("cope", "rope", "absolute", "cdape(kerple)", "stick_breaking"):
            pairs = list(zip(losses(native, scheme), losses(ours, scheme), strict=True))
            apart = max(abs(a - b) / abs(a) for a, b in pairs)
            print(f"{scheme}: 20 steps, losses apart by {apart:.1e} at most")
            if len(pairs) != 20 or not apart <= 1e-6:
                sys.exit(f"{scheme}: 1e-6 allowed")
