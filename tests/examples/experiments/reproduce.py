#!/usr/bin/env python3
"""Tests the papers' tables (examples/experiments/reproduce.py): python3 tests/examples/experiments/reproduce.py build/release/whence
Ends with 77 if pandas, scipy or matplotlib is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import io
import math
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples/experiments"))
sys.dont_write_bytecode = True
import packages

packages.require("pandas", "scipy", "matplotlib", skip=77)
import numpy as np
import pandas as pd

import lab
import reproduce

papers, records = reproduce.read_papers(), reproduce.read_records(reproduce.RECORDED)
BEGIN = 'title = "t"\n[texts]\nx = "one"\n[table.b]\nwhat = "w"\nplace = "p"\ntask = "flip_flop"\nmini.set = "steps=3"\n'
ROWS = 'columns.name = ["In"]\ncolumns.set = "sparse"\nrows = [["A", "rope", [6.8, 6.9]], ["B", "cope", "-"]]\n'
SMALL = "length=8 dim=8 layers=1 heads=2 steps=20 batch=4 test-sequences=20"


def refused(words, call, *arguments):
    try:
        call(*arguments)
    except lab.Refused as problem:
        assert words in str(problem), f"{words!r} is not in {str(problem)!r}"
        return str(problem)
    raise AssertionError(f"{words}: not refused")


def tables_of(text):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "a.toml").write_text(text)
        return reproduce.read_papers(pathlib.Path(folder), ["a.toml"]).tables


def ran(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = reproduce.main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def test_tables_are_read_strictly():
    table = tables_of(BEGIN + ROWS + 'better = ["A > B | *"]\n')["a/b"]
    assert table.printed == {("A", "In"): (6.8, 6.9)} and table.claims == [("A", "B", "In")] and table.schemes == ["rope", "cope"]
    assert tables_of(BEGIN + "accuracy = true\n" + ROWS)["a/b"].printed["A", "In"] == (93.2, 6.9)
    sized = tables_of(BEGIN + 'sizes = "s"\nmini.also = "dim=4"\nmini.because = "$x"\n[sizes.s]\nmini.why = "a"\nmini.seeds = 7\n')["a/b"].presets["mini"]
    assert (sized["set"], sized["why"], sized["seeds"]) == ("steps=3 dim=4", "a one", 7)
    bad = [(BEGIN + 'whit = "x"\n', "b: whit given"), ("tabel\n", "a.toml: "), (BEGIN + 'note = "$none"\n', "none"), (BEGIN + 'sizes = "none"\n', "none"),
           (BEGIN + 'columns = "none"\n', "none"), (BEGIN + ROWS + 'better = ["A > C | In"]\n', "'C'"), (BEGIN + ROWS + 'better = ["A"]\n', "b: "),
           (BEGIN + ROWS + 'better = ["A > B | Out"]\n', "'Out'"), (BEGIN + 'rows = [["C", "t5", 1, 2]]\n', "b: "),
           (BEGIN + ROWS.replace('"-"', '"six"'), "six"), (BEGIN + 'rows = [["C", "t5; x"]]\n', "b: ")]
    for text, words in bad:
        assert "; fields as in cope.toml required" in refused(words, tables_of, text), text
    print(f"  {len(bad)} broken tables are refused")


def test_the_papers():
    assert len(papers.tables) == 52 and [name for name, table in papers.tables.items() if table.ours] == ["dape/decay"]
    named = {kind: [table.name for table in papers.tables.values() if table.kind == kind] for kind in reproduce.KINDS}
    assert named["not made"] == ["cope/table1", "dape/table8", "dape-v2/table4", "dape-v2/table5"] and len(named["computed"]) == 12, named
    for table in papers.tables.values():
        assert table.what and table.place and bool(table.presets) == bool(table.task), table.name
        assert not table.presets or all(at["set"] or at["times"] or at["step"] for at in table.columns.values()), table.name
    commands = [command.split()[0] for table in papers.tables.values() for command in table.run]
    assert {"figures.py", "bench", "models"} <= {*commands} and not {"look", "lab"} & {*commands}
    assert all(name in reproduce.listing(papers, records) for name in papers.tables)


def test_every_table_is_accepted():
    with tempfile.TemporaryDirectory() as folder:
        text, count = pathlib.Path(folder) / "text.txt", 0
        text.write_text("".join(f"line {k} of a text that is long enough\n" for k in range(20000)))
        for table in papers.tables.values():
            if table.presets:
                preset = next(iter(table.presets))
                runs = reproduce.runs_of(table, preset, {"data": str(text)} if table.reads else {}, 1, folder)
                assert all(run.wanted["options"]["scheme"] == run.scheme for run in runs.itertuples()), table.name  # as the program writes them
                at = table.presets[preset]
                cells = [(method, column) for method, (scheme, _) in table.methods.items() for column, where in table.columns.items()
                         if scheme in (at["schemes"] or table.schemes) and where["task"] in ("", *(at["tasks"] or table.task))]
                assert all(any(reproduce.stands_at(run, table, *cell) for run in runs.to_dict("records")) for cell in cells), table.name
                count += len(runs)
        assert [path.name for path in pathlib.Path(folder).iterdir()] == ["text.txt"]
    print(f"  {count} runs of one seed")


def test_recorded():
    with tempfile.TemporaryDirectory() as folder:
        again = pathlib.Path(folder) / "recorded.jsonl"
        reproduce.write_records(pathlib.Path(folder), papers, dict(reversed(records.items())))
        assert again.read_bytes() == reproduce.RECORDED.read_bytes() and again.stat().st_size <= 200_000  # in the papers' order
        assert (pathlib.Path(folder) / "README.md").read_bytes() == (reproduce.PAPERS / "README.md").read_bytes()
        lines = again.read_text().splitlines()
        place = '{"table": "t", "preset": "mini", '
        for number, row, words in ((0, "[]", "line 1: "), (5, '{"half', "line 6: "), (5, "a,b", "line 6: "), (1, '{"preset": "mini"}', "line 2: 'table'"),
                                   (25, place + '"method": "A", "x": ["x"]}', "line 26: "), (6, place + '"core-seconds": "five"}', "line 7: "),
                                   (6, place + '"date": 3}', "line 7: "), (25, place + '"method": "A", "x": 3}', "a method and lists of numbers")):
            again.write_text("\n".join([*lines[:number], row, *lines[number + 1:]]) + "\n")
            refused(words, reproduce.read_records, again)
    found = pd.concat([reproduce.judged(papers.tables[record.table], record).assign(table=record.table) for record in records.values()])
    assert {"dape/table5", "dape/protocol"} <= {*found.table[found.duplicated("key")]} and len(found) > 150  # the runs of dape/figure2 again
    for (name, _), record in records.items():  # every record has what its row's class says
        kind, figure = papers.tables[name].kind, record.facts.get("figure", "")
        assert kind != "not made" and (record.numbers if kind == "compared" else record.printed or figure), name
        assert not figure.endswith(".svg") or (reproduce.PAPERS / figure).is_file(), name


def test_lengths_of_a_regime_are_one_test():
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


def test_a_table_is_trained_kept_and_checked():
    with tempfile.TemporaryDirectory() as folder:
        kept, out = pathlib.Path(folder) / "kept", pathlib.Path(folder) / "out"
        command = ["cope/table2-flip_flop", "--jobs", "2", "--quiet", "--set", SMALL, "--out", out]
        code, said, error = ran(*command, "--record", kept)
        assert code == 0 and "holds" in said or "not decided" in said and "tests were made" in said, (said, error)
        file = kept / "recorded.jsonl"
        record = reproduce.read_records(file)["cope/table2-flip_flop", "mini"]
        assert all(word in record.facts["lab"] for word in SMALL.split()) and len(record.numbers) == 8, record.facts
        runs = list((out / "runs/flip_flop").glob("cope.0-*"))
        mine = {line["test_set"]: line["token_error_percent"] for line in lab.lines_of(runs[0] / "results.jsonl")}
        assert [record.numbers["CoPE", name][0] for name in ("In-dist", "OOD")] == [mine["in distribution"], mine["sparse"]]
        assert "| cope/table2-flip_flop | flip-flop, in and out" in (kept / "README.md").read_text()
        times = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("weights.safetensors")}
        check = [*command, "--check", "--records", file]
        assert "30 numbers" not in ran(*check)[1] and " 32 numbers are as recorded on " in ran(*check)[1].splitlines()[-1]
        assert ran(*check, "--row", "CoPE")[1].splitlines()[-1].startswith("cope/table2-flip_flop: 12 numbers are as recorded")
        assert times == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("weights.safetensors")}  # nothing is trained twice
        whole = file.read_text()

        def changed(what, other):
            assert re.search(what, whole), what
            file.write_text(re.sub(what, other, whole, count=1))
        changed(r'("Absolute PE", "In-dist": \[)', r"\g<1>1")
        code, said, error = ran(*check)
        assert code == 1 and "differs: Absolute PE, In-dist: " in said and "of the same vectors" in said
        changed(r'"vectors": "[^"]*"', r'"vectors": "of another kind \\u001b[2J"')
        assert reproduce.summary_page(papers, reproduce.read_records(file)).replace("\n", "").isprintable()
        assert ran(*check)[0] == 0
        changed("--seeds 5", "--seeds 6")
        code, _, error = ran(*check)
        assert code == 2 and "the recorded options, seeds and file's name required" in error
        file.write_text(whole)
        results = runs[0] / "results.jsonl"
        before = results.read_bytes()
        results.write_bytes(before[:before.index(b"\n") + 1])
        assert ran(*check)[0] == 1  # a damaged run has no number
        results.write_bytes(before)
        assert ran(*check)[0] == 0


def test_a_text_of_the_users_and_commands():
    with tempfile.TemporaryDirectory() as folder:
        folder, text = pathlib.Path(folder), pathlib.Path(folder) / "code.txt"
        text.write_text("".join(f"line {k * k} of a text that can be learned\n" for k in range(2000)))
        code, said, error = ran("cope/table5-code", "--seeds", 1, "--quiet", "--code", text, "--record", folder / "kept", "--out",
            folder / "out", "--set",
                                "dim=8 layers=1 heads=2 length=16 batch=2 steps=2 last=16 evaluate-to=2 evaluation-windows=2 validation-windows=2")
        assert code == 0 and "1 seeds; 3 required" in said, (said, error)
        assert reproduce.read_records(folder / "kept/recorded.jsonl")["cope/table5-code", "mini"].facts["text"].startswith("code.txt, SHA-256 ")
        code, said, error = ran("dape/table3", "--record", folder / "kept", "--out", folder / "out")
        assert code == 0 and " models\n" in said, error
        kept = reproduce.read_records(folder / "kept/recorded.jsonl")
        assert [name for name, _ in kept] == ["cope/table5-code", "dape/table3"]
        assert any("neox-350m" in line for line in kept["dape/table3", "mini"].printed)


def test_what_cannot_be_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder) / "own"
        own.mkdir()
        (own / "README.md").write_text("# Mine\n")
        for words, expected in ((["cope/table1"], "it cannot be run here"), (["cope/table8"], "--data: nothing given; a file of yours required"),
                                ([], "no name given"), (["nothing at all"], "--list shows them"),
                                (["cope/table2"], "cope/table2-flip_flop, cope/table2-selective_copy"),
                                (["cope/table3", "--row", "CoPEE"], '--row: "CoPEE" given; one of those of cope/table3 required'),
                                (["dape/table2", "--row", "Learned"], '--row: "Learned" given; a row of preset mini required'),
                                (["cope/table3", "--row", "CoPE", "--record", own.parent / "kept"], "--record keeps whole ones"),
                                (["cope/table3", "--record", own], "is no page of records"),
                                (["cope/table3", "--preset", "small", "--check"], "is not recorded"),
                                (["cope/table2-flip_flop", "--seeds", "2", "--check"], "the recorded options"),
                                (["cope/table3", "--seeds", "-1"], "0 or more"),
                                (["cope/table3", "--set", "stepz=2"], "--stepz"), (["cope/table3", "--set", "variables=2"], "variables"),
                                (["--list", "--records", own / "none"], "none"), (["--list", "--records", "/dev/zero"], "not a regular file")):
            code, said, error = ran(*words, "--out", own.parent / "out")
            assert code in (2, 4) and expected in error and error.startswith("reproduce.py: ") and not said, (words, error)
        assert not (own.parent / "out").exists() and (own / "README.md").read_text() == "# Mine\n"


os.environ["WHENCE"] = str(pathlib.Path(sys.argv[1]).resolve())
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name[5:].replace('_', ' ')}: ok", flush=True)
