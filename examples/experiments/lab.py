#!/usr/bin/env python3
"""Grids of trainings: `whence train` over schemes, options and seeds, and what came out of them.

    examples/experiments/lab.py flip_flop --schemes cope,rope,absolute --seeds 3
    examples/experiments/lab.py counting --vary variables=1,3,5 --set "steps=300 dim=32"
    examples/experiments/lab.py lm --schemes "cdape(kerple)" --vary cdape.kernel=1,3,5 --set data=austen.txt
    examples/experiments/lab.py flip_flop --schemes cope,rope --plan | parallel -j2

In a notebook a grid is a DataFrame with a row for each run, and every step takes one:

    import lab
    runs = lab.grid("flip_flop", ["cope", "rope"], seeds=3, vary={"length": [64, 128]}, settings={"steps": 300})
    lab.train(runs, jobs=2)
    scores = lab.scores(runs)
    lab.summary(scores), lab.differences(scores), lab.dots(scores)

A run is done where its results are whole. Ctrl-C and kill lose nothing: the same command goes on.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import html
import io
import itertools
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

try:
    import matplotlib
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    import scipy.stats
except ImportError as missing:
    sys.exit(f"lab.py: {missing.name} is missing; apt install python3-pandas python3-scipy python3-matplotlib")

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPARED = {"token_error_percent": "token error %", "sequence_error_percent": "sequence error %",
            "perplexity": "perplexity", "bits_per_byte": "bits per byte"}


class Refused(ValueError):
    """An input that cannot be: the message says what was given and what is required."""


def program() -> str:
    """The program `whence`: $WHENCE, that of this tree's build, or that in PATH."""
    built = ROOT / "build/release/whence"
    found = os.environ.get("WHENCE") or (str(built) if built.exists() else shutil.which("whence"))
    if not found:
        raise Refused("whence: no such program; cmake --build build/release --target whence makes it, or WHENCE=... names it")
    return found


# ---- The grid

def described(task: str, words: list[str]) -> dict:
    """What such a run would record, and what its tests measure. Refused, in the program's own words, where it refuses them."""
    asked = subprocess.run([program(), "train", task, *words, "--describe", "--json"], capture_output=True, text=True)
    if asked.returncode:
        raise Refused(asked.stderr.strip().splitlines()[-1] if asked.stderr.strip() else f"whence ended with {asked.returncode}")
    return json.loads(asked.stdout.splitlines()[-1])


def with_option(scheme: str, name: str, option: str, value: Any) -> str | None:
    """The scheme's text with an option set wherever `name` stands in it; None where it does not."""
    text, found = "", False
    for part in re.split(r"([A-Za-z_]\w*\(?)", scheme):
        text += part
        if part.rstrip("(") == name:
            found = True
            text += f"{option}={value}, " if part.endswith("(") else f"({option}={value})"
    return text.replace(", )", ")") if found else None


def words_of(options: dict[str, Any]) -> list[str]:
    """{"keep-best": True, "steps": 300} as on a command line."""
    return [f"--{name}" if value is True or value == "true" else f"--{name}={value}" for name, value in options.items()]


def folder_name(text: str) -> str:
    return re.sub(r"[^\w.,=+-]", lambda found: {"(": "-", ")": "", " ": ""}.get(found[0], f"%{ord(found[0]):02X}"), text)


