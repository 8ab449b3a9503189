#!/usr/bin/env python3
"""Grids of trainings: `whence train` over tasks, schemes, options and seeds, and their results.

    examples/experiments/lab.py flip_flop --schemes cope,rope,absolute --seeds 3
    examples/experiments/lab.py counting --vary variables=1,3,5 --set "steps=300 dim=32"
    examples/experiments/lab.py lm --schemes "cdape(kerple)" --vary cdape.kernel=1,3,5 --set data=austen.txt
    examples/experiments/lab.py chomsky --schemes rope,alibi                    all fifteen tasks of the hierarchy, as a matrix
    examples/experiments/lab.py flip_flop --schemes cope,rope --plan | parallel -j2

In a notebook a grid is a DataFrame with a row for each run, and every step takes this frame:

    import lab
    runs = lab.grid("flip_flop", ["cope", "rope"], seeds=3, vary={"length": [64, 128]}, settings={"steps": 300})
    runs = lab.train(runs, jobs=2)
    scores = lab.scores(runs)
    lab.crossed(scores), lab.differences(scores), lab.dots(scores)

A run is done if its results are whole. Ctrl-C and kill lose nothing: the same command continues.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import html
import importlib.util
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
import subprocess
import sys
import textwrap
import time
import urllib.parse
from typing import Any, Callable, Iterator

import outside
import packages
from outside import Refused, shown as escaped

packages.require("pandas", "scipy", "matplotlib")
import matplotlib.pyplot  # a notebook shows figures then
import matplotlib.ticker
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPARED = {"token_error_percent": "token error %", "sequence_error_percent": "sequence error %",
            "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
FEW = 8  # questions; a mean of fewer is not normal
READABLE = 4  # test sets; for more, tables and dots show the average
OF_THE_TEXT = set("tokeniser data validation-data test-data field include exclude validation split-seed blank-lines separate".split())
OURS = set("scheme seed preset device out threads resume from quiet json beside dump dump-set describe graph help".split())


def program() -> str:
    """The program `whence`: $WHENCE, the one in this tree's build, in PATH, or in the module `whence`."""
    module, named = importlib.util.find_spec("whence"), os.environ.get("WHENCE")
    beside = [pathlib.Path(folder) / "whence" for folder in (module and module.submodule_search_locations) or []]
    for each in [named] if named else [ROOT / "build/release/whence", shutil.which("whence"), *beside]:
        if each and pathlib.Path(each).is_file() and os.access(each, os.X_OK):
            return str(each)
    raise Refused(f"{f'WHENCE={named}: no such program' if named else 'whence: no such program'}; cmake --build build/release --target whence, or "
                  "pip install .packaging, makes it; WHENCE=... names one")


# ---- The grid

def described(task: str, words: list[str]) -> dict:
    """Returns the record of such a run, and the measures of its tests. Raises Refused with the program's own error, if any."""
    asked = subprocess.run([program(), "train", task, *words, "--describe", "--json"], capture_output=True, text=True)
    if asked.returncode:
        raise Refused(asked.stderr.strip().splitlines()[-1] if asked.stderr.strip() else f"whence ended with {asked.returncode}")
    return json.loads(asked.stdout.splitlines()[-1])


def tasks_of(names: list[str]) -> list[str]:
    """The names, where "chomsky" is replaced by the fifteen tasks of the hierarchy (Deletang et al. 2023)."""
    if "lm" in names and len(names) > 1:
        raise Refused("lm: given with tasks; lm alone required: one table cannot have perplexities and errors")
    listed = subprocess.run([program(), "tasks"], capture_output=True, text=True).stdout if "chomsky" in names else ""
    hierarchy = [line.split()[0] for line in listed.splitlines() if "arXiv:2207.02098" in line]
    return list(dict.fromkeys(each for name in names for each in (hierarchy if name == "chomsky" else [name])))


def with_option(scheme: str, name: str, option: str, value: Any) -> str | None:
    """The scheme's text with an option set, after the base, wherever `name` occurs; None if it does not occur."""
    text, opened = "", []
    for part in re.split(r"(\w*\(|\w+|\))", scheme):
        if part == ")" and opened and opened.pop() == name:
            text += f", {option}={value}"
        text += f"{part}({option}={value})" if part == name else part
        if part.endswith("("):
            opened.append(part[:-1])
    return text.replace("(, ", "(") if text != scheme else None


def words_of(options: dict[str, Any]) -> list[str]:
    """{"keep-best": True, "steps": 300} as on a command line."""
    return [f"--{name}" if value is True or value == "true" else f"--{name}={value}" for name, value in options.items()]


