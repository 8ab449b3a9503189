#!/usr/bin/env python3
"""The papers' tables and figures by name: our numbers next to theirs, and which of the papers' comparisons hold.

    examples/experiments/reproduce.py cope/table3                           trains it, and tests each comparison of the paper
    examples/experiments/reproduce.py cope/table3 --recorded                the same for the recorded numbers, without training
    examples/experiments/reproduce.py dape-v2/table1 --data austen.txt      a table of language models, on your text

examples/whence/papers has the tables as TOML, and in recorded.jsonl the number of every seed.
"""
from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import string
import subprocess
import sys
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
HOLDS, DOES_NOT, OPEN, UNTRAINED = VERDICTS = ("holds", "does not", "not decided at this size", "not trained")
MEASURES = {**{name: column for column, name in lab.COMPARED.items()}, "Delta-P": "delta_p"}
KINDS = ("compared", "computed", "not made")
LARGEST = 170_000  # bytes of a figure that is kept
GUESS = "best guess"  # the last method, which needs no model

# ---- The papers' tables

# Fields beside what and place. The presets begin with those of `sizes`. A table that `reads` text or code of the user is of lm. A table that is
# `ours` is not the paper's, and is not counted with them.
BLANK = dict(note="", measure="", reads="", task="", vary=[], schemes=[], same_tokens=False, higher_is_better=False, accuracy=False, sizes="",
             presets=("mini", "deep", "small", "paper"), mini={}, deep={}, small={}, paper={}, columns={}, rows=[], better=[], run=[],
             ours=False)
PRESET = {"set": "", "also": "", "why": "", "because": "", "schemes": [], "tasks": [], "seeds": 3, "curve": ""}  # curve: a file for its validations
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
    table.kind = "compared" if table.claims else "computed" if table.run else "not made"
    return table


# ---- Records: facts of a table's runs (date, vectors, lab, ...), lines that its commands printed, and numbers by method and column, then by seed

Records = dict[tuple[str, str], SimpleNamespace]  # by table and preset
exact = lambda number: repr(float(number)).removesuffix(".0")
blank_record = lambda table, preset: SimpleNamespace(table=table, preset=preset, facts={}, printed=[], numbers={})
seconds_of = lambda *records: sum(float(record.facts.get("core-seconds", 0)) / 2 for record in records if record)  # on two cores
time_text = lambda seconds: f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.{int(seconds < 600)}f} min"
probability = lambda p: "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"


def read_records(path: str | os.PathLike) -> Records:
    """A line has a table's facts and what its commands printed, or the numbers of one of its methods: by column a list with a number of each seed,
    or null."""
    records: Records = {}
    for number, fields in enumerate(lab.lines_of(pathlib.Path(path)), 1):
        try:
            table, preset, method = map(outside.shown, (fields.pop("table"), fields.pop("preset"), fields.pop("method", "")))
            record = records.setdefault((table, preset), blank_record(table, preset))
            if method:
                record.numbers |= {(method, column): {seed: float(value) for seed, value in enumerate(values) if value is not None}
                                   for column, values in fields.items()}
            else:
                record.printed = list(map(outside.shown, fields.pop("printed", [])))
                record.facts |= fields
                [(float if name == "core-seconds" else str.strip)(value) for name, value in fields.items()]
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
            rows.setdefault(method, {"method": method})[column] = [values.get(seed) for seed in range(max(values, default=-1) + 1)]
        facts = {**record.facts, **({"printed": record.printed} if record.printed else {})}
        lines += [{"table": table, "preset": preset, **fields} for fields in [facts, *rows.values()]]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recorded.tmp").write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
    (folder / "recorded.tmp").replace(folder / "recorded.jsonl")
    (folder / "README.md").write_text(summary_page(papers, records), encoding="utf-8")


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
    of = lambda values: (np.mean(values), np.std(values, ddof=1), len(values))
    p = float(scipy.stats.ttest_ind_from_stats(*of(lower), *of(higher), equal_var=False).pvalue)
    return as_seen if p < 0.05 else OPEN, f"Welch's test, {seeds}: {probability(p)}", p


def trained_on(table: SimpleNamespace, record: SimpleNamespace, column: str) -> int:
    """The training length of a column's runs; 0 if none was given."""
    said = re.findall(r"(?<![\w-])length=(\d+)", record.facts.get("lab", "") or table.presets.get(record.preset, PRESET)["set"])
    return int(table.columns[column]["at"].get("length") or [0, *said][-1])


