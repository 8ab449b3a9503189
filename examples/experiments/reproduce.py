#!/usr/bin/env python3
"""The papers' tables and figures by name: our numbers next to theirs, and which of the papers' comparisons hold.

    examples/experiments/reproduce.py --list                                each table's question, how it is made here, its cost
    examples/experiments/reproduce.py cope/table3                           trains it, and tests each comparison of the paper
    examples/experiments/reproduce.py cope/table3 --recorded                the same for the recorded numbers, without training
    examples/experiments/reproduce.py dape-v2/table1 --data austen.txt      a table of language models, on your text
    examples/experiments/reproduce.py all --data TEXT --code FOLDER --record MINE     every table, its numbers kept in MINE
    examples/experiments/reproduce.py --stale                               would this program give the recorded numbers?
    examples/experiments/reproduce.py cope/table3 --check                   the numbers must be those recorded

examples/whence/papers has the tables as TOML, and in recorded.jsonl the number of every seed. In a notebook,
judged(read_papers().tables["cope/table3"], read_records(RECORDED)["cope/table3", "mini"]) has a row for each comparison.
"""
from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import string
import subprocess
import sys
import tempfile
import textwrap
import time
from types import SimpleNamespace
from typing import Any, Iterable

import packages

packages.require("tomllib", "pandas", "scipy", "matplotlib")  # tomllib is of Python 3.11
import lab
import numpy as np
import outside
import pandas as pd
import scipy.stats
import tomllib
from lab import Refused

PAPERS = lab.ROOT / "examples/whence/papers"
RECORDED, FILES = PAPERS / "recorded.jsonl", ("cope.toml", "dape.toml", "dape_v2.toml")  # a file may refer to those before it
HOLDS, DOES_NOT, OPEN = VERDICTS = ("holds", "does not", "not decided at this size")
MEASURES = {**{name: column for column, name in lab.COMPARED.items()}, "Delta-P": "delta_p"}
GUESS = "best guess"  # the last method, which needs no model

# ---- The papers' tables

# Fields beside what and place. The presets mini, small and paper begin with those of `sizes`. A table that `reads` text or code of the user is of lm.
BLANK = dict(note="", measure="", reads="", task="", vary=[], schemes=[], same_tokens=False, higher_is_better=False, accuracy=False, sizes="",
             presets=("mini", "small", "paper"), mini={}, small={}, paper={}, columns={}, rows=[], better=[], run=[])
PRESET = {"set": "", "also": "", "why": "", "because": "", "schemes": [], "tasks": [], "seeds": 3}
COLUMN = {"task": "", "set": "", "times": 0, "step": 0}  # the source of its numbers: test set, times the training length, validation; or axes


def read_papers(folder: pathlib.Path = PAPERS, files: Iterable[str] = FILES) -> SimpleNamespace:
    """Returns the papers' titles, and their tables by name ("cope/table3")."""
    papers, texts, sizes = SimpleNamespace(titles={}, tables={}), {}, {}
    for file in files:
        place, paper = file, file.removesuffix(".toml").replace("_", "-")
        try:
            found = tomllib.loads(outside.read_text(folder / file))
            papers.titles[paper], texts, sizes = found["title"], texts | found.get("texts", {}), sizes | found.get("sizes", {})
            for name, given in found["table"].items():
                place = f"{file}: {name}"
                papers.tables[f"{paper}/{name}"] = read_table(f"{paper}/{name}", given, papers.tables, texts, sizes)
        except (KeyError, ValueError, TypeError, AttributeError) as problem:
            raise Refused(f"{place}: {problem} given; fields as in cope.toml required") from None
    return papers