def folder_name(text: str) -> str:
    """ "cdape(kerple, kernel=3)" as "cdape-kerple,kernel=3". Names are unique; a hash replaces the end of a long name."""
    name = urllib.parse.quote(re.sub(r"[()]", "-", text.rstrip(")").replace(" ", "")), safe="-+,=._")
    return name if len(name) <= 200 else f"{name[:183]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def same_tokens(base: dict, options: dict) -> dict:
    """The options with the batch for which steps x accumulate x batch x length equals that of `base`."""
    if "length" not in base:
        raise Refused("--same-tokens: a task with the option length required")
    sizes = {name: int(options.get(name, base[name])) for name in ("steps", "accumulate", "length")}
    tokens, rest = math.prod(base[name] for name in (*sizes, "batch")), math.prod(sizes.values())
    if tokens % rest:
        raise Refused(f"--same-tokens: a batch of {tokens} / {rest} sequences would follow; a whole number required")
    return {**options, "batch": tokens // rest}


def grid(task: str | list[str], schemes: list[str] | None = None, *, seeds: int = 3, vary: dict[str, list] | None = None,
         settings: dict[str, Any] | None = None, preset: str = "mini", out: str | os.PathLike | None = None,
         equal_tokens: bool = False) -> pd.DataFrame:
    """A row for each run: its place (task, scheme, the axes of `vary`, seed), `folder`, `words` for `whence train`, and `wanted`, the content of
    its future run.json. `schemes`: if empty, those that the task's paper compares. An axis is an option of train, or of a scheme
    ("cope.p_max"). The program checks every cell, so that errors come before anything trains."""
    given, settings, vary, rows = [task] if isinstance(task, str) else task, settings or {}, vary or {}, []
    if own := OURS.intersection([*vary, *settings]):
        raise Refused(f"{own.pop()}: given as an option of train; others required: "
                      "lab.py has --schemes, --seeds, --preset, --device and --out itself")
    if both := (settings.keys() & vary.keys()) - ({"length"} if equal_tokens else set()):  # the tokens follow the setting
        raise Refused(f"{both.pop()}: given as a setting and as an axis; one of both required")
    if equal_tokens and "batch" in vary:
        raise Refused("--same-tokens: batch also given as an axis; one of both required: --same-tokens sets the batch")
    tasks, out, seen = tasks_of(given), pathlib.Path(out or f"runs/lab_{pathlib.Path(given[0]).stem}"), set()
    for task, values in itertools.product(tasks, itertools.product(*vary.values())):
        place = dict(zip(vary, values))
        axes = {axis: value for axis, value in place.items() if "." not in axis}
        options = {**settings, **axes}
        if equal_tokens:
            first = {axis: choices[0] for axis, choices in vary.items() if axis in axes}
            options = same_tokens(described(task, ["--preset", preset, *words_of({**first, **settings})])["run"]["options"], options)
        paper = {}
        with contextlib.suppress(Refused):  # the paper's sizes may not allow such an option
            paper = described(task, ["--preset", "paper", *words_of(axes)]) if task != "lm" else {}
        first = [figure["scheme"] for figure in paper["test_sets"][0].get("paper", [])] if paper.get("test_sets") else []
        for scheme in schemes or first or ["absolute", "rope", "cope"]:
            text, where = scheme, dict(place)
            for axis in [axis for axis in place if axis not in axes]:
                changed = with_option(text, *axis.split(".", 1), place[axis])
                text, where[axis] = changed or text, place[axis] if changed else None
            row = {"task": task, "scheme": scheme, **where}
            if tuple(row.values()) in seen:  # the scheme has no such option
                continue
            seen.add(tuple(row.values()))
            words = ["--preset", preset, *words_of(options), "--scheme", text]
            about = described(task, words)
            folder = (out / pathlib.Path(task).stem if len(tasks) > 1 else out).joinpath(
                *(folder_name(f"{axis}={value}") for axis, value in axes.items()))
            for seed in range(seeds):
                own = (described(task, [*words, "--seed", str(seed)])["run"]
                       if about["run"]["subject"] == "jsonl" else about["run"])  # its data depend on the seed
                rows.append({**row, "seed": seed, "folder": str(folder / f"{folder_name(own['options']['scheme'])}.{seed}"),
                             "words": [*words, "--seed", str(seed)],
                             "wanted": {**own, "options": {**own["options"], "seed": seed}}, "about": about, "paper": paper})
    if unused := [axis for axis in vary if all(row[axis] is None for row in rows)]:
        raise Refused(f"{unused[0]}: no scheme has it; {unused[0].split('.')[0]} among the schemes required")
    frame = pd.DataFrame(sorted(rows, key=lambda row: row["seed"]))  # the first seed of every scheme comes first
    if frame.folder.duplicated().any():
        raise Refused(f"{frame.folder[frame.folder.duplicated()].iloc[0]}: two runs would have this folder; each scheme and value once required")
    frame.attrs["out"] = str(out)
    return frame


# ---- Running the grid

def lines_of(path: pathlib.Path) -> list[dict]:
    """The objects of a file of JSON lines. Raises ValueError if it is truncated or damaged."""
    text = outside.read_text(path)
    if not text.endswith("\n"):
        raise ValueError(f"{path.name} ends within a line, or is empty")
    escape = lambda value: escaped(value) if isinstance(value, str) else value
    return [{escaped(name): escape(value) for name, value in outside.parsed(line, path.name).items()} for line in text[:-1].split("\n")]


def questions(folder: str | os.PathLike) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each test set the numbers of graded tokens and of wrong answers per question; for a text, tokens and nats per window."""
    path = pathlib.Path(folder) / "questions.jsonl"
    found = {line["test_set"]: (np.array(line["graded"], float), np.array(line.get("wrong", line.get("nats")), float))
            for line in lines_of(path)} if path.exists() else {}
    if bad := [name for name, (graded, cost) in found.items() if graded.shape != cost.shape or graded.ndim != 1]:
        raise ValueError(f"questions.jsonl: {bad[0]}: equal numbers of answers and questions required")
    return found


def measured(run: Any) -> list[dict]:
    """The measures of a run, a row for each test set. Raises ValueError, KeyError or TypeError if data is damaged or missing."""
    asked, there, rows = questions(run.folder), set(), []
    for line in lines_of(pathlib.Path(run.folder) / "results.jsonl"):
        name = line.get("test_set") or (f"length {line['length']}" if "length" in line else "validation")
        guesses = [float(value) for guess, value in line.items() if guess.startswith("guess: ")]
        for prefix, test_set in (("", name), ("test_", "test")):
            found = {each: float(line[prefix + each]) for each in [*COMPARED, "delta_p"] if line.get(prefix + each) is not None}
            if found or not prefix:
                there.add(test_set)
            if found:
                length = re.fullmatch(r"length (\d+)", test_set)
                rows.append({"test_set": test_set, "test_length": int(length[1]) if length else None, **found,
                             "best_guess": min(guesses, default=None)})
    if lacking := [name for name in [*(each["name"] for each in run.about["test_sets"]), *asked] if name not in there]:
        raise ValueError(f"results.jsonl: no results of {lacking[0]}")
    if len({row["test_set"] for row in rows}) < len(rows):
        raise ValueError("results.jsonl: a test set twice")
    if lacking := [row["test_set"] for row in rows if asked and row["test_set"] not in asked]:
        raise ValueError(f"questions.jsonl: no questions of {lacking[0]}")
    return rows


def saved(folder: str | os.PathLike) -> bool:
    """True if a run there has a whole checkpoint, from which it can resume."""
    return any(".tmp-" not in path.name for path in pathlib.Path(folder).glob("checkpoints/step-*"))


def state(run: Any) -> str:
    """ "done", "not begun", "begun", or "damaged: ...". Raises Refused if the folder has a run with other options."""
    folder, damage = pathlib.Path(run.folder), (ValueError, TypeError, KeyError, AttributeError, outside.NoFile)
    try:
        there = outside.read_json(folder / "run.json")
        options = {"subject": there.get("subject"), **there.get("options", {})}
    except FileNotFoundError:
        return "damaged: no run.json" if saved(folder) else "not begun"
    except damage as problem:
        return f"damaged: run.json: {problem}"
    for name, wanted in [("subject", run.wanted["subject"]), *run.wanted["options"].items()]:
        if options.get(name) != wanted and name != "accumulate":  # a GPU with too little memory splits a batch
            raise Refused(f"{folder}: has a run with {name} {options.get(name)}; {wanted}, or another folder, required")
    if run.wanted["subject"] in ("lm", "jsonl") and there.get("data") != run.wanted["data"]:
        raise Refused(f"{folder}: has a run on another text of the same name; the same text, or another folder, required")
    if not (folder / "results.jsonl").exists():
        return "begun"
    try:
        measured(run), [line["step"] for line in numbers_of(folder / "metrics.jsonl")]
    except (*damage, FileNotFoundError) as problem:
        return f"damaged: {problem}"
    return "done"


def train_words(run: Any, threads: int = 0, device: str = "auto") -> list[str]:
    """The command of one run, which resumes if it can."""
    more = ["--threads", str(threads)] * (threads > 0) + ["--device", device] * (device != "auto") + ["--resume"] * saved(run.folder)
    return [program(), "train", run.task, *run.words, "--quiet", "--out", run.folder, *more]


@contextlib.contextmanager
def locked(folder: str) -> Iterator[int]:
    """Allows one lab.py at a time in a folder. The system holds the lock until this process and its runs have ended, for any reason."""
    path = pathlib.Path(folder) / "lab.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        until = time.time() + 10  # runs of a killed lab.py take a moment to end
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.time() > until:
                    raise Refused(f"{folder}: another lab.py runs there: {path.read_text().strip()}; wait for it, or choose another") from None
                time.sleep(0.1)
        file.truncate(0)
        print(f"process {os.getpid()} on {os.uname().nodename}, since {time.strftime('%F %R %Z')}", file=file, flush=True)
        yield file.fileno()


def train(runs: pd.DataFrame, *, jobs: int = 0, device: str = "auto", quiet: bool = False) -> pd.DataFrame:
    """Trains unfinished runs, `jobs` at a time (0: the number of processors), and returns the frame with a column `state`: "done", or why not.
    A run that fails does not stop the others. Ctrl-C raises KeyboardInterrupt after all runs have saved."""
    running: dict[subprocess.Popen, Any] = {}
    stopped, began, said = False, time.time(), 0.0

    def say(text: str, end: str = "\n") -> None:
        if not quiet:
            print(f"\r{text}\033[K", end=end, file=sys.stderr, flush=True)

    def done() -> str:
        return f"{sum(each == 'done' for each in states.values())} of {len(runs)} runs"

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True
        for process in running:
            process.send_signal(signal.SIGUSR1)  # the run saves and ends

    def start(run: Any) -> subprocess.Popen:
        folder = pathlib.Path(run.folder)
        if states[run.Index].startswith("damaged"):
            aside = next(path for k in itertools.count(1) if not (path := folder.with_name(f"{folder.name}.damaged-{k}")).exists())
            folder.rename(aside)
            say(f"{folder}: {states[run.Index]}; moved to {aside.name}, and the run begins anew")
        folder.mkdir(parents=True, exist_ok=True)
        # A run dies with this process, and is in no terminal's foreground, so that Ctrl-C reaches this process alone.
        words = ["setpriv", "--pdeathsig", "TERM"] * bool(shutil.which("setpriv")) + train_words(run, max(1, os.cpu_count() // jobs), device)
        with open(folder / "train.log", "ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, pass_fds=[lock])

    def ended(run: Any, code: int) -> str:
        if code == 0 or (stopped and code in (130, -signal.SIGUSR1)):
            return state(run) if code == 0 else "begun"
        last = (pathlib.Path(run.folder) / "train.log").read_text(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        return f"failed: killed by signal {-code}" if code < 0 else f"failed with exit code {code}: {escaped(last[0])}"

    def newest(run: Any) -> str:
        path = pathlib.Path(run.folder) / "metrics.jsonl"
        points = re.findall(r'"step":(\d+),"loss":([-+.\de]+),', path.read_text(encoding="utf-8") if path.exists() else "")
        return f"; {run.scheme}.{run.seed} step {points[-1][0]} loss {float(points[-1][1]):.3g}" if points else ""

    with locked(runs.attrs.get("out") or os.path.commonpath(list(runs.folder))) as lock, contextlib.ExitStack() as after:
        states = {run.Index: state(run) for run in runs.itertuples()}
        waiting = [run for run in runs.itertuples() if states[run.Index] != "done"]
        jobs = max(1, min(jobs or os.cpu_count(), len(waiting)))
        for number in (signal.SIGINT, signal.SIGTERM):
            after.callback(signal.signal, number, signal.signal(number, stop))
        while running or (waiting and not stopped):
            while waiting and not stopped and len(running) < jobs:
                process = start(run := waiting.pop(0))
                running[process] = run
                if stopped:  # a signal came while it was starting
                    process.send_signal(signal.SIGUSR1)
            for process in [each for each in running if each.poll() is not None]:
                run = running.pop(process)
                states[run.Index] = ended(run, process.returncode)
                say(f"{run.folder}: {states[run.Index]}; {done()}")
            if time.time() - said > 2 and running:
                said = time.time()
                say(f"{done()}, {said - began:.0f} s{''.join(newest(run) for run in running.values())[:120]}", end="")
            time.sleep(0.1)
    say("", end="")
    if stopped:
        raise KeyboardInterrupt(f"stopped with {done()} done, the others saved; the same command goes on")
    return runs.assign(state=[states[index] for index in runs.index])


def plan(runs: pd.DataFrame, device: str = "auto", threads: int = 0) -> Iterator[str]:
    """A shell command for each unfinished run."""
    for run in runs.itertuples():
        found, line = state(run), shlex.join(train_words(run, threads, device))
        if found.startswith("damaged"):
            raise Refused(f"--plan: {run.folder}: {found}; a whole run, or none, required")
        if not line.isprintable():
            raise Refused(f"--plan: {line!r} given; words without line ends required")
        if found != "done":
            yield line


def slurm(lines: list[str], options: str = "") -> str:
    """The lines as an array script. A run gets a signal two minutes before its time ends, and saves. A newly written script resumes it."""
    head = ["#!/bin/bash", "#SBATCH --job-name=whence-lab", f"#SBATCH --array=1-{len(lines)}", "#SBATCH --no-requeue", "#SBATCH --signal=B:USR1@120"]
    for option in options.split(",") if options else []:
        if not re.fullmatch(r"(?!array=|signal=|wrap=)[a-z-]+=[\w.:/@+-]+", option):
            raise Refused(f"--sbatch: {option!r} given; partition=gpu,time=2:00:00 and the like required; array and signal are the script's own")
        head.append(f"#SBATCH --{option}")
    cases = [f"  {number}) exec {line} ;;" for number, line in enumerate(lines, 1)]
    return "\n".join([*head, f"cd {shlex.quote(os.getcwd())} || exit 4", "case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""])


# ---- Results

def parts_by(frame: pd.DataFrame, names: list[str]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """The rows of each combination of values, in order of first appearance."""
    for where, part in frame.groupby(names if len(names) > 1 else names[0], sort=False, dropna=False):
        yield where if len(names) > 1 else (where,), part


def place(frame: pd.DataFrame, *more: str) -> list[str]:
    """The columns that identify a run, without seed or measure, then `more`, then its test."""
    tested = [name for name in ("test_set", "test_length") if name in frame]
    return [name for name in itertools.takewhile(lambda name: name not in ("seed", "measure", *tested), frame)] + [*more, *tested]


def shares(measure: str, graded: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """The contribution of each question. The mean is the measure in percent, or the loss of a text in nats."""
    if measure.startswith("sequence"):
        return 100.0 * (cost > 0)
    return (100.0 if measure.endswith("percent") else 1.0) * cost * len(cost) / max(graded.sum(), 1)


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and test set: its place, seed, `test_set`, `test_length`, the measures as numbers, `standard_error` of `measure` over
    questions, `best_guess`, the paper's number, and `folder`. Unfinished runs have no row."""
    rows, by_bytes = [], OF_THE_TEXT.intersection(runs)  # perplexities of different tokens cannot be compared
    for run, where in zip(runs.itertuples(index=False), runs[[*place(runs), "seed", "folder"]].to_dict("records")):
        if state(run) != "done":
            continue
        asked, subject = questions(run.folder), run.wanted["subject"]
        measure = "bits_per_byte" if subject == "lm" and by_bytes else run.about["measure"]
        paper = {(each["name"], figure["scheme"]): figure
                 for each in [*run.paper.get("test_sets", []), {"name": "average", **run.paper}] for figure in each.get("paper", [])}
        for found in measured(run):
            row = {**where, **found, "measure": measure, "same_for_seeds": subject in ("lm", "jsonl"), "data": run.wanted["data"]}
            if found["test_set"] in asked and measure in found:
                each = shares(measure, *asked[found["test_set"]])
                slope = {"perplexity": found[measure], "bits_per_byte": found[measure] / max(each.mean(), 1e-300)}.get(measure, 1)
                row |= {"questions": len(each), "standard_error": slope * scipy.stats.sem(each) if len(each) > 1 else None}
            own, average = (paper.get((name, run.scheme), {}) for name in (found["test_set"], "average"))
            rows.append({**row, "paper": own.get("mean"), "paper_sd": own.get("sd"), "paper_average": average.get("mean")})
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in frame if frame[name].isna().all() and name != "test_length"])


