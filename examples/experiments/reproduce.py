#!/usr/bin/env python3
"""The papers' tables and figures by name: ours beside theirs, and which of the papers' comparisons hold.

    examples/experiments/reproduce.py --list                                what each asks, how it is had here, what it costs
    examples/experiments/reproduce.py cope/table3                           trains it, and judges each comparison of the paper
    examples/experiments/reproduce.py cope/table3 --recorded                the same of the recorded numbers: nothing is trained
    examples/experiments/reproduce.py dape-v2/table1 --data austen.txt      a table of language models, on your text
    examples/experiments/reproduce.py all --data TEXT --code FOLDER --record MINE     every table, kept with its figures in MINE
    examples/experiments/reproduce.py --stale                               would this program give the recorded numbers?
    examples/experiments/reproduce.py cope/table3 --check                   the numbers must be those recorded

In a notebook:

    import reproduce
    papers, records = reproduce.read_papers(), reproduce.read_records(reproduce.RECORDED)
    reproduce.judged(papers.tables["cope/table2-flip_flop"], records[0])    a DataFrame with a row for each comparison

examples/whence/papers has the tables as text, and in recorded.csv the number of every seed.
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
import textwrap
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Iterable, Iterator

import lab
import numpy as np
import pandas as pd
import scipy.stats
from lab import Refused

PAPERS = lab.ROOT / "examples/whence/papers"
RECORDED, FILES = PAPERS / "recorded.csv", ("cope.table", "dape.table", "dape_v2.table")  # one refers to those before it
HOLDS, DOES_NOT, OPEN = VERDICTS = ("holds", "does not", "not decided at this size")
MEASURES = {**{name: column for column, name in lab.COMPARED.items()}, "Delta-P": "delta_p"}
GUESS = "best guess"  # stands as a method behind the others: it needs no model


# ---- The papers' tables as text

@dataclass
class Line:
    """ "key value" with the lines behind it that are indented by more than two, or "| cell | cell |" with the key "|"."""
    place: str  # "cope.table: line 12"
    indented: bool
    key: str
    value: str

    def require(self, so: Any, found: str, required: str) -> None:
        if not so:
            raise Refused(f"{self.place}: {found} found; {required} required")

    def one_of(self, names: Iterable[str], value: str, required: str) -> str:
        self.require(value in names, f'"{value}"', required)
        return value

    def whole(self, text: str) -> int:
        self.require(re.fullmatch(r"\d+", text), f'"{text}"', "a whole number")
        return int(text)


class Table(SimpleNamespace):
    """A table or figure of a paper, with the fields of its text. presets: name to set, why, lab, seeds, schemes, task (those two in place of the
    table's). methods: name to scheme and values of axes. columns: name to where its numbers lie: task, set, times the training length, validation
    step, values of axes. printed: by method and column the mean and the deviation, or NaN. claims: better, worse, column."""

    def __init__(self, name: str):
        super().__init__(name=name, what="", place="", note="", measure="", set="", reads="", figures="error", same_tokens="no",
                         higher_is_better="no", task=[], vary=[], schemes=[], run=[], presets={}, methods={}, columns={}, printed={}, claims=[])

    @property
    def kind(self) -> str:
        return "compared" if self.presets and self.methods else "commanded" if self.run else "not ours"

    def tasks_at(self, preset: str) -> list[str]:
        return self.presets[preset]["tasks"] or self.task

    def has(self, preset: str, method: str, column: str) -> bool:
        schemes = self.presets[preset]["schemes"]
        return (not schemes or self.methods[method][0] in schemes) and self.columns[column]["task"] in ("", *self.tasks_at(preset))

    def with_rows(self, rows: list[str]) -> Table:
        """These methods alone, and the claims between them; all where there are none."""
        if bad := [name for name in rows if name not in self.methods]:
            raise Refused(f'--row: "{bad[0]}" given; one of those of {self.name} required')
        kept = Table(self.name)
        vars(kept).update(vars(self))
        if rows:
            kept.methods = {name: self.methods[name] for name in rows}
            kept.claims = [claim for claim in self.claims if claim[0] in rows and claim[1] in rows]
        return kept


CHOICES = {"reads": ("text", "code"), "same-tokens": ("yes", "no"), "higher-is-better": ("yes", "no"), "figures": ("accuracy", "error")}


def lines_of(file: str, text: str) -> list[Line]:
    lines: list[Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        key, _, value = line.strip().partition(" ")
        read = Line(f"{file}: line {number}", line.startswith(" "), key, value.strip())
        if not key or key.startswith("#"):
            continue
        if len(line) - len(line.lstrip(" ")) <= 2:
            lines.append(read)
        else:
            read.require(lines and lines[-1].key != "|", "a line that goes on", "one before it that can")
            lines[-1].value += " " + line.strip()
    return lines


def read_tables(file: str, text: str, papers: SimpleNamespace) -> None:
    """Adds the tables of a text, which may refer to those before it."""
    lines, borrowed = lines_of(file, text), []
    heads = [k for k, line in enumerate(lines) if not line.indented]
    for begin, end in zip(heads, [*heads[1:], len(lines)]) if heads[:1] == [0] else [(0, 0)] * bool(lines):
        head, body = lines[begin], lines[begin + 1:end]
        head.require(end > 0, f'"{head.key}"', "a line without indentation")
        head.one_of(("paper", "let", "sizes", "table"), head.key, "paper, let, sizes or table")
        name, _, rest = head.value.partition(" ")
        head.require(name, f'"{head.key}"', "a name behind it")
        if head.key in ("paper", "let"):
            head.require(not body, f'a line below "{head.key}"', "a line without indentation")
            (papers.titles if head.key == "paper" else papers.texts)[name] = filled(papers, head, rest.strip())
        elif head.key == "sizes":
            for line in body:
                read_preset(papers, papers.sizes.setdefault(name, {}), line)
        else:
            head.require(name not in papers.tables, f"a second table {name}", "a name of its own")
            papers.tables[name] = Table(name)
            borrowed += read_table(papers, papers.tables[name], head, body)
    for line, table, method, where in borrowed:  # from a table that may stand behind
        other, _, source = where.rpartition(" in ")
        printed = papers.tables[line.one_of(papers.tables, source, "the name of another table")].printed
        line.one_of({each for each, _ in printed}, other, "a method of that table")
        table.printed |= {(method, column): figure for (each, column), figure in printed.items() if each == other and column in table.columns}


def filled(papers: SimpleNamespace, line: Line, text: str) -> str:
    """The text with what `let NAME` says in the place of $NAME."""
    return re.sub(r"\$(\w*)", lambda found: papers.texts[line.one_of(papers.texts, found[1], "a name of `let` before it")], text)


def read_preset(papers: SimpleNamespace, presets: dict[str, dict], line: Line) -> None:
    """ "mini.set steps=300"; with "+" behind the key, more of what it was."""
    name, _, key = line.key.removesuffix("+").partition(".")
    blank = {"set": "", "why": "", "lab": "mini" if name == "mini" else "paper", "schemes": [], "tasks": [], "seeds": 3}
    line.one_of(blank, key, "set, why, lab, schemes, tasks or seeds of a preset")
    preset, text = presets.setdefault(name, blank), filled(papers, line, line.value)
    if key in ("set", "why", "lab"):
        preset[key] = f"{preset[key]} {text}".strip() if line.key.endswith("+") else text
    else:
        preset[key] = {"schemes": lab.parts, "tasks": str.split, "seeds": line.whole}[key](text)


def read_table(papers: SimpleNamespace, table: Table, head: Line, lines: list[Line]) -> list[tuple]:
    """Reads what stands below "table NAME", and returns what is to be borrowed from other tables: line, table, method, "METHOD in TABLE"."""
    rows, claims, last = [], [], (lines or [head])[-1]
    for line in lines:
        key, value = line.key, line.value
        if key in ("what", "place", "note", "measure", "set"):
            setattr(table, key, filled(papers, line, value))
        elif key in CHOICES:
            setattr(table, key.replace("-", "_"), line.one_of(CHOICES[key], value, " or ".join(CHOICES[key])))
        elif key in ("task", "vary", "schemes"):
            setattr(table, key, lab.parts(value) if key == "schemes" else value.split())
        elif key == "columns":
            table.columns = copy.deepcopy(papers.tables[line.one_of(papers.tables, value, "the name of another table")].columns)
        elif key == "sizes":  # "NAME" or "NAME mini small": all presets of a name of `sizes`, or these
            name, *some = value.split() or [""]
            found = papers.sizes[line.one_of(papers.sizes, name, "a name of `sizes` before it")]
            table.presets |= copy.deepcopy({each: found[each] for each in found if not some or each in some})
        elif key == "|":
            line.require(value.endswith("|"), f'"{value}"', "a | at the end of the row")
            rows.append((line, [cell.strip() for cell in value[:-1].split("|")]))
        elif key in ("better", "run"):
            claims.append(line) if key == "better" else table.run.append(value)
        else:
            line.require("." in key, f'"{key}"', "a field of a table")
            read_preset(papers, table.presets, line)
    borrowed = read_rows(table, rows)
    for name, column in table.columns.items():
        if table.presets and not (column["set"] or column["times"] or column["step"]):
            last.require(table.set, f"column {name}", "set, times or step of each column")
            column["set"] = table.set
    for line in claims:  # "CoPE > RoPE & ALiBi | In-dist | OOD", or "| *" for all columns
        sides, *columns = [part.strip() for part in line.value.split(" | ")]
        better, _, worse = sides.partition(" > ")
        line.require(worse and columns, f'"{line.value}"', "METHOD > METHOD & METHOD | COLUMN | ...")
        for column in table.columns if columns == ["*"] else columns:
            line.one_of(table.columns, column, "a column of the table")
            table.claims += [tuple(line.one_of(table.methods, each.strip(), "a method of the table") for each in (better, other)) + (column,)
                             for other in worse.split(" & ")]
    table.task = list(dict.fromkeys([*table.task, *(each["task"] for each in table.columns.values() if each["task"])]))
    table.schemes = list(dict.fromkeys([*table.schemes, *(scheme for scheme, _ in table.methods.values())]))
    last.require(table.what and table.place, f"the end of {table.name}", "what and place before it")
    last.require(bool(table.presets) == bool(table.task), f"the end of {table.name}", "a task and presets, or neither, before it")
    return borrowed


def read_rows(table: Table, rows: list[tuple[Line, list[str]]]) -> list[tuple]:
    """ "| | scheme | COLUMN | ..."; below it where each column lies, "| task, set, times, step or an axis | | VALUE | ..."; then "| METHOD | SCHEME |
    FIGURE | ...". Papers print some tables with rows and columns exchanged."""
    borrowed, shared = [], len(table.columns)
    if len(rows) > 1 and rows[1][1][0] == "scheme":
        for line, cells in rows:
            line.require(len(cells) == len(rows[0][1]), "rows of unequal lengths", f"{len(rows[0][1])} cells in each")
        rows = [(rows[0][0], list(cells)) for cells in zip(*(cells for _, cells in rows))]
    for line, (name, *rest) in rows:
        line.require(rest, "a row of one cell", "a name and a scheme")
        scheme, *values = rest
        if not name and scheme == "scheme":
            table.columns |= {each: {"task": "", "set": "", "times": 0, "step": 0, "at": {}} for each in values}
        elif not scheme:
            own = list(table.columns.values())[shared:]
            for k, value in enumerate(values):
                line.require(value == "-" or k < len(own), f'"{value}"', "a column above it")
                if value != "-":
                    where = own[k] if name in ("task", "set", "times", "step") else own[k]["at"]
                    where[name] = line.whole(value) if name in ("times", "step") else value
        else:
            scheme, *axes = map(str.strip, scheme.split(";"))
            for axis in axes:
                line.require(axis.count("=") == 1, f'"{axis}"', "AXIS=VALUE")
            table.methods[name] = scheme, dict(axis.split("=") for axis in axes)
            if len(values) == 1 and values[0].startswith("of "):
                borrowed.append((line, table, name, values[0][3:]))
                continue
            line.require(len(values) in (0, len(table.columns)), f"{len(values)} figures of {name}", f"none, or {len(table.columns)}")
            for column, value in zip(table.columns, values):
                found = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?: \((\d+(?:\.\d+)?)\))?|-", value)
                line.require(found, f'"{value}"', "a figure, as 6.8 (6.9) or 6.8, or -,")
                if value != "-":  # whence measures errors
                    mean = math.floor((100 - float(found[1])) * 100 + 0.5) / 100 if table.figures == "accuracy" else float(found[1])
                    table.printed[name, column] = mean, float(found[2] or "nan")
    return borrowed