def lengths(table: SimpleNamespace, record: SimpleNamespace, columns: list[str]) -> str:
    """Our lengths, as trained and the longest tested, beside the paper's columns: "64 to 4 096 bytes (128: 8192 (64x))"."""
    names, most, trained = " and ".join(columns), max(table.columns[column]["times"] for column in columns), trained_on(table, record, columns[0])
    ours = " to ".join(f"{length:,}".replace(",", " ") for length in dict.fromkeys((trained, trained * most)))
    return f"{ours} {'tokens' if '.safetensors' in record.facts.get('text', '') else 'bytes'} ({names})" if most and trained else names


def regime(column: dict) -> tuple:
    """Columns of one regime differ in length beyond the trained one, or in the step of one training."""
    return column["task"], column["set"], column["times"] > 1, column["step"] > 0, *column["at"].items()


def at_a_guess(table: SimpleNamespace, record: SimpleNamespace, method: str, column: str) -> bool:
    """True if our errors of a method are those of a guess, within a tenth, and not all answers are wrong in the paper, too."""
    least, printed = 0.9 * record.numbers.get((GUESS, column), {}).get(0, math.nan), table.printed.get((method, column), (math.nan,))[0]
    return least <= np.mean(list(record.numbers[method, column].values())) and not printed >= 100


def judged(table: SimpleNamespace, record: SimpleNamespace) -> pd.DataFrame:
    """A row for each pair of methods at a regime. One test takes each seed's mean over the columns that the paper compares, of perplexity's logarithm
    or of another measure. A comparison of several lengths or steps holds only if it is so at each. p is that of the test, even if nothing is decided.
    `reversed`: our means have the other order. `rise`: how much worse the worse method is at the longest length than at the trained one. Equal keys
    are the same runs at the same regime, in any tables."""
    rows, number = [], math.log if record.facts.get("measure") == "perplexity" else float
    of = lambda method, column: record.numbers.get((method, column), {})
    mean = lambda method, column: np.mean(list(of(method, column).values()))
    both = lambda pair, at, columns: [column for column in columns if regime(table.columns[column]) == at and all(of(each, column) for each in pair)]
    for *pair, at in dict.fromkeys((better, worse, regime(table.columns[column])) for better, worse, column in table.claims):
        claimed = [column for *methods, column in table.claims if methods == pair and regime(table.columns[column]) == at]
        if columns := both(pair, at, claimed):
            means = [[float(np.mean([number(of(method, column)[seed]) for column in columns])) for seed in of(method, columns[0])
                      if all(seed in of(method, column) for column in columns)] for method in (pair[::-1] if table.higher_is_better else pair)]
            found = decide(*means)
            apart = {mean(pair[0], column) < mean(pair[1], column) for column in columns}
            if found[0] == HOLDS and len(apart) > 1:
                found = OPEN, "the lengths or steps have different orders", found[2]
            if found[0] == HOLDS and any(at_a_guess(table, record, pair[1], column) for column in columns):
                found = OPEN, f"{pair[1]} is at a guess here", found[2]  # nothing is won over such a baseline
            first, last = both(pair, at, table.columns)[0], columns[-1]
            near = [column for column, where in table.columns.items() if where == {**table.columns[last], "times": 1} and of(pair[1], column)]
            rise = mean(pair[1], last) - mean(pair[1], near[0]) if near and table.columns[last]["times"] > 1 else math.nan
            rise *= -1 if table.higher_is_better else 1
            key = at[:4], *((table.methods[method][0], *list(of(method, first).values())[:3]) for method in pair)
            rows.append((*pair, lengths(table, record, columns), *found, all(means) and np.mean(means[0]) > np.mean(means[1]), rise, key))
        else:
            rows.append((*pair, lengths(table, record, claimed), UNTRAINED, "", math.nan, False, math.nan, (table.name, *pair, at)))
    return pd.DataFrame(rows, columns=["better", "worse", "column", "verdict", "test", "p", "reversed", "rise", "key"]).astype({"p": float})


def corrected(p: pd.Series) -> pd.Series:
    """Benjamini and Hochberg 1995: the k-th smallest of n p values times n / k, made monotone. Of those below 0.05, one in twenty is expected to be
    there by chance."""
    known = p.dropna().sort_values(ascending=False)
    return (known * len(known) / np.arange(len(known), 0, -1)).cummin().reindex(p.index)


