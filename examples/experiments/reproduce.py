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
    tables, records = reproduce.read_papers().tables, reproduce.read_records(reproduce.RECORDED)
    reproduce.judged(tables["cope/table2-flip_flop"], records[0])           a DataFrame with a row for each comparison

examples/whence/papers has the tables as text, and in recorded.csv the number of every seed.
"""
from __future__ import annotations

import argparse
import copy
import csv
import difflib
import hashlib
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
from typing import Any, Iterable

import lab
import numpy as np
import pandas as pd
import scipy.stats
from lab import Refused

HERE, PAPERS = pathlib.Path(__file__).resolve().parent, lab.ROOT / "examples/whence/papers"
RECORDED, FILES = PAPERS / "recorded.csv", ("cope.table", "dape.table", "dape_v2.table")  # one refers to those before it
HOLDS, DOES_NOT, OPEN = VERDICTS = ("holds", "does not", "not decided at this size")
MEASURES = {**{name: column for column, name in lab.COMPARED.items()}, "Delta-P": "delta_p"}
GUESS = "best guess"  # stands as a method behind the others: it needs no model


# ---- The papers' tables as text

@dataclass
class Line:
    """ "key value" with the lines behind it that are indented by more than two, or "| cell | cell |" with the key "|"."""
    file: str
    number: int
    indented: bool
    key: str
    value: str

    def refused(self, found: str, required: str) -> Refused:
        return Refused(f"{self.file}: line {self.number}: {found} found; {required} required")

    def cells(self) -> list[str]:
        if not self.value.endswith("|"):
            raise self.refused(f'"{self.value}"', "a | at the end of the row")
        return [cell.strip() for cell in self.value[:-1].split("|")]

    def number_in(self, text: str, pattern: str, required: str) -> re.Match:
        if not (found := re.fullmatch(pattern, text)):
            raise self.refused(f'"{text}"', required)
        return found

    def one_of(self, *values: str) -> str:
        if self.value not in values:
            raise self.refused(f'"{self.value}"', " or ".join(values))
        return self.value

    def look_up(self, names: dict, name: str, required: str) -> Any:
        if name not in names:
            raise self.refused(f'"{name}"', required)
        return names[name]


@dataclass
class Table:
    """A table or figure of a paper: what is trained for it, where its numbers lie in the grid, what the paper prints and claims."""
    name: str
    what: str = ""
    place: str = ""
    note: str = ""
    measure: str = ""  # of MEASURES; empty: the task's own
    reads: str = ""  # the user's "text" or "code"
    same_tokens: bool = False
    higher_is_better: bool = False
    tasks: list[str] = field(default_factory=list)
    vary: list[str] = field(default_factory=list)
    schemes: list[str] = field(default_factory=list)
    presets: dict[str, dict] = field(default_factory=dict)  # set, why, lab, seeds; schemes and tasks in place of the table's
    methods: dict[str, tuple[str, dict]] = field(default_factory=dict)  # scheme, and values of axes
    columns: dict[str, dict] = field(default_factory=dict)  # task, set, times the training length, validation step, values of axes
    printed: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # by method and column: mean, deviation or NaN
    claims: list[tuple[str, str, str]] = field(default_factory=list)  # better, worse, column
    commands: list[str] = field(default_factory=list)

    def has(self, preset: str, method: str | None = None, column: str | None = None) -> bool:
        """Does the preset have the method, and the column?"""
        at = self.presets[preset]
        return ((method is None or not at["schemes"] or self.methods[method][0] in at["schemes"])
                and (column is None or self.columns[column]["task"] in ("", *self.tasks_at(preset))))

    def kind(self) -> str:
        return "compared" if self.presets and self.methods else "commanded" if self.commands else "not ours"

    def tasks_at(self, preset: str) -> list[str]:
        return self.presets[preset]["tasks"] or self.tasks


@dataclass
class Papers:
    titles: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # what `let` names
    sizes: dict[str, dict] = field(default_factory=dict)

    def filled(self, line: Line, text: str) -> str:
        """The text with what `let NAME` says in the place of $NAME."""
        return re.sub(r"\$(\w*)", lambda found: line.look_up(self.texts, found[1], "a name of `let` before it"), text)


def lines_of(file: str, text: str) -> list[Line]:
    lines: list[Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        key, _, value = line.strip().partition(" ")
        indent = len(line) - len(line.lstrip(" "))
        if not key or key.startswith("#"):
            continue
        if indent <= 2:
            lines.append(Line(file, number, indent > 0, key, value.strip()))
        elif not lines or lines[-1].key == "|":
            raise Line(file, number, True, "", "").refused("a line that goes on", "one before it that can")
        else:
            lines[-1].value += " " + line.strip()
    return lines


def read_tables(file: str, text: str, papers: Papers) -> None:
    """Adds the tables of a text, which may refer to those before it."""
    lines, borrowed = lines_of(file, text), []
    for k, head in enumerate(lines):
        if head.indented and k == 0:
            raise head.refused(f'"{head.key}"', "a line without indentation")
        if head.indented:
            continue
        body = lines[k + 1:next((m for m in range(k + 1, len(lines)) if not lines[m].indented), len(lines))]
        name, _, rest = head.value.partition(" ")
        if head.key not in ("paper", "let", "sizes", "table"):
            raise head.refused(f'"{head.key}"', "paper, let, sizes or table")
        if not name:
            raise head.refused(f'"{head.key}"', "a name behind it")
        if head.key in ("paper", "let"):
            if body:
                raise body[0].refused(f'"{body[0].key}"', "a line without indentation")
            (papers.titles if head.key == "paper" else papers.texts)[name] = papers.filled(head, rest.strip())
        elif head.key == "sizes":
            for line in body:
                read_preset(papers, papers.sizes.setdefault(name, {}), line)
        elif name in papers.tables:
            raise head.refused(f"a second table {name}", "a name of its own")
        else:
            papers.tables[name] = Table(name)
            borrowed += read_table(papers, papers.tables[name], head, body)
    for line, table, method, place in borrowed:  # of a table that may stand behind
        other, _, source = place.rpartition(" in ")
        printed = line.look_up(papers.tables, source, "the name of another table").printed
        if other not in {each for each, _ in printed}:
            raise line.refused(f'"{other}"', "a method of that table")
        table.printed |= {(method, column): figure for (each, column), figure in printed.items() if each == other and column in table.columns}


def read_preset(papers: Papers, presets: dict[str, dict], line: Line) -> None:
    """ "mini.set steps=300"; with "+" behind the key, more of what it was."""
    key, more = line.key.removesuffix("+"), line.key.endswith("+")
    name, _, what = key.partition(".")
    text, blank = papers.filled(line, line.value), {"set": "", "why": "", "lab": "mini" if name == "mini" else "paper", "schemes": [], "tasks": [],
                                                    "seeds": 3}
    if what not in blank:
        raise line.refused(f'"{key}"', "set, why, lab, schemes, tasks or seeds of a preset")
    preset = presets.setdefault(name, blank)
    preset[what] = (f"{preset[what]} {text}".strip() if more and what in ("set", "why") else lab.parts(text) if what == "schemes"
                    else text.split() if what == "tasks" else int(line.number_in(text, r"\d+", "a whole number")[0]) if what == "seeds" else text)


def read_table(papers: Papers, table: Table, head: Line, lines: list[Line]) -> list[tuple]:
    """Reads what stands below "table NAME", and returns what is to be borrowed from other tables: line, table, method, "METHOD in TABLE"."""
    rows, claims, set_of_all, accuracy = [], [], "", False
    for line in lines:
        key, value = line.key, line.value
        if key in ("what", "place", "note", "measure"):
            setattr(table, key, papers.filled(line, value))
        elif key in ("task", "vary"):
            setattr(table, {"task": "tasks"}.get(key, key), value.split())
        elif key == "set":
            set_of_all = value
        elif key == "schemes":
            table.schemes = lab.parts(value)
        elif key == "|":
            rows.append((line, line.cells()))
        elif key == "reads":
            table.reads = line.one_of("text", "code")
        elif key in ("same-tokens", "higher-is-better"):
            setattr(table, key.replace("-", "_"), line.one_of("yes", "no") == "yes")
        elif key == "figures":
            accuracy = line.one_of("accuracy", "error") == "accuracy"
        elif key == "columns":
            table.columns = copy.deepcopy(line.look_up(papers.tables, value, "the name of another table").columns)
        elif key == "sizes":
            name, *some = value.split() or [""]
            found = line.look_up(papers.sizes, name, "a name of `sizes` before it")
            table.presets |= copy.deepcopy({each: found[each] for each in found if not some or each in some})
        elif key == "better":
            claims.append(line)
        elif key == "run":
            table.commands.append(value)
        elif "." in key:
            read_preset(papers, table.presets, line)
        else:
            raise line.refused(f'"{key}"', "a field of a table")
    borrowed = read_rows(table, rows, accuracy)
    for name, column in table.columns.items():
        if table.presets and not (column["set"] or column["times"] or column["step"]):
            column["set"] = set_of_all
            if not set_of_all:
                raise (lines or [head])[-1].refused(f"column {name}", "set, times or step of each column")
    for line in claims:  # "CoPE > RoPE & ALiBi | In-dist | OOD", or "| *" for all columns
        sides, *columns = line.value.split(" | ")
        better, *worse = (sides + " ").split(" > ")
        if len(worse) != 1 or not columns:
            raise line.refused(f'"{line.value}"', "METHOD > METHOD & METHOD | COLUMN | ...")
        for column in table.columns if columns == ["*"] else map(str.strip, columns):
            line.look_up(table.columns, column, "a column of the table")
            for other in map(str.strip, worse[0].split(" & ")):
                table.claims.append((better.strip(), other, column))
                line.look_up(table.methods, better.strip(), "a method of the table"), line.look_up(table.methods, other, "a method of the table")
    table.tasks = list(dict.fromkeys([*table.tasks, *(each["task"] for each in table.columns.values() if each["task"])]))
    table.schemes = list(dict.fromkeys([*table.schemes, *(scheme for scheme, _ in table.methods.values())]))
    if not table.what or not table.place:
        raise (lines or [head])[-1].refused(f"the end of {table.name}", "what and place before it")
    if bool(table.presets) != bool(table.tasks):
        raise (lines or [head])[-1].refused(f"the end of {table.name}", "a task and presets, or neither, before it")
    return borrowed


def read_rows(table: Table, rows: list[tuple[Line, list[str]]], accuracy: bool) -> list[tuple]:
    """ "| | scheme | COLUMN | ..."; below it where each column lies, "| task, set, times, step or an axis | | VALUE | ..."; then "| METHOD | SCHEME |
    FIGURE | ...". Papers print some tables with rows and columns exchanged."""
    borrowed, shared = [], len(table.columns)
    if len(rows) > 1 and rows[1][1][0] == "scheme":
        if bad := [line for line, cells in rows if len(cells) != len(rows[0][1])]:
            raise bad[0].refused("rows of unequal lengths", f"{len(rows[0][1])} cells in each")
        rows = [(rows[0][0], list(cells)) for cells in zip(*(cells for _, cells in rows))]
    for line, (name, *rest) in rows:
        if not rest:
            raise line.refused("a row of one cell", "a name and a scheme")
        scheme, *values = rest
        if not name and scheme == "scheme":
            table.columns |= {each: {"task": "", "set": "", "times": 0, "step": 0, "at": {}} for each in values}
        elif not scheme:
            own = list(table.columns.values())[shared:]
            for k, value in enumerate(values):
                if value == "-":
                    continue
                if k >= len(own):
                    raise line.refused(f'"{value}"', "a column above it")
                if name in ("times", "step"):
                    own[k][name] = int(line.number_in(value, r"\d+", "a whole number")[0])
                else:
                    (own[k] if name in ("task", "set") else own[k]["at"])[name] = value
        else:
            scheme, *axes = map(str.strip, scheme.split(";"))
            if bad := [axis for axis in axes if axis.count("=") != 1]:
                raise line.refused(f'"{bad[0]}"', "AXIS=VALUE")
            table.methods[name] = scheme, dict(axis.split("=") for axis in axes)
            if len(values) == 1 and values[0].startswith("of "):
                borrowed.append((line, table, name, values[0][3:]))
                continue
            if values and len(values) != len(table.columns):
                raise line.refused(f"{len(values)} figures of {name}", f"none, or {len(table.columns)}")
            for column, value in zip(table.columns, values):
                if value != "-":
                    found = line.number_in(value, r"(-?\d+(?:\.\d+)?)(?: \((\d+(?:\.\d+)?)\))?", "a figure, as 6.8 (6.9) or 6.8, or -,")
                    mean = float(found[1])
                    table.printed[name, column] = math.floor((100 - mean) * 100 + 0.5) / 100 if accuracy else mean, float(found[2] or "nan")
    return borrowed


