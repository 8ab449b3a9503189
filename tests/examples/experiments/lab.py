"""Grids of trainings (examples/experiments/lab.py): tests/pytest tests/examples/experiments/lab.py"""
import fcntl
import importlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

for package in ("pandas", "scipy", "matplotlib"):
    pytest.importorskip(package)
import matplotlib
import numpy as np
import pandas as pd

import lab

matplotlib.use("Agg")
SMALL = {"steps": 6, "dim": 16, "layers": 1, "heads": 2, "length": 16, "batch": 4, "test-sequences": 20}
TINY = {"dim": 16, "layers": 1, "heads": 2}
refused = lambda words: pytest.raises(lab.Refused, match=words)


@pytest.fixture
def small(tmp_path):
    def small(schemes, seeds=2, settings={}, **more):
        return lab.grid("flip_flop", schemes, seeds=seeds, settings={**SMALL, **settings}, out=tmp_path / "grid", **more)
    return small


def scored(folder, **errors):
    """Scores of one test set, by scheme a value a seed."""
    return pd.DataFrame([{"task": "t", "scheme": scheme, "seed": seed, "folder": str(folder / f"{scheme}.{seed}"), "test_set": "all", "test_length": None,
                          "token_error_percent": value, "measure": "token_error_percent", "same_for_seeds": False, "data": "one"}
                         for scheme, values in errors.items() for seed, value in enumerate(values)])


def answered(folder, **wrong):
    """Writes the questions of a seed of each scheme, and returns the scores."""
    for scheme, each in wrong.items():
        (folder / f"{scheme}.0").mkdir(exist_ok=True)
        (folder / f"{scheme}.0/questions.jsonl").write_text(json.dumps({"test_set": "all", "graded": [1] * len(each), "wrong": each}) + "\n")
    return scored(folder, **{scheme: [100 * sum(each) / len(each)] for scheme, each in wrong.items()})


def bytes_of(folder):
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in ("results.jsonl", "questions.jsonl", "weights.safetensors")}


def test_places(small, tmp_path):
    runs = small(["cope(p_max=4)", "rope"], vary={"length": [8, 16], "lr": ["1e-3", "1e-2"]}, equal_tokens=True)
    assert {pathlib.Path(each).relative_to(tmp_path).as_posix() for each in runs.folder} == {
        f"grid/length={length}/lr={lr}/{scheme}.{seed}" for length in (8, 16) for lr in ("1e-3", "1e-2") for scheme in ("cope-p_max=4", "rope") for seed in (0, 1)}
    for words, schemes, more in (("varies a scheme's", ["cope"], {"vary": {"cope.p_max": [4]}}), ("--stepz", ["rope"], {"settings": {"stepz": 3}}),
                                 ("did you mean", ["ropee"], {}), ("lab.py has --schemes", ["rope"], {"settings": {"out": "x"}}),
                                 ("two runs would have this folder", ["rope", "rope()"], {}),
                                 ("a whole number required", ["rope"], {"vary": {"length": [24]}, "equal_tokens": True})):
        with refused(words):
            small(schemes, **more)
    with refused("lm alone required"):
        lab.grid(["lm", "counting"])
    runs = small(["rope"], vary={"length": [8, 32]}, equal_tokens=True)
    assert {(run.wanted["options"]["length"], run.wanted["options"]["batch"]) for run in runs.itertuples()} == {(8, 8), (32, 2)}  # SMALL: 16 x 4
    assert lab.folder_name("cdape(kerple, kernel=3.0) + rope") == "cdape-kerple,kernel=3.0-+rope"  # as in old grids
    assert lab.folder_name("window(cdape(kerple), n=3)") != lab.folder_name("window(cdape(kerple, n=3))")
    assert lab.folder_name("data=a/b.txt") == "data=a%2Fb.txt" and len(lab.folder_name("x" * 500)) == 200
    tasks = lab.tasks_of(["chomsky", "flip_flop", "even_pairs"])
    assert (len(tasks), len(set(tasks)), tasks[-1]) == (16, 16, "flip_flop")


def test_program(tmp_path, monkeypatch):
    module = tmp_path / "site/whence"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("raise SystemExit('imported')")
    shutil.copy("/bin/true", module / "whence")
    monkeypatch.setattr(lab, "ROOT", tmp_path), monkeypatch.setenv("PATH", "/nowhere"), monkeypatch.setenv("WHENCE", "/nowhere")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with refused("WHENCE=/nowhere"):
        lab.program()
    monkeypatch.delenv("WHENCE")
    importlib.invalidate_caches()
    assert lab.program() == str(module / "whence")