def read_table(name: str, given: dict, tables: dict, texts: dict[str, str], sizes: dict[str, dict]) -> SimpleNamespace:
    """Returns the table's fields, and methods by name: scheme and values of axes; columns by name; printed by method and column: mean, deviation or
    NaN; claims: better, worse, column."""
    given = {key.replace("-", "_"): value for key, value in given.items()}
    if bad := given.keys() - {"what", "place", *BLANK}:
        raise ValueError(bad.pop())
    table = SimpleNamespace(**{**BLANK, **given, "name": name, "presets": {}}, methods={}, printed={}, claims=[])
    filled = lambda *words: " ".join(string.Template(" ".join(words)).substitute(texts).split())
    table.note, of_sizes = filled(table.note), sizes[table.sizes] if table.sizes else {}
    for each in given.get("presets", BLANK["presets"]):
        if each in of_sizes or each in given:
            own = {**PRESET, "lab": "mini" if each == "mini" else "paper", **of_sizes.get(each, {}), **getattr(table, each)}
            table.presets[each] = {**own, "set": filled(own["set"], own["also"]), "why": filled(own["why"], own["because"])}
    columns = tables[table.columns].columns if isinstance(table.columns, str) else {}
    for k, column in enumerate([] if columns else table.columns.get("name", [])):
        at = {key: each[k] if isinstance(each, list) else each for key, each in table.columns.items()}
        columns[column] = {key: at.get(key, blank) for key, blank in COLUMN.items()} | {
            "at": {key: str(value) for key, value in at.items() if key not in ("name", *COLUMN)}}
    table.columns = columns
    for method, scheme, *cells in table.rows:
        scheme, *axes = scheme.split("; ")
        table.methods[method] = scheme, dict(axis.split("=") for axis in axes)
        for column, cell in zip(columns, cells, strict=bool(cells)):
            if cell != "-":
                mean, deviation = cell if isinstance(cell, list) else (cell, math.nan)  # whence measures errors
                table.printed[method, column] = math.floor((100 - mean) * 100 + 0.5) / 100 if table.accuracy else float(mean), float(deviation)
    for claim in table.better:
        sides, *where = claim.split(" | ")
        better, worse = sides.split(" > ")
        table.claims += [(better, each, column) for column in (columns if where == ["*"] else where) for each in worse.split(" & ")]
    if bad := [claim for claim in table.claims if not {*claim} <= {*table.methods, *columns}]:
        raise ValueError(bad[0])
    table.task = list(dict.fromkeys(task for task in (table.task or "lm" * bool(table.reads), *(each["task"] for each in columns.values())) if task))
    table.schemes = list(dict.fromkeys([*table.schemes, *(scheme for scheme, _ in table.methods.values())]))
    table.kind = "compared" if table.presets and table.methods else "commanded" if table.run else "not ours"
    return table


# ---- Records: facts of a table's runs (date, vectors, lab, "bits TASK SCHEME", ...), and numbers by method and column, then by seed

Records = dict[tuple[str, str], SimpleNamespace]  # by table and preset
KINDS = {"seeds": int, "digits": "234".index, "core-seconds": float, "operations": float}  # facts that are numbers


exact = lambda number: repr(float(number)).removesuffix(".0")
blank_record = lambda table, preset: SimpleNamespace(table=table, preset=preset, facts={}, numbers={})
seconds_of = lambda *records: sum(float(record.facts.get("core-seconds", 0)) / 2 for record in records if record)  # on two cores


def read_records(path: str | os.PathLike) -> Records:
    """A line has a table's facts, or the numbers of one of its methods: by column a list with a number of each seed, or null."""
    records: Records = {}
    for number, fields in enumerate(lab.lines_of(pathlib.Path(path)), 1):
        try:
            table, preset, method = map(outside.shown, (fields.pop("table"), fields.pop("preset"), fields.pop("method", "")))
            record = records.setdefault((table, preset), blank_record(table, preset))
            if method:
                record.numbers |= {(method, column): {seed: float(value) for seed, value in enumerate(values) if value is not None}
                                   for column, values in fields.items()}
            else:
                record.facts |= fields
                [KINDS.get(name.split()[0], str.strip)(value) for name, value in fields.items()]
        except (KeyError, ValueError, TypeError, AttributeError) as problem:
            raise Refused(f"{path}: line {number}: {problem}; table and preset with facts, or with a method and lists of numbers, required") from None
    return records


def write_records(folder: pathlib.Path, papers: SimpleNamespace, records: Records) -> None:
    """Writes recorded.jsonl in the papers' order, and README.md from it."""
    order = [(table.name, preset) for table in papers.tables.values() for preset in table.presets or ["mini"]]
    records, lines = {place: records[place] for place in [*order, *records] if place in records}, []
    for (table, preset), record in records.items():
        rows: dict[str, dict] = {}
        for (method, column), values in record.numbers.items():
            rows.setdefault(method, {"method": method})[column] = [values.get(seed) for seed in range(max(values) + 1)]
        lines += [{"table": table, "preset": preset, **fields} for fields in [record.facts, *rows.values()]]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recorded.tmp").write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
    (folder / "recorded.tmp").replace(folder / "recorded.jsonl")
    (folder / "README.md").write_text(summary_page(papers, records), encoding="utf-8")


probability = lambda p: "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"
welch = lambda a, b: float(scipy.stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue)  # of mean, deviation and count of both sides