def read_papers(folder: pathlib.Path = PAPERS) -> Papers:
    papers = Papers()
    for file in FILES:
        read_tables(file, (folder / file).read_text(encoding="utf-8"), papers)
    return papers


# ---- What is recorded

@dataclass
class Record:
    """The numbers of a table at a preset, by method and column, then by seed; and how they were made: date, vectors, lab, bits TASK SCHEME, ..."""
    table: str
    preset: str
    facts: dict[str, str] = field(default_factory=dict)
    numbers: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)

    def of(self, method: str, column: str) -> list[float]:
        return list(self.numbers.get((method, column), {}).values())

    def core_seconds(self) -> float:
        return float(self.facts.get("core-seconds", 0))


HEAD = ["table", "preset", "method", "column", "seed", "value"]


def read_records(path: str | os.PathLike) -> list[Record]:
    """Of a CSV with a row for each cell and seed. A cell that is empty is as in the row above; of the method "record" are facts, which have no seed."""
    records, above = {}, [""] * 4
    with open(path, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            wrong = lambda found, required: Refused(f"{path}: line {number}: {found} found; {required} required")
            if len(row) != len(HEAD) or (number == 1 and row != HEAD):
                raise wrong(",".join(row), ",".join(HEAD) if number == 1 else f"{len(HEAD)} cells")
            if number == 1:
                continue
            first = next((k for k in range(4) if row[k]), 4)
            above = [*above[:first], *row[first:4]]
            if not all(above):
                raise wrong(",".join(row), "a table, preset, method and column here or above")
            table, preset, method, column = above
            record = records.setdefault((table, preset), Record(table, preset))
            if method == "record":
                record.facts[column] = row[5]
                continue
            try:
                record.numbers.setdefault((method, column), {})[int(row[4])] = float(row[5])
            except ValueError:
                raise wrong(f"{row[4]},{row[5]}", "a seed and a number") from None
    return list(records.values())


def write_records(path: pathlib.Path, records: Iterable[Record]) -> None:
    above = [""] * 4
    with open(path, "w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(HEAD)
        for each in records:
            rows = [("record", name, "", value) for name, value in each.facts.items()]
            rows += [(*cell, seed, repr(value).removesuffix(".0")) for cell, values in each.numbers.items() for seed, value in values.items()]
            for method, column, seed, value in rows:
                where = [each.table, each.preset, method, column]
                same = next((k for k in range(4) if where[k] != above[k]), 4)
                write([*([""] * same), *where[same:], seed, value])
                above = where


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
        return (OPEN, "all seeds of both are equal", math.nan) if lower[0] == higher[0] else (
            as_seen, f"no test: each of {seeds} gave the same, which differ", math.nan)
    p = welch(*((np.mean(each), np.std(each, ddof=1), len(each)) for each in (lower, higher)))
    return as_seen if p < 0.05 else OPEN, f"Welch's test, {seeds}: {probability(p)}", p


def by_the_paper(table: Table, better: str, worse: str, column: str) -> str:
    """The test that the paper's own figures would pass, of three seeds each."""
    a, b = [(*table.printed.get((method, column), (math.nan, math.nan)), 3) for method in (better, worse)]
    return "-" if math.isnan(a[1] + b[1]) else probability(welch(a, b)) if a[1] or b[1] else "no spread"


def judged(table: Table, record: Record) -> pd.DataFrame:
    """A row for each comparison whose methods and column the preset has: better, worse, column, verdict, test, p, paper."""
    rows = []
    for better, worse, column in table.claims:
        if not (table.has(record.preset, better, column) and table.has(record.preset, worse)):
            continue
        ours = record.of(better, column), record.of(worse, column)
        rows.append((better, worse, column, *decide(*(reversed(ours) if table.higher_is_better else ours)), by_the_paper(table, better, worse, column)))
    return pd.DataFrame(rows, columns=["better", "worse", "column", "verdict", "test", "p", "paper"])


def corrected(p: pd.Series) -> pd.Series:
    """Benjamini and Hochberg 1995: of those below 0.05 one in twenty is expected to be there by chance; the k-th smallest of n times n / k, never
    falling. NaN where there is no p."""
    known = p.dropna().sort_values(ascending=False)
    return (known * len(known) / np.arange(len(known), 0, -1)).cummin().reindex(p.index)


def by_chance(found: pd.DataFrame) -> str:
    """How many verdicts would come about by chance, and what is left of them when they are corrected for their number."""
    tests, left = int(found.p.notna().sum()), found[corrected(found.p) < 0.05].verdict
    return (f"Of {tests} tests, {0.05 * tests:.1f} would have p < 0.05 by chance if all methods were alike, and half of these would hold: "
            f"{0.025 * tests:.1f}. Corrected for their number (Benjamini-Hochberg), {(left == HOLDS).sum()} hold and {(left == DOES_NOT).sum()} do not.")


# ---- Tables and pages

def exact(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def beside_paper(table: Table, record: Record) -> pd.DataFrame:
    """A row for each method and column: mean and, from two seeds on, standard deviation; what the paper prints."""
    rows, digits = [], int(record.facts.get("digits", 2))
    for method in table.methods:
        for column in table.columns:
            ours, printed = record.of(method, column), table.printed.get((method, column))
            if ours or printed:
                spread = f" ({np.std(ours, ddof=1):.{digits}f})" if len(ours) > 1 else ""
                paper = exact(printed[0]) + ("" if math.isnan(printed[1]) else f" ({exact(printed[1])})") if printed else "-"
                rows.append((method, column, f"{np.mean(ours):.{digits}f}{spread}" if ours else "-", len(ours), paper))
    rows += [(GUESS, column, f"{next(iter(values.values())):.{digits}f}", "-", "-") for (method, column), values in record.numbers.items() if method == GUESS]
    return pd.DataFrame(rows, columns=["method", "column", "ours, mean (s.d.)", "seeds", "paper"])


def verdicts(found: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"the paper's comparison": found.better + " better than " + found.worse, "column": found["column"], "here": found.verdict,
                         "test": found.test, "the paper's own figures": found.paper})


def text_of(frame: pd.DataFrame) -> str:
    rows = [list(frame), *frame.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def markdown(head: list[str], rows: Iterable[Iterable]) -> str:
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in (head, *rows)).replace("\n", f"\n|{'---|' * len(head)}\n", 1)


def time_text(seconds: float) -> str:
    for unit, name in ((365 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.{1 if seconds < 10 * unit else 0}f} {name}"
    return f"{seconds:.0f} s"


def cost_of(table: Table, records: list[Record], preset: str) -> str:
    """On two cores; of a preset that is not recorded, as many times as it has more operations than one that is."""
    own = next((each for each in records if each.preset == preset), records[0] if records else None)
    if own and own.preset == preset:
        return time_text(own.core_seconds() / 2)
    here, there = [float(own.facts.get(f"operations {each}", "nan")) for each in (own.preset, preset)] if own else (math.nan, math.nan)
    return "of unknown cost" if math.isnan(here + there) else f"about {time_text(own.core_seconds() / 2 * there / here)}"


def listing(papers: Papers, records: list[Record]) -> str:
    text = "Costs are on two cores.\n"
    for table in papers.tables.values():
        own = [record for record in records if record.table == table.name]
        how = {"not ours": f"lacks: {table.note}", "compared": "trained, compared", "commanded": "trained, then commands"
               if table.presets else "commands"}[table.kind()]
        how += "".join(f"{', ' if k else ': '}{preset} {cost_of(table, own, preset)}" for k, preset in enumerate(table.presets))
        for record in own:
            found = judged(table, record) if record.preset in table.presets else pd.DataFrame()
            how += f"; recorded {record.preset} {record.facts['date'][:10]}" + (
                f": {(found.verdict == HOLDS).sum()} of {len(found)} hold" if len(found) else "")
        first, *more = [line for part in (f"{table.what} ({table.place})", how) for line in textwrap.wrap(part, 91, break_long_words=False, break_on_hyphens=False)]
        text += f"{table.name:<28}{first}\n" + "".join(f"{'':28}{line}\n" for line in more)
    return text


HOW_TO = """# The papers' tables and figures, ours beside theirs

    cd examples/experiments
    ./reproduce.py --list                                   # what each asks, how it is had here, what it costs
    ./reproduce.py cope/table3                              # ours beside the paper's, with verdicts
    ./reproduce.py all --data TEXT --code FOLDER --record MINE   # every table, kept with its figures in MINE
    ./reproduce.py --stale                                  # would this program give the recorded numbers?
    ./reproduce.py cope/table3 --check                      # the numbers must be those recorded

[recorded.csv](recorded.csv) has the number of every seed; a cell that is empty there is as in the row above. This page is written from it. A comparison
that a paper makes *holds* or *does not* where Welch's test over the seeds says so (two-sided, p < 0.05), or where all seeds of both sides agree exactly;
else it is *not decided at this size*. Some comparisons stand in several tables, on the same runs. Where a table is recorded at several sizes, the smallest
is counted. The papers' own tables are text: [cope.table](cope.table), [dape.table](dape.table), [dape_v2.table](dape_v2.table).

"""


def smallest(table: Table, records: list[Record]) -> Record | None:
    """The record of the smallest preset."""
    return next((record for preset in table.presets or ["mini"] for record in records if (record.table, record.preset) == (table.name, preset)), None)


def summary_page(papers: Papers, records: list[Record]) -> str:
    """What the papers claim, and what of it holds here."""
    kept = {name: smallest(table, records) for name, table in papers.tables.items()}
    found = {name: judged(papers.tables[name], record) if record and papers.tables[name].presets else judged(Table(name), Record(name, "mini"))
             for name, record in kept.items()}
    counts = lambda names: [sum(len(found[name]) for name in names), *(sum((found[name].verdict == verdict).sum() for name in names) for verdict in VERDICTS)]
    seconds = lambda names: time_text(sum(kept[name].core_seconds() for name in names if kept[name]) / 2)
    own = {paper: [name for name in papers.tables if name.startswith(paper + "/")] for paper in papers.titles}
    facts = [sorted({text for record in records if (text := of(record.facts))}) for of in (
        lambda each: f"{each.get('machine')}, {each.get('vectors')}", lambda each: each.get("date", "")[:10], lambda each: each.get("program"),
        lambda each: each.get("text"))]
    text = HOW_TO + "Machine: {}. Date: {}. Program: {}. Texts: {}. Times are those of all runs of a table on two cores that do nothing else; runs that two " \
        "tables share are in both, but were trained once.\n\n".format(*map("; ".join, facts))
    text += markdown(["paper", "tables and figures", "recorded", "comparisons", "hold", "do not", "not decided at this size", "two cores"],
                     ([papers.titles[paper], len(names), sum(kept[name] is not None for name in names), *counts(names), seconds(names)]
                      for paper, names in own.items()))
    text += "\n" + by_chance(pd.concat(found.values(), ignore_index=True)) + "\n"
    for paper, names in own.items():
        rows = []
        for name in names:
            table = papers.tables[name]
            lacks = f"; lacks: {table.note}" if table.kind() == "not ours" and not kept[name] else ""
            rows.append([name, table.what + lacks, *(counts([name]) if len(found[name]) else "----"), seconds([name]) if kept[name] else "-"])
        text += f"\n## {papers.titles[paper]}\n\n" + markdown(
            ["table or figure", "what it asks", "comparisons", "hold", "do not", "not decided", "two cores"], rows)
        for name in names:
            said = []
            for verdict, words in zip(VERDICTS, ("holds", "**does not hold**", "not decided")):
                sides = found[name][found[name].verdict == verdict].groupby(["better", "worse"], sort=False)["column"]
                if len(sides):
                    said.append(f"{words}: " + ", ".join(f"{better} over {worse} ({'; '.join(columns)})" for (better, worse), columns in sides))
            text += f"\n- {name}: {'. '.join(said)}." if said else ""
        text += "\n"
    return text


# ---- What is trained

@dataclass
class Asked:
    """What the user wants of every table."""
    preset: str = "mini"
    seeds: int = 0  # the preset's
    settings: dict[str, Any] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    text: str | None = None
    code: str | None = None
    out: str = "runs/reproduce"
    jobs: int = 0
    device: str = "auto"
    quiet: bool = False


def settings_of(table: Table, asked: Asked) -> dict[str, Any]:
    if asked.preset not in table.presets:
        raise Refused(f"--preset: {asked.preset} given; one of those of {table.name} required: {', '.join(table.presets)}")
    if table.reads and "data" in asked.settings:
        raise Refused("--set: data given; --data or --code required")
    file = {"text": asked.text, "code": asked.code, "": ""}[table.reads]
    if file is None:
        raise Refused(f"--{'data' if table.reads == 'text' else 'code'}: nothing given; a {'text file' if table.reads == 'text' else 'folder of source code'} "
                      f"of yours required; {table.name} trains language models, and the papers' texts are not ours to give")
    return {**lab.pairs(shlex.split(table.presets[asked.preset]["set"]), "set"), **asked.settings, **({"data": file} if file else {})}


def lab_words(table: Table, asked: Asked) -> list[str]:
    """The runs of a table as one types them behind lab.py; of a file of the user's the name alone."""
    preset, settings = table.presets[asked.preset], settings_of(table, asked)
    if table.reads:
        settings["data"] = pathlib.Path(settings["data"]).name
    words = [name if value is True else f'{name}="{value}"' if " " in str(value) else f"{name}={value}" for name, value in settings.items()]
    return [*table.tasks_at(asked.preset), "--schemes", ",".join(preset["schemes"] or table.schemes), "--preset", preset["lab"],
            *(word for axis in table.vary for word in ("--vary", axis)), *["--same-tokens"] * table.same_tokens,
            *(["--set", " ".join(words)] if words else []), "--seeds", str(asked.seeds or preset["seeds"])]


def is_of(run: dict, scheme: str, at: dict[str, str]) -> bool:
    return run["scheme"] == scheme and all(str(run[axis]) == value for axis, value in at.items())


def runs_of(table: Table, asked: Asked) -> pd.DataFrame:
    """The grid of a table. Its folders lie in a pool, named by all options: two tables that ask for the same run train it once."""
    preset, vary = table.presets[asked.preset], {name: lab.parts(values) for name, values in lab.pairs(table.vary, "vary").items()}
    runs = lab.grid(table.tasks_at(asked.preset), preset["schemes"] or table.schemes, seeds=asked.seeds or preset["seeds"], vary=vary,
                    settings=settings_of(table, asked), preset=preset["lab"], out=f"{asked.out}/runs", equal_tokens=table.same_tokens)
    named = lambda run: f"{pathlib.Path(run.folder).name}-{hashlib.sha256(json.dumps([run.wanted, asked.device]).encode()).hexdigest()[:8]}"
    runs["folder"] = [f"{asked.out}/runs/{run.task}/{named(run)}" for run in runs.itertuples()]
    for method, (scheme, at) in table.methods.items():
        for name, column in table.columns.items():
            if table.has(asked.preset, method, name) and not any(stands_at(run, table, method, name) for run in runs.to_dict("records")):
                raise Refused(f"{table.name}: {method}, {name} has no cell in the grid; one required")
    if asked.rows:
        chosen = [table.methods[name] for name in asked.rows]
        kept = runs[[any(is_of(run, *each) for each in chosen) for run in runs.to_dict("records")]]
        if kept.empty:
            raise Refused(f'--row: "{asked.rows[0]}" given; a row of preset {asked.preset} required')
        kept.attrs = runs.attrs
        runs = kept
    return runs


def stands_at(run: dict, table: Table, method: str, column: str) -> bool:
    (scheme, at), where = table.methods[method], table.columns[column]
    return where["task"] in ("", run["task"]) and is_of(run, scheme, {**at, **where["at"]})


def value_at(run: dict, column: dict, scores: pd.DataFrame, measure: str) -> float | None:
    """None where the run was not tested so."""
    if column["step"]:
        found = [line.get("validation_token_error_percent") for line in lab.lines_of(pathlib.Path(run["folder"]) / "metrics.jsonl")
                 if line["step"] == column["step"]]
        return next((value for value in found if value is not None), None)
    test_set = f"length {column['times'] * run['wanted']['options']['length']}" if column["times"] else column["set"]
    found = scores if test_set == "average" else scores[scores.test_set == test_set]
    if found.empty or measure not in found or (run["task"] == "lm" and found[measure].isna().any()):
        return None
    return float(np.cumsum(found[measure].to_numpy(float))[-1] / len(found))  # one after another, as sums of Python and pandas are not: bits are compared


def measured(table: Table, runs: pd.DataFrame) -> tuple[str, dict]:
    """The measure's name, and the numbers of the runs that are done."""
    scores, numbers = lab.scores(runs), {}
    of_run = {folder: part for folder, part in scores.groupby("folder")}
    done = [run for run in runs.to_dict("records") if run["folder"] in of_run]
    measure = MEASURES[table.measure] if table.measure else scores.measure.iloc[0] if len(scores) else runs.about.iloc[0]["measure"]
    for method in table.methods:
        for name, column in table.columns.items():
            for run in done:
                if stands_at(run, table, method, name) and (value := value_at(run, column, of_run[run["folder"]], measure)) is not None:
                    numbers.setdefault((method, name), {})[run["seed"]] = value
    for name, column in table.columns.items():
        for run in done:
            if column["set"] and column["task"] in ("", run["task"]) and is_of(run, run["scheme"], column["at"]) and (GUESS, name) not in numbers:
                guess = value_at(run, column, of_run[run["folder"]], "best_guess")
                if guess is not None and not math.isnan(guess):
                    numbers[GUESS, name] = {0: guess}
    return {field: text for text, field in MEASURES.items()}[measure], numbers


def vectors_and_machine(device: str) -> tuple[str, str]:
    """What the bits depend on, and the processor in words."""
    facts = json.loads(subprocess.run([lab.program(), "doctor", "--json"], capture_output=True, text=True).stdout)
    machine = f"{facts['processor']['name']}, {facts['threads']['used']} threads"
    if device != "cpu" and not facts["gpu"]["refusal"]:
        return facts["gpu"]["name"], f"{machine}; {facts['gpu']['name']}"
    there = facts["build"]["instructions"]
    return "avx512" if "avx512f" in there else "avx2" if "avx2" in there else "plain", machine


def run_command(command: str, places: dict[str, str], out: pathlib.Path) -> dict:
    """Runs a command of a table: RUN, TEXT, CODE and OUT/NAME stand for files. What it is, said, drew, its exit code and seconds."""
    words = [places.get(word, str(out / word[4:]) if word.startswith("OUT/") else word) for word in shlex.split(command)]
    script = words[0].endswith(".py")
    began, program = time.time(), [sys.executable, str(HERE / words[0])] if script else [lab.program(), words[0]]
    said = subprocess.run([*program, *words[1:]], stdout=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "WHENCE": lab.program()})
    return {"command": shlex.join([*([] if script else ["whence"]), *words]), "output": said.stdout, "exit_code": said.returncode,
            "seconds": time.time() - began, "figures": [word[4:] for word in shlex.split(command) if word.startswith("OUT/")
                                                        and word.endswith(".svg")] if said.returncode == 0 else []}


# ---- Would this program make what is recorded?

def short_trainings(wanted: list[tuple[Table, Record]], folder: pathlib.Path, jobs: int) -> list[dict[str, str]]:
    """For each, by "TASK SCHEME", the first 16 digits of the SHA-256 of what two steps of a small model leave, weights and results. They differ where
    anything differs that the numbers depend on, and do not where a comment was changed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"  # in the place of the user's, long enough for the longest windows
    text.write_text("".join(f"line {k * k % 9973} of a text\n" for k in range(20000)), encoding="utf-8")
    frames = []
    for table, record in wanted:
        if not table.presets:
            frames.append(pd.DataFrame())
            continue
        asked = Asked(record.preset, settings=lab.pairs(shlex.split(record.facts.get("set", "")), "set"), text=str(text), code=str(text))
        sizes = {"steps": 2, "batch": 2, "dim": 32, "layers": 2, "heads": 4}
        sizes |= ({"length": 32, "last": 16, "evaluate-to": 2, "evaluation-windows": 1, "validation-windows": 1} if table.tasks == ["lm"]
                  else {"test-sequences": 2})
        first = {name: lab.parts(values)[0] for name, values in lab.pairs(table.vary, "vary").items()}
        settings = {**settings_of(table, asked), **first, **sizes}
        for left_out in ("model", "accumulate", "validate-every", "save-every"):
            settings.pop(left_out, None)
        preset = table.presets[record.preset]
        frames.append(lab.grid(table.tasks_at(record.preset), preset["schemes"] or table.schemes, seeds=1, settings=settings, preset=preset["lab"], out=folder))
        hashes = [hashlib.sha256(json.dumps([run.task, run.wanted["options"]]).encode()).hexdigest()[:16] for run in frames[-1].itertuples()]
        frames[-1]["folder"] = [str(folder / each) for each in hashes]
    runs = pd.concat(frames).drop_duplicates("folder").reset_index(drop=True) if any(map(len, frames)) else pd.DataFrame()
    if len(runs):
        runs.attrs = {"out": str(folder), "axes": []}
        runs = lab.train(runs, jobs=jobs, device="cpu", quiet=True)
        if bad := [run for run in runs.itertuples() if run.state != "done"]:
            raise Refused(f"a short training of {bad[0].scheme} on {bad[0].task}: {bad[0].state}; one that ends required")
    bits = lambda run: hashlib.sha256(b"".join((pathlib.Path(run.folder) / name).read_bytes() for name in ("weights.safetensors", "results.jsonl"))).hexdigest()[:16]
    return [{f"{run.task} {run.wanted['options']['scheme']}": bits(run) for run in frame.itertuples()} for frame in frames]


def staleness(papers: Papers, records: list[Record], out: str, jobs: int) -> Iterable[str]:
    """Which records this program would not give. Of records of other vectors than this processor's nothing is told."""
    vectors, told, stale, folder = vectors_and_machine("cpu")[0], [], 0, pathlib.Path(out) / "short_trainings"
    for record in records:
        table = papers.tables.get(record.table)
        if not table or (table.presets and record.preset not in table.presets):
            stale += 1
            yield f"STALE: {record.table}, {record.preset}: there is no such table or preset now"
        elif not table.presets or record.facts.get("vectors") == vectors:
            told.append((table, record))
    shutil.rmtree(folder, ignore_errors=True)
    all_bits = short_trainings(told, folder, jobs)
    shutil.rmtree(folder)
    for (table, record), bits in zip(told, all_bits):
        file = record.facts.get("text", "").partition(",")[0]
        asked = Asked(record.preset, int(record.facts.get("seeds", 0)), lab.pairs(shlex.split(record.facts.get("set", "")), "set"), text=file, code=file)
        differ = [f"\n  bits {now} {name}; recorded {record.facts.get(f'bits {name}', 'nothing')}" for name, now in sorted(bits.items())
                  if record.facts.get(f"bits {name}") != now]
        why = ("its preset has other options now" if table.presets and lab_words(table, asked) != shlex.split(record.facts["lab"])[1:]
               else f"short trainings give other bits:{''.join(differ)}" if differ else "")
        if why:
            stale += 1
            yield f"STALE: {record.table}, {record.preset}, of {record.facts.get('date', '')[:10]}: {why}"
    untold = len(records) - len(told)
    yield f"{len(records)} results recorded, {stale} that this program would not give" + (
        f", {untold} of which it cannot tell: they are not of {vectors} or not of its tables" if untold else "")


# ---- The program

def trained(table: Table, asked: Asked, runs: pd.DataFrame) -> tuple[Record, pd.DataFrame]:
    """Trains what is not done, and what is to be recorded of it."""
    vectors, machine = vectors_and_machine(asked.device)
    version = subprocess.run([lab.program(), "--version"], capture_output=True, text=True).stdout.strip()
    facts = {"date": time.strftime("%F %R", time.gmtime()), "program": version, "machine": machine, "vectors": vectors}
    if asked.settings:
        facts["set"] = " ".join(lab.words_of(asked.settings)).replace("--", "")
    record = Record(table.name, asked.preset, facts)
    if not len(runs):
        return record, runs
    runs = lab.train(runs, jobs=asked.jobs, device=asked.device, quiet=asked.quiet)
    measure, record.numbers = measured(table, runs)
    seconds = 0.0
    for run in runs.itertuples():
        files = [pathlib.Path(run.folder) / name for name in ("run.json", "results.jsonl")]
        if run.state == "done":
            seconds += files[1].stat().st_mtime - files[0].stat().st_mtime
        else:
            print(f"{run.folder}: {run.state}", file=sys.stderr)
    threads = max(1, os.cpu_count() // min(asked.jobs or os.cpu_count(), len(runs)))
    if table.reads:
        facts["text"] = f"{pathlib.Path(runs.wanted.iloc[0]['options']['data']).name}, SHA-256 {runs.wanted.iloc[0]['data']}"
    facts |= {"lab": shlex.join(["lab.py", *lab_words(table, asked)]), "seeds": str(runs.seed.nunique()), "runs": str(len(runs))}
    if failed := int((runs.state != "done").sum()):
        facts["failed"] = str(failed)
    facts |= {"digits": {"perplexity": "3", "bits per byte": "4"}.get(measure, "2"), "core-seconds": f"{seconds * threads:.1f}", "measure": measure}
    return record, runs


def differences(now: Record, then: Record, rows: list[str]) -> list[str]:
    """What differs from a record of the same table, one line each."""
    said = lambda record, cell: " ".join(map(exact, record.of(*cell))) or "nothing"
    cells = [cell for cell in then.numbers if not rows or cell[0] in rows] + [cell for cell in now.numbers if cell not in then.numbers]
    return [f"{', '.join(cell)}: {said(now, cell)}; recorded: {said(then, cell)}" for cell in cells if said(now, cell) != said(then, cell)]


def shown(table: Table, record: Record, rows: list[str]) -> str:
    """Ours beside the paper's, and the verdicts."""
    if rows:
        table = copy.copy(table)
        table.methods = {name: table.methods[name] for name in rows}
        table.claims = [claim for claim in table.claims if {*claim[:2]} <= {*rows}]
    found = judged(table, record)
    return text_of(beside_paper(table, record)) + "\n" + (f"\n{text_of(verdicts(found))}\n\n{by_chance(found)}\n" if len(found) else "")


def table_page(table: Table, record: Record, said: list[dict], figures: str) -> str:
    text = f"# {table.name}: {table.what}\n\n{table.place}.\n\n{table.note}\n"
    if table.presets:
        text += f"\nWhy these sizes: {table.presets[record.preset]['why']}\n\n    {record.facts['lab']}\n"
        text += f"\n```\n{shown(table, record, [])}```\n" if table.methods else ""
    for each in said:
        text += f"\n```\n$ {each['command']}\n{each['output']}```\n" + "".join(f"\n![{name}]({figures}/{name})\n" for name in each["figures"])
    return text


def keep(folder: pathlib.Path, papers: Papers, record: Record, said: list[dict], drawn: pathlib.Path) -> None:
    """In the place of what was there of the same table and preset."""
    name = f"{record.table}-{record.preset}".replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for figure in (figure for each in said for figure in each["figures"]):
        (folder / "figures" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(drawn / figure, folder / "figures" / name / figure)
    (folder / f"{name}.md").write_text(table_page(papers.tables[record.table], record, said, f"figures/{name}"), encoding="utf-8")
    others = [each for each in records_in(folder) if (each.table, each.preset) != (record.table, record.preset)]
    write_page(folder, papers, [*others, record])


def records_in(folder: pathlib.Path) -> list[Record]:
    return read_records(folder / "recorded.csv") if (folder / "recorded.csv").exists() else []


def write_page(folder: pathlib.Path, papers: Papers, records: list[Record]) -> None:
    names = list(papers.tables)
    place = lambda each: (names.index(each.table), list(papers.tables[each.table].presets).index(each.preset) if papers.tables[each.table].presets else 0
                          ) if each.table in names else (len(names), 0)
    records = sorted(records, key=place)
    write_records(folder / "recorded.csv", records)
    (folder / "README.md").write_text(summary_page(papers, records), encoding="utf-8")


def require_own_page(folder: pathlib.Path) -> None:
    page = folder / "README.md"
    if page.exists() and not page.read_text(encoding="utf-8", errors="replace").startswith(HOW_TO.split("\n")[0]):
        raise Refused(f"--record: {page} is there and is no page of records; another folder required")


def find_table(papers: Papers, name: str) -> Table:
    for table in papers.tables.values():
        paper, _, span = table.name.partition("/figure")  # "dape/figure9" is one of "dape/figure7-21"
        figure = re.fullmatch(rf"{re.escape(paper)}/figure(\d+)", name)
        ends = span.split("-")
        if table.name == name or (figure and len(ends) == 2 and int(ends[0]) <= int(figure[1]) <= int(ends[1])):
            return table
    near = [each for each in papers.tables if each.startswith(name)] or difflib.get_close_matches(name, papers.tables, 1)
    raise Refused(f'"{name}" given; a table or figure of the papers required; ' + (f"near: {', '.join(near)}" if near else "--list shows them"))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="tables or figures of the papers; all: those that have the preset")
    add("--list", action="store_true", help="every table and figure: what it asks, how it is had here, what it costs")
    add("--recorded", action="store_true", help="the recorded numbers and verdicts; nothing is trained")
    add("--preset", default="mini", choices=["mini", "small", "paper"], help="mini: for a laptop; small: for a night; paper: the paper's sizes (mini)")
    add("--seeds", type=int, default=0, help="of each method; verdicts need three; the preset's if left out")
    add("--row", action="append", default=[], help="this row of the table alone, as the paper names it; may come several times")
    add("--data", help="of language models: the text to train on")
    add("--code", help="of language models of code: a folder or a file to train on")
    add("--set", default="", help='options of train in place of the preset\'s: "steps=300 dim=32"')
    add("--plan", action="store_true", help="checks everything, says what would run, and trains nothing")
    add("--jobs", type=int, default=0, help="runs at the same time; as many as there are processors if left out")
    add("--device", default="auto", choices=["auto", "cpu", "cuda"])
    add("--out", default="runs/reproduce", help="folder of all runs and results; the same command goes on with what is there (runs/reproduce)")
    add("--record", metavar="FOLDER", help="keeps the results there: recorded.csv, README.md, a page of each table; without a NAME, the page anew")
    add("--records", default=str(RECORDED), metavar="FILE", help="another recorded.csv for --list, --recorded, --stale and --check")
    add("--stale", action="store_true", help="which recorded results this program would not give: short trainings tell, in a minute or two")
    add("--check", action="store_true", help="the numbers must be those recorded, where the processor's vectors are the same")
    add("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(words)
    try:
        return run(options)
    except (Refused, OSError) as problem:
        print(f"reproduce.py: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, Refused) else 4
    except KeyboardInterrupt as problem:
        print(f"reproduce.py: {problem}", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    papers, folder = read_papers(), options.record and pathlib.Path(options.record)
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 0:
            raise Refused(f"--{name}: {getattr(options, name)} given; 0 or more required")
    if folder:
        require_own_page(folder)
        if not options.names:
            write_page(folder, papers, records_in(folder))
            return 0
    records = read_records(options.records)
    if options.list:
        print(listing(papers, records), end="")
        return 0
    if options.stale:
        for line in staleness(papers, records, options.out, options.jobs):
            print(line, flush=True)
        return 0
    if not options.names:
        raise Refused("no name given; a table or figure of the papers required; --list shows them")
    everything = [table for table in papers.tables.values() if options.preset in table.presets or table.kind() == "commanded" and not table.presets]
    tables = list({table.name: table for name in options.names for table in (everything if name == "all" else [find_table(papers, name)])}.values())
    asked = Asked(options.preset, options.seeds, lab.pairs(shlex.split(options.set), "set"), options.row, options.data, options.code, options.out,
                  options.jobs, options.device, options.quiet)
    for table in tables:
        if table.kind() == "not ours":
            raise Refused(f"{table.name}: {table.what}; it cannot be run here: {table.note}")
        if bad := [name for name in options.row if name not in table.methods]:
            raise Refused(f'--row: "{bad[0]}" given; one of those of {table.name} required')
    kept = {table.name: next((each for each in records if (each.table, each.preset) == (table.name, options.preset)), None) for table in tables}
    if missing := [name for name, record in kept.items() if not record and (options.check or options.recorded)]:
        raise Refused(f"{missing[0]} at preset {options.preset} is not recorded; another table required")
    if options.recorded:
        for table in tables:
            if table.methods:
                print(f"{table.name}: {table.what} ({table.place})\n{shown(table, kept[table.name], options.row)}")
        return 0
    if options.row and folder:
        raise Refused("--row: given; a table that is printed required; --record keeps whole ones")
    if not any(table.presets for table in tables) and (options.seeds or options.set or options.row or options.check):
        raise Refused("--seeds, --set, --row, --check: given; a table for which something is trained required")
    for name, word, reads in (("data", "TEXT", "text"), ("code", "CODE", "code")):
        needing = [table for table in tables if table.reads == reads or any(word in command.split() for command in table.commands)]
        if getattr(options, name) and not needing:
            raise Refused(f"--{name}: given; a table of {'language models' if name == 'data' else 'models of code'} required")
        if needing and not getattr(options, name):
            raise Refused(f"--{name}: nothing given; a {'text file' if name == 'data' else 'folder of source code'} of yours required; {needing[0].name} "
                          "reads it, and the papers' texts are not ours to give")
    planned = [runs_of(table, asked) if table.presets else pd.DataFrame() for table in tables]
    for table, record in kept.items():
        if options.check and papers.tables[table].presets and lab_words(papers.tables[table], asked) != shlex.split(record.facts["lab"])[1:]:
            raise Refused(f"--check: the runs would be those of '{shlex.join(lab_words(papers.tables[table], asked))}', recorded are those of "
                          f"'{record.facts['lab']}'; the recorded options, seeds and file's name required")
    code = 0
    for table, runs in zip(tables, planned):
        print(f"{table.name}: {table.what} ({table.place})")
        if len(runs):
            print(f"{len(runs)} runs, preset {options.preset}; as\n  {shlex.join(['lab.py', *lab_words(table, asked)])}")
        print("".join(f"  {command}\n" for command in table.commands) + table.note, flush=True)
        if options.plan:
            continue
        out = pathlib.Path(options.out) / f"{table.name}-{options.preset}"
        out.mkdir(parents=True, exist_ok=True)
        record, runs = trained(table, asked, runs)
        code = max(code, int(record.facts.get("failed", "0") != "0"))
        if table.methods and table.presets:
            print(f"\n{shown(table, record, options.row)}")
            beside_paper(table, record).to_csv(out / "beside_paper.csv", index=False)
            judged(table, record).to_csv(out / "verdicts.csv", index=False)
        places = {"RUN": runs.folder.iloc[0] if len(runs) else "", "TEXT": options.data or "", "CODE": options.code or ""}
        said = []
        for command in table.commands:
            said.append(run_command(command, places, out))
            print(f"\n$ {said[-1]['command']}\n{said[-1]['output']}", flush=True)
            record.facts["core-seconds"] = f"{record.core_seconds() + 2 * said[-1]['seconds']:.1f}"
            code = max(code, int(said[-1]["exit_code"] != 0))
        if options.check:
            then = kept[table.name]
            differ = differences(record, then, options.row)
            print("".join(f"differs: {each}\n" for each in differ), end="")
            same = [(each.facts["vectors"], each.facts.get("text")) for each in (record, then)]
            if not differ:
                print(f"{sum(map(len, record.numbers.values()))} numbers are as recorded on {then.facts['date']}, bit for bit")
            elif same[0] == same[1]:
                print(f"reproduce.py: {table.name}: other numbers than recorded, of the same vectors, {same[0][0]}", file=sys.stderr)
                code = 1
            else:
                print(f"recorded with {same[1]}; now {same[0]}: nothing can be told")
        if folder:
            for preset in table.presets:
                try:
                    there = runs_of(table, Asked(preset, text=options.data, code=options.code))
                    record.facts[f"operations {preset}"] = exact(sum(run.about["operations"] * run.wanted["options"]["steps"] * run.wanted["options"]["batch"]
                                                                     * run.wanted["options"]["accumulate"] for run in there.itertuples()))
                except (Refused, KeyError):
                    continue
            record.facts |= {f"bits {name}": bits for name, bits in short_trainings([(table, record)], out / "short_trainings", options.jobs)[0].items()}
            keep(folder, papers, record, said, out)
    return code


if __name__ == "__main__":
    sys.exit(main())
