"""The papers' tables (examples/experiments/reproduce.py): tests/pytest tests/examples/experiments/reproduce.py"""
import argparse
import math
import os
import platform
import re

import pytest

for package in ("pandas", "scipy", "matplotlib"):
    pytest.importorskip(package)
import numpy as np
import pandas as pd

import lab
import reproduce

papers, records = reproduce.read_papers(), reproduce.read_records(reproduce.RECORDED)
BEGIN = 'title = "t"\n[texts]\nx = "one"\n[table.b]\nwhat = "w"\nplace = "p"\ntask = "flip_flop"\nmini.set = "steps=3"\n'
ROWS = 'columns.name = ["In"]\ncolumns.set = "sparse"\nrows = [["A", "rope", [6.8, 6.9]], ["B", "cope", "-"]]\n'
SMALL = "length=8 dim=8 layers=1 heads=2 steps=20 batch=4 test-sequences=20"
refused = lambda words: pytest.raises(lab.Refused, match=re.escape(words))


@pytest.fixture
def tables_of(tmp_path):
    def tables_of(text):
        (tmp_path / "a.toml").write_text(text)
        return reproduce.read_papers(tmp_path, ["a.toml"]).tables
    return tables_of


@pytest.fixture
def ran(capsys):
    def ran(*words):
        code = reproduce.main([str(word) for word in words])
        return code, *capsys.readouterr()
    return ran


def test_tables_are_read_strictly(tables_of):
    table = tables_of(BEGIN + ROWS + 'better = ["A > B | *"]\n')["a/b"]
    assert table.printed == {("A", "In"): (6.8, 6.9)} and table.claims == [("A", "B", "In")] and table.schemes == ["rope", "cope"]
    assert tables_of(BEGIN + "accuracy = true\n" + ROWS)["a/b"].printed["A", "In"] == (93.2, 6.9)
    sized = tables_of(BEGIN + 'sizes = "s"\nmini.also = "dim=4"\nmini.because = "$x"\n[sizes.s]\nmini.why = "a"\nmini.seeds = 7\n')["a/b"].presets["mini"]
    assert (sized["set"], sized["why"], sized["seeds"]) == ("steps=3 dim=4", "a one", 7)
    for text, words in ((BEGIN + 'whit = "x"\n', "b: whit given"), ("tabel\n", "a.toml: "), (BEGIN + 'sizes = "none"\n', "none"),
                        (BEGIN + 'columns = "none"\n', "none"), (BEGIN + ROWS + 'better = ["A > C | In"]\n', "'C'"), (BEGIN + ROWS + 'better = ["A"]\n', "b: "),
                        (BEGIN + 'rows = [["C", "t5", 1, 2]]\n', "b: "), (BEGIN + ROWS.replace('"-"', '"six"'), "six")):
        with refused(words) as problem:
            tables_of(text)
        assert "; fields as in cope.toml required" in str(problem.value)


def test_the_papers():
    named = {kind: [table.name for table in papers.tables.values() if table.kind == kind] for kind in reproduce.KINDS}
    assert named["not made"] == ["cope/table1", "dape/table8", "dape-v2/table4", "dape-v2/table5"], named
    for table in papers.tables.values():
        assert table.what and table.place and bool(table.presets) == bool(table.task), table.name
        assert not table.presets or all(at["set"] or at["times"] or at["step"] for at in table.columns.values()), table.name
    commands = [command.split()[0] for table in papers.tables.values() for command in table.run]
    assert {"figures.py", "bench", "models"} <= {*commands} and not {"look", "lab"} & {*commands}
    assert all(name in reproduce.listing(papers, records) for name in papers.tables)