def test_several_tasks_are_a_matrix(tmp_path):
    runs = lab.train(lab.grid(["flip_flop", "parity_check"], ["rope", "none"], seeds=1, out=tmp_path / "two",
                              settings={"steps": 60, "lr": 0.01, "test-sequences": 8, **TINY}), quiet=True)
    assert set(runs.state) == {"done"}
    found = lab.scores(runs)
    table = lab.crossed(found)
    assert (list(table.columns), len(table)) == (["rope", "none"], 4)  # three sets of one, the average over five of the other
    of_parity = found[(found.task == "parity_check") & (found.scheme == "rope")]
    assert sorted(of_parity.test_length) == [21, 37, 53, 69, 85]
    summary = lab.summary(found)
    assert summary[(summary.task == "parity_check") & (summary.scheme == "rope")]["mean"].iloc[0] == pytest.approx(of_parity.token_error_percent.mean(), abs=1e-12)
    assert lab.differences(found).p_questions.notna().any() and "over_test_length_parity_check.pdf" in lab.write(runs, found)


def test_texts_are_compared_on_the_same_windows(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"the cat number {k} sat on the mat, and {k * k % 97} dogs ran.\n" for k in range(400)))
    runs = lab.train(lab.grid("lm", ["rope", "none"], seeds=2, out=tmp_path / "lm", settings={
        "data": str(tmp_path / "text.txt"), "steps": 8, "length": 16, "batch": 4, "evaluate-to": 4, "warm-up": 0, **TINY}), quiet=True)
    found = lab.scores(runs)
    assert list(found[found.folder == runs.folder[0]].test_set) == ["validation", "length 16", "length 32", "length 64"]
    for row in found.itertuples():
        graded, nats = lab.questions(row.folder)[row.test_set]
        mean = nats.sum() / graded.sum()
        assert [row.perplexity, row.bits_per_byte, row.standard_error] == pytest.approx(
            [math.exp(mean), mean / math.log(2), row.perplexity * (nats / graded).std(ddof=1) / len(nats) ** 0.5], abs=1e-9)
    at = lambda scheme, seed: np.divide(*lab.questions(runs[(runs.scheme == scheme) & (runs.seed == seed)].folder.iloc[0])["length 32"][::-1])
    each = np.mean([at("rope", seed) - at("none", seed) for seed in (0, 1)], axis=0)
    z = abs(each.mean()) / (each.std(ddof=1) / len(each) ** 0.5)
    assert lab.differences(found).set_index("test_set").loc["length 32"].p_questions == pytest.approx(math.erfc(z / 2**0.5), abs=1e-12)
    results = pathlib.Path(runs.folder[0]) / "results.jsonl"
    results.write_text(results.read_text().splitlines()[0] + "\n")
    assert "no results of length " in lab.state(next(runs.itertuples()))