def shown(scores: pd.DataFrame, measure: str | None = None, most: float = READABLE) -> pd.DataFrame:
    """The values for tables and dots: `value` by each row's own measure or by `measure`, and one average if there are more test sets than `most`."""
    scores = scores.assign(measure=measure or scores.measure)
    scores["value"] = [row.get(row["measure"]) for row in scores.to_dict("records")]
    keys, found = [*(name for name in place(scores) if not name.startswith("test_")), "seed", "folder", "measure", "same_for_seeds", "data"], []
    how = {"standard_error": lambda each: math.sqrt((each**2).sum()) / len(each), "paper_average": "first"}
    for _, part in parts_by(scores, ["task"]):
        grouped = part.groupby(keys, sort=False, dropna=False)
        if part.test_set.nunique() > most and "token_error_percent" in part and grouped.size().nunique() == 1:
            means = {name: how.get(name, "mean") for name in ("value", "best_guess", *COMPARED, *how) if name in part}
            part = grouped.agg(means).reset_index().rename(columns={"paper_average": "paper"})
            part = part.assign(test_set=f"average of {grouped.size().iloc[0]} sets", test_length=None)
        found.append(part)
    return pd.concat(found, ignore_index=True)


def summary(scores: pd.DataFrame, measure: str | None = None, *by: str, folder: bool = False) -> pd.DataFrame:
    """A row for each place and test set, and each value of columns `by`: mean, `sd` over seeds, `standard_error` of the mean over questions, least,
    most, the number of seeds; with `folder` also the folder of the first seed's run."""
    found = shown(scores, measure)
    grouped = found.groupby([*place(found, *by), "measure"], sort=False, dropna=False)
    frame = grouped["value"].agg(mean="mean", sd="std", least="min", most="max", seeds="count")
    if "standard_error" in found and measure in (None, scores.measure.iloc[0]):
        # More seeds on the same questions give no more certainty about questions.
        frame["standard_error"] = grouped["standard_error"].agg(
            lambda errors: errors.mean() if found.same_for_seeds[errors.index[0]] else math.sqrt((errors**2).sum()) / len(errors))
    for each in [each for each in ("best_guess", "paper", "paper_sd", *["folder"] * folder) if each in found]:
        frame[each] = grouped[each].first()
    return frame.reset_index()