def test_every_table_is_accepted(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {k} of a text that is long enough\n" for k in range(20000)))
    for table in papers.tables.values():
        for preset in list(table.presets)[:1]:
            runs = reproduce.runs_of(table, preset, {"data": str(text)} if table.reads else {}, 1, str(tmp_path))
            assert all(run.wanted["options"]["scheme"] == run.scheme for run in runs.itertuples()), table.name  # as the program writes them
            at = table.presets[preset]
            cells = [(method, column) for method, (scheme, _) in table.methods.items() for column, where in table.columns.items()
                     if scheme in (at["schemes"] or table.schemes) and where["task"] in ("", *(at["tasks"] or table.task))]
            assert all(any(reproduce.stands_at(run, table, *cell) for run in runs.to_dict("records")) for cell in cells), table.name
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_recorded(tmp_path):
    again = tmp_path / "recorded.jsonl"
    reproduce.write_records(tmp_path, papers, dict(reversed(records.items())))
    assert again.read_bytes() == reproduce.RECORDED.read_bytes() and again.stat().st_size <= 200_000  # in the papers' order
    assert (tmp_path / "README.md").read_bytes() == (reproduce.PAPERS / "README.md").read_bytes()
    lines, place = again.read_text().splitlines(), '{"table": "t", "preset": "mini", '
    for number, row, words in ((0, "[]", "line 1: "), (5, '{"half', "line 6: "), (1, '{"preset": "mini"}', "line 2: 'table'"),
                               (25, place + '"method": "A", "x": ["x"]}', "line 26: "), (6, place + '"core-seconds": "five"}', "line 7: "),
                               (25, place + '"method": "A", "x": 3}', "a method and lists of numbers")):
        again.write_text("\n".join([*lines[:number], row, *lines[number + 1:]]) + "\n")
        with refused(words):
            reproduce.read_records(again)
    found = pd.concat([reproduce.judged(papers.tables[record.table], record).assign(table=record.table) for record in records.values()])
    assert {"dape/table5", "dape/protocol"} <= {*found.table[found.duplicated("key")]}  # the runs of dape/figure2 again
    for (name, _), record in records.items():  # every record has what its row's class says
        kind, figure = papers.tables[name].kind, record.facts.get("figure", "")
        assert kind != "not made" and (record.numbers if kind == "compared" else record.printed or figure), name
        assert not figure.endswith(".svg") or (reproduce.PAPERS / figure).is_file(), name


def test_figures_in_prose_are_those_recorded():
    """The figures of the README, the errata, the page and the notes that no command prints."""
    flat = lambda path: " ".join((lab.ROOT / path).read_text().split())
    mean = lambda name, preset, method, column: float(np.mean(list(records[name, preset].numbers[method, column].values())))
    far = {method: [mean("dape/decay", "deep", method, column) for column in ("512 (4x)", "8192 (64x)")] for method in papers.tables["dape/decay"].methods}
    rises, (still, then), (over, last) = (map("{:.2f}".format, far[method]) for method in ("Kerple, decayed", "Kerple", "DAPE-Kerple, decayed"))
    low, high = rises
    assert f"rises from {low} at 256 bytes to {high} at 4096; without it {still} becomes {then}, and DAPE over the decayed KERPLE has {over} and {last}" in flat("nn/errata.md")
    assert f"rises from {low} at 256 bytes to {high} at 4096, KERPLE without decay stays at 3.1, ALiBi at 3.2, DAPE and CDAPE over both at 2.9 to 3.0" in flat(
        "examples/whence/papers/README.md")
    assert {f"{value:.1f}" for value in far["Kerple"]} == {"3.1"} and {f"{value:.1f}" for value in far["ALiBi"]} == {"3.2"}
    assert {f"{value:.1f}" for method in far if "DAPE-Kerple" in method for value in far[method]} == {"2.9", "3.0"}
    printed = papers.tables["cope/table2-flip_flop"].printed
    assert "are {:g}, {:g} and {:g} (".format(*(printed[method, "OOD"][0] for method in ("CoPE", "RoPE", "Absolute PE"))) in flat("README.md")
    cope, rope = (mean("cope/table2-flip_flop", "paper", method, "OOD") for method in ("CoPE", "RoPE"))
    assert f"(ours at that size, one seed: CoPE {cope:.2f}, RoPE {rope:.2f})" in flat("README.md")
    solved = {method: sum(error < 1 for (who, column), errors in records["cope/table7-shapes", "mini"].numbers.items() if "In-dist" in column
                          and who == method for error in errors.values()) for method in ("CoPE", "RoPE", "Absolute PE")}
    assert (f"{solved['CoPE']} of CoPE's 24 runs end below 1 %, {solved['RoPE']} of RoPE's, and {solved['Absolute PE']} of those with absolute"
            in papers.tables["cope/table7-shapes"].presets["mini"]["why"])
    absolute, none = mean("cope/table5-wikitext", "mini", "Absolute PE", "Test PPL"), mean("dape-v2/table3", "mini", "NoPE", "1024 (1x)")
    assert f"({absolute:.2f} here; NoPE has {none:.2f} in dape-v2/table3)" in papers.tables["cope/table5-wikitext"].note
    rows, printed = [line.split() for line in records["dape/table1", "mini"].printed], papers.tables["dape/table1"].printed
    shares = [row[8] for row in rows if row[1:2] == ["dape(kerple)"] and row[3] == "512"]
    assert "DAPE's share is {}, {} and {} %.".format(*shares) in papers.tables["dape/table1"].note and len(shares) == 3
    assert [round(100 - 100 * printed["Kerple", size][0] / printed["DAPE-Kerple", size][0]) for size in ("350M", "2.7B", "6.7B")] == [15, 12, 8]


def test_lengths_of_a_regime_are_one_test(tables_of):
    """Lengths beyond the trained one are one comparison: Welch's test on each seed's mean of log perplexity."""
    table = tables_of(BEGIN.replace('task = "flip_flop"\nmini.set = "steps=3"', 'reads = "text"\nmini.set = "length=64"') + 'columns.name = '
        '["a", "b", "c"]\ncolumns.times = [1, 4, 16]\nrows = [["A", "rope"], ["B", "cope"]]\nbetter = ["A > B | *"]\n')["a/b"]
    record, number = reproduce.blank_record("a/b", "mini"), lambda method, column, seed: ord(column) * (method + 1) + seed ** (method + 1)
    record.facts["measure"] = "perplexity"
    record.numbers = {("AB"[method], column): {seed: number(method, column, seed) for seed in range(3)} for method in (0, 1) for column in "abc"}
    found = reproduce.judged(table, record)
    assert list(found.column) == ["64 bytes (a)", "64 to 1 024 bytes (b and c)"] and not found.duplicated("key").any(), found
    logs = [[np.mean([math.log(number(method, column, seed)) for column in "bc"]) for seed in range(3)] for method in (0, 1)]
    assert found.p[1] == reproduce.decide(*logs)[2]
    assert math.isnan(found.rise[0]) and abs(found.rise[1] - 4) < 1e-9 and "In 0 of the 1 that hold beyond the trained" in reproduce.by_chance(found)
    much, numbers = {seed: 1e9 + seed for seed in range(3)}, record.numbers
    for other, verdict, test in (({("A", "c"): much}, reproduce.DOES_NOT, "Welch's test, 3 and 3 seeds: p < 0.0001"),
                                 ({("B", "c"): much, ("A", "b"): numbers["B", "c"]}, reproduce.OPEN, "the lengths or steps have different orders")):
        record.numbers = {**numbers, **other}  # c decides the mean
        found = reproduce.judged(table, record)
        assert (found.verdict[1], found.test[1]) == (verdict, test) and found.p[1] < 1e-4, found


def test_a_baseline_at_a_guess_decides_nothing(tables_of):
    """Nothing is won over a baseline that is at a guess here, unless all its answers are wrong in the paper, too. What was not trained is said, and a reversed order is marked."""
    table = tables_of(BEGIN + 'columns.name = ["In", "Out"]\ncolumns.set = ["a", "b"]\nrows = [["A", "rope", 1, 1], ["B", "cope", 20, 100], '
                      '["C", "none"]]\nbetter = ["A > B | *", "B > C | In", "B > A | In"]\n')["a/b"]
    record = reproduce.blank_record("a/b", "mini")
    record.numbers = {(method, column): {seed: value + seed / 10 for seed in range(3)} for method, value in (("A", 2), ("B", 45.1)) for column in table.columns}
    record.numbers |= {(reproduce.GUESS, column): {0: 50.0} for column in table.columns}
    found = reproduce.judged(table, record)
    assert list(found.verdict) == [reproduce.OPEN, reproduce.HOLDS, reproduce.UNTRAINED, reproduce.DOES_NOT], found
    assert "B is at a guess here" in found.test[0] and found.p[0] < 1e-4 and list(found.reversed) == [False, False, False, True], found
    assert "In 0 of the 1 that are not decided our means have the other order" in reproduce.shown(table, record, [])
    assert reproduce.UNTRAINED not in reproduce.shown(table, record, ["A", "B"])


def test_verdicts():
    for better, worse, verdict in (([1.0, 1.1, 0.9], [5.0, 5.2, 4.9], reproduce.HOLDS), ([5.0, 5.2, 4.9], [1.0, 1.1, 0.9], reproduce.DOES_NOT),
                                   ([1.0, 3.0, 5.0], [2.0, 4.0, 5.5], reproduce.OPEN), ([], [], reproduce.OPEN),
                                   ([1.0, 1.1], [5.0, 5.2], reproduce.OPEN),
                                   ([0, 0, 0], [100, 100, 100], reproduce.HOLDS), ([100] * 3, [0] * 3, reproduce.DOES_NOT),
                                   ([0] * 3, [0] * 3, reproduce.OPEN),
                                   ([1, 2, math.nan], [5, 6, 7], reproduce.OPEN)):
        assert reproduce.decide(better, worse)[0] == verdict, (better, worse)
    # Welch by hand: means 1, 3; variances 1, 4; t = -2 / sqrt(5 / 3), freedom (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 2.941.
    assert abs(reproduce.decide([0, 1, 2], [1, 3, 5])[2] - 0.2209) < 2e-4, reproduce.decide([0, 1, 2], [1, 3, 5])
    low, high = dict(enumerate([1.0, 1.1, 0.9])), dict(enumerate([5.0, 5.2, 4.9]))
    for name, of_better, verdict in (("dape-v2/table2", high, reproduce.HOLDS), ("dape-v2/table2", low, reproduce.DOES_NOT),
        ("dape/table7", low, reproduce.HOLDS)):
        better, worse, column = papers.tables[name].claims[0]  # a larger Delta-P is better, and a smaller perplexity
        record = reproduce.blank_record(name, "mini")
        record.numbers = {(better, column): of_better, (worse, column): low if of_better is high else high}
        assert reproduce.judged(papers.tables[name], record).verdict[0] == verdict
    # Benjamini and Hochberg 1995, section 3.1: of 15 p values, four are below 0.05 when corrected.
    p = pd.Series([0.0459, 0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, np.nan, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert list(reproduce.corrected(pd.Series([0.03, 0.031]))) == [0.031, 0.031]  # never falling
    fixed = reproduce.corrected(p)
    assert list(p[fixed < 0.05]) == [0.0001, 0.0004, 0.0019, 0.0095] and np.isnan(fixed[9]) and abs(fixed[4] - 0.0095 * 15 / 4) < 1e-12


def test_a_table_is_trained_kept_and_checked(ran, tmp_path):
    kept, out = tmp_path / "kept", tmp_path / "out"
    command = ["cope/table2-flip_flop", "--jobs", "2", "--quiet", "--set", SMALL, "--out", out]
    code, said, error = ran(*command, "--record", kept)
    assert code == 0 and ("holds" in said or "not decided" in said) and "tests were made" in said, (said, error)
    file = kept / "recorded.jsonl"
    record = reproduce.read_records(file)["cope/table2-flip_flop", "mini"]
    assert all(word in record.facts["lab"] for word in SMALL.split()) and len(record.numbers) == 8, record.facts
    runs = list((out / "runs/flip_flop").glob("cope.0-*"))
    mine = {line["test_set"]: line["token_error_percent"] for line in lab.lines_of(runs[0] / "results.jsonl")}
    assert [record.numbers["CoPE", name][0] for name in ("In-dist", "OOD")] == [mine["in distribution"], mine["sparse"]]
    assert "| cope/table2-flip_flop | flip-flop, in and out" in (kept / "README.md").read_text()
    times = lambda: {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("weights.safetensors")}
    before, check = times(), [*command, "--check", "--records", file]
    assert " 32 numbers are as recorded on " in ran(*check)[1].splitlines()[-1]
    assert ran(*check, "--row", "CoPE")[1].splitlines()[-1].startswith("cope/table2-flip_flop: 12 numbers are as recorded")
    assert times() == before  # nothing is trained twice
    if platform.machine() == "x86_64":
        file.write_text(file.read_text().replace(f'"blas": "{record.facts["blas"]}"', '"blas": "Nehalem"'))
        ran(*check, "--row", "CoPE")  # trains with other kernels, and so in other folders
        assert len(times()) > len(before) and reproduce.machine_of("cpu")["blas"] == "Nehalem"
        reproduce.take_kernels(None, argparse.Namespace(check=False))
        assert reproduce.machine_of("cpu")["blas"] == record.facts["blas"]
        file.write_text(file.read_text().replace('"blas": "Nehalem"', f'"blas": "{record.facts["blas"]}"'))
    whole = file.read_text()

    def changed(what, other):
        assert re.search(what, whole), what
        file.write_text(re.sub(what, other, whole, count=1))
    changed(r'("Absolute PE", "In-dist": \[)', r"\g<1>1")
    code, said, _ = ran(*check)
    assert code == 1 and "differs: Absolute PE, In-dist: " in said and "of the same vectors" in said
    changed(r'"vectors": "[^"]*"', r'"vectors": "of another kind \\u001b[2J"')
    assert reproduce.summary_page(papers, reproduce.read_records(file)).replace("\n", "").isprintable()
    assert ran(*check)[0] == 0
    changed("--seeds 5", "--seeds 6")
    code, _, error = ran(*check)
    assert code == 2 and "the recorded options" in error
    file.write_text(whole)
    results = runs[0] / "results.jsonl"
    results.write_bytes(results.read_bytes().partition(b"\n")[0] + b"\n")
    assert ran(*check)[0] == 1  # a damaged run has no number


def test_rows_are_kept_one_by_one_at_the_papers_size(ran, tmp_path):
    kept, small = tmp_path / "kept", ["--quiet", "--set", SMALL, "--out", tmp_path / "out", "--record", tmp_path / "kept"]
    command = ["cope/table2-flip_flop", *small, "--preset", "paper", "--seeds"]
    assert ran("cope/table2-flip_flop", *small, "--seeds", 1)[0] == 0  # the smallest size counts, others stand apart
    for count, row in enumerate(("CoPE", "RoPE"), 1):
        assert ran(*command, 1, "--row", row)[0] == 0
        record = reproduce.read_records(kept / "recorded.jsonl")["cope/table2-flip_flop", "paper"]
        assert len(record.numbers) == 2 * count + 2 and ("CoPE", "OOD") in record.numbers  # two of the best guess
    page = (kept / "README.md").read_text().partition("## cope/table2-flip_flop at preset paper")[2]
    assert "| CoPE over RoPE | In-dist | not decided at this size |" in page and "(flip_flop-paper.svg)" in page, page
    assert "</svg>" in (kept / "flip_flop-paper.svg").read_text()
    code, _, error = ran(*command, 2, "--row", "CoPE")
    assert code == 2 and "all rows required" in error
    assert ran(*command, 2, "--row", "CoPE", "--row", "RoPE")[0] == 0  # no row is left of those before
    assert len(reproduce.read_records(kept / "recorded.jsonl")["cope/table2-flip_flop", "paper"].numbers["RoPE", "OOD"]) == 2


@pytest.mark.parametrize("preset", ["mini", "paper"])
def test_if_every_run_fails_nothing_is_recorded(preset, ran, tmp_path, monkeypatch):
    broken = tmp_path / "whence"
    broken.write_text(f'#!/bin/sh\ncase "$*" in *--out*) echo "no room" >&2; exit 5;; esac\nexec {os.environ["WHENCE"]} "$@"\n')
    broken.chmod(0o755)
    monkeypatch.setenv("WHENCE", str(broken))
    code, said, error = ran("cope/table2-flip_flop", "--preset", preset, "--seeds", 1, "--quiet", "--set", SMALL, "--out", tmp_path / "out",
                            "--record", tmp_path / "kept")
    assert code == 1 and "failed with exit code 5: no room" in error and "not recorded: runs or commands failed" in said, (said, error)
    assert not (tmp_path / "kept").exists()


def test_a_figure_is_compared_by_its_bytes(tmp_path, capsys):
    record = reproduce.blank_record("dape/decay", "deep")
    record.facts["figure"] = "decay.svg"
    for folder, words in ((reproduce.PAPERS, "as recorded, byte for byte"), (tmp_path, "decay.svg is not as recorded")):
        assert reproduce.checked(record, record, [], folder) == 0 and words in capsys.readouterr().out


def test_the_picture_of_decay_is_of_the_recorded_numbers(ran, tmp_path):
    curves = lambda path: re.findall(r"<!-- ([A-Z].* [0-9.]+) -->", path.read_text())
    there = curves(reproduce.PAPERS / "decay.svg")
    rows = [word for curve in there for word in ("--row", curve.rpartition(" ")[0])]
    assert ran("dape/decay", "--preset", "deep", "--recorded", "--picture", tmp_path / "a.svg", *rows)[0] == 0
    assert len(there) == 7 and curves(tmp_path / "a.svg") == there
    for words, said in ((["cope/table3", "--recorded"], "a table over lengths required"), (["dape/decay"], "without --recorded")):
        code, _, error = ran(*words, "--picture", tmp_path / "b.svg")
        assert code == 2 and said in error
    assert ran("dape/figure2", "--recorded", "--picture", tmp_path / "c.svg", "--row", "ALiBi")[0] == 0
    assert len(curves(tmp_path / "c.svg")) == 2  # trained on two lengths


def test_a_text_of_the_users_and_commands(ran, tmp_path):
    text, kept = tmp_path / "code.txt", tmp_path / "kept"
    text.write_text("".join(f"line {k * k} of a text that can be learned\n" for k in range(2000)))
    sizes = "dim=8 layers=1 heads=2 length=16 batch=2 steps=2 last=16 evaluate-to=2 evaluation-windows=2 validation-windows=2"
    code, said, error = ran("cope/table5-code", "--seeds", 1, "--quiet", "--code", text, "--record", kept, "--out", tmp_path / "out", "--set", sizes)
    assert code == 0 and "1 seeds; 3 required" in said, (said, error)
    assert reproduce.read_records(kept / "recorded.jsonl")["cope/table5-code", "mini"].facts["text"].startswith("code.txt, SHA-256 ")
    code, said, error = ran("dape/table3", "--record", kept, "--out", tmp_path / "out")
    assert code == 0 and " models\n" in said, error
    found = reproduce.read_records(kept / "recorded.jsonl")
    assert [name for name, _ in found] == ["cope/table5-code", "dape/table3"]
    code, said, _ = ran("dape/table3", "--check", "--records", kept / "recorded.jsonl", "--out", tmp_path / "out")
    assert code == 0 and said.endswith("dape/table3: no number is recorded\n"), said
    assert any("neox-350m" in line for line in found["dape/table3", "mini"].printed)


@pytest.mark.parametrize("words, expected", [
    ("cope/table1", "it cannot be run here"), ("cope/table8", "--data: nothing given"), ("", "no name given"), ("nothing at all", "--list shows them"),
    ("cope/table2", "cope/table2-flip_flop, cope/table2-selective_copy"), ("cope/table3 --row CoPEE", '--row: "CoPEE" given'),
    ("dape/table2 --row Learned", '--row: "Learned" given'),
    ("cope/table3 --record own", "is no page of records"), ("cope/table3 --preset small --check", "is not recorded"),
    ("cope/table2-flip_flop --seeds 2 --check", "the recorded options"), ("cope/table3 --seeds -1", "0 or more"), ("cope/table3 --set stepz=2", "--stepz"),
    ("--list --records own/none", "none"), ("--list --records /dev/zero", "not a regular file")])
def test_what_cannot_be_is_refused(words, expected, ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/README.md").write_text("# Mine\n")
    code, said, error = ran(*words.split(), "--out", "out")
    assert code in (2, 4) and expected in error and error.startswith("reproduce.py: ") and not said, error
    assert [path.name for path in tmp_path.iterdir()] == ["own"] and (tmp_path / "own/README.md").read_text() == "# Mine\n"