def by_chance(found: pd.DataFrame) -> str:
    """Says how many verdicts chance alone would give, and how many are left after a correction for their number."""
    tests, left = int(found.p.notna().sum()), found.verdict[(corrected(found.p) < 0.05) | found.p.isna()]
    undecided, far = found[found.verdict == OPEN], found.rise[(found.verdict == HOLDS) & found.rise.notna()]
    holds, does_not, still, still_not = [int((verdicts == verdict).sum()) for verdicts in (found.verdict, left) for verdict in (HOLDS, DOES_NOT)]
    return (f"{tests} tests were made. If all methods were alike, {0.05 * tests:.1f} of them would have p < 0.05 by chance, and {0.025 * tests:.1f} "
            f"would hold; {holds} hold here, {does_not} do{'es' * (does_not == 1)} not. Corrected for the number of tests (Benjamini-Hochberg), {still} hold, "
            f"{still_not} do{'es' * (still_not == 1)} not. In {undecided.reversed.sum()} of the {len(undecided)} that are not decided our means have the other order." +
            f" In {(far <= 0).sum()} of the {len(far)} that hold beyond the trained length, and have a number at it, the worse method is no worse there than at "
            "it: these may show a better model alone. (At 64 and 128 bytes, other bytes are scored.)" * (len(far) > 0))


BESIDE = "method", "column", "ours, mean (s.d.)", "seeds", "paper"


def beside(table: SimpleNamespace, record: SimpleNamespace, only: list[str] | None = None) -> list[tuple]:
    """Our numbers next to the paper's, of the methods `only` if there are any."""
    rows, digits = [], {"perplexity": 3, "bits per byte": 4}.get(record.facts.get("measure"), 2)
    for method, column in itertools.product([*(only or table.methods), GUESS], table.columns):
        ours, printed = list(record.numbers.get((method, column), {}).values()), table.printed.get((method, column))
        if ours or printed:
            mean = f"{np.mean(ours):.{digits}f}" + (f" ({np.std(ours, ddof=1):.{digits}f})" if len(ours) > 1 else "") if ours else "-"
            paper = exact(printed[0]) + ("" if math.isnan(printed[1]) else f" ({exact(printed[1])})") if printed else "-"
            rows.append((method, lengths(table, record, [column]), mean, "-" if method == GUESS else len(ours), paper))
    return rows


def shown(table: SimpleNamespace, record: SimpleNamespace, only: list[str]) -> str:
    """The same as text, and the verdicts."""
    text, found = f"{pd.DataFrame(beside(table, record, only), columns=BESIDE).to_string(index=False)}\n", judged(table, record)
    found = found[found.verdict != UNTRAINED] if only else found
    order = found.reversed.map({True: "reversed", False: ""})
    text += f"\n{found.assign(order=order).drop(columns=['p', 'reversed', 'rise', 'key']).to_string(index=False)}\n\n{by_chance(found)}\n" if len(found) else ""
    return "\n".join([text, *record.printed])


def markdown(head: str, rows: Iterable[Iterable]) -> str:
    return f"| {head} |\n|" + "---|" * (head.count("|") + 1) + "\n" + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def over_lengths(table: SimpleNamespace, record: SimpleNamespace, only: list[str]) -> lab.Figure:
    """Our numbers over the tested length, a curve for each method and training length."""
    found = pd.DataFrame([(method, length := trained_on(table, record, column), seed, table.columns[column]["times"] * length, value)
                          for method in only or table.methods for column in table.columns
                          for seed, value in record.numbers.get((method, column), {}).items()],
                         columns=["scheme", "trained on", "seed", "tested length", "value"])
    if (found["tested length"] == 0).any() or found.empty:
        raise Refused(f"--picture: {table.name} given; a table over lengths required")
    return lab.lines(found, "tested length", "value", record.facts["measure"])


def fold(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text.rstrip()}\n\n</details>\n"


def made(table: SimpleNamespace, record: SimpleNamespace) -> str:
    """How a table was made: its notes, date, machine and program."""
    notes = f"{table.note} {table.presets.get(record.preset, PRESET)['why']}".strip()
    return f"{notes} Made {', '.join(record.facts[name] for name in ('date', 'machine', 'vectors', 'program') if name in record.facts)}" + (
        f", OpenBLAS kernels of {record.facts['blas']}." if "blas" in record.facts else ".")


def transcript(record: SimpleNamespace) -> str:
    """The printed lines, folded."""
    return "\n" + fold("what it prints", "\n".join(["```", *record.printed, "```"])) if record.printed else ""