def paired(one: dict, other: dict, test_set: str, measure: str) -> np.ndarray:
    """Differences of two models' contributions to the measure, question by question; over all test sets together for their average."""
    sets = list(one) if test_set.startswith("average of ") else [test_set]
    if not all(name in one and name in other and np.array_equal(one[name][0], other[name][0]) for name in sets):
        return np.zeros(0)
    return np.concatenate([shares(measure, *one[name]) - shares(measure, *other[name]) for name in sets])


def differences(scores: pd.DataFrame, measure: str | None = None) -> pd.DataFrame:
    """Pairs of places that differ in one thing, on each test set: `difference` of the means, a - b. `p_seeds`: Welch's test over three seeds or
    more, for other seeds. `p_questions`: a test of these models on the same questions, for any number of seeds. Both are also corrected
    for the number of tests in their column (Holm): `p_seeds_holm`, `p_questions_holm`."""
    found, rows, asked = shown(scores, measure), [], functools.lru_cache(maxsize=None)(questions)
    sets = [name for name in ("task", "test_set", "test_length") if name in found]
    names = [name for name in place(found) if name not in sets]
    for where, part in parts_by(found, sets):
        cells = [(dict(zip(names, cell)), runs.set_index("seed")) for cell, runs in parts_by(part, names)]
        for (a, x), (b, y) in itertools.combinations(cells, 2):
            # An option that a scheme does not have is no second difference.
            apart = [name for name in names if a[name] != b[name] and pd.notna(a[name]) and pd.notna(b[name])]
            if len(apart) != 1:
                continue
            row = {**dict(zip(sets, where)), "a": label(a.values(), names), "b": label(b.values(), names),
                   "difference": x.value.mean() - y.value.mean(), "p_seeds": np.nan, "p_questions": np.nan}
            if min(len(x), len(y)) >= 3 and x.value.nunique() + y.value.nunique() > 2:
                row["p_seeds"] = scipy.stats.ttest_ind(x.value, y.value, equal_var=False).pvalue
            same = [paired(asked(x.folder[seed]), asked(y.folder[seed]), row["test_set"], x.measure[seed])
                    for seed in x.index.intersection(y.index) if x.data[seed] == y.data[seed] and apart[0] not in OF_THE_TEXT]
            same = [each for each in same if len(each) > 1]
            each = np.zeros(0) if not same else np.mean(same, axis=0) if x.same_for_seeds.all() else np.concatenate(same)
            if each.any() and (len(each) < FEW or np.ptp(each) < 1e-9 * abs(each).max()):  # the sign test is exact
                row["p_questions"] = scipy.stats.binomtest(int((each > 0).sum()), int((each != 0).sum())).pvalue
            elif each.any():
                row["p_questions"] = 2 * scipy.stats.norm.sf(abs(each.mean()) / scipy.stats.sem(each))
            rows.append(row)
    frame = pd.DataFrame(rows, columns=[*sets, "a", "b", "difference", "p_seeds", "p_questions"])
    return frame.assign(p_seeds_holm=holm(frame.p_seeds), p_questions_holm=holm(frame.p_questions)).dropna(axis="columns", how="all")


def holm(p: pd.Series) -> pd.Series:
    """Holm 1979: the smallest of n p values times n, the next times n - 1, ..., made monotone. NaN stays NaN."""
    known = p.dropna().sort_values()
    return (known * np.arange(len(known), 0, -1)).cummax().clip(upper=1).reindex(p.index)


def numbers_of(path: pathlib.Path) -> list[dict]:
    """The lines of a file of numbers by step. Raises ValueError if another field than the quantity's names is a text."""
    found = lines_of(path)
    for line in found:
        if bad := [name for name, value in line.items() if (type(value) not in (int, float, type(None))) != (name in ("quantity", "measure", "of"))]:
            raise ValueError(f"{path.name}: {bad[0]}: {line[bad[0]]!r} found; a number required")
    return found