def decide(lower: list[float], higher: list[float]) -> tuple[str, str, float]:
    """Are the first values lower than the second? Returns the verdict, its test, and p, which is NaN if nothing was tested."""
    fewest, seeds = min(len(lower), len(higher)), f"{len(lower)} and {len(higher)} seeds"
    if fewest < 3:
        return OPEN, f"{fewest} seeds; 3 required", math.nan
    if not np.isfinite([*lower, *higher]).all():
        return OPEN, "a run ended without a finite number", math.nan
    as_seen = HOLDS if np.mean(lower) < np.mean(higher) else DOES_NOT
    if len(set(lower)) == len(set(higher)) == 1:
        same = lower[0] == higher[0]
        return OPEN if same else as_seen, "all seeds of both are equal" if same else f"no test: each of {seeds} gave the same, which differ", math.nan
    p = welch(*((np.mean(each), np.std(each, ddof=1), len(each)) for each in (lower, higher)))
    return as_seen if p < 0.05 else OPEN, f"Welch's test, {seeds}: {probability(p)}", p


def judged(table: SimpleNamespace, record: SimpleNamespace) -> pd.DataFrame:
    """A row for each comparison with numbers of both: better, worse, column, verdict, test, p, and paper, the p of the paper's own figures at three
    seeds each."""
    rows = []
    for better, worse, column in table.claims:
        ours = [list(record.numbers.get((method, column), {}).values()) for method in (better, worse)]
        if all(ours):
            a, b = [(*table.printed.get((method, column), (math.nan, math.nan)), 3) for method in (better, worse)]
            paper = "-" if math.isnan(a[1] + b[1]) else probability(welch(a, b)) if a[1] or b[1] else "no spread"
            rows.append((better, worse, column, *decide(*(ours[::-1] if table.higher_is_better else ours)), paper))
    return pd.DataFrame(rows, columns=["better", "worse", "column", "verdict", "test", "p", "paper"]).astype({"p": float})


def corrected(p: pd.Series) -> pd.Series:
    """Benjamini and Hochberg 1995: the k-th smallest of n p values times n / k, made monotone. Of those below 0.05, one in twenty is expected to be
    there by chance."""
    known = p.dropna().sort_values(ascending=False)
    return (known * len(known) / np.arange(len(known), 0, -1)).cummin().reindex(p.index)


def by_chance(found: pd.DataFrame) -> str:
    """Says how many verdicts chance alone would give, and how many are left after a correction for their number."""
    tests, left = int(found.p.notna().sum()), found.verdict[(corrected(found.p) < 0.05) | found.p.isna()]
    holds, does_not, still, still_not = [int((verdicts == verdict).sum()) for verdicts in (found.verdict, left) for verdict in (HOLDS, DOES_NOT)]
    return (f"{tests} tests were made. If all methods were alike, {0.05 * tests:.1f} of them would have p < 0.05 by chance, and {0.025 * tests:.1f} "
            f"would hold; {holds} hold here and {does_not} do not. Corrected for the number of tests (Benjamini-Hochberg), {still} hold and "
            f"{still_not} do not.")


def shown(table: SimpleNamespace, record: SimpleNamespace, only: list[str]) -> str:
    """Our numbers next to the paper's, and the verdicts; of the methods `only`, if there are any."""
    rows, digits = [], int(record.facts.get("digits", 2))
    record = SimpleNamespace(numbers={cell: each for cell, each in record.numbers.items() if not only or cell[0] in (*only, GUESS)})
    for method, column in ((method, column) for method in [*(only or table.methods), GUESS] for column in table.columns):
        ours, printed = list(record.numbers.get((method, column), {}).values()), table.printed.get((method, column))
        if ours or printed:
            mean = f"{np.mean(ours):.{digits}f}" + (f" ({np.std(ours, ddof=1):.{digits}f})" if len(ours) > 1 else "") if ours else "-"
            paper = exact(printed[0]) + ("" if math.isnan(printed[1]) else f" ({exact(printed[1])})") if printed else "-"
            rows.append((method, column, mean, "-" if method == GUESS else len(ours), paper))
    text, found = f'{pd.DataFrame(rows, columns=["method", "column", "ours, mean (s.d.)", "seeds", "paper"]).to_string(index=False)}\n', judged(table, record)
    if len(found):
        more = {"the paper's comparison": found.better + " better than " + found.worse, "column": found.column, "here": found.verdict,
                "test": found.test, "corrected": [probability(p) if p == p else "-" for p in corrected(found.p)],
                "the paper's own figures": found.paper}
        text += f"\n{pd.DataFrame(more).to_string(index=False)}\n\n{by_chance(found)}\n"
    return text


