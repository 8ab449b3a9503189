#!/usr/bin/env python3
"""The papers' tables and figures by name: our numbers next to theirs, and which of the papers' comparisons hold.

    examples/experiments/reproduce.py --list                                each table's question, how it is made here, its cost
    examples/experiments/reproduce.py cope/table3                           trains it, and tests each comparison of the paper
    examples/experiments/reproduce.py cope/table3 --recorded                the same for the recorded numbers, without training
    examples/experiments/reproduce.py dape-v2/table1 --data austen.txt      a table of language models, on your text
    examples/experiments/reproduce.py all --data TEXT --code FOLDER --record MINE     every table, kept with its figures in MINE
    examples/experiments/reproduce.py --stale                               would this program give the recorded numbers?
    examples/experiments/reproduce.py cope/table3 --check                   the numbers must be those recorded

examples/whence/papers has the tables as text, and in recorded.csv the number of every seed. In a notebook,
judged(read_papers().tables["cope/table3"], read_records(RECORDED)["cope/table3", "mini"]) has a row for each comparison.
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import csv
import difflib
import hashlib
import io
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Iterable, Iterator

import lab
import numpy as np
import outside
import pandas as pd
import scipy.stats
from lab import Refused

PAPERS = lab.ROOT / "examples/whence/papers"
RECORDED, FILES = PAPERS / "recorded.csv", ("cope.table", "dape.table", "dape_v2.table")  # a file may refer to those before it
HOLDS, DOES_NOT, OPEN = VERDICTS = ("holds", "does not", "not decided at this size")
MEASURES = {**{name: column for column, name in lab.COMPARED.items()}, "Delta-P": "delta_p"}
GUESS = "best guess"  # the last method, which needs no model


# ---- The papers' tables as text: lines "key value". A line that is indented by more than two continues the line before it.

FIELDS = {"what": str, "place": str, "note": str, "measure": str, "set": str, "task": str.split, "vary": str.split, "schemes": lab.parts,
          "reads": {"text": "text", "code": "code"}.__getitem__, "figures": {"accuracy": "accuracy"}.__getitem__,
          "same-tokens": {"yes": True}.__getitem__, "higher-is-better": {"yes": True}.__getitem__}
FORMS = {"sizes": "the name of `sizes` before it, then some of its presets", "columns": "a table before it", "reads": "text or code",
         "same-tokens": "yes", "higher-is-better": "yes", "figures": "accuracy",
         "better": "METHOD > METHOD & METHOD | COLUMN | COLUMN, or | * for all columns, of the table's",
         "|": "| | scheme | COLUMN |, then | task, set, times, step or an axis | | VALUE |, then | METHOD | SCHEME; AXIS=VALUE | 6.8 (6.9) or - |, "
              "or of a METHOD in another TABLE,"}


class Table(SimpleNamespace):
    """A table or figure of a paper, with the fields of its text. presets: name to set, why, lab, seeds, schemes, tasks (the last two replace the
    table's). methods: name to scheme and values of axes. columns: name to the source of its numbers: task, set, times the training length,
    validation step, values of axes. printed: by method and column the mean and the deviation, or NaN. claims: better, worse, column."""

    def __init__(self, name: str, **more: Any):
        blank = dict(what="", place="", note="", measure="", set="", reads="", figures="", same_tokens=False, higher_is_better=False, task=[],
                     vary=[], schemes=[], run=[], presets={}, methods={}, columns={}, printed={}, claims=[])
        super().__init__(**{**blank, **more, "name": name})

    @property
    def kind(self) -> str:
        return "compared" if self.presets and self.methods else "commanded" if self.run else "not ours"

    def has(self, preset: str, method: str, column: str) -> bool:
        at, tasks = self.presets[preset], ("", *(self.presets[preset]["tasks"] or self.task))
        return (not at["schemes"] or self.methods[method][0] in at["schemes"]) and self.columns[column]["task"] in tasks

    def with_rows(self, rows: list[str]) -> Table:
        """Returns the table with these methods alone and the claims between them; `rows` empty: with all methods."""
        if bad := [name for name in rows if name not in self.methods]:
            raise Refused(f'--row: "{bad[0]}" given; one of those of {self.name} required')
        own = {name: at for name, at in self.methods.items() if name in rows or not rows}
        return Table(**{**vars(self), "methods": own, "claims": [claim for claim in self.claims if {*claim[:2]} <= {*own}]})


@contextlib.contextmanager
def understood(place: str, key: str, value: str) -> Iterator[None]:
    """Turns errors in a line of a table into Refused: what was given, and what is required."""
    try:
        yield
    except (KeyError, ValueError):
        raise Refused(f"{place}: {key} {value} given; {FORMS.get(key, 'a field of a table, or of a preset as in mini.seeds 3,')} required") from None


def read_papers(folder: pathlib.Path = PAPERS, files: Iterable[str] = FILES) -> SimpleNamespace:
    """Returns titles and tables by name, and the texts and sizes that `let` and `sizes` define."""
    papers = SimpleNamespace(titles={}, tables={}, texts={}, sizes={})
    for file in files:
        lines: list[tuple[str, str]] = []
        for number, text in enumerate(outside.read_text(folder / file).split("\n"), 1):
            if lines and text.startswith("   "):
                lines[-1] = (lines[-1][0], f"{lines[-1][1]} {text.strip()}")
            elif text.strip() and not text.strip().startswith("#"):
                lines.append((f"{file}: line {number}", text))
        table, presets, later = Table(""), {}, []
        for place, text in lines:
            key, _, value = text.strip().partition(" ")
            with understood(place, key, value):
                value = re.sub(r"\$(\w+)", lambda found: papers.texts[found[1]], value.strip())
                name, _, rest = value.partition(" ")
                if text.startswith(" "):
                    read_field(papers, table, presets, key, value)
                elif key in ("paper", "let"):
                    (papers.titles if key == "paper" else papers.texts)[name] = rest.strip()
                elif key == "sizes":
                    presets = papers.sizes[name] = {}
                else:
                    table = {"table": papers.tables}[key][name] = Table(name)
                    presets = table.presets
            if key in ("|", "columns", "better"):
                later.append((table, place, key, value))
        own = {each[0].name: each[0] for each in later}  # claims need all rows, and rows may come from a later table
        for table in own.values():
            read_rows(papers, table, [each[1:] for each in later if each[0] is table])
        for table, place, key, value in later:
            with understood(place, key, value):
                if key == "better":
                    sides, *columns = value.split(" | ")
                    better, worse = sides.split(" > ")
                    claims = [(better, other, column) for column in (table.columns if columns == ["*"] else columns) for other in worse.split(" & ")]
                    if not all({better, other} <= {*table.methods} and column in table.columns for _, other, column in claims):
                        raise KeyError
                    table.claims += claims
                elif " | of " in value:
                    method, (other, source) = value.split("|")[0].strip(), value.rstrip("| ").split(" | of ")[1].split(" in ")
                    figures = papers.tables[source].printed
                    table.printed |= {(method, column): figures[other, column] for column in table.columns if (other, column) in figures}
    return papers


def read_field(papers: SimpleNamespace, table: Table, presets: dict[str, dict], key: str, value: str) -> None:
    """Reads a line of a table or of `sizes`. "mini.set steps=300" belongs to a preset. A "+" after the key appends to the earlier value."""
    if key in FIELDS:
        setattr(table, key.replace("-", "_"), FIELDS[key](value))
    elif key == "run":
        table.run.append(value)
    elif key == "sizes":
        name, *some = value.split()
        presets |= copy.deepcopy({each: papers.sizes[name][each] for each in some or papers.sizes[name]})
    elif key not in ("|", "columns", "better"):
        name, of_preset = key.removesuffix("+").split(".")
        at = presets.setdefault(name, {"set": "", "why": "", "lab": "mini" if name == "mini" else "paper", "schemes": [], "tasks": [], "seeds": 3})
        read = {"set": str, "why": str, "lab": str, "schemes": lab.parts, "tasks": str.split, "seeds": int}[of_preset]
        at[of_preset] = f"{at[of_preset]} {value}".strip() if key.endswith("+") else read(value)


def read_rows(papers: SimpleNamespace, table: Table, lines: list[tuple[str, str, str]]) -> None:
    """Reads the columns of a table, and its methods with the paper's numbers. Papers print some tables with rows and columns exchanged."""
    rows = [(line, [cell.strip() for cell in line[2].removesuffix("|").split("|")]) for line in lines if line[1] == "|"]
    for place, key, value in lines:
        with understood(place, key, value):
            table.columns |= copy.deepcopy(papers.tables[value].columns) if key == "columns" else {}
    if len(rows) > 1 and rows[1][1][0] == "scheme":
        with understood(*rows[0][0]):
            rows = [(rows[0][0], cells) for cells in zip(*(cells for _, cells in rows), strict=True)]
    own: list[dict] = []
    for line, cells in rows:
        with understood(*line):
            name, scheme, *values = cells
            if not name and scheme == "scheme":
                own = [{"task": "", "set": "", "times": 0, "step": 0, "at": {}} for _ in values]
                table.columns |= dict(zip(values, own))
            elif not scheme:
                for column, value in zip(own, values, strict=True):
                    if value != "-":
                        (column if name in column else column["at"])[name] = int(value) if name in ("times", "step") else value
            else:
                scheme, *axes = scheme.split(";")
                table.methods[name] = scheme, dict(axis.strip().split("=") for axis in axes)
                for column, value in zip(table.columns, values if values and not values[0].startswith("of ") else [], strict=bool(values[1:])):
                    if value != "-":  # whence measures errors
                        mean, _, deviation = value.removesuffix(")").partition(" (")
                        mean = math.floor((100 - float(mean)) * 100 + 0.5) / 100 if table.figures == "accuracy" else float(mean)
                        table.printed[name, column] = mean, float(deviation or "nan")
    for column in table.columns.values():
        column["set"] = column["set"] or ("" if column["times"] or column["step"] else table.set)
    table.task = list(dict.fromkeys([*table.task, *(column["task"] for column in table.columns.values() if column["task"])]))
    table.schemes = list(dict.fromkeys([*table.schemes, *(scheme for scheme, _ in table.methods.values())]))


def find_table(papers: SimpleNamespace, name: str) -> Table:
    if name not in papers.tables:
        near = [each for each in papers.tables if each.startswith(name)] or difflib.get_close_matches(name, papers.tables, 1)
        raise Refused(f'"{name}" given; a table or figure of the papers required; ' + (f"near: {', '.join(near)}" if near else "--list shows them"))
    return papers.tables[name]


# ---- Records

@dataclass
class Record:
    """The numbers of a table at a preset, by method and column, then by seed; and facts of the runs: date, vectors, lab, "bits TASK SCHEME", ..."""
    table: str
    preset: str
    facts: dict[str, str] = field(default_factory=dict)
    numbers: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)

    def of(self, method: str, column: str) -> list[float]:
        return list(self.numbers.get((method, column), {}).values())

    @property
    def seconds(self) -> float:
        """The time on two cores."""
        return float(self.facts.get("core-seconds", 0)) / 2