def recorded(runs: pd.DataFrame, name: str) -> Iterator[tuple[Any, dict, dict]]:
    """Each run, its place and seed, and each line of this file in its folder. A truncated file, as of a killed run, gives no lines."""
    for run, where in zip(runs.itertuples(index=False), runs[[*place(runs, "seed")]].to_dict("records")):
        with contextlib.suppress(outside.NoFile, FileNotFoundError, ValueError):
            yield from ((run, where, line) for line in numbers_of(pathlib.Path(run.folder) / name))


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point of a learning curve: place, seed, `curve` (training, validation), `step`, `sequences` seen, `loss`."""
    rows = [{**where, "curve": curve, "step": line["step"], "loss": line[field],
             "sequences": line["step"] * run.wanted["options"]["batch"] * run.wanted["options"]["accumulate"]}
            for run, where, line in recorded(runs, "metrics.jsonl")
            for field, curve in (("loss", "training"), ("validation_score", "validation")) if "step" in line and line.get(field) is not None]
    return pd.DataFrame(rows, columns=[*place(runs, "seed"), "curve", "step", "sequences", "loss"])


def causes(runs: pd.DataFrame) -> pd.DataFrame:
    """Causes of zero gradients over the training, in percent of unmasked entries, over all layers and heads: a row for each run, quantity and step,
    if --set look-every=N recorded them."""
    by = [*place(runs, "seed"), "quantity", "step"]
    frame = pd.DataFrame([{**where, **line} for _, where, line in recorded(runs, "looks.jsonl")
                          if "." in str(line.get("quantity")) and {"step", "layer", "head", "entries"} <= line.keys()])  # the scheme's
    if frame.empty:
        return frame.reindex(columns=by)
    counts = frame.drop(columns=["layer", "head"]).groupby(by, sort=False, dropna=False).sum(numeric_only=True)
    return counts.drop(columns=["entries", "masked"], errors="ignore").mul(100 / (counts.entries - counts.get("masked", 0)), axis="index").round(2).reset_index()


# ---- Pictures. A scheme looks alike on every page, here and on those of the program: examples/whence/report/plot.js has the same rule.

COLOURS = ["#0060a8", "#b84a00", "#00785a", "#a3357f", "#5b4db8", "#7a6200", "#1b1f24"]
BY_NIGHT = ["#6cb6ff", "#ff9d5c", "#4fd1a5", "#f08bcb", "#b3a6ff", "#e3c64a", "#e8ebef"]
DASHES = ["-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (2.5, 1)), (0, (7, 1.5, 1, 1.5, 1, 1.5))]
KNOWN = ["cope", "rope", "absolute", "alibi", "dape", "cdape", "kerple", "none", "fire", "forgetting", "stick_breaking", "path", "t5", "mta", "shaw",
         "relative", "transformer_xl", "sinusoidal", "xpos", "yarn", "cable", "carope", "repo", "selective_rope", "pope", "cope_mlp", "cope_alibi",
         "sandwich", "window", "interpolated", "randomised", "shifted", "layers", "ssmax", "sink", "gated_output", "hard_attention", "qk_norm"]
INK, SOFT, RULE = "#1b1f24", "#59636e", "#d5dae1"
matplotlib.rcParams.update({
    "font.size": 9, "text.color": INK, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": SOFT, "axes.edgecolor": SOFT, "grid.color": RULE,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9, "axes.titlelocation": "left", "legend.frameon": False,
    "grid.linewidth": 0.7, "axes.axisbelow": True, "svg.fonttype": "none", "svg.hashsalt": "whence", "pdf.fonttype": 42,
    "figure.constrained_layout.use": True, "figure.constrained_layout.w_pad": 0.1})


def looks_of(names: list[str]) -> dict[str, dict]:
    """Colour and dash of each curve. The colour follows the first name's place among the known schemes, and the dash the bytes after it; other
    curves follow their number. Of two equal looks the later curve gets the next dash."""
    taken, looks = [], {}
    for number, name in enumerate(dict.fromkeys(names)):
        first, rest = re.fullmatch(r"([a-z0-9_]*)(.*)", name, re.S).groups()
        number, more = (KNOWN.index(first), sum(rest.encode())) if first in KNOWN else (number, 0)
        choices = [(number % len(COLOURS), (number + more + k) % len(DASHES)) for k in range(len(DASHES))]
        taken.append(next((each for each in choices if each not in taken), choices[0]))
        looks[name] = {"color": COLOURS[taken[-1][0]], "linestyle": DASHES[taken[-1][1]]}
    return looks


def label(where: Any, names: list[str]) -> str:
    there = [(name, value) for name, value in zip(names, where) if pd.notna(value)]
    return ", ".join(str(value) if name in ("scheme", "task", "test_set") else f"{name} {value}" for name, value in there)


def dots(scores: pd.DataFrame, measure: str | None = None, width: float = 9) -> Figure:
    """The result: a dot for each seed, and the mean with its 95 % interval over seeds (Student's), cut at what a
    measure may be, for each scheme and test set. A dotted line is the
    best guess without a model, a diamond the paper's number."""
    found, own = shown(scores, measure), ["scheme", *(name for name in place(scores) if "." in name)]  # next to the options of schemes
    found = found.assign(scheme=[label(where, own) for where in found[own].itertuples(index=False, name=None)])
    sets = [name for name in place(found) if name not in (*own, "test_length") and (found[name].nunique() > 1 or name == "test_set")]
    panels, schemes = list(parts_by(found, sets)), list(found.scheme.unique())
    looks, across = looks_of(schemes), max(1, min(len(panels), int(width / 2.8)))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(width, down * (0.75 + 0.24 * len(schemes))))
    axes = figure.subplots(down, across, sharey=True, squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    for axis, (where, part) in zip(axes.flat, panels):
        for row, scheme in enumerate(schemes):
            of_scheme, colour = part[part.scheme == scheme], looks[scheme]["color"]
            values = of_scheme.value.dropna()
            half = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values) if len(values) > 1 else 0
            axis.plot(values, [row] * len(values), "o", color=colour, alpha=0.45, markersize=5, markeredgewidth=0)
            most = 100 if part.measure.iloc[0].endswith("percent") else math.inf
            reach = [min(half, values.mean()), min(half, most - values.mean())]  # no error is below 0, or above 100 %
            axis.errorbar(values.mean(), row, xerr=np.array([reach]).T if half else None, color=colour, capsize=3, marker="|", markersize=11, linewidth=1.4)
            for side, end, sign in zip(reach, (0, most), "<>"):
                axis.plot([end] * int(side < half), [row] * int(side < half), sign, color=colour, markersize=6)  # the interval goes on
            if "paper" in of_scheme and measure is None:
                axis.plot(of_scheme.paper[:1], [row] * len(of_scheme[:1]), "D", color=SOFT, markersize=4, fillstyle="none")
        if "best_guess" in part and measure is None and part.best_guess.notna().any():
            axis.axvline(part.best_guess.iloc[0], color=SOFT, linestyle=":", linewidth=1)
        axis.set_title(textwrap.fill(label(where, sets), 34))
        axis.set_xlabel(COMPARED[part.measure.iloc[0]], fontsize=8)
        axis.tick_params(axis="y", length=0, labelcolor=INK)
        axis.grid(axis="x")
    axes[0][0].set_yticks(range(len(schemes)), [textwrap.shorten(scheme, 30, placeholder="...") for scheme in schemes])
    axes[0][0].set_ylim(len(schemes) - 0.4, -0.6)
    return figure


