#!/usr/bin/env python3
"""Grids of trainings: `whence train` over tasks, schemes, options and seeds, and their results.

    examples/experiments/lab.py flip_flop --schemes cope,rope,absolute --seeds 3
    examples/experiments/lab.py counting --vary variables=1,3,5 --set "steps=300 dim=32"
    examples/experiments/lab.py lm --schemes "cdape(kerple, kernel=1),cdape(kerple)" --set data=austen.txt
    examples/experiments/lab.py chomsky --schemes rope,alibi                    all fifteen tasks of the hierarchy, as a matrix
    examples/experiments/lab.py flip_flop --schemes cope,rope --plan | parallel -j2

A run is done if its results are whole. Ctrl-C and kill lose nothing: the same command continues. In a notebook a grid is a DataFrame with a row
for each run, which every step takes (README.md).
"""
from __future__ import annotations

import argparse
import fcntl
import hashlib
import html
import importlib.util
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
from typing import Any, Iterator

import outside
import packages
from outside import Refused, shown as escaped

packages.require("pandas", "scipy", "matplotlib")
import matplotlib.pyplot  # a notebook shows figures then
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPARED = {"token_error_percent": "token error %", "sequence_error_percent": "sequence error %",
            "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
FEW = 8  # questions; a mean of fewer is not normal
READABLE = 4  # test sets; for more, tables and dots show the average
OF_THE_TEXT = set("tokeniser data validation-data test-data field include exclude validation split-seed blank-lines".split())
OURS = set("scheme seed preset device out threads resume quiet json beside dump describe graph help".split())
GONE = {"--collect": "the same command, when its runs are done, trains nothing and writes tables and page",
        "--slurm": "--plan prints the commands: an array job runs line $SLURM_ARRAY_TASK_ID of them",
        "--latex": "summary.csv has the numbers: pandas' pivot_table, to_latex, to_markdown", "--maps": "figures.py RUN RUN ... draws runs side by side"}


def program() -> str:
    """The program `whence`: $WHENCE, the one in this tree's build, in PATH, or in the module `whence`."""
    module, named = importlib.util.find_spec("whence"), os.environ.get("WHENCE")
    beside = [f"{folder}/whence" for folder in (module and module.submodule_search_locations) or []]
    for each in [named] if named else [ROOT / "build/release/whence", "whence", *beside]:
        if found := shutil.which(each):
            return str(found)
    raise Refused(f"{f'WHENCE={named}' if named else 'whence'}: no such program; cmake --build build/release --target whence, or "
                  "pip install .packaging, makes it; WHENCE=... names one")


def printed(*words: str) -> list[str]:
    """The lines that `whence WORDS` prints. Raises Refused with the program's own error, if any."""
    asked = subprocess.run([program(), *words], capture_output=True, text=True)
    if asked.returncode:
        raise Refused((asked.stderr.strip().splitlines() or [f"whence ended with {asked.returncode}"])[-1])
    return asked.stdout.splitlines()


def described(task: str, words: list[str]) -> dict:
    """The record of such a run, and the measures of its tests."""
    return json.loads(printed("train", task, *words, "--describe", "--json")[-1])


def tasks_of(names: list[str]) -> list[str]:
    """The names, where "chomsky" is replaced by the fifteen tasks of the hierarchy (Deletang et al. 2023)."""
    if "lm" in names and len(names) > 1:
        raise Refused("lm: given with tasks; lm alone required: one table cannot have perplexities and errors")
    hierarchy = [line.split()[0] for line in printed("tasks") if "arXiv:2207.02098" in line] if "chomsky" in names else []
    return list(dict.fromkeys(each for name in names for each in (hierarchy if name == "chomsky" else [name])))


words_of = lambda options: [f"--{name}" if value is True or value == "true" else f"--{name}={value}" for name, value in options.items()]  # of train


def folder_name(text: str) -> str:
    """ "cdape(kerple, kernel=3)" as "cdape-kerple,kernel=3". Names are unique; a hash replaces the end of a long name."""
    name = urllib.parse.quote(re.sub(r"[()]", "-", text.rstrip(")").replace(" ", "")), safe="-+,=._")
    return name if len(name) <= 200 else f"{name[:183]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def same_tokens(base: dict, options: dict) -> dict:
    """The options with the batch for which steps x accumulate x batch x length equals that of `base`."""
    sizes = [base, {**base, **options}]
    if "length" not in base:
        raise Refused("--same-tokens: a task with the option length required")
    tokens, rest = (math.prod(int(size[name]) for name in ("steps", "accumulate", "length")) for size in sizes)
    if tokens * base["batch"] % rest:
        raise Refused(f"--same-tokens: a batch of {tokens * base['batch']} / {rest} sequences would follow; a whole number required")
    return {**options, "batch": tokens * base["batch"] // rest}


def grid(task: str | list[str], schemes: list[str] | None = None, *, seeds: int = 3, vary: dict[str, list] | None = None,
         settings: dict[str, Any] | None = None, preset: str = "mini", out: str | os.PathLike | None = None,
         equal_tokens: bool = False) -> pd.DataFrame:
    """A row for each run: its place (task, scheme, the axes of `vary`, seed), `folder`, `words` for `whence train`, and `wanted`, the content of
    its future run.json. An axis is an option of train. The program checks every cell, so that errors come before anything trains."""
    given, settings, vary, rows = [task] if isinstance(task, str) else task, settings or {}, vary or {}, []
    if own := OURS.intersection([*vary, *settings]):
        raise Refused(f"{own.pop()}: given as an option of train; others required: lab.py has --schemes, --seeds, --preset, --device, --out")
    if twice := vary.keys() & ({*settings, "batch"} - {"length"} if equal_tokens else {*settings}):  # the tokens follow the setting
        raise Refused(f"{twice.pop()}: given as an axis; it is also a setting, or follows by --same-tokens; one of both required")
    if of_scheme := [axis for axis in vary if "." in axis]:
        raise Refused(f"--vary: {of_scheme[0]} given; an option of train required: --schemes 'cope(p_max=4),cope(p_max=8)' varies a scheme's")
    tasks, out = tasks_of(given), pathlib.Path(out or f"runs/lab_{pathlib.Path(given[0]).stem}")
    for task, values in itertools.product(tasks, itertools.product(*vary.values())):
        axes = dict(zip(vary, values))
        options = {**settings, **axes}
        if equal_tokens:
            first = {**{axis: choices[0] for axis, choices in vary.items()}, **settings}
            options = same_tokens(described(task, ["--preset", preset, *words_of(first)])["run"]["options"], options)
        folder = (out / pathlib.Path(task).stem if len(tasks) > 1 else out).joinpath(*(folder_name(f"{axis}={each}") for axis, each in axes.items()))
        for scheme in schemes or ["absolute", "rope", "cope"]:
            words = ["--preset", preset, *words_of(options), "--scheme", scheme]
            about = described(task, words)
            for seed in range(seeds):
                own = described(task, [*words, "--seed", str(seed)])["run"] if about["run"]["subject"] == "jsonl" else about["run"]  # as its data
                rows.append({"task": task, "scheme": scheme, **axes, "seed": seed, "words": [*words, "--seed", str(seed)], "about": about,
                             "folder": str(folder / f"{folder_name(own['options']['scheme'])}.{seed}"),
                             "wanted": {**own, "options": {**own["options"], "seed": seed}}})
    frame = pd.DataFrame(sorted(rows, key=lambda row: row["seed"]))  # the first seed of every scheme comes first
    if frame.folder.duplicated().any():
        raise Refused(f"{frame.folder[frame.folder.duplicated()].iloc[0]}: two runs would have this folder; each scheme and value once required")
    frame.attrs["out"] = str(out)
    return frame


def lines_of(path: pathlib.Path) -> list[dict]:
    """The objects of a file of JSON lines. Raises ValueError if it is truncated or damaged."""
    *lines, last = outside.read_text(path).split("\n")
    if last or not lines:
        raise ValueError(f"{path.name} ends within a line, or is empty")
    return [{escaped(name): escaped(value) if isinstance(value, str) else value for name, value in fields.items()}
            for fields in (outside.parsed(line, f"{path.name}: line {number}") for number, line in enumerate(lines, 1))]


def questions(folder: str | os.PathLike) -> dict[str, np.ndarray]:
    """For each test set the numbers of graded tokens, and of wrong answers, per question; for a text, tokens and nats per window."""
    path = pathlib.Path(folder) / "questions.jsonl"
    lines = lines_of(path) if path.exists() else []
    return {line["test_set"]: np.array([line["graded"], line.get("wrong", line.get("nats"))], float) for line in lines}


def measured(run: Any) -> dict[str, dict]:
    """The measures of a run by test set. Raises ValueError, KeyError or TypeError if data is damaged or missing."""
    found: dict[str, dict] = {}
    for line in lines_of(pathlib.Path(run.folder) / "results.jsonl"):
        name = line.get("test_set") or (f"length {line['length']}" if "length" in line else "validation")
        guesses = [float(value) for guess, value in line.items() if guess.startswith("guess: ")]
        for prefix, test_set in (("", name), ("test_", "test")):
            numbers = {each: float(line[prefix + each]) for each in [*COMPARED, "delta_p"] if line.get(prefix + each) is not None}
            if numbers or not prefix:
                found[test_set] = {**numbers, "best_guess": min(guesses, default=None)}
    asked, there = questions(run.folder), {name for name, numbers in found.items() if len(numbers) > 1}
    if lacking := {*(each["name"] for each in run.about["test_sets"]), *asked} - {*found} or (there - {*asked} if asked else set()):
        raise ValueError(f"results.jsonl or questions.jsonl: no results of {lacking.pop()}")
    return found


def state(run: Any) -> str:
    """ "done", "not begun", "begun", or "damaged: ...". Raises Refused if the folder has a run with other options."""
    folder, wanted = pathlib.Path(run.folder), {**run.wanted["options"], "subject": run.wanted["subject"]}
    if not (folder / "run.json").exists():
        return "not begun"
    if wanted["subject"] in ("lm", "jsonl"):
        wanted["data"] = run.wanted["data"]
    try:
        there = outside.read_json(folder / "run.json")
        facts = {**there["options"], "subject": there["subject"], "data": there["data"]}
        if finished := (folder / "results.jsonl").exists():
            measured(run), [float(line["step"]) + float(line.get("loss") or 0) for line in lines_of(folder / "metrics.jsonl")]
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as problem:
        return f"damaged: {problem}; a whole run, or no folder, required"
    if other := [name for name, value in wanted.items() if facts.get(name) != value and name != "accumulate"]:  # a small GPU splits a batch
        raise Refused(f"{folder}: has a run with {other[0]} {facts.get(other[0])}; {wanted[other[0]]}, or another folder, required")
    return "done" if finished else "begun"


def train_words(run: Any, threads: int = 0, device: str = "auto") -> list[str]:
    """The command of one run, which resumes if there is a whole checkpoint."""
    saved = any(".tmp-" not in path.name for path in pathlib.Path(run.folder).glob("checkpoints/step-*"))
    more = ["--threads", str(threads)] * (threads > 0) + ["--device", device] * (device != "auto") + ["--resume"] * saved
    return [program(), "train", run.task, *run.words, "--quiet", "--out", run.folder, *more]


def train(runs: pd.DataFrame, *, jobs: int = 0, device: str = "auto", quiet: bool = False) -> pd.DataFrame:
    """Trains unfinished runs, `jobs` at a time (0: the number of processors), and returns the frame with a column `state`: "done", or why not.
    A run that fails does not stop the others. Ctrl-C raises KeyboardInterrupt after all runs have saved."""
    out, running, began = pathlib.Path(runs.attrs.get("out") or os.path.commonpath(list(runs.folder))), {}, time.time()
    out.mkdir(parents=True, exist_ok=True)

    def start(run: Any) -> subprocess.Popen:
        pathlib.Path(run.folder).mkdir(parents=True, exist_ok=True)
        # A run dies with this process, and is in no terminal's foreground, so that Ctrl-C reaches this process alone.
        words = ["setpriv", "--pdeathsig", "TERM"] * bool(shutil.which("setpriv")) + train_words(run, max(1, os.cpu_count() // jobs), device)
        with open(pathlib.Path(run.folder) / "train.log", "ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, pass_fds=[lock.fileno()])

    def ended(run: Any, code: int) -> str:
        last = (pathlib.Path(run.folder) / "train.log").read_text(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        return state(run) if code == 0 else f"failed: killed by signal {-code}" if code < 0 else f"failed with exit code {code}: {escaped(last[0])}"

    with open(out / "lab.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{out}: waiting for another lab.py there, or for the runs of a killed one", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        states = {run.Index: state(run) for run in runs.itertuples()}
        waiting = [run for run in runs.itertuples() if states[run.Index] in ("begun", "not begun")]
        jobs = max(1, min(jobs or os.cpu_count(), len(waiting)))
        try:
            while running or waiting:
                while waiting and len(running) < jobs:
                    run = waiting.pop(0)
                    running[start(run)] = run
                for process in [each for each in running if each.poll() is not None]:
                    run = running.pop(process)
                    states[run.Index] = ended(run, process.returncode)
                    done = f"{list(states.values()).count('done')} of {len(runs)} runs, {time.time() - began:.0f} s"
                    print(*[f"{run.folder}: {states[run.Index]}; {done}\n"] * (not quiet), end="", file=sys.stderr, flush=True)
                time.sleep(0.1)
        except KeyboardInterrupt:
            for process in running:
                process.send_signal(signal.SIGUSR1)  # the run saves and ends
            for process in running:
                process.wait()
            raise KeyboardInterrupt("stopped, and all runs saved; the same command goes on") from None
    return runs.assign(state=[states[index] for index in runs.index])


def plan(runs: pd.DataFrame, device: str = "auto", threads: int = 0) -> Iterator[str]:
    """A shell command for each unfinished run."""
    for run in runs.itertuples():
        found, line = state(run), shlex.join(train_words(run, threads, device))
        if found.startswith("damaged") or not line.isprintable():
            raise Refused(f"--plan: {line!r}: {found}; words without line ends, and whole runs or none, required")
        if found != "done":
            yield line


def parts_by(frame: pd.DataFrame, names: list[str]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """The rows of each combination of values, in order of first appearance."""
    for where, part in frame.groupby(names if len(names) > 1 else names[0], sort=False, dropna=False):
        yield where if len(names) > 1 else (where,), part


def place(frame: pd.DataFrame) -> list[str]:
    """The columns that identify a run, without seed or measure, and its test."""
    tested = [name for name in ("test_set", "test_length") if name in frame]
    return [*itertools.takewhile(lambda name: name not in ("seed", "measure", *tested), frame), *tested]


def shares(measure: str, graded: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """The contribution of each question. The mean is the measure in percent, or the loss of a text in nats."""
    if measure.startswith("sequence"):
        return 100.0 * (cost > 0)
    return (100.0 if measure.endswith("percent") else 1.0) * cost * len(cost) / max(graded.sum(), 1)


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and test set: its place, seed, `test_set`, `test_length`, the measures as numbers, `standard_error` of `measure` over
    questions, `best_guess`, and `folder`. Unfinished runs have no row."""
    rows, by_bytes = [], OF_THE_TEXT.intersection(runs)  # perplexities of different tokens cannot be compared
    for run, where in zip(runs.itertuples(index=False), runs[[*place(runs), "seed", "folder"]].to_dict("records")):
        if state(run) == "done":
            asked, subject = questions(run.folder), run.wanted["subject"]
            measure = "bits_per_byte" if subject == "lm" and by_bytes else run.about["measure"]
            for test_set, found in measured(run).items():
                length = re.fullmatch(r"length (\d+)", test_set)
                row = {**where, "test_set": test_set, "test_length": int(length[1]) if length else None, **found, "measure": measure,
                       "same_for_seeds": subject in ("lm", "jsonl"), "data": run.wanted["data"]}
                if test_set in asked and measure in found:
                    each = shares(measure, *asked[test_set])
                    slope = {"perplexity": found[measure], "bits_per_byte": found[measure] / max(each.mean(), 1e-300)}.get(measure, 1)
                    row["standard_error"] = slope * scipy.stats.sem(each) if len(each) > 1 else None
                rows += [row] * (len(found) > 1)
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in frame if frame[name].isna().all() and name != "test_length"])


def shown(scores: pd.DataFrame, most: float = READABLE) -> pd.DataFrame:
    """The values for tables and dots: `value` by each row's measure, and one average if there are more test sets than `most`."""
    scores = scores.assign(sets=[[name] for name in scores.test_set], value=[row.get(row["measure"]) for row in scores.to_dict("records")])
    keys, found = [*(name for name in place(scores) if not name.startswith("test_")), "seed", "folder", "measure", "same_for_seeds", "data"], []
    for _, part in parts_by(scores, ["task"]):
        grouped = part.groupby(keys, sort=False, dropna=False)
        if part.test_set.nunique() > most and "token_error_percent" in part and grouped.size().nunique() == 1:
            part = grouped.agg({"sets": "sum", **{name: "mean" for name in ("value", "best_guess") if name in part}}).reset_index()
            part = part.assign(test_set=f"average of {len(part.sets[0])} sets", test_length=None)
        found.append(part)
    return pd.concat(found, ignore_index=True)


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each place and test set: mean, `sd` over seeds, least, most, the number of seeds, and the best guess."""
    found = shown(scores)
    more = {"best_guess": ("best_guess", "first")} if "best_guess" in found else {}
    numbers = {name: ("value", how) for name, how in (("mean", "mean"), ("sd", "std"), ("least", "min"), ("most", "max"), ("seeds", "count"))}
    return found.groupby([*place(found), "measure"], sort=False, dropna=False).agg(**numbers, **more).reset_index()


def differences(scores: pd.DataFrame) -> pd.DataFrame:
    """Pairs of places that differ in one thing, on each test set: `difference` of the means, a - b. `p_seeds`: Welch's test over three seeds or
    more, for other seeds. `p_questions`: a test of these models on the same questions, for any number of seeds."""
    found, rows, asked = shown(scores), [], {folder: questions(folder) for folder in scores.folder.unique()}
    sets = [name for name in ("task", "test_set", "test_length") if name in found]
    names = [name for name in place(found) if name not in sets]
    for where, part in parts_by(found, sets):
        cells = [(dict(zip(names, cell)), runs.set_index("seed")) for cell, runs in parts_by(part, names)]
        for (a, x), (b, y) in itertools.combinations(cells, 2):
            apart = [name for name in names if a[name] != b[name]]
            if len(apart) != 1:
                continue
            row = {**dict(zip(sets, where)), "a": label(a.values(), names), "b": label(b.values(), names),
                   "difference": x.value.mean() - y.value.mean(), "p_seeds": np.nan, "p_questions": np.nan}
            if min(len(x), len(y)) >= 3 and x.value.nunique() + y.value.nunique() > 2:
                row["p_seeds"] = scipy.stats.ttest_ind(x.value, y.value, equal_var=False).pvalue
            same = []  # differences by question, for each seed
            for seed in x.index.intersection(y.index) if apart[0] not in OF_THE_TEXT else []:
                both = [[asked[of.folder[seed]].get(name, np.full((2, 1), np.nan)) for of in (x, y)] for name in x.sets[seed]]  # a NaN equals none
                if x.data[seed] == y.data[seed] and all(np.array_equal(one[0], other[0]) for one, other in both):
                    same.append(np.concatenate([shares(x.measure[seed], *one) - shares(x.measure[seed], *other) for one, other in both]))
            each = np.zeros(0) if not same else np.mean(same, axis=0) if x.same_for_seeds.all() else np.concatenate(same)
            if each.any() and (len(each) < FEW or np.ptp(each) < 1e-9 * abs(each).max()):  # the sign test is exact
                row["p_questions"] = scipy.stats.binomtest(int((each > 0).sum()), int((each != 0).sum())).pvalue
            elif each.any():
                row["p_questions"] = 2 * scipy.stats.norm.sf(abs(each.mean()) / scipy.stats.sem(each))
            rows.append(row)
    return pd.DataFrame(rows, columns=[*sets, "a", "b", "difference", "p_seeds", "p_questions"]).dropna(axis="columns", how="all")


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point of a learning curve: place, seed, `curve` (training, validation), `step`, `sequences` seen, `loss`."""
    rows = []
    for run, where in zip(runs.itertuples(index=False), runs[[*place(runs), "seed"]].to_dict("records")):
        try:
            lines, options = lines_of(pathlib.Path(run.folder) / "metrics.jsonl"), run.wanted["options"]
        except (outside.NoFile, FileNotFoundError, ValueError):  # not begun, or killed
            continue
        each = options["batch"] * options["accumulate"]
        rows += [{**where, "curve": curve, "step": line["step"], "sequences": line["step"] * each, "loss": line[field]} for line in lines
                 for field, curve in (("loss", "training"), ("validation_score", "validation")) if line.get(field) is not None]
    return pd.DataFrame(rows, columns=[*place(runs), "seed", "curve", "step", "sequences", "loss"])


def measures_of(scores: pd.DataFrame) -> str:
    return ", ".join(dict.fromkeys(COMPARED[each] for each in scores.measure))


def crossed(scores: pd.DataFrame, values: str = "text") -> pd.DataFrame:
    """Schemes down, axes and test sets across. For several tasks: test sets down and schemes across. "0.31 (0.02)": mean and standard deviation
    over seeds; or a column of summary() (`values`)."""
    found = summary(scores)
    many = found.task.nunique() > 1
    others = [name for name in place(found) if name not in ("task", "scheme", "test_length", *["test_set"] * many) and found[name].nunique() > 1]
    index, heads = (["task", "test_set"], ["scheme", *others]) if many else (["scheme"], others or ["test_set"])
    found = found.assign(text=[f"{row['mean']:.3g}" + (f" ({row.sd:.2g})" if pd.notna(row.sd) else "") for _, row in found.iterrows()])
    return found.pivot_table(index=index, columns=heads, values=values, aggfunc="first", sort=False)


matplotlib.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9, "axes.titlelocation": "left",
                            "legend.frameon": False, "axes.axisbelow": True, "svg.hashsalt": "whence", "pdf.fonttype": 42,
                            "figure.constrained_layout.use": True, "savefig.bbox": "tight"})


def label(where: Any, names: list[str]) -> str:
    there = [(name, value) for name, value in zip(names, where) if pd.notna(value)]
    return ", ".join(str(value) if name in ("scheme", "task", "test_set") else f"{name} {value}" for name, value in there)


def dots(scores: pd.DataFrame, width: float = 7) -> Figure:
    """The result: a dot for each seed, and the mean with its 95 % interval over seeds (Student's), cut at what a measure may be, for each scheme and
    test set. A dotted line is the best guess without a model."""
    found = shown(scores).dropna(subset=["value"])
    sets = [name for name in place(found) if name not in ("scheme", "test_length") and (found[name].nunique() > 1 or name == "test_set")]
    panels, schemes = list(parts_by(found, sets)), list(found.scheme.unique())
    figure = Figure(figsize=(width, len(panels) * (0.75 + 0.24 * len(schemes))))
    for axis, (where, part) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels):
        each = part.groupby("scheme").value.agg(["mean", "sem", "count"]).reindex(schemes)
        half = (scipy.stats.t.ppf(0.975, each["count"] - 1) * each["sem"]).fillna(0)
        most = 100 if part.measure.iloc[0].endswith("percent") else math.inf  # no error is below 0, or above 100 %
        axis.errorbar(each["mean"], range(len(schemes)), xerr=[np.minimum(half, each["mean"]), np.minimum(half, most - each["mean"])], fmt="k|", capsize=3)
        axis.scatter(part.value, part.scheme.map(schemes.index), c=part.scheme.map(lambda scheme: f"C{schemes.index(scheme)}"), s=20, alpha=0.45)
        if "best_guess" in part and part.best_guess.notna().any():
            axis.axvline(part.best_guess.iloc[0], color="grey", linestyle=":", linewidth=1)
        axis.set(title=label(where, sets), xlabel=COMPARED[part.measure.iloc[0]], ylim=(len(schemes) - 0.4, -0.6))
        axis.grid(axis="x")
        axis.set_yticks(range(len(schemes)), [textwrap.shorten(scheme, 30, placeholder="...") for scheme in schemes])
    return figure


def lines(found: pd.DataFrame, x: str, y: str, title: str, width: float = 7) -> Figure:
    """A curve of means over seeds for each scheme and other difference, with a band of a standard deviation; the legend has the last values."""
    same = (x, "test_length", "test_set") if x == "test_length" else (x, "test_length")
    names = [name for name in place(found) if name == "scheme" or (name not in same and found[name].nunique() > 1)]
    plot = Figure(figsize=(width, max(3.2, 0.8 + 0.17 * found.groupby(names, dropna=False).ngroups))).subplots()
    for where, part in parts_by(found, names):
        curve = part.groupby(x)[y].agg(["mean", "std"])
        line, = plot.plot(curve["mean"], marker="o" if len(curve) < 12 else None, markersize=3,
                          label=f"{textwrap.fill(label(where, names), 40)} {curve['mean'].iloc[-1]:.3g}")
        plot.fill_between(curve.index, curve["mean"] - curve["std"], curve["mean"] + curve["std"], color=line.get_color(), alpha=0.13, linewidth=0)
    if 0 < 8 * found[x].min() <= found[x].max() and x not in ("step", "sequences"):
        plot.set_xscale("log", base=2)
    plot.set(xlabel=x.replace("_", " "), ylabel=title, yscale="log" if 0 < 4 * found[y].min() < found[y].max() else "linear")
    plot.grid(axis="y")
    plot.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return plot.figure


def over(scores: pd.DataFrame, axis: str) -> Figure:
    """The measure over an axis of numbers, of the grid or "test_length"."""
    found = shown(scores, math.inf if axis == "test_length" else READABLE).dropna(subset=[axis, "value"])
    return lines(found.assign(**{axis: pd.to_numeric(found[axis])}), axis, "value", COMPARED[found.measure.iloc[0]])


def learning(curves: pd.DataFrame, curve: str = "training") -> Figure:
    """Learning curves over steps, or over sequences if runs differ in sequences per step."""
    found = curves[curves.curve == curve]
    return lines(found, "step" if (found.sequences / found.step).nunique() == 1 else "sequences", "loss", f"{curve} loss, nats")


def write(runs: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """Writes tidy tables as CSV, pictures as SVG and PDF, and report.html into the grid's folder, and returns their names."""
    out, points = pathlib.Path(runs.attrs["out"]), curves(runs)
    whole = found[found.test_length.isna()] if "token_error_percent" not in found else found  # lengths of a text are in a curve
    pictures = {"result": ("a dot is a run, a bar the 95 % interval of the mean over seeds; dotted: the best guess without a model", dots(whole))}
    for (task,), part in parts_by(found, ["task"]):
        end, its = f"_{re.sub(r'[^A-Za-z0-9_.-]', '-', task)}" if found.task.nunique() > 1 else "", points[points.task == task]
        pictures |= {f"over_{axis}{end}": (f"{task} over {axis.replace('_', ' ')}; a band is a standard deviation", over(part, axis))
                     for axis in ["test_length", *place(runs)[2:]] if pd.to_numeric(part[axis], errors="coerce").nunique() > 1}
        pictures |= {f"curves_{curve}{end}": (f"{task}: {curve} loss", learning(its, curve)) for curve in its.curve.unique()}
    tables = {"scores": found.drop(columns=["same_for_seeds", "data"]), "summary": summary(found), "differences": differences(found),
              "curves": points, "runs": runs[[*place(runs), "seed", "folder", "state"]]}
    for name, frame in tables.items():
        frame.applymap(outside.cell).to_csv(out / f"{name}.csv", index=False)
    for name, form in itertools.product(pictures, ("svg", "pdf")):
        pictures[name][1].savefig(out / f"{name}.{form}", metadata={"Date": None} if form == "svg" else None)
    (out / "report.html").write_text(page(runs, found, tables, {name: what for name, (what, _) in pictures.items()}), encoding="utf-8")
    return [*(f"{name}.csv" for name in tables), *(f"{name}.{form}" for name in pictures for form in ("svg", "pdf")), "report.html"]


def page(runs: pd.DataFrame, found: pd.DataFrame, tables: dict[str, pd.DataFrame], pictures: dict[str, str]) -> str:
    """The result first, then pictures; numbers, tests and commands are folded."""
    table, means = crossed(found).fillna("-"), crossed(found, "mean")
    best = means.eq(means.min(axis=1), axis=0) if "scheme" in means.columns.names else means.eq(means.min())
    result = table.where(~best, "[b]" + table + "[/b]").to_html(border=0).replace("[b]", "<b>").replace("[/b]", "</b>")
    commands = pd.DataFrame([{"state": run.state, "train": shlex.join(["whence", "train", run.task, *run.words]),
                              "look": shlex.join(["whence", "look", run.folder])} for run in runs.itertuples()])
    folded = {"Numbers": tables["summary"], "Runs": commands,
              "Differences: p_seeds is Welch's test, p_questions one on the same questions": tables["differences"]}
    body = "".join(f"<figure><figcaption>{html.escape(what)}</figcaption><img src='{name}.svg'></figure>" for name, what in pictures.items())
    body += "".join(f"<details><summary>{title}</summary>{frame.to_html(index=False, na_rep='', border=0, float_format='{:.4g}'.format)}</details>"
                    for title, frame in folded.items())
    title, measures = html.escape(", ".join(runs.task.unique())), measures_of(found)
    return f"""<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{title}</title>
<style>body {{ font: 15px system-ui; margin: 2em auto; max-width: 70em }} td, th {{ text-align: right; padding: 2px 9px }}
img {{ max-width: 100% }}</style>
<h1>{title}</h1><p>{measures}, lower is better: mean (standard deviation over seeds), the best in bold. {len(runs)} runs,
{(runs.state == "done").sum()} done; files: {", ".join(f"<a href='{name}.csv'>{name}.csv</a>" for name in tables)}.</p>{result}{body}</html>"""


parts = lambda text: [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]  # at commas outside parentheses
settings_of = lambda text: {name: value or True for name, _, value in (word.partition("=") for word in shlex.split(text))}  # "steps=3 check-finite"


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("tasks", nargs="+", metavar="TASK", help="whence tasks lists them; chomsky: all fifteen of the hierarchy; lm: text")
    add("--schemes", default="absolute,rope,cope", help="schemes, separated by commas (absolute,rope,cope)")
    add("--seeds", type=int, default=3, help="number of seeds of each scheme: 0, 1, ... (3)")
    add("--vary", action="append", default=[], metavar="NAME=V,V", help="an axis: an option of train; may be repeated")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help='options of train: "steps=300 dim=32"; a value with blanks in quotes; may be repeated')
    add("--preset", default="mini", choices=["mini", "paper"], help="mini: minutes on a laptop (mini)")
    add("--same-tokens", action="store_true", help="the batch follows the length: steps x batch x length stays as in --preset and --set")
    add("--jobs", type=int, default=0, help="runs at the same time (the number of processors)")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", help="folder; the same command continues in it (runs/lab_TASK)")
    add("--quiet", action="store_true", help="no progress")
    add("--plan", action="store_true", help="print a line of `whence train` for each unfinished run: for GNU parallel, a shell, any scheduler")
    options, others = parser.parse_known_args(words)
    if others:
        raise Refused(f"{others[0]}: given, which is no option; {GONE.get(others[0].partition('=')[0], '--help lists them')}")
    if options.seeds < 1 or options.jobs < 0 or not parts(options.schemes):
        raise Refused(f"--seeds {options.seeds}, --jobs {options.jobs}, --schemes {options.schemes} given; 1, 0 or more, and schemes separated by "
                      "commas required")
    vary = {name: parts(values) for name, _, values in (axis.partition("=") for axis in options.vary)}
    if bad := [name for name, values in vary.items() if not values or len(set(values)) < len(values)]:
        raise Refused(f"--vary: {bad[0]}={','.join(vary[bad[0]])} given; NAME=VALUE,VALUE,... required, each value once")
    runs = grid(options.tasks, parts(options.schemes), seeds=options.seeds, vary=vary, settings=settings_of(" ".join(options.set)),
                preset=options.preset, equal_tokens=options.same_tokens, out=options.out)
    if options.plan:
        print(*(f"{line}\n" for line in plan(runs, options.device, max(1, os.cpu_count() // options.jobs) if options.jobs else 0)), sep="", end="")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs = train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet)
    print(*(f"{run.folder}: {run.state}\n" for run in runs[runs.state != "done"].itertuples()), sep="", end="", file=sys.stderr)
    found, failed = scores(runs), runs.state.str.extract(r"^failed with exit code (\d+)")[0].dropna()
    if found.empty:
        return int(failed.iloc[0]) if len(failed) else 1
    files = write(runs, found)
    print(f"{measures_of(found)}, mean{' (standard deviation) over seeds' * (options.seeds > 1)}:", crossed(found).fillna("-").to_string(), sep="\n")
    print(f"written: {runs.attrs['out']}/{{{', '.join(files)}}}", file=sys.stderr)
    return int(runs.state.str.startswith(("failed", "damaged")).any())


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(main())