def markdown(head: str, rows: Iterable[Iterable]) -> str:
    return f"| {head} |\n|" + "---|" * (head.count("|") + 1) + "\n" + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def time_text(seconds: float) -> str:
    for unit, name in ((365 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.{int(seconds < 10 * unit)}f} {name}"
    return f"{seconds:.0f} s"


def cost_of(records: list[SimpleNamespace], preset: str) -> str:
    """The cost of a preset. One that is not recorded is estimated from a recorded one, in proportion to its operations."""
    own = next((each for each in records if each.preset == preset), records[0] if records else blank_record("", ""))
    here, there = [float(own.facts.get(f"operations {each}", "nan")) for each in (own.preset, preset)]
    return (time_text(seconds_of(own)) if own.preset == preset else "of unknown cost" if math.isnan(here + there)
            else f"about {time_text(seconds_of(own) * there / here)}")


def listing(papers: SimpleNamespace, records: Records) -> str:
    text = "Costs are on two cores."
    for table in papers.tables.values():
        own = [record for (name, _), record in records.items() if name == table.name]
        how = {"not ours": f"lacks: {table.note}", "compared": "trained, compared: ", "commanded": "trained, then commands: " if table.presets
               else "commands"}[table.kind] + ", ".join(f"{each} {cost_of(own, each)}" for each in table.presets)
        for record in own:
            found = judged(table, record)
            how += f"; recorded {record.preset} {record.facts.get('date', '')[:10]}"
            how += f": {(found.verdict == HOLDS).sum()} of {len(found)} hold" if len(found) else ""
        lines = [line for part in (f"{table.what} ({table.place})", how) for line in textwrap.wrap(part, 91, break_on_hyphens=False)]
        text += f"\n{table.name:<28}" + f"\n{'':28}".join(lines)
    return text


page_head = lambda: (PAPERS / "README.md").read_text(encoding="utf-8").partition("Machine: ")[0]


def summary_page(papers: SimpleNamespace, records: Records) -> str:
    """The page of the papers' claims and verdicts. The text above the facts is kept from the page."""
    kept = {name: next((records[name, preset] for preset in table.presets or ["mini"] if (name, preset) in records), None)
            for name, table in papers.tables.items()}
    found = pd.concat([judged(papers.tables[name], record).assign(table=name) for name, record in kept.items() if record], ignore_index=True)
    found["mark"] = ["†" if p >= 0.05 and verdict != OPEN else "" for p, verdict in zip(corrected(found.p), found.verdict)]
    counts = pd.crosstab(found.table, found.verdict).reindex(index=papers.tables, columns=VERDICTS, fill_value=0)
    counts.insert(0, "comparisons", counts.sum(axis=1))
    own = {paper: [name for name in papers.tables if name.startswith(f"{paper}/")] for paper in papers.titles}
    facts = pd.DataFrame([record.facts for record in records.values()], columns=["machine", "vectors", "date", "program", "text"]).fillna("")
    machines, dates, programs, texts = ("; ".join(sorted({*each} - {""})) for each in (
        facts.machine + ", " + facts.vectors, facts.date.str[:10], facts.program, facts.text))
    page = (f"{page_head()}Machine: {machines}.\nDate: {dates}.\nProgram: {programs}.\nTexts: {texts}.\nTimes are for all runs of a table on two "
            "idle cores. Runs that two tables share count in both, but were trained once.\n\n")
    page += markdown("paper | tables and figures | recorded | comparisons | hold | do not | not decided at this size | two cores", [
        [papers.titles[paper], len(names), sum(kept[name] is not None for name in names), *counts.loc[names].sum(),
         time_text(seconds_of(*map(kept.get, names)))] for paper, names in own.items()])
    page += f"\n{by_chance(found)}\n"
    for paper, names in own.items():
        page += f"\n## {papers.titles[paper]}\n\n"
        page += markdown("table or figure | question | comparisons | hold | do not | not decided | two cores", [
            [name, papers.tables[name].what, *(counts.loc[name] if counts.comparisons[name] else "----"),
             time_text(seconds_of(kept[name])) if kept[name] else "-"] for name in names])
        page += "".join(f"\n{name} lacks {papers.tables[name].note.rstrip('.')}.\n" for name in names
                        if papers.tables[name].kind == "not ours" and not kept[name])
        rows: dict[tuple, list[str]] = {}  # comparisons of one method with equal outcomes share a row
        for (name, better, worse), each in found[found.table.isin(names)].groupby(["table", "better", "worse"], sort=False):
            at = ["; ".join((each["column"] + each.mark)[each.verdict == verdict]) for verdict in VERDICTS]
            rows.setdefault((name, better, *at), []).append(worse)
        page += "\n" + markdown("table or figure | comparison | holds for | does not hold for | not decided for", [
            [name, f"{better} over {'; '.join(others)}", *at] for (name, better, *at), others in rows.items()])
    return page


# ---- Training

SHORT = {"steps": 2, "batch": 2, "dim": 32, "layers": 2, "heads": 4}
SHORT_TEXT = {"length": 32, "last": 16, "evaluate-to": 2, "evaluation-windows": 1, "validation-windows": 1}
LONG = ("model", "accumulate", "validate-every", "save-every")


def lab_words(table: SimpleNamespace, preset: str, more: dict[str, Any], seeds: int) -> str:
    """The command of lab.py for the runs of a table. The user's file is named without its folder."""
    at = table.presets[preset]
    settings = {**lab.settings_of(at["set"]), **more, **({"data": pathlib.Path(more["data"]).name} if table.reads and "data" in more else {})}
    words = [name if value is True else f'{name}="{value}"' if " " in str(value) else f"{name}={value}" for name, value in settings.items()]
    return shlex.join(["lab.py", *(at["tasks"] or table.task), "--schemes", ",".join(at["schemes"] or table.schemes), "--preset", at["lab"],
                       *(word for axis in table.vary for word in ("--vary", axis)), *["--same-tokens"] * table.same_tokens,
                       *(["--set", " ".join(words)] if words else []), "--seeds", str(seeds or at["seeds"])])


def runs_of(table: SimpleNamespace, preset: str, more: dict[str, Any], seeds: int = 0, out: str = "runs/reproduce", device: str = "auto",
            short: bool = False) -> pd.DataFrame:
    """The grid of a table, where `more` replaces options of the preset; short: two steps of a small model for each task and scheme. Folders are
    named by all options, so that two tables with the same run train it once."""
    if preset not in table.presets:
        raise Refused(f"--preset: {preset} given; one of those of {table.name} required: {', '.join(table.presets)}")
    at, vary = table.presets[preset], {name: lab.parts(values) for name, values in (axis.split("=") for axis in table.vary)}
    settings = {**lab.settings_of(at["set"]), **more}
    if short:
        settings |= {**{name: values[0] for name, values in vary.items()}, **SHORT, **(SHORT_TEXT if table.reads else {"test-sequences": 2})}
        settings, vary = {name: value for name, value in settings.items() if name not in LONG}, {}
    runs = lab.grid(at["tasks"] or table.task, at["schemes"] or table.schemes, seeds=1 if short else seeds or at["seeds"], vary=vary,
                    settings=settings, preset=at["lab"], out=f"{out}/runs", equal_tokens=table.same_tokens and not short)
    facts = [json.dumps([run.wanted["subject"], run.wanted["options"], run.wanted["data"], device]).encode() for run in runs.itertuples()]
    runs["folder"] = [f"{out}/runs/{run.task}/{pathlib.Path(run.folder).name}-{hashlib.sha256(fact).hexdigest()[:12]}"
                      for run, fact in zip(runs.itertuples(), facts)]
    return runs


def stands_at(run: dict, table: SimpleNamespace, method: str, column: str | None = None) -> bool:
    """True if the run belongs to this method and this column. All runs belong to the guess."""
    (scheme, at), where = table.methods.get(method, (run["scheme"], {})), table.columns.get(column, {"task": "", "at": {}})
    return (run["scheme"] == scheme and where["task"] in ("", run["task"])
            and all(str(run[axis]) == value for axis, value in {**at, **where["at"]}.items()))


def value_at(run: dict, column: dict, scores: pd.DataFrame, measure: str) -> float | None:
    """The run's number in a column; None if the run has no such test."""
    if column["step"]:
        there = {line["step"]: line.get("validation_token_error_percent") for line in lab.lines_of(pathlib.Path(run["folder"]) / "metrics.jsonl")}
        return there.get(column["step"])
    test_set = f"length {column['times'] * run['wanted']['options']['length']}" if column["times"] else column["set"]
    found = scores if test_set == "average" else scores[scores.test_set == test_set]
    if found.empty or measure not in found or (run["task"] == "lm" and found[measure].isna().any()):
        return None
    return float(np.cumsum(found[measure].to_numpy(float))[-1] / len(found))  # added one by one, unlike in pandas, because bits are compared


def measured(table: SimpleNamespace, runs: pd.DataFrame) -> tuple[str, dict]:
    """The measure's name, and the numbers of the finished runs."""
    scores, numbers = lab.scores(runs), {}
    measure = MEASURES[table.measure] if table.measure else scores.measure.iloc[0] if len(scores) else runs.about.iloc[0]["measure"]
    of_run = dict(iter(scores.groupby("folder")))
    for method in [*table.methods, GUESS]:
        for name, column in table.columns.items():
            for run in runs[runs.folder.isin(of_run)].to_dict("records"):
                if stands_at(run, table, method, name) and (method != GUESS or column["set"] and (GUESS, name) not in numbers):
                    value = value_at(run, column, of_run[run["folder"]], "best_guess" if method == GUESS else measure)
                    if value is not None and not (method == GUESS and math.isnan(value)):
                        numbers.setdefault((method, name), {})[0 if method == GUESS else run["seed"]] = value
    return {field: text for text, field in MEASURES.items()}[measure], numbers


def machine_of(device: str) -> tuple[str, str]:
    """The machine in words, and the part on which the bits depend: the processor's vectors, or the GPU."""
    facts = dict(line.split(maxsplit=1) for line in lab.printed("doctor") if " " in line.strip())
    machine = f"{facts['processor'].partition(',')[0]}, {facts['threads'].split()[0]} threads"
    if device != "cpu" and not facts["gpu"].startswith("none"):
        gpu = facts["gpu"].partition(" (")[0]
        return f"{machine}; {gpu}", gpu
    return machine, next((name for name in ("avx512", "avx2") if name in facts["build"].lower().replace("-", "")), "plain")


def trained(table: SimpleNamespace, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any]) -> SimpleNamespace:
    """Trains unfinished runs, and returns the record."""
    record, (machine, vectors) = blank_record(table.name, options.preset), machine_of(options.device)
    record.facts = {"date": time.strftime("%F %R", time.gmtime()), "program": lab.printed("--version")[0], "machine": machine, "vectors": vectors,
                    "set": options.set}
    if len(runs):
        runs = lab.train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet)
        measure, record.numbers = measured(table, runs)
        done, failed = [pathlib.Path(folder) for folder in runs.folder[runs.state == "done"]], runs[runs.state != "done"]
        seconds = sum((folder / "results.jsonl").stat().st_mtime - (folder / "run.json").stat().st_mtime for folder in done)
        threads = max(1, os.cpu_count() // min(options.jobs or os.cpu_count(), len(runs)))
        print("".join(f"{run.folder}: {run.state}\n" for run in failed.itertuples()), end="", file=sys.stderr)
        record.facts |= {"text": f"{pathlib.Path(more['data']).name}, SHA-256 {runs.wanted.iloc[0]['data']}" if table.reads else "",
                         "lab": lab_words(table, options.preset, more, options.seeds), "seeds": str(runs.seed.nunique()), "runs": str(len(runs)),
                         "failed": str(len(failed) or ""), "core-seconds": f"{seconds * threads:.1f}",
                         "digits": {"perplexity": "3", "bits per byte": "4"}.get(measure, "2"), "measure": measure}
    record.facts = {name: value for name, value in record.facts.items() if value}
    return record


def short_trainings(wanted: list[tuple[SimpleNamespace, SimpleNamespace]], jobs: int) -> list[dict[str, str]]:
    """For each table, by "TASK SCHEME", 16 digits of the SHA-256 of weights and results after two steps of a small model. They change with everything
    that changes the numbers, and not with a comment."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"  # replaces the user's; long enough for the longest windows
        text.write_text("".join(f"line {k * k % 9973} of a text\n" for k in range(20000)), encoding="utf-8")
        frames = [runs_of(table, record.preset, {**lab.settings_of(record.facts.get("set", "")), **({"data": str(text)} if table.reads else {})},
                          out=folder, short=True) if table.presets else pd.DataFrame() for table, record in wanted]
        if any(map(len, frames)):
            runs = pd.concat(frames).drop_duplicates("folder").reset_index(drop=True)
            runs.attrs = {"out": folder}
            for run in lab.train(runs, jobs=jobs, device="cpu", quiet=True).itertuples():
                if run.state != "done":
                    raise Refused(f"a short training of {run.scheme} on {run.task}: {run.state}; one that ends required")

        def bits(run: Any) -> str:
            left = b"".join((pathlib.Path(run.folder) / name).read_bytes() for name in ("weights.safetensors", "results.jsonl"))
            left = re.sub(rb'("windows":\d+),"bits_per_byte":[^,}]+', rb"\1", left)  # follows from the perplexity, and is not in older records
            return hashlib.sha256(left).hexdigest()[:16]
        return [{f"{run.task} {run.wanted['options']['scheme']}": bits(run) for run in frame.itertuples()} for frame in frames]


def staleness(papers: SimpleNamespace, records: Records, jobs: int) -> str:
    """Lists records that this program would not give. Records with other vectors than this processor's are not checked."""
    vectors, stale = machine_of("cpu")[1], []
    known = [(papers.tables[name], record) for (name, preset), record in records.items()
             if name in papers.tables and preset in (papers.tables[name].presets or [preset])]
    told = [(table, record) for table, record in known if table.presets and record.facts.get("vectors") == vectors]
    for (table, record), bits in zip(told, short_trainings(told, jobs)):
        more = {**lab.settings_of(record.facts.get("set", "")), **({"data": record.facts.get("text", "").partition(",")[0]} if table.reads else {})}
        why = [f"\n  bits {now} {name}; recorded {then}" for name, now in sorted(bits.items()) if (then := record.facts.get(f"bits {name}")) != now]
        if why or lab_words(table, record.preset, more, int(record.facts.get("seeds", 0))) != record.facts.get("lab"):
            stale.append(f"STALE: {table.name}, {record.preset}: " + (f"short trainings give other bits:{''.join(why)}" if why else
                                                                     "its preset has other options now"))
    there = {(table.name, record.preset) for table, record in known}
    stale += [f"STALE: {', '.join(place)}: there is no such table or preset now" for place in records if place not in there]
    other = sum(bool(table.presets) for table, _ in known) - len(told)
    return "".join(f"{each}\n" for each in stale) + f"{len(records)} results recorded, {len(stale)} that this program would not give" + (
        f", {other} of which it cannot tell: they are not of {vectors}" if other else "")


def checked(now: SimpleNamespace, then: SimpleNamespace, rows: list[str]) -> int:
    """Prints differences from a record of the same table. Returns 1 if they should be equal."""
    said = lambda record, cell: " ".join(map(exact, record.numbers.get(cell, {}).values())) or "nothing"
    cells = [cell for cell in {**then.numbers, **now.numbers} if cell in now.numbers or not rows or cell[0] in rows]
    differ = [cell for cell in cells if said(now, cell) != said(then, cell)]
    for cell in differ:
        print(f"differs: {', '.join(cell)}: {said(now, cell)}; recorded: {said(then, cell)}")
    comparable = all(now.facts.get(name) == then.facts.get(name) for name in ("vectors", "text"))
    print(f"{now.table}: " + ("other numbers than recorded, of the same vectors" if differ and comparable else
                              "recorded with other vectors or of another text: cannot be compared" if differ else
                              f"{sum(map(len, now.numbers.values()))} numbers are as recorded on {then.facts.get('date')}, bit for bit"))
    return int(bool(differ) and comparable)


def one(papers: SimpleNamespace, table: SimpleNamespace, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any],
        then: SimpleNamespace | None) -> int:
    """Trains one table, prints its results and those of its commands, then checks and keeps it. Returns the exit code."""
    print(f"{table.name}: {table.what} ({table.place})")
    if len(runs):
        print(f"{len(runs)} runs, preset {options.preset}; as\n  {lab_words(table, options.preset, more, options.seeds)}")
    print(f"{table.note} {table.presets.get(options.preset, PRESET)['why']}".strip(), flush=True)
    out = pathlib.Path(options.out) / f"{table.name}-{options.preset}"
    out.mkdir(parents=True, exist_ok=True)
    record, began, codes = trained(table, runs, options, more), time.time(), []
    if table.kind == "compared":
        print(f"\n{shown(table, record, options.row)}", flush=True)
    for command in table.run:  # arguments of `whence`, a script of this folder or an example of the build, with arguments
        files = {"RUN": runs.folder.iloc[0] if len(runs) else "", "TEXT": options.data, "CODE": options.code}
        words = [files.get(word, str(out / word[4:]) if word.startswith("OUT/") else word) for word in shlex.split(command)]
        beside = [sys.executable, str(pathlib.Path(__file__).with_name(words[0]))] if words[0].endswith(".py") else [
            str(pathlib.Path(lab.program()).with_name("examples") / words[0][9:])] if words[0].startswith("examples/") else [lab.program(), words[0]]
        words = [*beside, *words[1:]]
        print(f"\n$ {shlex.join(words)}", flush=True)
        codes.append(subprocess.run(words, env={**os.environ, "WHENCE": lab.program()}).returncode)
    record.facts["core-seconds"] = f"{2 * (seconds_of(record) + (time.time() - began) * bool(table.run)):.1f}"
    if options.record and "failed" in record.facts:
        print("not recorded: runs failed")
    elif options.record:
        for preset in sorted(table.presets):
            with contextlib.suppress(Refused, KeyError):  # the user's text may be too short for it
                count = lambda run: math.prod([run.about["operations"], *(run.wanted["options"][each] for each in ("steps", "batch", "accumulate"))])
                there = runs_of(table, preset, {"data": more["data"]} if table.reads else {})
                record.facts[f"operations {preset}"] = exact(sum(map(count, there.itertuples())))
        bits = short_trainings([(table, record)], options.jobs)[0]
        record.facts |= {f"bits {name}": bits[name] for name in sorted(bits)}
        there = read_records(options.record / "recorded.jsonl") if (options.record / "recorded.jsonl").exists() else {}
        write_records(options.record, papers, {**there, (record.table, record.preset): record})
    return max([checked(record, then, options.row) if then else 0, int("failed" in record.facts or any(codes))])