def test_killed_twice_is_as_if_undisturbed(tmp_path):
    options = {**SMALL, "steps": 400, "save-every": 20}
    command = [sys.executable, lab.__file__, "flip_flop", "--schemes", "cope,rope", "--seeds", "2", "--jobs", "2", "--out", tmp_path / "a", "--set",
               " ".join(f"{name}={value}" for name, value in options.items())]
    saved = lambda: {each.name + each.parents[1].name for each in tmp_path.glob("a/*/checkpoints/step-*")}
    (tmp_path / "a").mkdir()
    for number in (signal.SIGKILL, signal.SIGINT):
        with open(tmp_path / "a/lab.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of a killed lab.py: its runs have ended
            before = saved()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and not saved() - before:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait() == (-number if number == signal.SIGKILL else 130)
    subprocess.run(command, check=True, capture_output=True)
    runs = lab.grid("flip_flop", ["cope", "rope"], seeds=2, settings=options, out=tmp_path / "b")
    lines = list(lab.plan(runs))
    assert len(lines) == 4
    for line in lines:
        subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    assert list(lab.plan(runs)) == []
    for run in runs.itertuples():
        assert bytes_of(run.folder) == bytes_of(tmp_path / "a" / pathlib.Path(run.folder).name)


def test_damage(small):
    runs = lab.train(small(["rope"]), quiet=True)
    whole = bytes_of(runs.folder[0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # Ctrl-C is the notebook's again
    for name, content in (("metrics.jsonl", ""), ("metrics.jsonl", '{"step": 6, "loss": 1}'), ("metrics.jsonl", '{"step":1,"loss":[1]}\n'),
                          ("results.jsonl", '{"half'), ("results.jsonl", "3\n"), ("results.jsonl", '{"test_set": "sparse", "token_error_percent": "x"}\n'),
                          ("results.jsonl", None), ("run.json", "[]"), ("run.json", "[" * 100000),
                          ("questions.jsonl", '{"test_set": "sparse", "graded": [1], "wrong": [1, 2]}\n'),
                          ("questions.jsonl", "\n".join(whole["questions.jsonl"].decode().split("\n")[:-2]) + "\n")):
        path = pathlib.Path(runs.folder[0]) / name
        before = path.read_bytes()
        (path.write_text(content) if content else [path.unlink(), os.mkfifo(path)])
        assert lab.state(next(runs.itertuples())).startswith("damaged"), (name, content)
        assert lab.train(runs, quiet=True).state.str.startswith("damaged").tolist() == [True, False]  # and nothing is lost
        with refused("--plan: .*damaged"):
            list(lab.plan(runs))
        path.unlink()
        path.write_bytes(before)
        assert (lab.state(next(runs.itertuples())), bytes_of(runs.folder[0])) == ("done", whole)
    with refused("with steps 6; 7"):
        lab.train(small(["rope"], settings={"steps": 7}), quiet=True)


def test_killed_before_it_saved(small):
    runs = small(["rope"], seeds=1)
    folder = pathlib.Path(runs.folder[0])
    (folder / "checkpoints/step-000006.tmp-1").mkdir(parents=True)
    (folder / "checkpoints/lock").touch()
    assert list(lab.train(runs, quiet=True).state) == ["done"]


def test_a_failure_leaves_the_others(small, tmp_path, monkeypatch):
    runs, whence, broken = small(["rope", "alibi"], seeds=1), os.environ["WHENCE"], tmp_path / "whence"
    broken.write_text(f'#!/bin/sh\ncase "$*" in *--scheme\\ rope*) echo "no room" >&2; exit 5;; esac\nexec {whence} "$@"\n')
    broken.chmod(0o755)
    monkeypatch.setenv("WHENCE", str(broken))
    assert list(lab.train(runs, quiet=True).state) == ["failed with exit code 5: no room", "done"]
    monkeypatch.setenv("WHENCE", whence)
    assert list(lab.train(runs, quiet=True).state) == ["done", "done"]


def test_files_of_questions(tmp_path):
    for name in "ab":
        (tmp_path / f"{name} of me.jsonl").write_text('{"question": "1", "answer": "2"}\n{"question": "2", "answer": "1"}\n' * 20)
    runs = lab.train(lab.grid([str(tmp_path / f"{name} of me.jsonl") for name in "ab"], ["rope"], seeds=1, out=tmp_path / "grid",
                              settings={"steps": 6, "batch": 4, **TINY}), quiet=True)
    files = lab.write(runs, lab.scores(runs))
    assert len([name for name in files if name.startswith("curves_training_")]) == 4 and all((tmp_path / "grid" / name).is_file() for name in files)


def test_numbers(small, tmp_path):
    runs = lab.train(small(["rope", "none"], seeds=3), quiet=True)
    found = lab.scores(runs)
    assert len(found) == 2 * 3 * 3
    run = next(runs.itertuples())
    for name, (graded, wrong) in lab.questions(run.folder).items():
        row = found[(found.folder == run.folder) & (found.test_set == name)].iloc[0]
        assert row.token_error_percent == pytest.approx(100 * wrong.sum() / graded.sum(), abs=1e-9)
        assert row.sequence_error_percent == pytest.approx(100 * (wrong > 0).mean(), abs=1e-9)
    row = lab.summary(found).set_index(["scheme", "test_set"]).loc["rope", "sparse"]
    assert row["mean"] == pytest.approx(found[(found.scheme == "rope") & (found.test_set == "sparse")].token_error_percent.mean(), abs=1e-12)
    tests = lab.differences(found)
    assert len(tests) == 3 and tests.p_seeds.between(0, 1).all()  # one pair on three sets
    written = lab.write(runs, found)
    assert all((tmp_path / "grid" / name).stat().st_size > 100 for name in written)
    assert len(pd.read_csv(tmp_path / "grid/scores.csv")) == 18
    page = (tmp_path / "grid/report.html").read_text()
    assert page.index("<table") < page.index("<img") < page.index("<details") and "whence look" in page  # the result comes first
    assert {*re.findall("(?:src|href)='(.*?)'", page)} <= {*written}


def test_tables(tmp_path):
    easy, hard = scored(tmp_path, rope=(1.0, 2.0), a_b=(3.0, 5.0)), scored(tmp_path, rope=(30.0, 34.0), a_b=(20.0, 20.0))
    found = pd.concat([easy.assign(test_set="<easy>"), hard.assign(test_set="hard")])
    assert lab.crossed(found).values.tolist() == [["1.5 (0.71)", "32 (2.8)"], ["4 (1.4)", "20 (0)"]]
    runs = pd.DataFrame([{"task": "t", "scheme": "rope", "seed": 0, "folder": str(tmp_path), "words": [], "state": "done"}])
    runs.attrs["out"] = str(tmp_path)
    lab.write(runs, found)
    page = (tmp_path / "report.html").read_text()
    assert re.findall("<b>(.*?)</b>", page) == ["1.5 (0.71)", "20 (0)"] and "&lt;easy&gt;" in page and "<easy>" not in page
    (low, _), (high, _) = lab.dots(scored(tmp_path, rope=(5.0, 95.0))).axes[0].collections[0].get_segments()[0]
    assert (low, high) == (0, 100)  # an interval ends where the measure does


def test_curves(tmp_path):
    runs = pd.DataFrame([{"task": "t", "scheme": "cope", "lr": 0.1, "seed": 0, "folder": str(tmp_path), "wanted": {"options": {"batch": 4, "accumulate": 2}}}])
    assert lab.curves(runs).empty
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "loss": 0.5}\n{"step": 6, "loss": 0.25, "validation_score": 1.5}\n')
    assert lab.curves(runs)[["lr", "curve", "step", "sequences", "loss"]].values.tolist() == [
        [0.1, "training", 3, 24, 0.5], [0.1, "training", 6, 48, 0.25], [0.1, "validation", 6, 48, 1.5]]
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "loss": 0.5}\n{"step": 6, "lo')
    assert lab.curves(runs).empty


def test_same_questions_tell_models_apart(tmp_path):
    found = answered(tmp_path, rope=[int(k % 5 == 0) for k in range(400)], none=[int(k % 4 == 0) for k in range(400)])
    row, apart = lab.differences(found).iloc[0], np.array([(k % 5 == 0) - 1.0 * (k % 4 == 0) for k in range(400)])
    assert row.difference == pytest.approx(-5) and "p_seeds" not in row
    assert row.p_questions == pytest.approx(math.erfc(abs(apart.mean() / (apart.std(ddof=1) / 20)) / 2**0.5), abs=1e-12)
    found.loc[1, "data"] = "other"  # models on different questions are not compared
    assert "p_questions" not in lab.differences(found).iloc[0]


@pytest.mark.parametrize("count, unlike, p", [(2, 0, 0.5), (2, 1, 1), (40, 0, 2 * 0.5**40)])
def test_few_questions(count, unlike, p, tmp_path):
    """Exact sign tests (scipy.stats.binomtest), also where all differences are equal."""
    found = answered(tmp_path, rope=[1] * (count - unlike) + [0] * unlike, none=[0] * (count - unlike) + [1] * unlike)
    assert lab.differences(found).p_questions[0] == pytest.approx(p, abs=1e-15)


@pytest.mark.parametrize("words, said", [(["--schemes", ","], "--schemes , given"), (["--seeds", "0"], "--seeds 0"), (["--set", "steps='2"], "closing quotation"),
                                         (["--set", "steps=1\x1b[31m"], "x1b[31m"), *(([name], name) for name in lab.GONE)])
def test_refused_before_anything_trains(words, said, tmp_path, capsys):
    assert lab.main(["flip_flop", "--out", str(tmp_path / "none"), *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error[:-1].isprintable() and not (tmp_path / "none").exists()


def test_foreign_text_does_not_act(small, tmp_path):
    runs = lab.train(small(["rope"], seeds=1), quiet=True)
    for name in ("results.jsonl", "questions.jsonl"):
        path = pathlib.Path(runs.folder[0]) / name
        path.write_text(path.read_text() + path.read_text().splitlines()[-1].replace("dense", "=cmd|' /C calc'!A0\\u001b[31m\\u202e") + "\n")
    found = lab.scores(runs)
    assert lab.crossed(found).to_string().replace("\n", "").isprintable()
    lab.write(runs, found)
    assert ",'=cmd|' /C calc'!A0\\x1b[31m\\u{202e}," in (tmp_path / "grid/scores.csv").read_text()