def numbers_beside(table: SimpleNamespace, record: SimpleNamespace) -> str:
    """How a table was made, and our numbers with the paper's behind a stroke, as Markdown."""
    cells = {(method, column): f"{ours} / {paper}" for method, column, ours, _, paper in beside(table, record) if ours != "-"}
    methods, columns = (list(dict.fromkeys(cell[k] for cell in cells)) for k in (0, 1))
    return f"{made(table, record)} As `{record.facts.get('lab')}`.\n\n" + markdown(" | ".join(["", *columns]), (
        [method, *(cells.get((method, column), "") for column in columns)] for method in methods)) + transcript(record)


def listing(papers: SimpleNamespace, records: Records) -> str:
    text = ""
    for table in papers.tables.values():
        how = ", ".join(table.presets) or ("commands" if table.run else f"not made. {table.note}")
        text += f"{table.name:<28}{table.what} ({table.place}); {how}\n"
        for record in (record for (name, _), record in records.items() if name == table.name):
            found = [verdict for verdict in judged(table, record).verdict if verdict != UNTRAINED]
            holds = f", {found.count(HOLDS)} of {len(found)} hold" if found else ""
            text += f"{'':28}recorded {record.preset} {record.facts.get('date', '')[:10]}, {time_text(seconds_of(record))} on two cores{holds}\n"
    return text.rstrip("\n")


page_head = lambda: (PAPERS / "README.md").read_text(encoding="utf-8").partition("Texts: ")[0]


def summary_page(papers: SimpleNamespace, records: Records) -> str:
    """The page of the papers' claims and verdicts. The text above the facts is kept from the page."""
    kept = {name: next((records[name, preset] for preset in table.presets or ["mini"] if (name, preset) in records), None)
            for name, table in papers.tables.items()}
    found = pd.concat([judged(papers.tables[name], record).assign(table=name) for name, record in kept.items() if record], ignore_index=True)
    found["ours"], found["first"] = found.table.map(lambda name: papers.tables[name].ours).astype(bool), found.groupby("key").table.transform("first")
    once = found[~found.duplicated("key")]
    by_luck = pd.concat([corrected(once.p[once.ours == ours]) for ours in (False, True)]) >= 0.05
    found["mark"] = by_luck.reindex(found.index, fill_value=False).map({True: "†", False: ""}).where(found.verdict != OPEN, "")
    found["mark"] = found.mark.where(~(found.reversed & (found.verdict == OPEN)), "‡")
    found["mark"] += [f" [{first}]" if first != table else "" for first, table in zip(found["first"], found.table)]
    counts = pd.crosstab(once.table, once.verdict).reindex(index=papers.tables, columns=VERDICTS, fill_value=0)
    counts.insert(0, "comparisons", counts.sum(axis=1) - counts[UNTRAINED])
    of = lambda names, kind: [name for name in names if papers.tables[name].kind == kind and (kept[name] or kind == "not made")]
    own = {paper: [name for name in papers.tables if name.startswith(f"{paper}/")] for paper in papers.titles}
    texts = "; ".join(sorted({record.facts.get("text", "") for record in records.values()} - {""}))
    page = (f"{page_head()}Texts: {texts}.\nTimes are for all runs of a table on two cores. Runs that tables share count in each, but were trained "
            "once.\n\n")
    page += markdown("paper | rows | trained and compared | computed | not made | comparisons | hold | do not | not decided at this size | "
                     "not trained | two cores", [
        [papers.titles[paper], len(names), *(len(of(names, kind)) for kind in KINDS), *counts.loc[names].sum(),
         time_text(seconds_of(*map(kept.get, names)))]
        for paper, names in ((paper, [name for name in names if not papers.tables[name].ours]) for paper, names in own.items())])
    page += f"\n{by_chance(once[~once.ours])}\n"
    for paper, names in own.items():
        compared, computed, missing = (of(names, kind) for kind in KINDS)
        page += f"\n## {papers.titles[paper]}\n\n"
        page += markdown("trained and compared | question | comparisons | hold | do not | not decided | not trained | two cores", [
            [name + " (ours)" * papers.tables[name].ours, papers.tables[name].what, *counts.loc[name], time_text(seconds_of(kept[name]))]
            for name in compared])
        rows: dict[tuple, list[str]] = {}  # comparisons of one method with equal outcomes share a row
        for (name, better, worse), each in found[found.table.isin(names)].groupby(["table", "better", "worse"], sort=False):
            at = ["; ".join((each["column"] + each.mark)[each.verdict == verdict]) for verdict in VERDICTS]
            rows.setdefault((name, better, *at), []).append(worse)
        page += "\n" + markdown("table or figure | comparison | holds for | does not hold for | not decided for | not trained for", [
            [name, f"{better} over {'; '.join(others)}", *at] for (name, better, *at), others in rows.items()])
        page += "\n" + "".join(fold(f"{name}: our numbers / the paper's", numbers_beside(papers.tables[name], kept[name])) for name in compared)
        page += "\nComputed, without a verdict:\n\n" * bool(computed)
        for name in computed:
            table, record = papers.tables[name], kept[name]
            figure = record.facts.get("figure", "")
            page += f"- {name}: {table.what}. {made(table, record)} " + (f"![{table.what}]({figure})" if figure.endswith("g") else figure) + "\n"
            page += "".join(f"  {line}".rstrip() + "\n" for line in transcript(record).splitlines()) + "\n" * bool(record.printed)
        page += "".join(f"\nNot recorded yet: {name}, {papers.tables[name].what}.\n"
                        for name in names if papers.tables[name].kind != "not made" and not kept[name])
        page += "".join(f"\nNot made: {name}, {papers.tables[name].what}. {papers.tables[name].note}\n" for name in missing)
    for record in (record for record in records.values() if record is not kept.get(record.table)):
        table, found = papers.tables[record.table], judged(papers.tables[record.table], record)
        page += (f"\n## {table.name} at preset {record.preset}\n\n{table.what}, {time_text(seconds_of(record))} on two cores. Its verdicts stand apart "
                 f"from those above, and need three seeds.\n\n{numbers_beside(table, record)}\n")
        page += markdown("comparison | column | verdict", zip(found.better + " over " + found.worse, found.column, found.verdict))
        page += f"\n![validations]({record.facts['figure']})\n" if "figure" in record.facts else ""
    return page