def read_papers(folder: pathlib.Path = PAPERS) -> SimpleNamespace:
    """titles and tables by name; texts and sizes, which `let` and `sizes` name."""
    papers = SimpleNamespace(titles={}, tables={}, texts={}, sizes={})
    for file in FILES:
        read_tables(file, (folder / file).read_text(encoding="utf-8", errors="replace"), papers)
    return papers


def find_table(papers: SimpleNamespace, name: str) -> Table:
    for table in papers.tables.values():
        span = re.fullmatch(r"(.*/figure)(\d+)-(\d+)", table.name)  # "dape/figure9" is one of "dape/figure7-21"
        if name == table.name or (span and name in [f"{span[1]}{number}" for number in range(int(span[2]), int(span[3]) + 1)]):
            return table
    near = [each for each in papers.tables if each.startswith(name)] or difflib.get_close_matches(name, papers.tables, 1)
    raise Refused(f'"{name}" given; a table or figure of the papers required; ' + (f"near: {', '.join(near)}" if near else "--list shows them"))


# ---- What is recorded

@dataclass
class Record:
    """The numbers of a table at a preset, by method and column, then by seed; and how they were made: date, vectors, lab, "bits TASK SCHEME", ..."""
    table: str
    preset: str
    facts: dict[str, str] = field(default_factory=dict)
    numbers: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)

    def of(self, method: str, column: str) -> list[float]:
        return list(self.numbers.get((method, column), {}).values())

    @property
    def seconds(self) -> float:
        """On two cores."""
        return float(self.facts.get("core-seconds", 0)) / 2