def lines(found: pd.DataFrame, x: str, y: str, title: str, width: float) -> Figure:
    """A curve of means over seeds for each scheme and other difference, with a band of a standard deviation. The legend sorts the curves by their
    last values, and shows these."""
    same = (x, "test_length", "test_set") if x == "test_length" else (x, "test_length")
    names = [name for name in place(found) if name == "scheme" or (name not in same and found[name].nunique() > 1)]
    parts = {label(where, names): part.groupby(x)[y].agg(["mean", "std"]) for where, part in parts_by(found, names)}
    figure, looks, at = Figure(figsize=(width, max(3.2, 0.8 + 0.17 * len(parts)))), looks_of(list(parts)), sorted(found[x].unique())
    plot = figure.subplots()
    for name, curve in sorted(parts.items(), key=lambda part: -part[1]["mean"].iloc[-1]):
        plot.plot(curve["mean"], linewidth=1.6, marker="o" if len(curve) < 12 else None, markersize=3, **looks[name],
                  label=f"{textwrap.fill(name, 18 if width < 5 else 40)} {curve['mean'].iloc[-1]:.3g}")
        band = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        plot.fill_between(curve.index, *band, color=looks[name]["color"], alpha=0.13, linewidth=0)
    if 0 < 8 * at[0] <= at[-1] and x not in ("step", "sequences"):
        plot.set_xscale("log", base=2)
        plot.set_xticks(at[-8:], [f"{each:g}" for each in at[-8:]])
    if 0 < 4 * found[y].min() < found[y].max():
        plot.set_yscale("log")
        plot.set_ylim(bottom=max(plot.get_ylim()[0], 0.5 * min(curve["mean"].min() for curve in parts.values())))
        plot.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5) if found[y].max() < 1000 * found[y].min() else (1,)))
        plot.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        plot.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    plot.set(xlabel=x.replace("_", " "), ylabel=title)
    plot.grid(axis="y")
    plot.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=2.6)
    return figure


def over(scores: pd.DataFrame, axis: str, measure: str | None = None, width: float = 7) -> Figure:
    """The measure over an axis of numbers, of the grid or "test_length"."""
    found = shown(scores, measure, math.inf if axis == "test_length" else READABLE).dropna(subset=[axis, "value"])
    return lines(found.assign(**{axis: pd.to_numeric(found[axis])}), axis, "value", COMPARED[found.measure.iloc[0]], width)


def learning(curves: pd.DataFrame, curve: str = "training", width: float = 7) -> Figure:
    """Learning curves over steps, or over sequences if runs differ in sequences per step."""
    found = curves[curves.curve == curve]
    return lines(found, "step" if (found.sequences / found.step).nunique() == 1 else "sequences", "loss", f"{curve} loss, nats", width)


# ---- Tables and the page

def crossed(scores: pd.DataFrame, measure: str | None = None, values: str = "text", rows: str | None = None,
         columns: str | None = None) -> pd.DataFrame:
    """Schemes down, axes and test sets across. For several tasks: test sets down and schemes across. "0.31 (0.02)": mean and standard deviation
    over seeds; or a column of summary() (`values`). `rows` and `columns` name another axis, scheme, seed or test-set."""
    down, across = [name and name.replace("test-set", "test_set") for name in (rows, columns)]
    known = ["seed", *place(scores)]
    if bad := [name for name in (down, across) if name and (name not in known or down == across)]:
        raise Refused(f"--rows, --columns: {bad[0]} given; two of {', '.join(known).replace('test_set', 'test-set')} required")
    seed = ["seed"] * ("seed" in (down, across))
    found = summary(scores, measure, *seed, folder=True)
    down = down or ("test_set" if across == "scheme" or (found.task.nunique() > 1 and not across) else "scheme")
    across = across or ("scheme" if down != "scheme" else None)
    others = [name for name in place(found, *seed) if name not in (down, across, "test_length") and found[name].nunique(dropna=False) > 1]
    inside = [name for name in others if "." in name and down == "scheme"]  # next to the options of schemes
    index = ["task"] * ("task" in others) + [down, *inside]
    heads = [name for name in (across, *others) if name and name not in ("task", *inside)] or ["test_set"]
    found = found.assign(**{name: found[name].where(found[name].notna(), "-") for name in (*index, *heads)},
                         text=[f"{row['mean']:.3g}" + (f" ({row.sd:.2g})" if pd.notna(row.sd) else "") for _, row in found.iterrows()])
    return found.pivot_table(index=index, columns=heads, values=values, aggfunc="first", sort=False)


def marked(scores: pd.DataFrame, form: str, measure: str | None = None, rows: str | None = None, columns: str | None = None, out: str = "") -> str:
    """crossed() for a paper or a page, with the best scheme of each task and test set in bold. `form`: "latex" (with booktabs), "markdown" or "html".
    In HTML, if `out` is the grid's folder, cells link to the first seed's run."""
    table, means, folders = [crossed(scores, measure, values, rows, columns) for values in ("text", "mean", "folder")]
    index, heads = list(table.index.names), list(table.columns.names)
    least = means.groupby(level="task").transform("min") if "task" in index else means.min()
    best = means.eq(means.min(axis=1), axis=0) if "scheme" in heads else means.eq(least)
    escape, bold, row = {
        "latex": (lambda text: re.sub(r"([_%&#])", r"\\\1", text), r"\textbf{%s}", lambda cells: " & ".join(cells) + r" \\"),
        "markdown": (lambda text: text.replace("|", "\\|"), "**%s**", lambda cells: f"| {' | '.join(cells)} |"),
        "html": (html.escape, "<b>%s</b>", lambda cells: "")}[form]
    names = [[each if isinstance(each, tuple) else (each,) for each in axis] for axis in table.axes]
    head = [escape(each) for each in [*(name.replace("_", " ") for name in index), *(label(each, heads) for each in names[1])]]
    body = [[*(escape(str(each)) for each in where), *(bold % escape(text) if is_best else escape(text) for text, is_best in zip(texts, bests))]
            for where, texts, bests in zip(names[0], table.fillna("-").values, best.values)]
    first, *others = map(row, (head, *body))
    if form == "html":
        count = len(index)
        linked = [[*line[:count], *(f"<a href='{page_of(folder, out)}'>{text}</a>" if out and pd.notna(folder) else text
                                    for text, folder in zip(line[count:], its))] for line, its in zip(body, folders.values)]
        return in_html(pd.DataFrame(linked, columns=head), escape=False)
    if form == "markdown":
        return "\n".join([first, row(["---"] * len(index) + ["---:"] * len(names[1])), *others])
    begin = rf"\begin{{tabular}}{{{'l' * len(index)}{'r' * len(names[1])}}}"
    return "\n".join([begin, r"\toprule", first, r"\midrule", *others, r"\bottomrule", r"\end{tabular}"])


def in_html(frame: pd.DataFrame, **more: Any) -> str:
    if frame.empty:
        return ""
    shown = frame.dropna(axis="columns", how="all").to_html(index=False, na_rep="", border=0, float_format=lambda x: f"{x:.4g}", **more)
    return f"<div class='scroll'>{shown}</div>"