# ---- Training

def lab_words(table: SimpleNamespace, preset: str, more: dict[str, Any], seeds: int) -> str:
    """The command of lab.py for the runs of a table. The user's file is named without its folder."""
    at = table.presets[preset]
    settings = {**lab.settings_of(at["set"]), **more, **({"data": pathlib.Path(more["data"]).name} if table.reads and "data" in more else {})}
    words = [name if value is True else f'{name}="{value}"' if " " in str(value) else f"{name}={value}" for name, value in settings.items()]
    return shlex.join(["lab.py", *(at["tasks"] or table.task), "--schemes", ",".join(at["schemes"] or table.schemes), "--preset", at["lab"],
                       *(word for axis in table.vary for word in ("--vary", axis)), *["--same-tokens"] * table.same_tokens,
                       *(["--set", " ".join(words)] if words else []), "--seeds", str(seeds or at["seeds"])])


def runs_of(table: SimpleNamespace, preset: str, more: dict[str, Any], seeds: int = 0, out: str = "runs/reproduce",
            device: str = "auto") -> pd.DataFrame:
    """The grid of a table, where `more` replaces options of the preset. Folders are named by all options and by what the bits depend on, so that two
    tables with the same run train it once."""
    if preset not in table.presets:
        raise Refused(f"--preset: {preset} given; one of those of {table.name} required: {', '.join(table.presets)}")
    at, vary = table.presets[preset], {name: lab.parts(values) for name, values in (axis.split("=") for axis in table.vary)}
    runs = lab.grid(at["tasks"] or table.task, at["schemes"] or table.schemes, seeds=seeds or at["seeds"], vary=vary,
                    settings={**lab.settings_of(at["set"]), **more}, preset=at["lab"], out=f"{out}/runs", equal_tokens=table.same_tokens)
    machine = list(machine_of(device).values())[1:]
    facts = [json.dumps([run.wanted["subject"], run.wanted["options"], run.wanted["data"], device, *machine]).encode() for run in runs.itertuples()]
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
    of_run = dict(iter(scores.groupby("folder"))) if len(scores) else {}
    for method in [*table.methods, GUESS]:
        for name, column in table.columns.items():
            for run in runs[runs.folder.isin(of_run)].to_dict("records"):
                if stands_at(run, table, method, name) and (method != GUESS or column["set"] and (GUESS, name) not in numbers):
                    value = value_at(run, column, of_run[run["folder"]], "best_guess" if method == GUESS else measure)
                    if value is not None and not (method == GUESS and math.isnan(value)):
                        numbers.setdefault((method, name), {})[0 if method == GUESS else run["seed"]] = value
    return {field: text for text, field in MEASURES.items()}[measure], numbers


NATIVE = os.environ.get("OPENBLAS_CORETYPE")