NUMBER = r"\d+(\.\d+)?(e[+-]?\d+)?"
csv.field_size_limit(1 << 30)
HEAD = ["table", "preset", "method", "column", "seed", "value"]


def words_in(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise Refused(f"{text!r} given: {problem}; quotes that close required") from None


def exact(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def read_records(path: str | os.PathLike) -> list[Record]:
    """Of a CSV with a row for each cell and seed. An empty cell is as in the row above. Of the method "record" are facts, which have no seed."""
    records, above = {}, [""] * 4
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").replace("\0", "\ufffd")
    with io.StringIO(text, newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            line = Line(f"{path}: line {number}", False, "", "")
            line.require(len(row) == len(HEAD) and (number > 1 or row == HEAD), f'"{",".join(row)}"', ",".join(HEAD))
            if number > 1:
                first = next((k for k in range(4) if row[k]), 4)
                above = [*above[:first], *row[first:4]]
                line.require(all(above), f'"{",".join(row)}"', "a table, preset, method and column, here or above,")
                record = records.setdefault((above[0], above[1]), Record(above[0], above[1]))
                if above[2] == "record":
                    counts = above[3] in ("seeds", "runs", "failed", "digits", "core-seconds") or above[3].startswith("operations ")
                    line.require(not counts or re.fullmatch(NUMBER, row[5]), f'"{row[5]}"', f"a number of {above[3]}")
                    record.facts[above[3]] = row[5]
                    continue
                line.require(re.fullmatch(rf"\d+ (nan|-?{NUMBER})", " ".join(row[4:])), f'"{",".join(row[4:])}"', "a seed and a number")
                record.numbers.setdefault((above[2], above[3]), {})[int(row[4])] = float(row[5])
    return list(records.values())


def write_records(path: pathlib.Path, records: Iterable[Record]) -> None:
    above = [""] * 4
    with open(path.with_suffix(".tmp"), "w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(HEAD)
        for each in records:
            rows = [(("record", name), "", value) for name, value in each.facts.items()]
            rows += [(cell, seed, exact(value)) for cell, values in each.numbers.items() for seed, value in values.items()]
            for cell, seed, value in rows:
                where = [each.table, each.preset, *cell]
                same = next((k for k in range(4) if where[k] != above[k]), 4)
                write([*([""] * same), *where[same:], seed, value])
                above = where
    path.with_suffix(".tmp").replace(path)


# ---- Which comparisons hold

def probability(p: float) -> str:
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"


def welch(a: tuple[float, float, int], b: tuple[float, float, int]) -> float:
    """The two-sided p of Welch's test, of mean, deviation and count of both sides."""
    return float(scipy.stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue)


def decide(lower: list[float], higher: list[float]) -> tuple[str, str, float]:
    """Are the first values lower than the second? The verdict, the test behind it, and its p: NaN where nothing was tested."""
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
    """A row for each comparison whose methods and column the preset has: better, worse, column, verdict, test, p, and paper, the test that
    the paper's own figures would pass, of three seeds each."""
    rows = []
    for better, worse, column in table.claims:
        if table.has(record.preset, better, column) and table.has(record.preset, worse, column):
            ours = [record.of(better, column), record.of(worse, column)]
            a, b = [(*table.printed.get((method, column), (math.nan, math.nan)), 3) for method in (better, worse)]
            paper = "-" if math.isnan(a[1] + b[1]) else probability(welch(a, b)) if a[1] or b[1] else "no spread"
            rows.append((better, worse, column, *decide(*(ours[::-1] if table.higher_is_better == "yes" else ours)), paper))
    return pd.DataFrame(rows, columns=["better", "worse", "column", "verdict", "test", "p", "paper"])


def corrected(p: pd.Series) -> pd.Series:
    """Benjamini and Hochberg 1995: the k-th smallest of n p values times n / k, never falling. Of those below 0.05 then, one in twenty is expected to
    be there by chance."""
    known = p.dropna().sort_values(ascending=False)
    return (known * len(known) / np.arange(len(known), 0, -1)).cummin().reindex(p.index)


def by_chance(found: pd.DataFrame) -> str:
    """How many verdicts would come about by chance, and what is left of them when they are corrected for their number."""
    tests, left = int(found.p.notna().sum()), found.verdict[(corrected(found.p) < 0.05) | found.p.isna()]
    count = lambda verdicts, verdict: int((verdicts == verdict).sum())
    return (f"{tests} tests were made. If all methods were alike, {0.05 * tests:.1f} of them would have p < 0.05 by chance, and {0.025 * tests:.1f} "
            f"would hold; {count(found.verdict, HOLDS)} hold here and {count(found.verdict, DOES_NOT)} do not. Corrected for the number of tests "
            f"(Benjamini-Hochberg), {count(left, HOLDS)} hold and {count(left, DOES_NOT)} do not.")


# ---- Tables and pages

def beside_paper(table: Table, record: Record) -> pd.DataFrame:
    """A row for each method and column: mean and, from two seeds on, standard deviation; what the paper prints."""
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
    """Ours beside the paper's, and the verdicts."""
    found, text = judged(table, record), text_of(beside_paper(table, record))
    if len(found):
        text += "\n" + text_of(pd.DataFrame({
            "the paper's comparison": found.better + " better than " + found.worse, "column": found["column"], "here": found.verdict,
            "test": found.test,
            "corrected": [probability(p) if p == p else "-" for p in corrected(found.p)], "the paper's own figures": found.paper}))
        text += f"\n{by_chance(found)}\n"
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
    """Of a preset that is not recorded, as many times the cost of one that is as it has more operations."""
    own = next((each for each in records if each.preset == preset), records[0] if records else Record("", ""))
    here, there = [float(own.facts.get(f"operations {each}", "nan")) for each in (own.preset, preset)]
    return (time_text(own.seconds) if own.preset == preset else "of unknown cost" if math.isnan(here + there)
            else f"about {time_text(own.seconds * there / here)}")


def listing(papers: SimpleNamespace, records: list[Record]) -> str:
    text = "Costs are on two cores.\n"
    for table in papers.tables.values():
        own = [record for record in records if record.table == table.name]
        how = {"not ours": f"lacks: {table.note}", "compared": "trained, compared", "commanded": "trained, then commands" if table.presets
               else "commands"}[table.kind] + (": " if table.presets else "") + ", ".join(f"{each} {cost_of(own, each)}" for each in table.presets)
        for record in own:
            found = judged(table, record)
            how += f"; recorded {record.preset} {record.facts.get('date', '')[:10]}"
            how += f": {(found.verdict == HOLDS).sum()} of {len(found)} hold" if len(found) else ""
        lines = [line for part in (f"{table.what} ({table.place})", how)
                 for line in textwrap.wrap(part, 91, break_long_words=False, break_on_hyphens=False)]
        text += f"{table.name:<28}" + f"\n{'':28}".join(lines) + "\n"
    return text


HOW_TO = """# The papers' tables and figures, ours beside theirs

    cd examples/experiments
    ./reproduce.py --list                                   # what each asks, how it is had here, what it costs
    ./reproduce.py cope/table3                              # ours beside the paper's, with verdicts
    ./reproduce.py all --data TEXT --code FOLDER --record MINE   # every table, kept with its figures in MINE
    ./reproduce.py --stale                                  # would this program give the recorded numbers?
    ./reproduce.py cope/table3 --check                      # the numbers must be those recorded

[recorded.csv](recorded.csv) has the number of every seed; a cell that is empty there is as in the row above. This
page is written from it. A comparison that a paper makes *holds* or *does not* where Welch's test over the seeds says
so (two-sided, p < 0.05), or where all seeds of both sides agree exactly; else it is *not decided at this size*. A
dagger † marks those that hold, or do not, by their own p alone, and are not decided once the p of all tests on this
page are corrected for their number. Some comparisons stand in several tables, on the same runs. Where a table is
recorded at several sizes, the smallest is counted. The papers' own tables are text: [cope.table](cope.table),
[dape.table](dape.table), [dape_v2.table](dape_v2.table).

"""


def summary_page(papers: SimpleNamespace, records: list[Record]) -> str:
    """What the papers claim, and what of it holds here."""
    of = {(record.table, record.preset): record for record in records}
    kept = {name: next((of[name, preset] for preset in table.presets or ["mini"] if (name, preset) in of), None)
            for name, table in papers.tables.items()}
    found = pd.concat([judged(papers.tables[name], record).assign(table=name) for name, record in kept.items() if record], ignore_index=True) if any(
        kept.values()) else judged(Table(""), Record("", "")).assign(table="")
    found["mark"] = ["†" if p >= 0.05 and verdict != OPEN else "" for p, verdict in zip(corrected(found.p), found.verdict)]

    def counted(names: list[str]) -> list:
        there = found.verdict[found.table.isin(names)]
        return [len(there), *((there == verdict).sum() for verdict in VERDICTS)]

    seconds = lambda names: time_text(sum(kept[name].seconds for name in names if kept[name]))
    own = {paper: [name for name in papers.tables if name.startswith(f"{paper}/")] for paper in papers.titles}
    machines, dates, programs, texts = ("; ".join(sorted({text(record.facts) for record in records} - {""})) for text in (
        lambda facts: f"{facts.get('machine', '')}, {facts.get('vectors', '')}", lambda facts: facts.get("date", "")[:10],
        lambda facts: facts.get("program", ""), lambda facts: facts.get("text", "")))
    page = (f"{HOW_TO}Machine: {machines}. Date: {dates}. Program: {programs}. Texts: {texts}. "
            "Times are those of all runs of a table on two cores that "
            "do nothing else; runs that two tables share are in both, but were trained once.\n\n")
    page += markdown("paper | tables and figures | recorded | comparisons | hold | do not | not decided at this size | two cores", [
        [papers.titles[paper], len(names), sum(kept[name] is not None for name in names), *counted(names), seconds(names)]
        for paper, names in own.items()])
    page += f"\n{by_chance(found)}\n"
    for paper, names in own.items():
        lacks = {name: f"; lacks: {table.note}" for name, table in papers.tables.items() if table.kind == "not ours" and not kept[name]}
        page += f"\n## {papers.titles[paper]}\n\n"
        page += markdown("table or figure | what it asks | comparisons | hold | do not | not decided | two cores", [
            [name, papers.tables[name].what + lacks.get(name, ""), *(counted([name]) if (found.table == name).any() else "----"),
             seconds([name]) if kept[name] else "-"] for name in names])
        for name, part in found[found.table.isin(names)].groupby("table", sort=False):
            said = []
            for verdict, words in zip(VERDICTS, ("holds", "**does not hold**", "not decided")):
                sides = part[part.verdict == verdict].groupby(["better", "worse"], sort=False)
                found_so = [f"{better} over {worse} ({'; '.join(each['column'] + each.mark)})" for (better, worse), each in sides]
                said += [f"{words}: {', '.join(found_so)}"] if found_so else []
            page += f"\n- {name}: {'. '.join(said)}."
        page += "\n"
    return page


# ---- What is trained

def settings_of(table: Table, preset: str, more: dict[str, Any]) -> dict[str, Any]:
    """What lab.py has as --set. `more`: in place of the preset's."""
    if preset not in table.presets:
        raise Refused(f"--preset: {preset} given; one of those of {table.name} required: {', '.join(table.presets)}")
    return {**lab.pairs(shlex.split(table.presets[preset]["set"]), "set"), **more}


def lab_words(table: Table, preset: str, more: dict[str, Any], seeds: int) -> list[str]:
    """The runs of a table as one types them behind lab.py; of a file of the user's the name alone."""
    at, quoted = table.presets[preset], lambda text: f'"{text}"' if " " in text else text
    words = [name if value is True else f"{name}={quoted(pathlib.Path(value).name if table.reads and name == 'data' else str(value))}"
             for name, value in settings_of(table, preset, more).items()]
    return [*table.tasks_at(preset), "--schemes", ",".join(at["schemes"] or table.schemes), "--preset", at["lab"],
            *(word for axis in table.vary for word in ("--vary", axis)), *["--same-tokens"] * (table.same_tokens == "yes"),
            *(["--set", " ".join(words)] if words else []), "--seeds", str(seeds or at["seeds"])]


def stands_at(run: dict, table: Table, method: str, column: str | None = None) -> bool:
    """Is the run of this method, and of this column?"""
    (scheme, at), where = table.methods[method], table.columns.get(column, {"task": "", "at": {}})
    return (run["scheme"] == scheme and where["task"] in ("", run["task"])
            and all(str(run[axis]) == value for axis, value in {**at, **where["at"]}.items()))


def pooled(runs: pd.DataFrame, folder: str, words: str = "") -> pd.DataFrame:
    """The runs in folders that are named by all options: two tables that ask for the same run train it once."""
    facts = lambda run: json.dumps([run.wanted["subject"], run.wanted["options"], run.wanted["data"], words])
    hashed = lambda run: hashlib.sha256(facts(run).encode()).hexdigest()[:12]
    runs["folder"] = [f"{folder}/{run.task}/{pathlib.Path(run.folder).name}-{hashed(run)}" for run in runs.itertuples()]
    return runs


def runs_of(table: Table, preset: str, more: dict[str, Any], seeds: int = 0, out: str = "runs/reproduce", rows: list[str] = [],
            device: str = "auto") -> pd.DataFrame:
    """The grid of a table."""
    at = table.presets.get(preset)
    settings, vary = settings_of(table, preset, more), {name: lab.parts(values) for name, values in lab.pairs(table.vary, "vary").items()}
    runs = lab.grid(table.tasks_at(preset), at["schemes"] or table.schemes, seeds=seeds or at["seeds"], vary=vary, settings=settings,
                    preset=at["lab"], out=f"{out}/runs", equal_tokens=table.same_tokens == "yes")
    cells = pooled(runs, f"{out}/runs", device).to_dict("records")
    for method, column in ((method, column) for method in table.methods for column in table.columns if table.has(preset, method, column)):
        if not any(stands_at(run, table, method, column) for run in cells):
            raise Refused(f"{table.name}: {method}, {column} has no cell in the grid; one required")
    kept = runs[[not rows or any(stands_at(run, table, method) for method in rows) for run in cells]]
    if kept.empty:
        raise Refused(f'--row: "{rows[0]}" given; a row of preset {preset} required')
    kept.attrs = runs.attrs
    return kept


def value_at(run: dict, column: dict, scores: pd.DataFrame, measure: str) -> float | None:
    """None where the run was not tested so."""
    if column["step"]:
        there = {line["step"]: line.get("validation_token_error_percent") for line in lab.lines_of(pathlib.Path(run["folder"]) / "metrics.jsonl")}
        return there.get(column["step"])
    test_set = f"length {column['times'] * run['wanted']['options']['length']}" if column["times"] else column["set"]
    found = scores if test_set == "average" else scores[scores.test_set == test_set]
    if found.empty or measure not in found or (run["task"] == "lm" and found[measure].isna().any()):
        return None
    return float(np.cumsum(found[measure].to_numpy(float))[-1] / len(found))  # one after another, unlike a sum of pandas: bits are compared


def measured(table: Table, runs: pd.DataFrame) -> tuple[str, dict]:
    """The measure's name, and the numbers of the runs that are done."""
    scores, numbers = lab.scores(runs), {}
    of_run = {folder: part for folder, part in scores.groupby("folder")}
    measure = MEASURES[table.measure] if table.measure else scores.measure.iloc[0] if len(scores) else runs.about.iloc[0]["measure"]
    done = [run for run in runs.to_dict("records") if run["folder"] in of_run]
    for method, (name, column), run in ((method, column, run) for method in table.methods for column in table.columns.items() for run in done):
        if stands_at(run, table, method, name) and (value := value_at(run, column, of_run[run["folder"]], measure)) is not None:
            numbers.setdefault((method, name), {})[run["seed"]] = value
    for (name, column), run in ((column, run) for column in table.columns.items() if column[1]["set"] for run in done):
        if (GUESS, name) not in numbers and column["task"] in ("", run["task"]) and all(str(run[axis]) == at for axis, at in column["at"].items()):
            guess = value_at(run, column, of_run[run["folder"]], "best_guess")
            if guess is not None and not math.isnan(guess):
                numbers[GUESS, name] = {0: guess}
    return {field: text for text, field in MEASURES.items()}[measure], numbers


def machine_of(device: str) -> tuple[str, str]:
    """The machine in words, and what the bits depend on: the processor's vectors, or the GPU."""
    said = subprocess.run([lab.program(), "doctor", "--json"], capture_output=True, text=True).stdout
    facts = json.loads(said)
    machine, built = f"{facts['processor']['name']}, {facts['threads']['used']} threads", facts["build"]["instructions"]
    if device != "cpu" and not facts["gpu"]["refusal"]:
        return f"{machine}; {facts['gpu']['name']}", facts["gpu"]["name"]
    return machine, "avx512" if "avx512f" in built else "avx2" if "avx2" in built else "plain"


def trained(table: Table, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any]) -> Record:
    """Trains what is not done, and what is to be recorded of it."""
    machine, vectors = machine_of(options.device)
    version = subprocess.run([lab.program(), "--version"], capture_output=True, text=True).stdout.strip()
    date = time.strftime("%F %R", time.gmtime())
    record = Record(table.name, options.preset, {"date": date, "program": version, "machine": machine, "vectors": vectors})
    if options.set:
        record.facts["set"] = options.set
    if not len(runs):
        return record
    runs = lab.train(runs, jobs=options.jobs, device=options.device, quiet=options.quiet)
    measure, record.numbers = measured(table, runs)
    seconds, threads = 0.0, max(1, os.cpu_count() // min(options.jobs or os.cpu_count(), len(runs)))
    for run in runs.itertuples():
        if run.state == "done":
            began, ended = ((pathlib.Path(run.folder) / name).stat().st_mtime for name in ("run.json", "results.jsonl"))
            seconds += ended - began
        else:
            print(f"{run.folder}: {run.state}", file=sys.stderr)
    wanted, failed = runs.wanted.iloc[0], int((runs.state != "done").sum())
    if table.reads:
        record.facts["text"] = f"{pathlib.Path(wanted['options']['data']).name}, SHA-256 {wanted['data']}"
    record.facts |= {"lab": shlex.join(["lab.py", *lab_words(table, options.preset, more, options.seeds)]), "seeds": str(runs.seed.nunique()),
                     "runs": str(len(runs)), **({"failed": str(failed)} if failed else {}), "core-seconds": f"{seconds * threads:.1f}",
                     "digits": {"perplexity": "3", "bits per byte": "4"}.get(measure, "2"), "measure": measure}
    return record


def run_command(command: str, places: dict[str, str], out: pathlib.Path) -> dict:
    """Runs a command of a table, words behind `whence`, or behind a script of this folder. RUN, TEXT, CODE and OUT/NAME stand for files."""
    words = [places.get(word, str(out / word[4:]) if word.startswith("OUT/") else word) for word in shlex.split(command)]
    script, began = words[0].endswith(".py"), time.time()
    program = [sys.executable, str(pathlib.Path(__file__).with_name(words[0])), *words[1:]] if script else [lab.program(), *words]
    said = subprocess.run(program, stdout=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "WHENCE": lab.program()})
    figures = [word[4:] for word in shlex.split(command) if re.fullmatch(r"OUT/.*\.(svg|png|pdf)", word) and (out / word[4:]).is_file()]
    return {"command": shlex.join(["whence"] * (not script) + words), "output": said.stdout, "code": said.returncode, "seconds": time.time() - began,
            "figures": figures}


# ---- Would this program make what is recorded?

def user_settings(record: Record) -> dict[str, Any]:
    return lab.pairs(words_in(record.facts.get("set", "")), "set")


def short_trainings(wanted: list[tuple[Table, Record]], folder: pathlib.Path, jobs: int) -> list[dict[str, str]]:
    """For each, by "TASK SCHEME", the first 16 digits of the SHA-256 of what two steps of a small model leave, weights and results. They differ where
    anything differs that the numbers depend on, and do not where a comment was changed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text, frames = folder / "text.txt", []  # in the place of the user's, long enough for the longest windows
    text.write_text("".join(f"line {k * k % 9973} of a text\n" for k in range(20000)), encoding="utf-8")
    for table, record in wanted:
        of_text = {"length": 32, "last": 16, "evaluate-to": 2, "evaluation-windows": 1, "validation-windows": 1, "data": str(text)}
        sizes = {"steps": 2, "batch": 2, "dim": 32, "layers": 2, "heads": 4, **(of_text if table.reads else {"test-sequences": 2})}
        frames.append(pd.DataFrame())
        if table.presets:
            at, first = table.presets[record.preset], {name: lab.parts(values)[0] for name, values in lab.pairs(table.vary, "vary").items()}
            settings = {**settings_of(table, record.preset, user_settings(record)), **first, **sizes}
            settings = {name: value for name, value in settings.items() if name not in ("model", "accumulate", "validate-every", "save-every")}
            frames[-1] = pooled(lab.grid(table.tasks_at(record.preset), at["schemes"] or table.schemes, seeds=1, settings=settings, preset=at["lab"],
                                         out=folder), str(folder))
    if any(map(len, frames)):
        runs = pd.concat(frames).drop_duplicates("folder").reset_index(drop=True)
        runs.attrs = {"out": str(folder), "axes": []}
        for run in lab.train(runs, jobs=jobs, device="cpu", quiet=True).itertuples():
            if run.state != "done":
                raise Refused(f"a short training of {run.scheme} on {run.task}: {run.state}; one that ends required")
    # Bits per byte of each length follow from its perplexity. Records are older than them.
    left = lambda run: re.sub(rb'("windows":\d+),"bits_per_byte":[^,}]+', rb"\1", b"".join(
        (pathlib.Path(run.folder) / name).read_bytes() for name in ("weights.safetensors", "results.jsonl")))
    bits = [{f"{run.task} {run.wanted['options']['scheme']}": hashlib.sha256(left(run)).hexdigest()[:16] for run in frame.itertuples()}
            for frame in frames]
    shutil.rmtree(folder)
    return bits


def staleness(papers: SimpleNamespace, records: list[Record], folder: pathlib.Path, jobs: int) -> Iterator[str]:
    """Which records this program would not give. Of records of other vectors than this processor's nothing is told."""
    vectors, told, stale = machine_of("cpu")[1], [], 0
    for record in records:
        table = papers.tables.get(record.table)
        if not table or (table.presets and record.preset not in table.presets):
            stale += 1
            yield f"STALE: {record.table}, {record.preset}: there is no such table or preset now"
        elif not table.presets or record.facts.get("vectors") == vectors:
            told.append((table, record))
    for (table, record), bits in zip(told, short_trainings(told, folder, jobs)):
        more = {**user_settings(record), **({"data": record.facts.get("text", "").partition(",")[0]} if table.reads else {})}
        then = {name: record.facts.get(f"bits {name}", "nothing") for name in bits}
        why = "".join(f"\n  bits {now} {name}; recorded {then[name]}" for name, now in sorted(bits.items()) if then[name] != now)
        why = why and f"short trainings give other bits:{why}"
        if table.presets and lab_words(table, record.preset, more, int(record.facts.get("seeds", 0))) != words_in(record.facts.get("lab", ""))[1:]:
            why = "its preset has other options now"
        if why:
            stale += 1
            yield f"STALE: {record.table}, {record.preset}, of {record.facts.get('date', '')[:10]}: {why}"
    yield f"{len(records)} results recorded, {stale} that this program would not give" + (
        f", {len(records) - len(told)} of which it cannot tell: they are not of {vectors} or not of its tables" if len(told) < len(records) else "")


def checked(now: Record, then: Record, rows: list[str]) -> int:
    """Says what differs from a record of the same table; 1 where it should not."""
    said = lambda record, cell: " ".join(map(exact, record.of(*cell))) or "nothing"
    cells = [cell for cell in then.numbers if not rows or cell[0] in rows] + [cell for cell in now.numbers if cell not in then.numbers]
    differ = [cell for cell in cells if said(now, cell) != said(then, cell)]
    for cell in differ:
        print(f"differs: {', '.join(cell)}: {said(now, cell)}; recorded: {said(then, cell)}")
    here, there = ([record.facts.get(name, "") for name in ("vectors", "text")] for record in (now, then))
    if not differ:
        print(f"{sum(map(len, now.numbers.values()))} numbers are as recorded on {then.facts.get('date')}, bit for bit")
    elif here == there:
        print(f"reproduce.py: {now.table}: other numbers than recorded, of the same vectors, {here[0]}", file=sys.stderr)
    else:
        print(f"recorded with {' '.join(there)}; now {' '.join(here)}: nothing can be told")
    return int(bool(differ) and here == there)


# ---- Records are kept

def records_in(folder: pathlib.Path) -> list[Record]:
    return read_records(folder / "recorded.csv") if (folder / "recorded.csv").exists() else []


def write_page(folder: pathlib.Path, papers: SimpleNamespace, records: list[Record]) -> None:
    """recorded.csv in the papers' order, and README.md from it."""
    places = [(table.name, preset) for table in papers.tables.values() for preset in table.presets or ["mini"]]
    records = sorted(records, key=lambda each: places.index((each.table, each.preset)) if (each.table, each.preset) in places else len(places))
    write_records(folder / "recorded.csv", records)
    (folder / "README.md").write_text(summary_page(papers, records), encoding="utf-8")


def keep(folder: pathlib.Path, papers: SimpleNamespace, record: Record, said: list[dict], drawn: pathlib.Path) -> None:
    """In the place of what was there of the same table and preset."""
    table, name = papers.tables[record.table], f"{record.table}-{record.preset}".replace("/", "-")
    text = f"# {table.name}: {table.what}\n\n{table.place}.\n\n{table.note}\n"
    if table.presets:
        text += f"\nWhy these sizes: {table.presets[record.preset]['why']}\n\n    {record.facts['lab']}\n"
    if table.kind == "compared":
        text += f"\n```\n{shown(table, record)}```\n"
    for each in said:
        text += f"\n```\n$ {each['command']}\n{each['output']}```\n"
        for figure in each["figures"]:
            text += f"\n![{figure}](figures/{name}/{figure})\n"
            (folder / "figures" / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(drawn / figure, folder / "figures" / name / figure)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    write_page(folder, papers, [*(each for each in records_in(folder) if (each.table, each.preset) != (record.table, record.preset)), record])


# ---- The program

def one(papers: SimpleNamespace, table: Table, runs: pd.DataFrame, options: argparse.Namespace, more: dict[str, Any], then: Record | None) -> int:
    """Trains one table, says what came out and what its commands say; checks it, keeps it. The exit code."""
    out = pathlib.Path(options.out) / f"{table.name}-{options.preset}"
    out.mkdir(parents=True, exist_ok=True)
    record, kept = trained(table, runs, options, more), table.with_rows(options.row)
    if table.kind == "compared":
        print(f"\n{shown(kept, record)}", flush=True)
        beside_paper(kept, record).to_csv(out / "beside_paper.csv", index=False)
        judged(kept, record).to_csv(out / "verdicts.csv", index=False)
    said, failed = [], "failed" in record.facts
    for command in table.run:
        said.append(run_command(command, {"RUN": runs.folder.iloc[0] if len(runs) else "", "TEXT": options.data, "CODE": options.code}, out))
        print(f"\n$ {said[-1]['command']}\n{said[-1]['output']}", end="", flush=True)
    record.facts["core-seconds"] = f"{2 * (record.seconds + sum(each['seconds'] for each in said)):.1f}"
    code = max(int(failed), *(int(each["code"] != 0) for each in said), checked(record, then, options.row) if then else 0)
    if options.record and failed and any((each.table, each.preset) == (table.name, options.preset) for each in records_in(options.record)):
        print("not recorded: runs failed, and a record is there already")
    elif options.record:
        for preset in sorted(table.presets):
            with contextlib.suppress(Refused, KeyError):  # the user's text may have no room for it
                count = lambda run: math.prod([run.about["operations"], *(run.wanted["options"][each] for each in ("steps", "batch", "accumulate"))])
                there = runs_of(table, preset, {"data": more["data"]} if table.reads else {})
                record.facts[f"operations {preset}"] = exact(sum(map(count, there.itertuples())))
        bits = short_trainings([(table, record)], out / "short_trainings", options.jobs)[0]
        record.facts |= {f"bits {name}": bits[name] for name in sorted(bits)}
        options.record.mkdir(parents=True, exist_ok=True)
        keep(options.record, papers, record, said, out)
    return code


def reproduce(options: argparse.Namespace) -> int:
    papers, set_by_user = read_papers(), lab.pairs(words_in(options.set), "set")
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 0:
            raise Refused(f"--{name}: {getattr(options, name)} given; 0 or more required")
    if options.record:
        page = options.record / "README.md"
        if page.exists() and not page.read_text(encoding="utf-8", errors="replace").startswith(HOW_TO.split("\n")[0]):
            raise Refused(f"--record: {page} is there and is no page of records; another folder required")
        if not options.names:
            return write_page(options.record, papers, records_in(options.record)) or 0
    records = read_records(options.records)
    if options.list or options.stale:
        for line in [listing(papers, records).rstrip()] if options.list else staleness(
                papers, records, pathlib.Path(options.out) / "short_trainings", options.jobs):
            print(re.sub(r"[^\n -~\u00a0-\uffff]", "?", line), flush=True)
        return 0
    if not options.names:
        raise Refused("no name given; a table or figure of the papers required; --list shows them")
    every = [table for table in papers.tables.values() if options.preset in table.presets or (table.run and not table.presets)]
    tables = list({table.name: table for name in options.names for table in (every if name == "all" else [find_table(papers, name)])}.values())
    then = {record.table: record for record in records if record.preset == options.preset}
    for table in tables:
        if table.kind == "not ours":
            raise Refused(f"{table.name}: {table.what}; it cannot be run here: {table.note}")
        table.with_rows(options.row)
        if (options.check or options.recorded) and table.name not in then:
            raise Refused(f"{table.name} at preset {options.preset} is not recorded; another table required")
    if options.recorded:
        for table in tables:
            print(f"{table.name}: {table.what} ({table.place})\n{shown(table.with_rows(options.row), then[table.name])}")
        return 0
    if given := [name for name in ("seeds", "set", "row", "check") if getattr(options, name) and not any(table.presets for table in tables)]:
        raise Refused(f"--{given[0]}: given; a table for which something is trained required")
    if options.row and options.record:
        raise Refused("--row: given; a table that is printed required; --record keeps whole ones")
    for name, word, what in (("data", "TEXT", "a text file"), ("code", "CODE", "a folder of source code")):
        needing = [table for table in tables if table.reads == word.lower() or any(word in command.split() for command in table.run)]
        if bool(needing) != bool(getattr(options, name)):
            raise Refused(f"--{name}: nothing given; {what} of yours required; {needing[0].name} reads it, and the papers' texts are not ours to give"
                          if needing else f"--{name}: given; a table that reads it required")
    if "data" in set_by_user and any(table.reads for table in tables):
        raise Refused("--set: data given; --data or --code required")
    planned, code = [], 0
    for table in tables:
        more = {**set_by_user, **({"data": options.data if table.reads == "text" else options.code} if table.reads else {})}
        runs = runs_of(table, options.preset, more, options.seeds, options.out, options.row, options.device) if table.presets else pd.DataFrame()
        if options.check and table.presets and (words := lab_words(table, options.preset, more, options.seeds)) != words_in(
                then[table.name].facts.get("lab", ""))[1:]:
            raise Refused(f"--check: the runs would be those of '{shlex.join(words)}', recorded are those of '{then[table.name].facts.get('lab')}'; "
                          "the recorded options, seeds and file's name required")
        planned.append((table, runs, more))
    for table, runs, more in planned:
        print(f"{table.name}: {table.what} ({table.place})")
        if len(runs):
            words = lab_words(table, options.preset, more, options.seeds)
            print(f"{len(runs)} runs, preset {options.preset}; as\n  {shlex.join(['lab.py', *words])}")
        print("".join(f"  {command}\n" for command in table.run) + table.note, flush=True)
        if not options.plan:
            code = max(code, one(papers, table, runs, options, more, then[table.name] if options.check else None))
    return code


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="tables or figures of the papers; all: those that have the preset")
    add("--list", action="store_true", help="every table and figure: what it asks, how it is had here, what it costs")
    add("--recorded", action="store_true", help="the recorded numbers and verdicts; nothing is trained")
    add("--preset", default="mini", choices=["mini", "small", "paper"], help="for a laptop, for a night, and the paper's sizes (mini)")
    add("--seeds", type=int, default=0, help="of each method; verdicts need three; the preset's if left out")
    add("--row", action="append", default=[], help="this row of the table alone, as the paper names it; may come several times")
    add("--data", default="", help="of language models: the text to train on")
    add("--code", default="", help="of language models of code: a folder or a file to train on")
    add("--set", default="", help='options of train in place of the preset\'s: "steps=300 dim=32"')
    add("--plan", action="store_true", help="check everything, say what would run, and train nothing")
    add("--jobs", type=int, default=0, help="runs at the same time; as many as there are processors if left out")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", default="runs/reproduce", help="folder of all runs and results; the same command goes on with what is there (runs/reproduce)")
    add("--record", type=pathlib.Path, help="folder: keep recorded.csv, README.md and a page of each table there; without a NAME, the page anew")
    add("--records", default=RECORDED, metavar="FILE", help="another recorded.csv for --list, --recorded, --stale and --check")
    add("--stale", action="store_true", help="say which recorded results this program would not give: short trainings tell, in a minute or two")
    add("--check", action="store_true", help="the numbers must be those recorded, where the processor's vectors are the same")
    add("--quiet", action="store_true", help="no progress")
    try:
        return reproduce(parser.parse_args(words))
    except (Refused, OSError) as problem:
        print(f"reproduce.py: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, Refused) else 4
    except KeyboardInterrupt as problem:
        print(f"reproduce.py: {problem}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