NAMES = [*(f"--c{k}" for k in range(len(COLOURS))), "--ink", "--soft", "--rule", "--page"]
DAY = dict(zip(NAMES, [*COLOURS, INK, SOFT, RULE, "#ffffff"]))
NIGHT = dict(zip(NAMES, [*BY_NIGHT, "#e8ebef", "#a3adb9", "#39414b", "#14171b"]))
THEMED = {colour: f"var({name})" for name, colour in DAY.items()}
STYLE = """:root { color-scheme: light dark; DAY } @media (prefers-color-scheme: dark) { :root { NIGHT } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: auto; padding: 1rem; color: var(--ink); background: var(--page) }
a { color: var(--c0) } .soft, figcaption { color: var(--soft) } code { overflow-wrap: anywhere } summary { cursor: pointer; padding: .3rem 0 }
figure { margin: 1rem 0 } svg { max-width: 100%; height: auto } .scroll { overflow-x: auto } .narrow { display: none }
table { border-collapse: collapse } th, td { padding: .25rem 1rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule) }
@media (max-width: 640px) { .wide { display: none } .narrow { display: block } }"""
for word, colours in (("DAY", DAY), ("NIGHT", NIGHT)):
    STYLE = STYLE.replace(word, "; ".join(f"{name}: {colour}" for name, colour in colours.items()))
FILES = ("scores.csv", "summary.csv", "differences.csv", "curves.csv", "runs.csv")


def svg_of(figure: Figure, title: str) -> str:
    """The picture in the page's colours, light and dark."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r' id="[a-z]+[a-z0-9]*_\d+"', "", text.getvalue()[text.getvalue().index("<svg"):])
    return re.sub("|".join(THEMED), lambda found: THEMED[found[0]], svg).replace("<svg", f"<svg role='img' aria-label='{html.escape(title)}'", 1)


def page_of(folder: str, out: str) -> str:
    """The link of a run in report.html: its page, or the line with the command that writes the page."""
    path = urllib.parse.quote(os.path.relpath(folder, out))
    return f"{path}/look.html" if os.path.exists(f"{folder}/look.html") else f"#{path}"


def page(runs: pd.DataFrame, found: pd.DataFrame, pictures: dict[str, tuple[str, Callable]], measure: str | None = None, maps: Figure | None = None,
         **sides: str | None) -> str:
    """One HTML file: the result first, then curves; numbers, tests, maps, runs and commands are folded."""
    def folded(title: str, inside: str) -> str:
        return f"<details><summary>{title}</summary>{inside}</details>" if inside else ""

    def link(run: Any) -> str:
        address = urllib.parse.quote(os.path.relpath(run.folder, runs.attrs["out"]))
        return f"<a href='{address}/'>{html.escape(run.folder)}</a>: {html.escape(run.state)}"

    def drawn(what: str, picture: Callable) -> str:
        wide, narrow = svg_of(picture(), what), svg_of(picture(width=3.6), what)
        return f"<figure><figcaption>{html.escape(what)}</figcaption><div class='wide'>{wide}</div><div class='narrow'>{narrow}</div></figure>"

    def code(words: list[str]) -> str:
        return f"<code>{html.escape(shlex.join(['whence', *words]))}</code>"

    out = runs.attrs["out"]
    done, tests, tasks = runs[runs.state == "done"], differences(found, measure), list(runs.task.unique())
    zeros = causes(done[done.seed == 0])
    zeros = zeros[zeros.step.isin([*sorted(zeros.step.unique())[:2], zeros.step.max()])]
    seeds, same = (tests[name].count() if name in tests else 0 for name in ("p_seeds", "p_questions"))
    title = html.escape(", ".join(tasks) if len(tasks) < 4 else f"{len(tasks)} tasks")
    measures = ", ".join(dict.fromkeys(COMPARED[each] for each in shown(found, measure).measure))
    commands = dict.fromkeys(code(["train", run.task, *run.words[:run.words.index("--scheme")]]) for run in runs.itertuples())
    failed = runs[~runs.state.isin(["done", "begun", "not begun"])]
    return f"""<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>
<meta http-equiv='Content-Security-Policy' content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}: {len(runs)} runs</title><style>{STYLE}</style><h1>{title}</h1>
<p class='soft'>{measures}, lower is better: mean (standard deviation over seeds), the best in bold; a number leads to the first seed's page. {len(runs)} runs, {len(done)} done;
sizes of --preset {runs.words.iloc[0][1]}, and what is set at the foot of the page.</p>
{"".join(f"<p><b>No result:</b> {link(run)}</p>" for run in failed.itertuples())}
{marked(found, "html", measure, **sides, out=out)}{"".join(drawn(*each) for each in pictures.values())}
{folded("Numbers by scheme and test set", in_html(summary(found, measure)))}
{folded(f"What makes a difference: {seeds} tests over seeds (Welch), {same} over the same questions; columns _holm are corrected for that many",
        in_html(tests))}
{folded("Why are gradients zero? In percent of what the mask does not hide, first seeds", in_html(zeros))}
{folded("Maps of the first seeds on one sequence; a map leads to its run's page", svg_of(maps, "maps of each scheme") if maps else "")}
{folded("Runs, and the command that writes the page of each", "".join(
        f"<p id='{html.escape(os.path.relpath(run.folder, out), quote=True)}'>{link(run)} {code(['look', run.folder])}</p>" for run in runs.itertuples()))}
{folded("How they were trained", "<br>".join(commands))}
<p class='soft'>Files: {", ".join(f"<a href='{name}'>{name}</a>" for name in FILES)}</p></html>"""


def maps_of(runs: pd.DataFrame) -> Figure:
    """The models of the first seed on one sequence of 128 tokens at most, side by side."""
    import figures
    import whence
    done, out = runs[(runs.seed == 0) & (runs.state == "done")], runs.attrs["out"]
    traces = {os.path.relpath(each, out): whence.load(each).trace(length=128) for each in done.folder}
    return figures.side_by_side(traces, links=dict(zip(traces, (page_of(each, out) for each in done.folder))))


def write(runs: pd.DataFrame, found: pd.DataFrame, measure: str | None = None, formats: tuple[str, ...] = ("pdf", "svg"), maps: Figure | None = None,
          **sides: str | None) -> list[str]:
    """Writes tidy tables as CSV, the pictures and report.html into the grid's folder, and returns their names."""
    out, points = pathlib.Path(runs.attrs["out"]), curves(runs)
    whole = found[found.test_length.isna()] if "token_error_percent" not in found else found  # lengths of a text are in a curve
    caption = "A dot is a run, a bar the 95 % interval of the mean over seeds; dotted: the best guess without a model; a diamond: the paper's."
    pictures = {"result": (caption, functools.partial(dots, whole, measure))}
    for (task,), part in parts_by(found, ["task"]):
        more, end = (f"{task}: ", f"_{task}") if found.task.nunique() > 1 else ("", "")
        for axis in ["test_length", *place(runs)[2:]]:
            if pd.to_numeric(part[axis], errors="coerce").nunique() > 1:
                pictures[f"over_{axis}{end}"] = (f"{more}over {axis.replace('_', ' ')}; a band is a standard deviation over seeds",
                                                 functools.partial(over, part, axis, measure))
        for curve, its in parts_by(points[points.task == task], ["curve"]):
            pictures[f"curves_{curve[0]}{end}"] = (f"{more}{curve[0]} loss", functools.partial(learning, its, curve[0]))
    tables = (found, summary(found, measure), differences(found, measure), points, runs[[*place(runs), "seed", "folder", "state"]])
    for name, frame in zip(FILES, tables):
        frame.drop(columns=["same_for_seeds", "data", "paper_average"], errors="ignore").apply(lambda column: column.map(outside.cell)).to_csv(out / name, index=False)
    for name, form in itertools.product(pictures, formats):
        pictures[name][1]().savefig(out / f"{name}.{form}", dpi=200, metadata={"Date": None} if form == "svg" else None)
    (out / "report.html").write_text(page(runs, found, pictures, measure, maps, **sides), encoding="utf-8")
    return [*FILES, *(f"{name}.{form}" for name in pictures for form in formats), "report.html"]