def take_kernels(then: SimpleNamespace | None, options: argparse.Namespace) -> None:
    """With --check on a processor with the record's vectors, OpenBLAS takes the record's kernels. Otherwise it takes its own choice."""
    fits = options.check and then and then.facts.get("vectors") == machine_of(options.device)["vectors"]
    os.environ.pop("OPENBLAS_CORETYPE", None)
    if wanted := then.facts.get("blas") if fits else NATIVE:
        os.environ["OPENBLAS_CORETYPE"] = wanted


def machine_of(device: str) -> dict[str, str]:
    """The machine in words, and the parts on which the bits depend: the processor's vectors and the kernels of OpenBLAS, or the GPU."""
    facts = dict(line.split(maxsplit=1) for line in lab.printed("doctor") if " " in line.strip())
    machine = f"{facts['processor'].partition(',')[0]}, {facts['threads'].split()[0]} threads"
    if device != "cpu" and not facts["gpu"].startswith("none"):
        gpu = facts["gpu"].partition(" (")[0]
        return {"machine": f"{machine}; {gpu}", "vectors": gpu}
    return {"machine": machine, "vectors": next((name for name in ("avx512", "avx2") if name in facts["build"].lower().replace("-", "")), "plain"),
            "blas": facts["blas"].rpartition(" core ")[2]}


def seconds_in(folder: pathlib.Path) -> float:
    """Seconds of a run. In one that was resumed, and so lay still, each interval of the log counts at most twice the median."""
    intervals = np.diff([line["seconds"] for line in lab.lines_of(folder / "metrics.jsonl") if "loss" in line], prepend=0)
    if np.all(intervals >= 0):
        return (folder / "results.jsonl").stat().st_mtime - (folder / "run.json").stat().st_mtime
    return float(np.clip(intervals, 0, 2 * np.median(intervals)).sum())