Records = dict[tuple[str, str], Record]  # by table and preset
PLACE, HEAD = ["table", "preset", "method", "column"], ["table", "preset", "method", "column", "seed", "value"]


def exact(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def read_records(path: str | os.PathLike) -> Records:
    """A row of the CSV is a cell and a seed. An empty cell repeats the row above. Facts have the method "record", and no seed."""
    records, above, row = {}, [""] * 4, []
    with io.StringIO(outside.read_bytes(path).decode(errors="replace"), newline="") as file:
        lines = csv.reader(file)
        try:
            if (row := next(lines, [])) != HEAD:
                raise ValueError
            for row in lines:
                *place, seed, value = map(outside.shown, row)
                above = [new or old for new, old in zip(place, above, strict=True)]
                if not all(above):
                    raise ValueError
                table, preset, method, column = above
                record = records.setdefault((table, preset), Record(table, preset))
                if method == "record":
                    {"seeds": int, "digits": "234".index, "core-seconds": float, "operations": float}.get(column.split()[0], str)(value)
                    record.facts[column] = value
                else:
                    record.numbers.setdefault((method, column), {})[int(seed)] = float(value)
        except (ValueError, csv.Error):
            raise Refused(f"{path}: line {lines.line_num}: {','.join(row)} given; {','.join(HEAD)} with a seed and a number, or a fact, required"
                          ) from None
    return records


def write_records(path: pathlib.Path, records: Records) -> None:
    rows: list[tuple] = []
    for place, record in records.items():
        rows += [(*place, "record", name, "", value) for name, value in record.facts.items()]
        rows += [(*place, *cell, seed, exact(value)) for cell, values in record.numbers.items() for seed, value in values.items()]
    frame = pd.DataFrame(rows, columns=HEAD)
    frame[PLACE] = frame[PLACE].mask((frame[PLACE] == frame[PLACE].shift()).cumprod(axis=1).astype(bool), "")
    frame.to_csv(path.with_suffix(".tmp"), index=False)
    path.with_suffix(".tmp").replace(path)


# ---- Which comparisons hold

def probability(p: float) -> str:
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"


def welch(a: tuple[float, float, int], b: tuple[float, float, int]) -> float:
    """The two-sided p of Welch's test from mean, deviation and count of both sides."""
    return float(scipy.stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue)


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


def judged(table: Table, record: Record) -> pd.DataFrame:
    """A row for each comparison whose methods and column the preset has: better, worse, column, verdict, test, p, and paper, the p of the paper's
    own figures at three seeds each."""
    rows = []
    for better, worse, column in table.claims:
        if table.has(record.preset, better, column) and table.has(record.preset, worse, column):
            ours = [record.of(better, column), record.of(worse, column)]
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
    count = lambda verdicts, verdict: int((verdicts == verdict).sum())
    return (f"{tests} tests were made. If all methods were alike, {0.05 * tests:.1f} of them would have p < 0.05 by chance, and {0.025 * tests:.1f} "
            f"would hold; {count(found.verdict, HOLDS)} hold here and {count(found.verdict, DOES_NOT)} do not. Corrected for the number of tests "
            f"(Benjamini-Hochberg), {count(left, HOLDS)} hold and {count(left, DOES_NOT)} do not.")


# ---- Tables and pages

def beside_paper(table: Table, record: Record) -> pd.DataFrame:
    """A row for each method and column: our mean and, for two seeds or more, standard deviation; the paper's number."""
    rows, digits = [], int(record.facts.get("digits", 2))
    for method, column in ((method, column) for method in [*table.methods, GUESS] for column in table.columns):
        ours, printed = record.of(method, column), table.printed.get((method, column))
        if ours or printed:
            mean = f"{np.mean(ours):.{digits}f}" + (f" ({np.std(ours, ddof=1):.{digits}f})" if len(ours) > 1 else "") if ours else "-"
            paper = exact(printed[0]) + ("" if math.isnan(printed[1]) else f" ({exact(printed[1])})") if printed else "-"
            rows.append((method, column, mean, "-" if method == GUESS else len(ours), paper))
    return pd.DataFrame(rows, columns=["method", "column", "ours, mean (s.d.)", "seeds", "paper"])


def text_of(frame: pd.DataFrame) -> str:
    rows = [list(frame), *frame.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def shown(table: Table, record: Record) -> str:
    """Our numbers next to the paper's, and the verdicts."""
    found, text = judged(table, record), text_of(beside_paper(table, record))
    if len(found):
        found.insert(0, "the paper's comparison", found.better + " better than " + found.worse)
        found["p"] = [probability(p) if p == p else "-" for p in corrected(found.p)]
        names = {"verdict": "here", "p": "corrected", "paper": "the paper's own figures"}
        text += f"\n{text_of(found.drop(columns=['better', 'worse']).rename(columns=names))}\n{by_chance(judged(table, record))}\n"
    return text


def markdown(head: str, rows: Iterable[Iterable]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {' | '.join(map(str, row))} |" for row in rows)]
    return "\n".join(lines) + "\n"


def time_text(seconds: float) -> str:
    for unit, name in ((365 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.{int(seconds < 10 * unit)}f} {name}"
    return f"{seconds:.0f} s"


def cost_of(records: list[Record], preset: str) -> str:
    """The cost of a preset. One that is not recorded is estimated from a recorded one, in proportion to its operations."""
    own = next((each for each in records if each.preset == preset), records[0] if records else Record("", ""))
    here, there = [float(own.facts.get(f"operations {each}", "nan")) for each in (own.preset, preset)]
    return (time_text(own.seconds) if own.preset == preset else "of unknown cost" if math.isnan(here + there)
            else f"about {time_text(own.seconds * there / here)}")


def listing(papers: SimpleNamespace, records: Records) -> str:
    text = "Costs are on two cores.\n"
    for table in papers.tables.values():
        own = [record for (name, _), record in records.items() if name == table.name]
        how = {"not ours": f"lacks: {table.note}", "compared": "trained, compared: ", "commanded": "trained, then commands: " if table.presets
               else "commands"}[table.kind] + ", ".join(f"{each} {cost_of(own, each)}" for each in table.presets)
        for record in own:
            found = judged(table, record)
            how += f"; recorded {record.preset} {record.facts.get('date', '')[:10]}"
            how += f": {(found.verdict == HOLDS).sum()} of {len(found)} hold" if len(found) else ""
        lines = [line for part in (f"{table.what} ({table.place})", how) for line in textwrap.wrap(part, 91, break_on_hyphens=False)]
        text += f"{table.name:<28}" + f"\n{'':28}".join(lines) + "\n"
    return text


def summary_page(papers: SimpleNamespace, records: Records) -> str:
    """The page of the papers' claims and verdicts. The text above the facts is kept from the page."""
    kept = {name: next((records[name, preset] for preset in table.presets or ["mini"] if (name, preset) in records), None)
            for name, table in papers.tables.items()}
    each = [judged(papers.tables[name], record).assign(table=name) for name, record in kept.items() if record]
    found = pd.concat([judged(Table(""), Record("", "")).assign(table=""), *each], ignore_index=True)
    found["mark"] = ["†" if p >= 0.05 and verdict != OPEN else "" for p, verdict in zip(corrected(found.p), found.verdict)]
    counts = pd.crosstab(found.table, found.verdict).reindex(index=papers.tables, columns=VERDICTS, fill_value=0)
    counts.insert(0, "comparisons", counts.sum(axis=1))
    seconds = lambda names: time_text(sum(kept[name].seconds for name in names if kept[name]))
    own = {paper: [name for name in papers.tables if name.startswith(f"{paper}/")] for paper in papers.titles}
    facts = pd.DataFrame([record.facts for record in records.values()], columns=["machine", "vectors", "date", "program", "text"]).fillna("")
    machines, dates, programs, texts = ("; ".join(sorted({*each} - {""})) for each in (
        facts.machine + ", " + facts.vectors, facts.date.str[:10], facts.program, facts.text))
    page = (f"{page_head()}Machine: {machines}.\nDate: {dates}.\nProgram: {programs}.\nTexts: {texts}.\nTimes are for all runs of a table on two "
            "idle cores. Runs that two tables share count in both, but were trained once.\n\n")
    page += markdown("paper | tables and figures | recorded | comparisons | hold | do not | not decided at this size | two cores", [
        [papers.titles[paper], len(names), sum(kept[name] is not None for name in names), *counts.loc[names].sum(), seconds(names)]
        for paper, names in own.items()])
    page += f"\n{by_chance(found)}\n"
    for paper, names in own.items():
        page += f"\n## {papers.titles[paper]}\n\n"
        page += markdown("table or figure | question | comparisons | hold | do not | not decided | two cores", [
            [name, papers.tables[name].what, *(counts.loc[name] if counts.comparisons[name] else "----"), seconds([name]) if kept[name] else "-"]
            for name in names])
        page += "".join(f"\n{name} lacks {papers.tables[name].note.rstrip('.')}.\n" for name in names
                        if papers.tables[name].kind == "not ours" and not kept[name])
        rows: dict[tuple, list[str]] = {}  # comparisons of one method with equal outcomes share a row
        for (name, better, worse), each in found[found.table.isin(names)].groupby(["table", "better", "worse"], sort=False):
            at = ["; ".join((each["column"] + each.mark)[each.verdict == verdict]) for verdict in VERDICTS]
            rows.setdefault((name, better, *at), []).append(worse)
        page += "\n" + markdown("table or figure | comparison | holds for | does not hold for | not decided for", [
            [name, f"{better} over {'; '.join(others)}", *at] for (name, better, *at), others in rows.items()])
    return page


def page_head() -> str:
    return (PAPERS / "README.md").read_text(encoding="utf-8").partition("Machine: ")[0]


# ---- Training

SHORT = {"steps": 2, "batch": 2, "dim": 32, "layers": 2, "heads": 4}
SHORT_TEXT = {"length": 32, "last": 16, "evaluate-to": 2, "evaluation-windows": 1, "validation-windows": 1}
LONG = ("model", "accumulate", "validate-every", "save-every")


def lab_words(table: Table, preset: str, more: dict[str, Any], seeds: int) -> list[str]:
    """The arguments of lab.py for the runs of a table. The user's file is named without its folder."""
    at, settings = table.presets[preset], settings_of(table, preset, more)
    if table.reads and "data" in settings:
        settings["data"] = pathlib.Path(settings["data"]).name
    words = [name if value is True else f'{name}="{value}"' if " " in str(value) else f"{name}={value}" for name, value in settings.items()]
    return [*(at["tasks"] or table.task), "--schemes", ",".join(at["schemes"] or table.schemes), "--preset", at["lab"],
            *(word for axis in table.vary for word in ("--vary", axis)), *["--same-tokens"] * table.same_tokens,
            *(["--set", " ".join(words)] if words else []), "--seeds", str(seeds or at["seeds"])]


def settings_of(table: Table, preset: str, more: dict[str, Any]) -> dict[str, Any]:
    if preset not in table.presets:
        raise Refused(f"--preset: {preset} given; one of those of {table.name} required: {', '.join(table.presets)}")
    return {**lab.settings_of(table.presets[preset]["set"]), **more}


def runs_of(table: Table, preset: str, more: dict[str, Any], seeds: int = 0, out: str = "runs/reproduce", device: str = "auto",
            short: bool = False) -> pd.DataFrame:
    """The grid of a table, where `more` replaces options of the preset; short: two steps of a small model for each task and scheme. Folders are
    named by all options, so that two tables with the same run train it once."""
    settings, vary = settings_of(table, preset, more), {name: lab.parts(values) for name, values in lab.pairs(table.vary, "vary").items()}
    at = table.presets[preset]
    if short:
        settings |= {name: values[0] for name, values in vary.items()}
        settings |= {**SHORT, **(SHORT_TEXT if table.reads else {"test-sequences": 2})}
        settings, vary = {name: value for name, value in settings.items() if name not in LONG}, {}
    runs = lab.grid(at["tasks"] or table.task, at["schemes"] or table.schemes, seeds=1 if short else seeds or at["seeds"], vary=vary,
                    settings=settings, preset=at["lab"], out=f"{out}/runs", equal_tokens=table.same_tokens and not short)
    facts = [json.dumps([run.wanted["subject"], run.wanted["options"], run.wanted["data"], device]).encode() for run in runs.itertuples()]
    runs["folder"] = [f"{out}/runs/{run.task}/{pathlib.Path(run.folder).name}-{hashlib.sha256(fact).hexdigest()[:12]}"
                      for run, fact in zip(runs.itertuples(), facts)]
    return runs


def stands_at(run: dict, table: Table, method: str, column: str | None = None) -> bool:
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


def measured(table: Table, runs: pd.DataFrame) -> tuple[str, dict]:
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
    facts = json.loads(subprocess.run([lab.program(), "doctor", "--json"], capture_output=True, text=True).stdout)
    machine, built = f"{facts['processor']['name']}, {facts['threads']['used']} threads", facts["build"]["instructions"]
    if device != "cpu" and not facts["gpu"]["refusal"]:
        return f"{machine}; {facts['gpu']['name']}", facts["gpu"]["name"]
    return machine, "avx512" if "avx512f" in built else "avx2" if "avx2" in built else "plain"


def trained(table: Table, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any]) -> Record:
    """Trains unfinished runs, and returns the record."""
    machine, vectors = machine_of(options.device)
    version = subprocess.run([lab.program(), "--version"], capture_output=True, text=True).stdout.strip()
    facts = {"date": time.strftime("%F %R", time.gmtime()), "program": version, "machine": machine, "vectors": vectors}
    record = Record(table.name, options.preset, {**facts, **({"set": options.set} if options.set else {})})
    if runs.empty:
        return record
    runs = lab.train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet)
    measure, record.numbers = measured(table, runs)
    files = [[pathlib.Path(run.folder) / name for name in ("run.json", "results.jsonl")] for run in runs.itertuples() if run.state == "done"]
    seconds = sum(ended.stat().st_mtime - began.stat().st_mtime for began, ended in files)
    threads, failed = max(1, os.cpu_count() // min(options.jobs or os.cpu_count(), len(runs))), runs[runs.state != "done"]
    print("".join(f"{run.folder}: {run.state}\n" for run in failed.itertuples()), end="", file=sys.stderr)
    if table.reads:
        wanted = runs.wanted.iloc[0]
        record.facts["text"] = f"{pathlib.Path(wanted['options']['data']).name}, SHA-256 {wanted['data']}"
    record.facts |= {"lab": shlex.join(["lab.py", *lab_words(table, options.preset, more, options.seeds)]), "seeds": str(runs.seed.nunique()),
                     "runs": str(len(runs)), **({"failed": str(len(failed))} if len(failed) else {}), "core-seconds": f"{seconds * threads:.1f}",
                     "digits": {"perplexity": "3", "bits per byte": "4"}.get(measure, "2"), "measure": measure}
    return record


def run_command(command: str, places: dict[str, str], out: pathlib.Path) -> tuple[str, int]:
    """The output and the exit code of a table's command: arguments of `whence`, or a script of this folder with arguments. RUN, TEXT, CODE and
    OUT/NAME stand for files."""
    words = [places.get(word, str(out / word[4:]) if word.startswith("OUT/") else word) for word in shlex.split(command)]
    script = words[0].endswith(".py")
    program = [sys.executable, str(pathlib.Path(__file__).with_name(words[0])), *words[1:]] if script else [lab.program(), *words]
    said = subprocess.run(program, stdout=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "WHENCE": lab.program()})
    return f"\n$ {shlex.join(['whence'] * (not script) + words)}\n{said.stdout}", said.returncode


# ---- Would this program reproduce the records?

def short_trainings(wanted: list[tuple[Table, Record]], jobs: int) -> list[dict[str, str]]:
    """For each table, by "TASK SCHEME", 16 digits of the SHA-256 of weights and results after two steps of a small model. They change with everything
    that changes the numbers, and not with a comment."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"  # replaces the user's; long enough for the longest windows
        text.write_text("".join(f"line {k * k % 9973} of a text\n" for k in range(20000)), encoding="utf-8")
        frames = [runs_of(table, record.preset, {**lab.settings_of(record.facts.get("set", "")), **({"data": str(text)} if table.reads else {})},
                          out=folder, short=True) if table.presets else pd.DataFrame() for table, record in wanted]
        if any(map(len, frames)):
            runs = pd.concat(frames).drop_duplicates("folder").reset_index(drop=True)
            runs.attrs = {"out": folder, "axes": []}
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
        then = {name: record.facts.get(f"bits {name}", "nothing") for name in bits}
        why = [f"bits {now} {name}; recorded {then[name]}" for name, now in sorted(bits.items()) if then[name] != now]
        words = ["lab.py", *lab_words(table, record.preset, more, int(record.facts.get("seeds", 0)))]
        if why or shlex.join(words) != record.facts.get("lab"):
            stale.append(f"STALE: {table.name}, {record.preset}: " + ("\n  ".join(["short trainings give other bits:", *why]) if why
                                                                     else "its preset has other options now"))
    stale += [f"STALE: {name}, {preset}: there is no such table or preset now" for name, preset in records
              if (name, preset) not in [(table.name, record.preset) for table, record in known]]
    other = sum(bool(table.presets) for table, _ in known) - len(told)
    return "".join(f"{each}\n" for each in stale) + f"{len(records)} results recorded, {len(stale)} that this program would not give" + (
        f", {other} of which it cannot tell: they are not of {vectors}" if other else "")


def checked(now: Record, then: Record, rows: list[str]) -> int:
    """Prints differences from a record of the same table. Returns 1 if they should be equal."""
    said = lambda record, cell: " ".join(map(exact, record.of(*cell))) or "nothing"
    cells = [cell for cell in {**then.numbers, **now.numbers} if cell in now.numbers or not rows or cell[0] in rows]
    differ = [cell for cell in cells if said(now, cell) != said(then, cell)]
    for cell in differ:
        print(f"differs: {', '.join(cell)}: {said(now, cell)}; recorded: {said(then, cell)}")
    comparable = all(now.facts.get(name) == then.facts.get(name) for name in ("vectors", "text"))
    same = f"{sum(map(len, now.numbers.values()))} numbers are as recorded on {then.facts.get('date')}, bit for bit"
    print(f"{now.table}: " + (same if not differ else "other numbers than recorded, of the same vectors" if comparable else
                              "recorded with other vectors or of another text: cannot be compared"))
    return int(bool(differ) and comparable)


# ---- Keeping records

def write_page(folder: pathlib.Path, papers: SimpleNamespace, records: Records) -> None:
    """Writes recorded.csv in the papers' order, and README.md from it."""
    order = [(table.name, preset) for table in papers.tables.values() for preset in table.presets or ["mini"]]
    records = {place: records[place] for place in [*order, *records] if place in records}
    write_records(folder / "recorded.csv", records)
    (folder / "README.md").write_text(summary_page(papers, records), encoding="utf-8")


def keep(folder: pathlib.Path, papers: SimpleNamespace, record: Record, said: str, drawn: pathlib.Path) -> None:
    """Keeps a record. It replaces the earlier one of the same table and preset."""
    table, name = papers.tables[record.table], f"{record.table}-{record.preset}".replace("/", "-")
    text = f"# {table.name}: {table.what}\n\n{table.place}.\n\n{table.note}\n"
    if table.presets:
        text += f"\nWhy these sizes: {table.presets[record.preset]['why']}\n\n    {record.facts['lab']}\n"
    shutil.copytree(drawn, folder / "figures" / name, dirs_exist_ok=True)
    figures = sorted(file.name for file in drawn.iterdir() if file.suffix in (".svg", ".png", ".pdf"))
    text += f"\n```\n{said}```\n" + "".join(f"\n![{figure}](figures/{name}/{figure})\n" for figure in figures)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    there = read_records(folder / "recorded.csv") if (folder / "recorded.csv").exists() else {}
    write_page(folder, papers, {**there, (record.table, record.preset): record})


# ---- The program

def one(papers: SimpleNamespace, table: Table, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any], then: Record | None) -> int:
    """Trains one table, prints its results and those of its commands, then checks and keeps it. Returns the exit code."""
    out = pathlib.Path(options.out) / f"{table.name}-{options.preset}"
    out.mkdir(parents=True, exist_ok=True)
    record, kept, text, code, began = trained(table, runs, options, more), table.with_rows(options.row), "", 0, time.time()
    if table.kind == "compared":
        text = shown(kept, record)
        print(f"\n{text}", flush=True)
        beside_paper(kept, record).to_csv(out / "beside_paper.csv", index=False)
        judged(kept, record).to_csv(out / "verdicts.csv", index=False)
    for command in table.run:
        said, failed = run_command(command, {"RUN": runs.folder.iloc[0] if len(runs) else "", "TEXT": options.data, "CODE": options.code}, out)
        print(said, end="", flush=True)
        text, code = text + said, code or int(failed != 0)
    record.facts["core-seconds"] = f"{2 * (record.seconds + (time.time() - began) * bool(table.run)):.1f}"
    code = max(code, int("failed" in record.facts), checked(record, then, options.row) if then else 0)
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
        keep(options.record, papers, record, text, out)
    return code


def reproduce(options: argparse.Namespace) -> int:
    papers, set_by_user, records = read_papers(), lab.settings_of(options.set), read_records(options.records)
    if options.seeds < 0 or options.jobs < 0:
        raise Refused(f"--seeds, --jobs: {options.seeds}, {options.jobs} given; 0 or more required")
    page = options.record / "README.md" if options.record else None
    if page and page.exists() and not page.read_text(encoding="utf-8", errors="replace").startswith(page_head().split(",")[0]):
        raise Refused(f"--record: {page} is there and is no page of records; another folder required")
    if options.list or options.stale or (page and not options.names):
        print(listing(papers, records).rstrip() if options.list else staleness(papers, records, options.jobs) if options.stale else
              write_page(options.record, papers, read_records(options.record / "recorded.csv")) or page)
        return 0
    if not options.names:
        raise Refused("no name given; a table or figure of the papers required; --list shows them")
    every = [table for table in papers.tables.values() if options.preset in table.presets or (table.run and not table.presets)]
    tables = list({table.name: table for name in options.names for table in (every if name == "all" else [find_table(papers, name)])}.values())
    then, planned, code = {name: record for (name, preset), record in records.items() if preset == options.preset}, [], 0
    for table in tables:
        if table.kind == "not ours":
            raise Refused(f"{table.name}: {table.what}; it cannot be run here: {table.note}")
        if (options.check or options.recorded) and table.name not in then:
            raise Refused(f"{table.name} at preset {options.preset} is not recorded; another table required")
    if options.recorded:
        for table in tables:
            print(f"{table.name}: {table.what} ({table.place})\n{shown(table.with_rows(options.row), then[table.name])}")
        return 0
    if options.row and options.record:
        raise Refused("--row: given; a table that is printed required; --record keeps whole ones")
    for table in tables:
        for word, given, what in (("TEXT", options.data, "--data"), ("CODE", options.code, "--code")):
            if not given and (table.reads == word.lower() or any(word in command.split() for command in table.run)):
                raise Refused(f"{what}: nothing given; a file of yours required; {table.name} reads it, and the papers' texts are not ours to give")
        more = {**set_by_user, **({"data": options.data if table.reads == "text" else options.code} if table.reads else {})}
        runs, rows = pd.DataFrame(), table.with_rows(options.row).methods
        if table.presets:
            runs = runs_of(table, options.preset, more, options.seeds, options.out, options.device)
            here = [not options.row or any(stands_at(run, table, row) for row in rows) for run in runs.to_dict("records")]
            if not any(here):
                raise Refused(f'--row: "{options.row[0]}" given; a row of preset {options.preset} required')
            runs.drop(runs.index[np.invert(here)], inplace=True)
            now = shlex.join(["lab.py", *lab_words(table, options.preset, more, options.seeds)])
            if options.check and now != (recorded := then[table.name].facts.get("lab")):
                raise Refused(f"--check: the runs would be those of '{now}', recorded are those of '{recorded}'; the recorded options, seeds and "
                              "file's name required")
        planned.append((table, runs, more))
    for table, runs, more in planned:
        print(f"{table.name}: {table.what} ({table.place})")
        if len(runs):
            words = lab_words(table, options.preset, more, options.seeds)
            print(f"{len(runs)} runs, preset {options.preset}; as\n  {shlex.join(['lab.py', *words])}")
        print(table.note, flush=True)
        code = max(code, one(papers, table, runs, options, more, then[table.name] if options.check else None))
    return code


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
    add("--record", type=pathlib.Path, help="folder: keep recorded.csv, README.md and a page of each table there; without a NAME: rewrite README.md")
    add("--records", default=RECORDED, metavar="FILE", help="another recorded.csv for --list, --recorded, --stale and --check")
    add("--stale", action="store_true", help="list recorded results that this program would not give, by short trainings of a minute or two")
    add("--check", action="store_true", help="fail if the numbers differ from the recorded ones; needs the same vectors of the processor")
    add("--quiet", action="store_true", help="no progress")
    return reproduce(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