def same_tokens(base: dict, options: dict) -> dict:
    """The options with the batch for which steps x accumulate x batch x length is that of `base`."""
    sizes = {**{name: base[name] for name in ("steps", "accumulate", "batch", "length")}, **{k: int(v) for k, v in options.items() if k in ("steps", "length")}}
    tokens, rest = math.prod(base[name] for name in ("steps", "accumulate", "batch", "length")), sizes["steps"] * sizes["accumulate"] * sizes["length"]
    if tokens % rest:
        raise Refused(f"--same-tokens: a batch of {tokens} / {rest} sequences would follow; a whole number required")
    return {**options, "batch": tokens // rest}


def grid(task: str, schemes: list[str] | None = None, *, seeds: int = 3, vary: dict[str, list] | None = None, settings: dict[str, Any] | None = None,
         preset: str = "mini", out: str | os.PathLike | None = None, equal_tokens: bool = False) -> pd.DataFrame:
    """A row for each run: its place (task, scheme, an axis of `vary` each, seed), `folder`, `words` for `whence train`, and `wanted`, which is what
    its run.json will have. `schemes`: those that the task's paper compares where there are none. An axis is an option of train, or of a scheme
    ("cope.p_max"). Every cell is read by the program, so that what it refuses is refused before anything trains."""
    settings, vary = dict(settings or {}), dict(vary or {})
    if both := (settings.keys() & vary.keys()) - ({"length"} if equal_tokens else set()):  # tokens are then those of the setting
        raise Refused(f"{both.pop()}: given as a setting and as an axis; one of both required")
    base = described(task, ["--preset", preset, *words_of({**{axis: values[0] for axis, values in vary.items() if "." not in axis}, **settings})])
    printed = [each["scheme"] for group in base["test_sets"] for each in group["paper"]]
    schemes = schemes or list(dict.fromkeys(printed)) or ["absolute", "rope", "cope"]
    out, rows, seen = pathlib.Path(out or f"runs/lab_{task}"), [], set()
    for values in itertools.product(*vary.values()):
        place = dict(zip(vary, values))
        options = {**settings, **{axis: value for axis, value in place.items() if "." not in axis}}
        if equal_tokens:
            options = same_tokens(base["run"]["options"], options)
        for scheme in schemes:
            text, where = scheme, dict(place)
            for axis, value in place.items():
                if "." in axis:
                    changed = with_option(text, *axis.split(".", 1), value)
                    text, where[axis] = changed or text, value if changed else None
            row = {"task": task, "scheme": scheme, **where}
            if tuple(row.values()) in seen:  # the axis is no option of this scheme
                continue
            seen.add(tuple(row.values()))
            words = ["--preset", preset, *words_of(options), "--scheme", text]
            about = described(task, words)
            level = [folder_name(f"{axis}={value}") for axis, value in place.items() if "." not in axis]
            for seed in range(seeds):
                folder = out.joinpath(*level, f"{folder_name(about['run']['options']['scheme'])}.{seed}")
                wanted = {**about["run"], "options": {**about["run"]["options"], "seed": seed}}
                rows.append({**row, "seed": seed, "folder": str(folder), "words": [*words, "--seed", str(seed)], "wanted": wanted, "about": about})
    unused = [axis for axis in vary if all(row[axis] is None for row in rows)]
    if unused:
        raise Refused(f"{unused[0]}: no scheme has it; {unused[0].split('.')[0]} among the schemes required")
    frame = pd.DataFrame(rows)
    frame.attrs = {"out": str(out), "axes": list(vary)}
    return frame


# ---- Running it

def lines_of(path: pathlib.Path) -> list[dict]:
    """The objects of a file of JSON lines. ValueError where it is torn or damaged."""
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError(f"{path}: ends within a line, or is empty")
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def saved(folder: str | os.PathLike) -> bool:
    """True if a run there has a whole checkpoint, from which it can go on."""
    return any(".tmp-" not in path.name for path in pathlib.Path(folder).glob("checkpoints/step-*"))


def state(run: Any) -> str:
    """ "done", "not begun", "begun", or "damaged: ...". Refused where the folder holds a run with other options."""
    folder = pathlib.Path(run.folder)
    try:
        there = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "damaged: no run.json" if saved(folder) else "not begun"
    except ValueError as problem:
        return f"damaged: run.json: {problem}"
    for name, wanted in [("subject", run.wanted["subject"]), *run.wanted["options"].items()]:
        found = there.get("subject") if name == "subject" else there.get("options", {}).get(name)
        if found != wanted and name != "accumulate":  # a GPU without room takes a batch in parts
            raise Refused(f"{folder}: holds a run with {name} {found}; {wanted}, or another folder, required")
    if run.task == "lm" and there.get("data") != run.wanted["data"]:
        raise Refused(f"{folder}: holds a run on another text of the same name; the same text, or another folder, required")
    if not (folder / "results.jsonl").exists():
        return "begun"
    try:
        sets = {line.get("test_set") for line in lines_of(folder / "results.jsonl")}
        lines_of(folder / "metrics.jsonl")
    except (ValueError, FileNotFoundError) as problem:
        return f"damaged: {problem}"
    lacking = [each["name"] for each in run.about["test_sets"] if each["name"] not in sets]
    return f"damaged: no results of {lacking[0]}" if lacking else "done"


def train_words(run: Any, threads: int = 0, device: str = "auto") -> list[str]:
    """The command of one run, which goes on where it was."""
    more = ["--threads", str(threads)] * (threads > 0) + ["--device", device] * (device != "auto") + ["--resume"] * saved(run.folder)
    return [program(), "train", run.task, *run.words, "--quiet", "--out", run.folder, *more]


@contextlib.contextmanager
def locked(folder: str) -> Iterator[int]:
    """One laboratory at a time in a folder: the system holds the lock until this process and its runs have ended, whatever ends them."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with open(pathlib.Path(folder) / "lab.lock", "a+", encoding="utf-8") as file:
        for last in (*[False] * 100, True):  # the runs of one that was killed take a moment to end
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last:
                    file.seek(0)
                    raise Refused(f"{folder}: another laboratory runs there: {file.read().strip()}; wait for it, or choose another folder") from None
                time.sleep(0.1)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%F %R %Z')}\n")
        file.flush()
        yield file.fileno()


def newest(run: Any) -> dict:
    """The last line of a run's metrics; empty where there is none yet."""
    try:
        with open(pathlib.Path(run.folder) / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            return json.loads(file.read().split(b"\n")[-2])  # behind the last line end a line may be half written
    except (OSError, ValueError, IndexError):
        return {}


def train(runs: pd.DataFrame, *, jobs: int = 0, device: str = "auto", quiet: bool = False) -> pd.DataFrame:
    """Trains what is not done, `jobs` at a time (as many as there are processors where it is 0), and returns the frame with a column `state`: "done",
    or why not. A run that fails does not stop the others. KeyboardInterrupt on Ctrl-C, once all runs have saved."""
    say = (lambda *_, **__: None) if quiet else (lambda text, end="\n": print(text, end=end, file=sys.stderr, flush=True))
    if runs.folder.duplicated().any():
        raise Refused(f"{runs.folder[runs.folder.duplicated()].iloc[0]}: two runs would have this folder; each run once required")
    with locked(runs.attrs.get("out") or os.path.commonpath(list(runs.folder))) as lock:
        return runs.assign(state=ended(runs, jobs, device, say, lock))


def ended(runs: pd.DataFrame, jobs: int, device: str, say: Callable, lock: int) -> list[str]:
    """How each run ended. `lock`: a file that they hold open."""
    states = {run.Index: state(run) for run in runs.itertuples()}
    waiting = [run for run in runs.itertuples() if states[run.Index] != "done"]
    jobs = max(1, min(jobs or os.cpu_count(), len(waiting)))
    threads = max(1, os.cpu_count() // jobs)
    running: list[tuple[Any, subprocess.Popen]] = []
    stopped, began, shown = False, time.time(), 0.0

    def stop(*_):
        nonlocal stopped
        stopped = True
        for _, process in running:
            process.send_signal(signal.SIGUSR1)  # it saves, and ends

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while running or (waiting and not stopped):
            while waiting and not stopped and len(running) < jobs:
                run = waiting.pop(0)
                folder = pathlib.Path(run.folder)
                if states[run.Index].startswith("damaged"):
                    aside = next(path for k in itertools.count(1) if not (path := folder.with_name(f"{folder.name}.damaged-{k}")).exists())
                    folder.rename(aside)
                    say(f"{folder}: {states[run.Index]}; moved to {aside.name}, and the run begins anew")
                folder.mkdir(parents=True, exist_ok=True)
                with open(folder / "train.log", "ab") as log:
                    # The run dies with this process, and is in no terminal's foreground: Ctrl-C comes to this process alone.
                    process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *train_words(run, threads, device)], stdout=log, stderr=log,
                                               start_new_session=True, pass_fds=[lock])
                running.append((run, process))
                if stopped:  # by a signal that came while it was being started
                    process.send_signal(signal.SIGUSR1)
            over = [each for each in running if each[1].poll() is not None]
            running = [each for each in running if each not in over]
            for run, process in over:
                if stopped and process.returncode in (130, -signal.SIGUSR1):
                    states[run.Index] = "begun"
                    continue
                last = (pathlib.Path(run.folder) / "train.log").read_text(errors="replace").strip().splitlines()[-1:] or ["without a word"]
                states[run.Index] = state(run) if process.returncode == 0 else f"failed with exit code {process.returncode}: {last[0]}"
                done = sum(each == "done" for each in states.values())
                say(f"\r{run.folder}: {states[run.Index]}; {done} of {len(runs)} runs")
            if time.time() - shown > 2 and running:
                shown, steps = time.time(), [(run, newest(run)) for run, _ in running]
                losses = ", ".join(f"{run.scheme}.{run.seed} step {at['step']} loss {at.get('loss', math.nan):.3g}" for run, at in steps if "step" in at)
                say(f"\r{sum(each == 'done' for each in states.values())} of {len(runs)} runs, {time.time() - began:.0f} s; {losses[:150]}\033[K", end="")
            time.sleep(0.1)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    say("\r\033[K", end="")
    if stopped:
        raise KeyboardInterrupt(f"stopped with {sum(each == 'done' for each in states.values())} of {len(runs)} runs done, the others saved; the same command goes on")
    return [states[index] for index in runs.index]


def plan(runs: pd.DataFrame, device: str = "auto", threads: int = 0) -> Iterator[str]:
    """A line for a shell for each run that is not done."""
    for run in runs.itertuples():
        if state(run) != "done":
            yield shlex.join(train_words(run, threads, device))


def slurm(lines: list[str], options: str = "") -> str:
    """The lines as an array script. Two minutes before its time is up a run is told so, and saves; the same script, written anew, goes on."""
    head = ["#!/bin/bash", "#SBATCH --job-name=whence-lab", f"#SBATCH --array=1-{len(lines)}", "#SBATCH --no-requeue", "#SBATCH --signal=B:USR1@120"]
    head += [f"#SBATCH --{option}" for option in filter(None, options.split(","))]
    cases = [f"  {number}) exec {line} ;;" for number, line in enumerate(lines, 1)]
    return "\n".join([*head, f"cd {shlex.quote(os.getcwd())} || exit 4", "case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""])


# ---- What came out

def parts_by(frame: pd.DataFrame, names: list[str]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """The rows of each combination of values, in the order in which these first appear."""
    for where, part in frame.groupby(names if len(names) > 1 else names[0], sort=False, dropna=False):
        yield where if len(names) > 1 else (where,), part


def place(runs: pd.DataFrame) -> list[str]:
    """The columns that say what a run is, but for its seed."""
    return ["task", "scheme", *runs.attrs.get("axes", [])]


def questions(run: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each test set how many tokens of each question were graded, and how many answers were wrong; empty for a text."""
    path = pathlib.Path(run.folder) / "questions.jsonl"
    return {line["test_set"]: (np.array(line["graded"]), np.array(line["wrong"])) for line in lines_of(path)} if path.exists() else {}


def wrong_shares(measure: str, graded: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """What each question adds to the measure: their mean is the measure in percent."""
    return 100.0 * (wrong > 0) if measure.startswith("sequence") else 100.0 * wrong * len(wrong) / max(graded.sum(), 1)


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and test set: its place, seed, `test_set`, `test_length` (of a text), the measures as numbers, `standard_error` of the task's own
    measure over questions, `best_guess` and the paper's figure, and `folder`. Runs that are not done have no row."""
    rows = []
    for run in runs.itertuples(index=False):
        if state(run) != "done":
            continue
        measure, asked = run.about["measure"], questions(run)
        printed = {each["name"]: {figure["scheme"]: figure["mean"] for figure in each["paper"]} for each in run.about["test_sets"]}
        fields = runs.columns.intersection([*place(runs), "seed", "folder"])
        where = dict(zip(fields, runs.loc[runs.folder == run.folder, fields].iloc[0]))
        for line in lines_of(pathlib.Path(run.folder) / "results.jsonl"):
            guesses = [value for name, value in line.items() if name.startswith("guess: ")]
            for prefix, name in (("", line.get("test_set") or (f"length {line['length']}" if "length" in line else "validation")), ("test_", "test")):
                found = {each: line.get(prefix + each) for each in COMPARED if prefix + each in line}
                if not found:
                    continue
                row = {**where, "test_set": name, "test_length": line.get("length"), **found, "measure": measure}
                if name in asked:
                    graded, wrong = asked[name]
                    row |= {"questions": len(wrong), "standard_error": scipy.stats.sem(wrong_shares(measure, graded, wrong)) if len(wrong) > 1 else None}
                if name in printed:
                    row |= {"best_guess": min(guesses, default=None), "paper": printed[name].get(run.scheme)}
                rows.append(row)
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    frame.attrs = dict(runs.attrs)
    return frame


def measure_of(scores: pd.DataFrame, measure: str | None = None) -> str:
    return measure or scores.measure.iloc[0]


def groups(scores: pd.DataFrame) -> list[str]:
    return [name for name in [*place(scores), "test_set", "test_length"] if name in scores]


def summary(scores: pd.DataFrame, measure: str | None = None) -> pd.DataFrame:
    """A row for each place and test set: mean, `sd` over seeds, `standard_error` over questions of that mean, least, most, and how many seeds."""
    value, by = measure_of(scores, measure), groups(scores)
    grouped = scores.groupby(by, sort=False, dropna=False)
    frame = grouped[value].agg(mean="mean", sd="std", least="min", most="max", seeds="count")
    if "standard_error" in scores and value == measure_of(scores):
        frame["standard_error"] = grouped["standard_error"].agg(lambda errors: math.sqrt((errors**2).sum()) / len(errors))
    for each in ("best_guess", "paper"):
        if each in scores:
            frame[each] = grouped[each].first()
    return frame.reset_index().rename(columns={"index": "scheme"})


def differences(scores: pd.DataFrame, measure: str | None = None) -> pd.DataFrame:
    """Pairs of places that differ in one thing, on each test set: `difference` of the means, a - b. `p_seeds`: Welch's test over seeds, from three
    seeds on, of what other seeds would say. `p_questions`: of these very models on the same questions, at any number of seeds. Both are
    corrected for the number of tests in their column (Holm): `p_seeds_holm`, `p_questions_holm`."""
    value, names, rows = measure_of(scores, measure), place(scores), []
    asked = {folder: questions(argparse.Namespace(folder=folder)) for folder in scores.folder.unique()}
    sets = [name for name in groups(scores) if name not in names]
    for where, part in parts_by(scores, sets):
        where = dict(zip(sets, where))
        cells = [(dict(zip(names, cell)), runs.set_index("seed")) for cell, runs in parts_by(part, names)]
        for (a, x), (b, y) in itertools.combinations(cells, 2):
            # An option that a scheme does not have is no second thing.
            apart = [name for name in names if a[name] != b[name] and pd.notna(a[name]) and pd.notna(b[name])]
            if len(apart) != 1:
                continue
            row = {**where, "a": label(a.values(), names), "b": label(b.values(), names), "difference": x[value].mean() - y[value].mean(),
                   "p_seeds": None, "p_questions": None}
            if min(len(x), len(y)) >= 3:
                row["p_seeds"] = scipy.stats.ttest_ind(x[value], y[value], equal_var=False).pvalue
            pairs = [[asked[each.folder[seed]].get(where["test_set"]) for each in (x, y)] for seed in x.index.intersection(y.index)]
            same = [wrong_shares(value, *one) - wrong_shares(value, *other) for one, other in pairs if one and other and np.array_equal(one[0], other[0])]
            shares = np.concatenate(same) if same else np.zeros(0)
            if shares.any():
                row["p_questions"] = 2 * scipy.stats.norm.sf(abs(shares.mean()) / scipy.stats.sem(shares))
            rows.append(row)
    frame = pd.DataFrame(rows)
    for column in ("p_seeds", "p_questions"):
        if column in frame and frame[column].notna().any():
            frame[column] = pd.to_numeric(frame[column])
            frame[column + "_holm"] = holm(frame[column])
    frame.attrs = dict(scores.attrs)
    return frame


def holm(p: pd.Series) -> pd.Series:
    """Holm 1979: the smallest of n p values times n, the next times n - 1, ..., never falling; none where there is none."""
    known = p.dropna().sort_values()
    return (known * np.arange(len(known), 0, -1)).cummax().clip(upper=1).reindex(p.index)


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point of a learning curve: place, seed, `curve` (training, validation), `step`, `sequences` seen, `loss`."""
    rows = []
    for run, where in zip(runs.itertuples(index=False), runs[[*place(runs), "seed"]].to_dict("records")):
        if not (pathlib.Path(run.folder) / "metrics.jsonl").exists():
            continue
        options = run.wanted["options"]
        per_step = options["batch"] * options["accumulate"]
        for line in lines_of(pathlib.Path(run.folder) / "metrics.jsonl"):
            for field, name in (("loss", "training"), ("validation_score", "validation")):
                if line.get(field) is not None:
                    rows.append({**where, "curve": name, "step": line["step"], "sequences": line["step"] * per_step, "loss": line[field]})
    frame = pd.DataFrame(rows)
    frame.attrs = dict(runs.attrs)
    return frame


# ---- Pictures: Okabe and Ito's colours, which the colour-blind tell apart. A scheme's name alone decides, so that it looks alike on every page.

COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a7a7a", "#000000"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3))]
KNOWN = ["cope", "rope", "absolute", "alibi", "dape", "cdape", "kerple", "none", "forgetting", "stick_breaking", "path", "fire", "t5", "shaw", "mta", "cable"]


def look_of(scheme: str) -> dict:
    """Colour and dash of a scheme: its first name decides, and what else its text has gives the dash."""
    first = re.match(r"\w+", scheme)[0]
    number = KNOWN.index(first) if first in KNOWN else sum(map(ord, first))
    rest = sum(map(ord, scheme[len(first):]))
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[(number // len(COLOURS) + rest) % len(DASHES)]}


def label(where: Any, names: list[str]) -> str:
    return ", ".join(str(value) if name in ("scheme", "task", "test_set") else f"{name} {value}" for name, value in zip(names, where) if pd.notna(value))


def dots(scores: pd.DataFrame, measure: str | None = None) -> plt.Figure:
    """The result: a dot for each seed, and the mean with its 95 % interval over seeds (Student's), for each scheme and test set."""
    value, sets = measure_of(scores, measure), [name for name in groups(scores) if name != "scheme"]
    parts = list(parts_by(scores, sets))
    schemes = list(scores.scheme.unique())
    across = min(3, len(parts))
    down = math.ceil(len(parts) / across)
    figure, axes = plt.subplots(down, across, figsize=(1.6 + 2.8 * across, down * (1.0 + 0.3 * len(schemes))), sharey=True, squeeze=False)
    for axis in axes.flat[len(parts):]:
        axis.set_visible(False)
    for axis, (where, part) in zip(axes.flat, parts):
        for row, scheme in enumerate(schemes):
            found, colour = part[part.scheme == scheme][value].dropna(), look_of(scheme)["color"]
            axis.plot(found, [row] * len(found), "o", color=colour, alpha=0.5, markersize=5)
            if len(found) > 1:
                half = scipy.stats.t.ppf(0.975, len(found) - 1) * scipy.stats.sem(found)
                axis.errorbar(found.mean(), row, xerr=half, color=colour, capsize=3, marker="|", markersize=12)
        axis.set_title(label(where[1:], sets[1:]) or label(where, sets), fontsize=9)
        axis.set_xlabel(COMPARED[value], fontsize=9)
        axis.grid(axis="x", alpha=0.3)
        if "best_guess" in part and value == measure_of(scores) and part.best_guess.notna().any():
            axis.axvline(part.best_guess.iloc[0], color="#999999", linestyle=":", linewidth=1)
    axes[0][0].set_yticks(range(len(schemes)), schemes)
    axes[0][0].set_ylim(len(schemes) - 0.4, -0.6)
    figure.tight_layout()
    return figure


def over(scores: pd.DataFrame, axis: str, measure: str | None = None) -> plt.Figure:
    """The measure over an axis of numbers (of the grid, or "test_length"): means over seeds, and a band of a standard deviation."""
    value = measure_of(scores, measure)
    others = [name for name in groups(scores) if name not in (axis, "test_length", "test_set" if axis == "test_length" else axis) and scores[name].nunique() > 1] or ["scheme"]
    figure, plot = plt.subplots(figsize=(6.4, 3.6))
    for where, part in parts_by(scores[scores[axis].notna()], others):
        by = part.assign(**{axis: pd.to_numeric(part[axis])}).groupby(axis)[value]
        style = look_of(part.scheme.iloc[0])
        plot.plot(by.mean(), marker="o", markersize=3, label=label(where, others), **style)
        plot.fill_between(by.mean().index, by.mean() - by.std(), by.mean() + by.std(), color=style["color"], alpha=0.15, linewidth=0)
    low, high = pd.to_numeric(scores[axis]).min(), pd.to_numeric(scores[axis]).max()
    if low > 0 and high >= 8 * low:
        plot.set_xscale("log", base=2)
        plot.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    plot.set(xlabel=axis, ylabel=COMPARED[value] + " (band: s.d. over seeds)")
    if scores[value].min() > 0 and scores[value].max() > 4 * scores[value].min():
        plot.set_yscale("log")
    plot.legend(fontsize=8)
    figure.tight_layout()
    return figure


def learning(curves: pd.DataFrame, curve: str = "training") -> plt.Figure:
    """Learning curves: means over seeds, over steps, or over sequences where runs differ in how many a step has."""
    found = curves[curves.curve == curve]
    names = [name for name in place(curves) if found[name].nunique() > 1] or ["scheme"]
    x = "step" if (found.sequences / found.step).nunique() == 1 else "sequences"
    figure, plot = plt.subplots(figsize=(6.4, 3.6))
    for where, part in parts_by(found, names):
        plot.plot(part.groupby(x).loss.mean(), label=label(where, names), linewidth=1.2, **look_of(part.scheme.iloc[0]))
    plot.set(xlabel=x if x == "step" else "sequences seen", ylabel=f"{curve} loss, nats", yscale="log")
    plot.legend(fontsize=8)
    figure.tight_layout()
    return figure


# ---- Tables and the page

def crossed(scores: pd.DataFrame, measure: str | None = None, values: str = "text") -> pd.DataFrame:
    """Schemes down, test sets and axes across: "0.31 (0.02)", mean and standard deviation over seeds; or a column of summary() (`values`)."""
    found = summary(scores, measure)
    across = [name for name in groups(scores) if name not in ("scheme", "task", "test_length") and found[name].nunique() > 1] or ["test_set"]
    text = found.assign(text=[f"{row['mean']:.3g}" + (f" ({row.sd:.2g})" if pd.notna(row.sd) else "") for _, row in found.iterrows()])
    return text.pivot_table(index=["task", "scheme"] if found.task.nunique() > 1 else "scheme", columns=across, values=values, aggfunc="first", sort=False)


def marked(scores: pd.DataFrame, form: str, measure: str | None = None) -> str:
    """crossed() for a paper or a page, the best of each column in bold. `form`: "latex" (with booktabs), "markdown" or "html"."""
    table, means = crossed(scores, measure), crossed(scores, measure, "mean")
    best = {(row, column) for column in means for row in means.index if means.loc[row, column] == means[column].min()}
    escape = {"latex": lambda text: re.sub(r"([_%&#])", r"\\\1", text), "html": html.escape, "markdown": lambda text: text}[form]
    bold = {"latex": r"\textbf{%s}", "html": "<b>%s</b>", "markdown": "**%s**"}[form]
    head = ["scheme", *(label(each if isinstance(each, tuple) else (each,), list(table.columns.names)) for each in table)]
    body = [[", ".join(row) if isinstance(row, tuple) else row, *table.loc[row].fillna("-")] for row in table.index]
    rows = [[escape(row[0]), *(bold % escape(text) if (table.index[k], table.columns[c]) in best else escape(text) for c, text in enumerate(row[1:]))]
            for k, row in enumerate(body)]
    head = [escape(each) for each in head]
    if form == "latex":
        lines = [" & ".join(row) + r" \\" for row in (head, *rows)]
        return "\n".join([r"\begin{tabular}{l" + "r" * len(table.columns) + "}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"])
    if form == "markdown":
        return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
    cell = lambda tag, row: "".join(f"<{tag}>{each}</{tag}>" for each in row)
    return f"<table><tr>{cell('th', head)}</tr>" + "".join(f"<tr>{cell('td', row)}</tr>" for row in rows) + "</table>"


STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; display: block; overflow-x: auto } td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } img { max-width: 100%; background: #fff } summary { cursor: pointer; margin: .7rem 0 } code { overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } td, th { border-color: #444 } a { color: #8cf } }"""


def page(runs: pd.DataFrame, found: pd.DataFrame, pictures: dict[str, plt.Figure], measure: str | None = None) -> str:
    """One HTML file: the result first, then pictures; tables and commands are folded."""
    def picture(name: str, figure: plt.Figure) -> str:
        text = io.StringIO()
        figure.savefig(text, format="svg")
        return f"<figure>{text.getvalue()[text.getvalue().index('<svg'):]}</figure>"

    def folded(title: str, frame: pd.DataFrame) -> str:
        return f"<details><summary>{title}</summary>{frame.to_html(index=False, na_rep='', float_format=lambda x: f'{x:.4g}', border=0)}</details>"

    tests = differences(found, measure)
    count = {column: int(tests[column].notna().sum()) for column in ("p_seeds", "p_questions") if column in tests}
    links = "".join(f"<li><a href='{html.escape(os.path.relpath(run.folder, runs.attrs['out']))}/'>{html.escape(run.folder)}</a>: {html.escape(run.state)}"
                    f" <code>whence look {html.escape(shlex.quote(run.folder))}</code></li>" for run in runs.itertuples())
    task, first = runs.task.iloc[0], runs.iloc[0]
    same = " ".join(first.words[2:first.words.index("--scheme")])
    return "".join([
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{task}: {len(runs)} runs</title><style>{STYLE}</style>",
        f"<h1>{html.escape(task)}</h1><p>{COMPARED[measure_of(found, measure)]}, lower is better: mean (standard deviation over seeds), the best of each column in bold."
        f" {len(runs)} runs, {int((runs.state == 'done').sum())} done.</p>", marked(found, "html", measure),
        "<p>A dot is a run; a bar is the 95 % interval of the mean over seeds; a dotted line is the best guess without a model.</p>",
        *(picture(name, figure) for name, figure in pictures.items()),
        folded("Numbers by scheme and test set", summary(found, measure)),
        folded(f"What makes a difference: {count.get('p_seeds', 0)} tests over seeds (Welch), {count.get('p_questions', 0)} over the same questions; "
               "columns _holm are corrected for that many", tests),
        f"<details><summary>Runs</summary><ul>{links}</ul></details>",
        f"<details><summary>How they were trained</summary><p><code>whence train {html.escape(task)} --preset {first.words[1]} {html.escape(same)}</code></p></details></html>"])


def write(runs: pd.DataFrame, found: pd.DataFrame, measure: str | None = None, formats: tuple[str, ...] = ("pdf", "svg")) -> list[str]:
    """Writes scores.csv, summary.csv, differences.csv, curves.csv, the pictures and report.html into the grid's folder, and returns their names."""
    out, lines = pathlib.Path(runs.attrs["out"]), curves(runs)
    pictures = {"result": dots(found[found.test_length.isna()] if "test_length" in found else found, measure)}
    for axis in [*(["test_length"] if "test_length" in found else []), *runs.attrs["axes"]]:
        if pd.to_numeric(found[axis], errors="coerce").nunique() > 1:
            pictures[f"over_{axis}"] = over(found, axis, measure)
    for curve in lines.curve.unique():
        pictures[f"curves_{curve}"] = learning(lines, curve)
    files = {"scores.csv": found, "summary.csv": summary(found, measure), "differences.csv": differences(found, measure), "curves.csv": lines}
    for name, frame in files.items():
        frame.drop(columns="measure", errors="ignore").to_csv(out / name, index=False)
    for name, figure in pictures.items():
        for form in formats:
            figure.savefig(out / f"{name}.{form}", metadata={"Date": None} if form == "svg" else None)
    (out / "report.html").write_text(page(runs, found, pictures, measure), encoding="utf-8")
    return [*files, *(f"{name}.{form}" for name in pictures for form in formats), "report.html"]


# ---- The program

def pairs(text: str, option: str) -> dict[str, str]:
    found = dict(word.split("=", 1) if "=" in word else (word, True) for word in shlex.split(text))
    if bad := [name for name in found if not re.fullmatch(r"[a-z][\w.-]*", name)]:
        raise Refused(f"--{option}: {bad[0]!r} given; name=value for each option of train required")
    return found


def parts(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("tasks", nargs="+", metavar="TASK", help="whence tasks lists them; lm: text")
    add("--schemes", default="", help="separated by commas; those that the task's paper compares if left out")
    add("--seeds", type=int, default=3, help="of each scheme: 0, 1, ... (3)")
    add("--vary", action="append", default=[], metavar="NAME=V,V", help="an axis: an option of train, or SCHEME.OPTION; may come several times")
    add("--set", default="", help='options of train: "steps=300 dim=32"')
    add("--preset", default="mini", choices=["mini", "paper"], help="mini: minutes on a laptop")
    add("--same-tokens", action="store_true", help="the batch follows the length")
    add("--measure", choices=list(COMPARED), help="what is compared; the task's own if left out")
    add("--jobs", type=int, default=0, help="runs at the same time; as many as there are processors if left out")
    add("--device", default="auto")
    add("--out", help="folder; runs/lab_TASK if left out. The same command goes on with what is there")
    add("--quiet", action="store_true", help="no progress")
    add("--plan", action="store_true", help="print a line of `whence train` for each run that is not done: for GNU parallel, a shell, any scheduler")
    add("--slurm", metavar="FILE", help="write these lines as an array script of SLURM; -: print it")
    add("--sbatch", default="", help='its options: "partition=gpu,time=2:00:00"')
    add("--collect", action="store_true", help="tables and page of what is done; nothing is run")
    add("--latex", action="store_true", help="print the table for a paper")
    add("--markdown", action="store_true")
    add("--png", action="store_true", help="pictures as PNG too")
    options = parser.parse_args(words)
    try:
        vary = dict(axis.split("=", 1) if "=" in axis else (axis, "") for axis in options.vary)
        if empty := [axis for axis, values in vary.items() if not parts(values)]:
            raise Refused(f"--vary: {empty[0]!r} given; NAME=VALUE,VALUE,... required")
        out = options.out or f"runs/lab_{options.tasks[0]}"
        grids = [grid(task, parts(options.schemes), seeds=options.seeds, vary={axis: parts(values) for axis, values in vary.items()},
                      settings=pairs(options.set, "set"), preset=options.preset, equal_tokens=options.same_tokens,
                      out=pathlib.Path(out) / task if len(options.tasks) > 1 else out) for task in options.tasks]
        if options.plan or options.slurm:
            threads = max(1, os.cpu_count() // options.jobs) if options.jobs else 0
            lines = [line for runs in grids for line in plan(runs, options.device, threads)]
            text = slurm(lines, options.sbatch) if options.slurm and lines else "".join(f"{line}\n" for line in lines)
            if options.slurm and options.slurm != "-":
                pathlib.Path(options.slurm).write_text(text, encoding="utf-8")
            else:
                print(text, end="")
            return 0
        failed = False
        for runs in grids:
            runs = (runs.assign(state=[state(run) for run in runs.itertuples()]) if options.collect
                    else train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet))
            for run in runs[runs.state != "done"].itertuples():
                print(f"{run.folder}: {run.state}", file=sys.stderr)
                failed = failed or run.state.startswith("failed")
            found = scores(runs)
            if found.empty:
                continue
            print(marked(found, "latex" if options.latex else "markdown", options.measure) if options.latex or options.markdown else crossed(found, options.measure).to_string())
            files = write(runs, found, options.measure, ("pdf", "svg", "png") if options.png else ("pdf", "svg"))
            print(f"written: {runs.attrs['out']}/{{{', '.join(files)}}}", file=sys.stderr)
        return int(failed)
    except Refused as problem:
        print(f"lab.py: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as problem:
        print(f"lab.py: {problem}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(main())