def trained(table: SimpleNamespace, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any]) -> SimpleNamespace:
    """Trains unfinished runs, and returns the record."""
    record = blank_record(table.name, options.preset)
    record.facts = {"date": time.strftime("%F %R", time.gmtime()), "program": lab.printed("--version")[0], **machine_of(options.device)}
    if len(runs):
        runs = lab.train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet)
        measure, record.numbers = measured(table, runs)
        done, failed = [pathlib.Path(folder) for folder in runs.folder[runs.state == "done"]], runs[runs.state != "done"]
        seconds = sum(map(seconds_in, done))
        threads = max(1, os.cpu_count() // min(options.jobs or os.cpu_count(), len(runs)))
        print("".join(f"{run.folder}: {run.state}\n" for run in failed.itertuples()), end="", file=sys.stderr)
        facts = {"text": f"{pathlib.Path(more['data']).name}, SHA-256 {runs.wanted.iloc[0]['data']}" if table.reads else "",
                 "lab": lab_words(table, options.preset, more, options.seeds), "failed": str(len(failed) or "")}
        record.facts |= {name: value for name, value in facts.items() if value} | {"core-seconds": f"{seconds * threads:.1f}", "measure": measure}
    return record


def checked(now: SimpleNamespace, then: SimpleNamespace, rows: list[str], drawn: pathlib.Path) -> int:
    """Prints differences from a record of the same table, of the numbers and of a figure in the folder `drawn`. Returns 1 if numbers should be equal."""
    said = lambda record, cell: " ".join(map(exact, record.numbers.get(cell, {}).values())) or "nothing"
    differ = [cell for cell in {**then.numbers, **now.numbers} if (cell in now.numbers or not rows or cell[0] in rows)
              and said(now, cell) != said(then, cell)]
    print("".join(f"differs: {', '.join(cell)}: {said(now, cell)}; recorded: {said(then, cell)}\n" for cell in differ), end="")
    comparable = all(now.facts.get(name) == then.facts.get(name) for name in ("vectors", "blas", "text"))
    print(f"{now.table}: " + ("other numbers than recorded, of the same vectors and OpenBLAS kernels" if differ and comparable else
                              "recorded with other vectors or kernels, or of another text: cannot be compared" if differ else
                              f"{sum(map(len, now.numbers.values()))} numbers are as recorded on {then.facts.get('date')}, bit for bit" if now.numbers else
                              "no number is recorded"))
    if (figure := then.facts.get("figure", "")) and (PAPERS / figure).is_file():
        same = (drawn / figure).is_file() and (drawn / figure).read_bytes() == (PAPERS / figure).read_bytes()
        print(f"{now.table}: {figure} is " + ("as recorded, byte for byte" if same else "not as recorded; another matplotlib draws other bytes, too"))
    return int(bool(differ) and comparable)


def commanded(table: SimpleNamespace, record: SimpleNamespace, run: str, options: argparse.Namespace, out: pathlib.Path) -> list[int]:
    """Runs the table's commands, arguments of `whence`, a script of this folder or an example of the build. Keeps what they print and draw in the
    record, and returns their exit codes."""
    codes, files = [], {"RUN": run, "TEXT": options.data, "CODE": options.code}
    for command in table.run:
        name, *words = [files.get(word, str(out / word[4:]) if word.startswith("OUT/") else word) for word in shlex.split(command)]
        program = ([sys.executable, str(pathlib.Path(__file__).with_name(name))] if name.endswith(".py") else
                   [str(pathlib.Path(lab.program()).with_name("examples") / name[9:])] if name.startswith("examples/") else [lab.program(), name])
        print(f"\n$ {shlex.join([*program, *words])}", flush=True)
        done = subprocess.run([*program, *words], env={**os.environ, "WHENCE": lab.program()}, stdout=subprocess.PIPE, text=True, errors="replace")
        print(done.stdout, end="", flush=True)
        codes.append(done.returncode)
        figure = pathlib.Path((words or [name])[-1])
        if figure.suffix != ".svg":
            record.printed += map(outside.shown, done.stdout.splitlines())
        elif figure.exists():
            record.facts["figure"] = figure.name if (size := figure.stat().st_size) <= LARGEST else f"{figure.name}: {size // 1000} kB, not kept"
    return codes


def one(papers: SimpleNamespace, table: SimpleNamespace, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any],
        then: SimpleNamespace | None) -> int:
    """Trains one table, prints its results and those of its commands, then checks and keeps it. Returns the exit code."""
    print(f"{table.name}: {table.what} ({table.place})")
    take_kernels(then, options)
    if len(runs):
        print(f"{len(runs)} runs, preset {options.preset}; as\n  {lab_words(table, options.preset, more, options.seeds)}")
    print(f"{table.note} {table.presets.get(options.preset, PRESET)['why']}".strip(), flush=True)
    out = pathlib.Path(options.out) / f"{table.name}-{options.preset}"
    out.mkdir(parents=True, exist_ok=True)
    record, began = trained(table, runs, options, more), time.time()
    if table.methods:
        print(f"\n{shown(table, record, options.row)}", flush=True)
    codes = commanded(table, record, runs.folder.iloc[0] if len(runs) else "", options, out)
    if curve := table.presets.get(options.preset, PRESET)["curve"]:
        lab.learning(lab.curves(runs), "validation").savefig(out / curve, metadata={"Date": None})
        record.facts["figure"] = curve
    record.facts["core-seconds"] = f"{2 * (seconds_of(record) + (time.time() - began) * bool(table.run)):.1f}"
    if options.record and ("failed" in record.facts or any(codes)):
        print("not recorded: runs or commands failed")
    elif options.record:
        there = read_records(options.record / "recorded.jsonl") if (options.record / "recorded.jsonl").exists() else {}
        kept = there.get((record.table, record.preset)) if options.row else None
        if kept and not {method for method, _ in kept.numbers} - {*options.row, GUESS}:
            kept = None  # all its rows are made again
        if kept and any(kept.facts.get(name) != record.facts.get(name) for name in ("lab", "vectors", "blas", "text")):
            raise Refused(f"--row: rows given that were not made as those in {options.record}; all rows required")
        if kept:
            record.facts["core-seconds"] = f"{2 * seconds_of(record, SimpleNamespace(facts=kept.facts)):.1f}"
            record.numbers = kept.numbers | record.numbers
        write_records(options.record, papers, {**there, (record.table, record.preset): record})
        if (figure := out / record.facts.get("figure", "")).is_file():
            shutil.copy(figure, options.record)
    if any(codes):
        print(f"{table.name}: a command failed")
    return max([checked(record, then, options.row, out) if then else 0, int("failed" in record.facts or any(codes))])


