#!/usr/bin/env python3
"""Tests grids of trainings (examples/experiments/lab.py): python3 tests/examples/experiments/lab.py build/release/whence
Ends with 77 if pandas, scipy or matplotlib is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import fcntl
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "examples/experiments/lab.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
import packages

packages.require("pandas", "scipy", "matplotlib", skip=77)
import matplotlib
import numpy as np
import pandas as pd

import lab

matplotlib.use("Agg")
SMALL = {"steps": 6, "dim": 16, "layers": 1, "heads": 2, "length": 16, "batch": 4, "test-sequences": 20}


def bytes_of(folder):
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in ("results.jsonl", "questions.jsonl", "weights.safetensors")}


class Grid(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def small(self, schemes, **more):
        return lab.grid("flip_flop", schemes, seeds=more.pop("seeds", 2), settings={**SMALL, **more.pop("settings", {})}, out=self.folder / "grid", **more)

    def refused(self, words, call, *arguments, **more):
        with self.assertRaisesRegex(lab.Refused, words):
            call(*arguments, **more)

    def test_places(self):
        runs = self.small(["cope(p_max=4)", "rope"], vary={"length": [8, 16], "lr": ["1e-3", "1e-2"]}, settings={"length": 16}, equal_tokens=True)
        self.assertEqual(set(runs.folder.map(lambda each: pathlib.Path(each).relative_to(self.folder).as_posix())),
                         {f"grid/length={length}/lr={lr}/{scheme}.{seed}" for length in (8, 16) for lr in ("1e-3", "1e-2")
                          for scheme in ("cope-p_max=4", "rope") for seed in (0, 1)})
        self.refused("varies a scheme's", self.small, ["cope"], vary={"cope.p_max": [4]})
        self.refused("unknown option|--stepz", self.small, ["rope"], settings={"stepz": 3})
        self.refused("did you mean", self.small, ["ropee"])
        self.refused("lab.py has --schemes", self.small, ["rope"], settings={"out": "x"})
        self.refused("two runs would have this folder", self.small, ["rope", "rope()"])
        self.refused("lm alone required", lab.grid, ["lm", "counting"])

    def test_folders_are_those_of_old_grids(self):
        self.assertEqual(lab.folder_name("cdape(kerple, kernel=3.0) + rope"), "cdape-kerple,kernel=3.0-+rope")
        self.assertNotEqual(lab.folder_name("window(cdape(kerple), n=3)"), lab.folder_name("window(cdape(kerple, n=3))"))
        self.assertEqual(lab.folder_name("data=a/b.txt"), "data=a%2Fb.txt")
        self.assertEqual(len(lab.folder_name("x" * 500)), 200)

    def test_the_hierarchy(self):
        tasks = lab.tasks_of(["chomsky", "flip_flop", "even_pairs"])
        self.assertEqual((len(tasks), len(set(tasks)), tasks[-1]), (16, 16, "flip_flop"))

    def test_program(self):
        module = self.folder / "site/whence"
        module.mkdir(parents=True)
        (module / "__init__.py").write_text("raise SystemExit('imported')")
        shutil.copy("/bin/true", module / "whence")
        with unittest.mock.patch.object(lab, "ROOT", self.folder), unittest.mock.patch.object(sys, "path", [str(self.folder / "site"), *sys.path]), \
                unittest.mock.patch.dict(os.environ, PATH="/nowhere"):
            self.refused("WHENCE=/nowhere", self.with_whence("/nowhere", lab.program))
            os.environ.pop("WHENCE")
            importlib.invalidate_caches()
            self.assertEqual(lab.program(), str(module / "whence"))

    def with_whence(self, name, call):
        def called():
            with unittest.mock.patch.dict(os.environ, WHENCE=name):
                return call()
        return called

    def test_several_tasks_are_a_matrix(self):
        runs = lab.train(lab.grid(["flip_flop", "parity_check"], ["rope", "none"], seeds=1, out=self.folder / "two",
                                  settings={"steps": 60, "lr": 0.01, "dim": 16, "layers": 1, "heads": 2, "test-sequences": 8}), quiet=True)
        self.assertEqual(set(runs.state), {"done"})
        found = lab.scores(runs)
        self.assertEqual(lab.measures_of(found), "token error %")
        table = lab.crossed(found)
        self.assertEqual((list(table.columns), len(table)), (["rope", "none"], 4))  # three sets of one, the average over five of the other
        of_parity = found[(found.task == "parity_check") & (found.scheme == "rope")]
        self.assertEqual(sorted(of_parity.test_length), [21, 37, 53, 69, 85])
        summary = lab.summary(found)
        row = summary[(summary.task == "parity_check") & (summary.scheme == "rope")].iloc[0]
        self.assertAlmostEqual(row["mean"], of_parity.token_error_percent.mean(), 12)
        self.assertTrue(lab.differences(found).p_questions.notna().any())
        self.assertIn("over_test_length_parity_check.pdf", lab.write(runs, found))

    def test_texts_are_compared_on_the_same_windows(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"the cat number {k} sat on the mat, and {k * k % 97} dogs ran.\n" for k in range(400)))
        runs = lab.train(lab.grid("lm", ["rope", "none"], seeds=2, out=self.folder / "lm", settings={
            "data": str(text), "steps": 8, "dim": 16, "layers": 1, "heads": 2, "length": 16, "batch": 4, "evaluate-to": 4, "warm-up": 0}), quiet=True)
        found = lab.scores(runs)
        self.assertEqual(list(found[found.folder == runs.folder[0]].test_set), ["validation", "length 16", "length 32", "length 64"])
        self.assertTrue(found.bits_per_byte.notna().all())
        for row in found.itertuples():
            graded, nats = lab.questions(row.folder)[row.test_set]
            self.assertAlmostEqual(row.perplexity, np.exp(nats.sum() / graded.sum()), 9)
            self.assertAlmostEqual(row.bits_per_byte, nats.sum() / graded.sum() / np.log(2), 9)
            self.assertAlmostEqual(row.standard_error, row.perplexity * (nats / graded).std(ddof=1) / np.sqrt(len(nats)), 9)
        at = lambda scheme, seed: lab.questions(runs[(runs.scheme == scheme) & (runs.seed == seed)].folder.iloc[0])["length 32"]
        each = np.mean([at("rope", seed)[1] / at("rope", seed)[0] - at("none", seed)[1] / at("none", seed)[0] for seed in (0, 1)], axis=0)
        row = lab.differences(found).set_index("test_set").loc["length 32"]
        z = abs(each.mean()) / (each.std(ddof=1) / np.sqrt(len(each)))
        self.assertAlmostEqual(row.p_questions, lab.math.erfc(z / 2**0.5), 12)
        (pathlib.Path(runs.folder[0]) / "results.jsonl").write_text((pathlib.Path(runs.folder[0]) / "results.jsonl").read_text().splitlines()[0] + "\n")
        self.assertIn("no results of length ", lab.state(next(runs.itertuples())))

    def test_same_tokens(self):
        runs = self.small(["rope"], vary={"length": [8, 32]}, equal_tokens=True)
        sizes = [(run.wanted["options"]["length"], run.wanted["options"]["batch"]) for run in runs.itertuples()]
        self.assertEqual(set(sizes), {(8, 8), (32, 2)})  # SMALL: 16 x 4
        self.refused("a whole number required", self.small, ["rope"], vary={"length": [24]}, equal_tokens=True)

    def test_killed_twice_is_as_if_undisturbed(self):
        settings = ["--set", " ".join(f"{name}={value}" for name, value in {**SMALL, "steps": 400}.items()), "--set", "save-every=20"]
        command = [sys.executable, SCRIPT, "flip_flop", "--schemes", "cope,rope", "--seeds", "2", "--jobs", "2", "--out", self.folder / "a", *settings]
        (self.folder / "a").mkdir()
        for number in (signal.SIGKILL, signal.SIGINT):
            with open(self.folder / "a/lab.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # of a killed lab.py: its runs have ended
                before = {each.name + each.parents[1].name for each in self.folder.glob("a/*/checkpoints/step-*")}
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            while process.poll() is None and not {each.name + each.parents[1].name for each in self.folder.glob("a/*/checkpoints/step-*")} - before:
                time.sleep(0.02)
            process.send_signal(number)
            self.assertEqual(process.wait(), -number if number == signal.SIGKILL else 130)
        last = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(last.returncode, 0, last.stderr)
        runs = lab.grid("flip_flop", ["cope", "rope"], seeds=2, settings={**SMALL, "steps": 400, "save-every": 20}, out=self.folder / "b")
        lines = list(lab.plan(runs))
        self.assertEqual(len(lines), 4)
        for line in lines:
            subprocess.run(["sh", "-c", line], check=True, capture_output=True)
        self.assertEqual(list(lab.plan(runs)), [])
        for run in runs.itertuples():
            self.assertEqual(bytes_of(run.folder), bytes_of(self.folder / "a" / pathlib.Path(run.folder).name))

    def test_damage(self):
        runs = lab.train(self.small(["rope"]), quiet=True)
        whole = bytes_of(runs.folder[0])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)  # Ctrl-C is the notebook's again
        damages = (("metrics.jsonl", ""), ("metrics.jsonl", '{"step": 6, "loss": 1}'), ("results.jsonl", '{"half'), ("run.json", "{"), ("run.json", "[]"), ("results.jsonl", "3\n"),
                   ("questions.jsonl", '{"test_set": "sparse", "graded": [1], "wrong": [1, 2]}\n'), ("results.jsonl", '{"test_set": "sparse", "token_error_percent": "x"}\n'),
                   ("run.json", "[" * 100000), ("questions.jsonl", "[" * 100000 + "\n"), ("metrics.jsonl", '{"step":"x","loss":1}\n'), ("metrics.jsonl", '{"step":1,"loss":[1]}\n'),
                   ("questions.jsonl", "\n".join(whole["questions.jsonl"].decode().split("\n")[:-2]) + "\n"),
                   ("results.jsonl", None))
        for name, content in damages:
            path = pathlib.Path(runs.folder[0]) / name
            before = path.read_bytes()
            (path.write_text(content, encoding="utf-8") if content else [path.unlink(), os.mkfifo(path)])
            self.assertTrue(lab.state(next(runs.itertuples())).startswith("damaged"), (name, content))
            self.assertEqual(lab.train(runs, quiet=True).state.str.startswith("damaged").tolist(), [True, False])  # and nothing is lost
            self.refused("--plan: .*damaged", list, lab.plan(runs))
            path.unlink()
            path.write_bytes(before)
            self.assertEqual((lab.state(next(runs.itertuples())), bytes_of(runs.folder[0])), ("done", whole))
        self.refused("with steps 6; 7", lab.train, self.small(["rope"], settings={"steps": 7}), quiet=True)

    def test_killed_before_it_saved(self):
        runs = self.small(["rope"], seeds=1)
        folder = pathlib.Path(runs.folder[0])
        (folder / "checkpoints/step-000006.tmp-1").mkdir(parents=True)
        (folder / "checkpoints/lock").touch()
        self.assertEqual(list(lab.train(runs, quiet=True).state), ["done"])

    def test_a_failure_leaves_the_others(self):
        runs = self.small(["rope", "alibi"], seeds=1)
        whence, broken = os.environ["WHENCE"], self.folder / "whence"
        broken.write_text(f'#!/bin/sh\ncase "$*" in *--scheme\\ rope*) echo "no room" >&2; exit 5;; esac\nexec {whence} "$@"\n')
        broken.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, WHENCE=str(broken)):
            self.assertEqual(list(lab.train(runs, quiet=True).state), ["failed with exit code 5: no room", "done"])
        self.assertEqual(list(lab.train(runs, quiet=True).state), ["done", "done"])

    def test_numbers(self):
        runs = lab.train(self.small(["rope", "none"], seeds=3), quiet=True)
        found = lab.scores(runs)
        self.assertEqual(len(found), 2 * 3 * 3)
        run = next(runs.itertuples())
        for name, (graded, wrong) in lab.questions(run.folder).items():
            row = found[(found.folder == run.folder) & (found.test_set == name)].iloc[0]
            self.assertAlmostEqual(row.token_error_percent, 100 * wrong.sum() / graded.sum(), 9)
            self.assertAlmostEqual(row.sequence_error_percent, 100 * (wrong > 0).mean(), 9)
        total = lab.summary(found)
        of_rope = found[(found.scheme == "rope") & (found.test_set == "sparse")]
        row = total[(total.scheme == "rope") & (total.test_set == "sparse")].iloc[0]
        self.assertAlmostEqual(row["mean"], of_rope.token_error_percent.mean(), 12)
        tests = lab.differences(found)
        self.assertEqual(len(tests), 3)  # one pair on three sets
        self.assertTrue(tests.p_seeds.between(0, 1).all())
        written = lab.write(runs, found)
        for name in written:
            self.assertGreater((self.folder / "grid" / name).stat().st_size, 100, name)
        self.assertEqual(len(pd.read_csv(self.folder / "grid/scores.csv")), 18)
        page = (self.folder / "grid/report.html").read_text()
        self.assertLess(page.index("<table"), page.index("<img"))  # the result comes first
        self.assertLess(page.index("<img"), page.index("<details"))
        self.assertIn("whence look", page)
        self.assertEqual({name for name in re.findall("(?:src|href)='(.*?)'", page)} - {*written}, set())

    def test_tables(self):
        errors = {("rope", "<easy>"): (1.0, 2.0), ("rope", "hard"): (30.0, 34.0), ("a_b", "<easy>"): (3.0, 5.0), ("a_b", "hard"): (20.0, 20.0)}
        found = pd.DataFrame([{"task": "t", "scheme": scheme, "seed": seed, "folder": str(self.folder), "test_set": test_set, "test_length": None,
                               "token_error_percent": value, "measure": "token_error_percent", "same_for_seeds": False, "data": "one"}
                              for (scheme, test_set), values in errors.items() for seed, value in enumerate(values)])
        self.assertEqual(lab.place(found), ["task", "scheme", "test_set", "test_length"])
        self.assertEqual(lab.crossed(found).values.tolist(), [["1.5 (0.71)", "32 (2.8)"], ["4 (1.4)", "20 (0)"]])
        runs = pd.DataFrame([{"task": "t", "scheme": "rope", "seed": 0, "folder": str(self.folder), "words": [], "state": "done"}])
        runs.attrs["out"] = str(self.folder)
        lab.write(runs, found)
        page = (self.folder / "report.html").read_text()
        self.assertEqual(re.findall("<b>(.*?)</b>", page), ["1.5 (0.71)", "20 (0)"])
        self.assertTrue("&lt;easy&gt;" in page and "<easy>" not in page)

    def test_what_runs_left(self):
        runs = pd.DataFrame([{"task": "t", "scheme": "cope", "lr": 0.1, "seed": 0, "folder": str(self.folder), "wanted": {"options": {"batch": 4, "accumulate": 2}}}])
        self.assertTrue(lab.curves(runs).empty)
        (self.folder / "metrics.jsonl").write_text('{"step": 3, "loss": 0.5}\n{"step": 6, "loss": 0.25, "validation_score": 1.5}\n')
        self.assertEqual(lab.curves(runs)[["lr", "curve", "step", "sequences", "loss"]].values.tolist(),
                         [[0.1, "training", 3, 24, 0.5], [0.1, "training", 6, 48, 0.25], [0.1, "validation", 6, 48, 1.5]])
        (self.folder / "metrics.jsonl").write_text('{"step": 3, "loss": 0.5}\n{"step": 6, "lo')
        self.assertTrue(lab.curves(runs).empty)

    def test_same_questions_tell_models_apart(self):
        graded = [1] * 400
        for scheme, every in (("rope", 5), ("none", 4)):
            folder = self.folder / f"{scheme}.0"
            folder.mkdir()
            wrong = [int(k % every == 0) for k in range(400)]
            (folder / "questions.jsonl").write_text(json.dumps({"test_set": "all", "graded": graded, "wrong": wrong}) + "\n")
        found = pd.DataFrame([{"task": "t", "scheme": scheme, "seed": 0, "test_set": "all", "token_error_percent": 100 / every, "measure": "token_error_percent", "same_for_seeds": False, "data": "one",
                               "folder": str(self.folder / f"{scheme}.0")} for scheme, every in (("rope", 5), ("none", 4))])
        row = lab.differences(found).iloc[0]
        apart = np.array([(k % 5 == 0) - 1.0 * (k % 4 == 0) for k in range(400)])
        z = apart.mean() / (apart.std(ddof=1) / 20)
        self.assertAlmostEqual(row.difference, -5)
        self.assertAlmostEqual(row.p_questions, 2 * (1 - 0.5 * (1 + lab.math.erf(abs(z) / 2**0.5))), 12)
        self.assertNotIn("p_seeds", row)
        found.loc[1, "data"] = "other"  # models on different questions are not compared
        self.assertNotIn("p_questions", lab.differences(found).iloc[0])

    def test_few_questions(self):
        """Exact sign tests (scipy.stats.binomtest), also where all differences are equal."""
        for count, unlike, p in ((2, 0, 0.5), (2, 1, 1), (40, 0, 2 * 0.5**40)):
            for scheme, wrong in (("rope", [1] * (count - unlike) + [0] * unlike), ("none", [0] * (count - unlike) + [1] * unlike)):
                (self.folder / scheme).mkdir(exist_ok=True)
                (self.folder / scheme / "questions.jsonl").write_text(json.dumps({"test_set": "all", "graded": [1] * count, "wrong": wrong}) + "\n")
            found = pd.DataFrame([{"task": "t", "scheme": scheme, "seed": 0, "test_set": "all", "token_error_percent": 50.0, "measure": "token_error_percent",
                                   "same_for_seeds": False, "data": "one", "folder": str(self.folder / scheme)} for scheme in ("rope", "none")])
            self.assertAlmostEqual(lab.differences(found).p_questions[0], p, 15)

    def test_intervals_end_where_the_measure_does(self):
        found = pd.DataFrame([{"task": "t", "scheme": "rope", "seed": seed, "folder": "f", "test_set": "all", "test_length": None, "token_error_percent": value,
                               "measure": "token_error_percent", "same_for_seeds": False, "data": "one"} for seed, value in enumerate((5.0, 95.0))])
        axis = lab.dots(found).axes[0]
        (low, _), (high, _) = axis.collections[0].get_segments()[0]
        self.assertEqual((low, high), (0, 100))

    def test_what_is_refused_before_anything_trains(self):
        out = self.folder / "none"
        for words, said in ((["--schemes", ","], "--schemes , given"), (["--seeds", "0"], "--seeds 0"), 
                            (["--set", "steps='2"], "No closing quotation"), (["--set", "steps=1\x1b[31m"], "x1b[31m"),
                            *(([name], f"{name}: given, which is no option; {said}") for name, said in lab.GONE.items())):
            with contextlib.redirect_stderr(io.StringIO()) as error, contextlib.redirect_stdout(error):
                self.assertEqual(lab.main(["flip_flop", "--out", str(out), *words]), 2, words)
            self.assertIn(said, error.getvalue())
            self.assertTrue(error.getvalue()[:-1].isprintable(), error.getvalue())
        self.assertFalse(out.exists())

    def test_foreign_text_does_not_act(self):
        runs = lab.train(self.small(["rope"], seeds=1), quiet=True)
        for name in ("results.jsonl", "questions.jsonl"):
            path = pathlib.Path(runs.folder[0]) / name
            path.write_text(path.read_text() + path.read_text().splitlines()[-1].replace("dense", "=cmd|' /C calc'!A0\\u001b[31m\\u202e") + "\n")
        found = lab.scores(runs)
        self.assertTrue(lab.crossed(found).to_string().replace("\n", "").isprintable())
        lab.write(runs, found)
        self.assertIn(",'=cmd|' /C calc'!A0\\x1b[31m\\u{202e},", (self.folder / "grid/scores.csv").read_text())


if __name__ == "__main__":
    os.environ["WHENCE"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if not shutil.which("setpriv"):
        sys.exit("setpriv: missing; it is in util-linux")
    unittest.main(verbosity=0)