# ---- The program

def parts(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def pairs(words: list[str], option: str) -> dict[str, Any]:
    """["steps=300", "keep-best"] as a dict."""
    found = [(word.split("=", 1) if "=" in word else (word, True)) for word in words]
    if bad := [word for word, (name, value) in zip(words, found) if not re.fullmatch(r"[a-z][\w.-]*", name) or value == ""
            or [each[0] for each in found].count(name) > 1]:
        raise Refused(f"--{option}: {bad[0]!r} given; name=value, each name once, required")
    return dict(found)


def settings_of(text: str) -> dict[str, Any]:
    """ "steps=300 name='two words'" as a dict."""
    try:
        return pairs(shlex.split(text), "set")
    except ValueError as problem:  # quotes that do not close
        raise Refused(f"--set: {text} given; {problem}") from None


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, measures = parser.add_argument, {name.replace("_percent", "").replace("_", "-"): name for name in COMPARED}
    add("tasks", nargs="+", metavar="TASK", help="whence tasks lists them; chomsky: all fifteen of the hierarchy; lm: text")
    add("--schemes", default="", help="schemes, separated by commas (those that the task's paper compares)")
    add("--seeds", type=int, default=3, help="number of seeds of each scheme: 0, 1, ... (3)")
    add("--vary", action="append", default=[], metavar="NAME=V,V", help="an axis: an option of train, or SCHEME.OPTION; may be repeated")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help='options of train: "steps=300 dim=32"; a value with blanks in quotes; may be repeated')
    add("--preset", default="mini", choices=["mini", "paper"], help="mini: minutes on a laptop (mini)")
    add("--same-tokens", action="store_true", help="the batch follows the length: steps x batch x length stays as in --preset and --set")
    add("--measure", choices=list(measures), help="the measure to compare (the task's own)")
    add("--rows", metavar="NAME", help="axis of the table's rows: one of --vary, scheme, seed or test-set")
    add("--columns", metavar="NAME", help="axis of the table's columns")
    add("--maps", action="store_true",
        help="also show the first seeds side by side on one sequence; --set look-every=N adds causes of zero gradients")
    add("--jobs", type=int, default=0, help="runs at the same time (the number of processors)")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", help="folder; the same command continues in it (runs/lab_TASK)")
    add("--quiet", action="store_true", help="no progress")
    add("--plan", action="store_true", help="print a line of `whence train` for each unfinished run: for GNU parallel, a shell, any scheduler")
    add("--slurm", metavar="FILE", help="write the lines of --plan as an array script of SLURM; -: print it")
    add("--sbatch", default="", help='options of the script: "partition=gpu,time=2:00:00"')
    add("--collect", action="store_true", help="tables and page of finished runs, without training")
    for name, about in (("latex", "print the table for a paper"), ("markdown", "or for a README"), ("json", "or its numbers as lines of JSON"),
            ("png", "pictures as PNG too")):
        add(f"--{name}", action="store_true", help=about)
    options = parser.parse_args(words)
    for name, least in (("seeds", 1), ("jobs", 0)):
        if getattr(options, name) < least:
            raise Refused(f"--{name}: {getattr(options, name)} given; {least} or more required")
    planned = options.plan or options.slurm is not None
    if options.plan + options.collect + (options.slurm is not None) > 1:
        raise Refused("--plan, --slurm, --collect: several given; one at most required")
    if (options.sbatch and options.slurm is None) or options.slurm == "":
        raise Refused(f"--slurm: {'an empty name' if options.slurm == '' else 'nothing, but --sbatch'} given; a file for the script required")
    if options.schemes and not parts(options.schemes):
        raise Refused(f"--schemes: {options.schemes} given; schemes separated by commas required")
    if bad := [name for name in ("measure", "rows", "columns", "maps", "latex", "markdown", "json", "png") if planned and getattr(options, name)]:
        raise Refused(f"--{bad[0]}: given with --{'plan' if options.plan else 'slurm'}, where it has no effect; it required without")
    if options.maps and not importlib.util.find_spec("whence"):
        raise Refused("--maps: the module whence is missing; pip install .packaging, or a grid without maps, required")
    vary = {name: parts(str(values)) for name, values in pairs(options.vary, "vary").items()}
    if bad := [name for name, values in vary.items() if not values or values == ["True"] or len(set(values)) < len(values)]:
        raise Refused(f"--vary: {bad[0]}={','.join(vary[bad[0]])} given; NAME=VALUE,VALUE,... required, each value once")
    runs = grid(options.tasks, parts(options.schemes), seeds=options.seeds, vary=vary, settings=settings_of(" ".join(options.set)),
                preset=options.preset, equal_tokens=options.same_tokens, out=options.out)
    if bad := {options.rows, options.columns} - {None, "seed", "test-set", *place(runs)}:
        raise Refused(f"--rows, --columns: {bad.pop()} given; two of {', '.join([*place(runs), 'seed', 'test-set'])} required")
    if planned:
        planned = list(plan(runs, options.device, max(1, os.cpu_count() // options.jobs) if options.jobs else 0))
        text = slurm(planned, options.sbatch) if options.slurm and planned else "".join(f"{line}\n" for line in planned)
        if options.slurm in (None, "-"):
            print(text, end="")
        else:
            pathlib.Path(options.slurm).write_text(text, encoding="utf-8")
            print(f"written: {options.slurm}, {len(planned)} runs; when they are done, or before: the same command with --collect")
        return 0
    runs = (runs.assign(state=[state(run) for run in runs.itertuples()]) if options.collect
            else train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet))
    for run in runs[runs.state != "done"].itertuples():
        print(f"{run.folder}: {run.state}", file=sys.stderr)
    found, measure, sides = scores(runs), measures.get(options.measure), {"rows": options.rows, "columns": options.columns}
    failed = [int(code) for code in runs.state.str.extract(r"^failed with exit code (\d+)")[0].dropna()]
    if found.empty and failed:
        return failed[0]
    if found.empty or (measure and measure not in found):
        there = ", ".join(name for name, field in measures.items() if field in found)
        raise Refused(f"--measure: {options.measure} given; one of {there} required" if there else f"{runs.attrs['out']}: no run is done there")
    formats, maps, code = ("pdf", "svg", "png")[:2 + options.png], None, int(runs.state.str.startswith("failed").any())
    try:
        maps = maps_of(runs) if options.maps else None
    except (ValueError, OSError, ImportError) as problem:  # the report is written without
        code = outside.failure(problem, "lab.py: --maps")
    files = write(runs, found, measure, formats, maps, **sides)
    form = "latex" if options.latex else "markdown" if options.markdown else None
    print(summary(found, measure).to_json(orient="records", lines=True).strip() if options.json
          else marked(found, form, measure, **sides) if form else crossed(found, measure, **sides).fillna("-").to_string())
    print(f"written: {runs.attrs['out']}/{{{', '.join(files)}}}", file=sys.stderr)
    return code


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(main())