def planned(papers: SimpleNamespace, name: str, options: argparse.Namespace, then: SimpleNamespace | None) -> tuple:
    """A table's runs, and the options that the user replaces. Raises Refused before anything trains."""
    if name not in papers.tables:
        near = ", ".join(each for each in papers.tables if each.startswith(name)) or "--list shows them"
        raise Refused(f'"{name}" given; a table or figure of the papers required; {near}')
    table, more, runs = papers.tables[name], lab.settings_of(options.set), pd.DataFrame()
    if table.kind == "not made":
        raise Refused(f"{name}: {table.what}; it cannot be run here: {table.note}")
    if bad := [row for row in options.row if row not in table.methods]:
        raise Refused(f'--row: "{bad[0]}" given; one of those of {name} required')
    if (options.check or options.recorded) and not then:
        raise Refused(f"{name} at preset {options.preset} is not recorded; another table required")
    for word, given, what in (("TEXT", options.data, "--data"), ("CODE", options.code, "--code")):
        if not options.recorded and not given and (table.reads == word.lower() or any(word in command.split() for command in table.run)):
            raise Refused(f"{what}: nothing given; a file of yours required; {name} reads it, and the papers' texts are not ours to give")
    if table.reads:
        more |= {"data": options.data if table.reads == "text" else options.code}
    if table.presets and not options.recorded:
        take_kernels(then, options)
        runs = runs_of(table, options.preset, more, options.seeds, options.out, options.device)
        here = [not options.row or any(stands_at(run, table, row) for row in options.row) for run in runs.to_dict("records")]
        if not any(here):
            raise Refused(f'--row: "{options.row[0]}" given; a row of preset {options.preset} required')
        runs.drop(runs.index[np.invert(here)], inplace=True)
        now = lab_words(table, options.preset, more, options.seeds)
        if options.check and now != then.facts.get("lab"):
            raise Refused(f"--check: the runs would be those of '{now}', recorded are those of '{then.facts.get('lab')}'; the recorded options, "
                          "seeds and file's name required")
    return table, runs, more, then


def reproduce(options: argparse.Namespace) -> int:
    papers, records = read_papers(), read_records(options.records)
    if options.seeds < 0 or options.jobs < 0:
        raise Refused(f"--seeds, --jobs: {options.seeds}, {options.jobs} given; 0 or more required")
    if options.picture and not options.recorded:
        raise Refused("--picture: given without --recorded; both required")
    page = options.record / "README.md" if options.record else None
    if page and page.exists() and not page.read_text(encoding="utf-8", errors="replace").startswith(page_head().split(",")[0]):
        raise Refused(f"--record: {page} is there and is no page of records; another folder required")
    if options.list or (page and not options.names):
        print(listing(papers, records) if options.list else
              write_records(options.record, papers, read_records(options.record / "recorded.jsonl")) or page)
        return 0
    every = [name for name, table in papers.tables.items() if options.preset in table.presets or (table.run and not table.presets)]
    names = dict.fromkeys(each for name in options.names for each in (every if name == "all" else [name]))
    tables = [planned(papers, name, options, records.get((name, options.preset))) for name in names]
    if not tables:
        raise Refused("no name given; a table or figure of the papers required; --list shows them")
    if options.recorded:
        print("\n".join(f"{table.name}: {table.what} ({table.place})\n{shown(table, then, options.row)}" for table, _, _, then in tables))
        if options.picture:
            over_lengths(tables[0][0], tables[0][3], options.row).savefig(options.picture, metadata={"Date": None})
        return 0
    return max(one(papers, table, runs, options, more, then if options.check else None) for table, runs, more, then in tables)


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="tables or figures of the papers; all: every table with the preset")
    add("--list", action="store_true", help="every table and figure: its question, how it is made here, what came out")
    add("--recorded", action="store_true", help="the recorded numbers and verdicts, without training")
    add("--picture", metavar="FILE", help="with --recorded: an SVG of the first table's numbers over the tested length")
    add("--preset", default="mini", choices=BLANK["presets"], help="mini for a laptop, deep for an hour, small for a night, or the paper's sizes (mini)")
    add("--seeds", type=int, default=0, help="seeds of each method; verdicts need three (the preset's)")
    add("--row", action="append", default=[], help="this row of the table alone, by the paper's name; may be repeated; --record keeps the others")
    add("--data", default="", help="the text on which language models are trained")
    add("--code", default="", help="a folder or a file on which language models of code are trained")
    add("--set", default="", help='options of train in place of the preset\'s: "steps=300 dim=32"')
    add("--jobs", type=int, default=0, help="runs at the same time (the number of processors)")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", default="runs/reproduce", help="folder of all runs and results; the same command continues (runs/reproduce)")
    add("--record", type=pathlib.Path, help="folder: keep recorded.jsonl and README.md there; without a NAME: rewrite README.md")
    add("--records", default=RECORDED, metavar="FILE", help="another recorded.jsonl for --list, --recorded and --check")
    add("--check", action="store_true", help="fail if the numbers differ from the recorded ones, made with the record's kernels of OpenBLAS; needs its vectors")
    add("--quiet", action="store_true", help="no progress")
    return reproduce(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