def reproduce(options: argparse.Namespace) -> int:
    papers, set_by_user, records, planned = read_papers(), lab.settings_of(options.set), read_records(options.records), []
    if options.seeds < 0 or options.jobs < 0:
        raise Refused(f"--seeds, --jobs: {options.seeds}, {options.jobs} given; 0 or more required")
    page = options.record / "README.md" if options.record else None
    if page and page.exists() and not page.read_text(encoding="utf-8", errors="replace").startswith(page_head().split(",")[0]):
        raise Refused(f"--record: {page} is there and is no page of records; another folder required")
    if options.list or options.stale or (page and not options.names):
        print(listing(papers, records) if options.list else staleness(papers, records, options.jobs) if options.stale else
              write_records(options.record, papers, read_records(options.record / "recorded.jsonl")) or page)
        return 0
    every = [name for name, table in papers.tables.items() if options.preset in table.presets or (table.run and not table.presets)]
    for name in dict.fromkeys(each for name in options.names for each in (every if name == "all" else [name])):
        if name not in papers.tables:
            near = ", ".join(each for each in papers.tables if each.startswith(name)) or "--list shows them"
            raise Refused(f'"{name}" given; a table or figure of the papers required; {near}')
        table, more, runs, then = papers.tables[name], set_by_user, pd.DataFrame(), records.get((name, options.preset))
        if table.kind == "not ours":
            raise Refused(f"{name}: {table.what}; it cannot be run here: {table.note}")
        if bad := [row for row in options.row if row not in table.methods]:
            raise Refused(f'--row: "{bad[0]}" given; one of those of {name} required')
        if (options.check or options.recorded) and not then:
            raise Refused(f"{name} at preset {options.preset} is not recorded; another table required")
        for word, given, what in (("TEXT", options.data, "--data"), ("CODE", options.code, "--code")):
            if not options.recorded and not given and (table.reads == word.lower() or any(word in command.split() for command in table.run)):
                raise Refused(f"{what}: nothing given; a file of yours required; {name} reads it, and the papers' texts are not ours to give")
        if table.reads:
            more = {**more, "data": options.data if table.reads == "text" else options.code}
        if table.presets and not options.recorded:
            runs = runs_of(table, options.preset, more, options.seeds, options.out, options.device)
            here = [not options.row or any(stands_at(run, table, row) for row in options.row) for run in runs.to_dict("records")]
            if not any(here):
                raise Refused(f'--row: "{options.row[0]}" given; a row of preset {options.preset} required')
            runs.drop(runs.index[np.invert(here)], inplace=True)
            now = lab_words(table, options.preset, more, options.seeds)
            if options.check and now != then.facts.get("lab"):
                raise Refused(f"--check: the runs would be those of '{now}', recorded are those of '{then.facts.get('lab')}'; the recorded options, "
                              "seeds and file's name required")
        planned.append((table, runs, more, then))
    if not planned or (options.row and options.record):
        raise Refused("no name given; a table or figure of the papers required; --list shows them" if not planned else
                      "--row: given; a table that is printed required; --record keeps whole ones")
    if options.recorded:
        for table, _, _, then in planned:
            print(f"{table.name}: {table.what} ({table.place})\n{shown(table, then, options.row)}")
        return 0
    return max(one(papers, table, runs, options, more, then if options.check else None) for table, runs, more, then in planned)


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="tables or figures of the papers; all: every table with the preset")
    add("--list", action="store_true", help="every table and figure: its question, how it is made here, its cost")
    add("--recorded", action="store_true", help="the recorded numbers and verdicts, without training")
    add("--preset", default="mini", choices=["mini", "small", "paper"], help="mini for a laptop, small for a night, or the paper's sizes (mini)")
    add("--seeds", type=int, default=0, help="seeds of each method; verdicts need three (the preset's)")
    add("--row", action="append", default=[], help="this row of the table alone, by the paper's name; may be repeated")
    add("--data", default="", help="the text on which language models are trained")
    add("--code", default="", help="a folder or a file on which language models of code are trained")
    add("--set", default="", help='options of train in place of the preset\'s: "steps=300 dim=32"')
    add("--jobs", type=int, default=0, help="runs at the same time (the number of processors)")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", default="runs/reproduce", help="folder of all runs and results; the same command continues (runs/reproduce)")
    add("--record", type=pathlib.Path, help="folder: keep recorded.jsonl and README.md there; without a NAME: rewrite README.md")
    add("--records", default=RECORDED, metavar="FILE", help="another recorded.jsonl for --list, --recorded, --stale and --check")
    add("--stale", action="store_true", help="list recorded results that this program would not give, by short trainings of a minute or two")
    add("--check", action="store_true", help="fail if the numbers differ from the recorded ones; needs the same vectors of the processor")
    add("--quiet", action="store_true", help="no progress")
    return reproduce(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
