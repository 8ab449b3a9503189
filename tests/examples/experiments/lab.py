#!/usr/bin/env python3
"""Grids of trainings (examples/experiments/lab.py): python3 tests/examples/experiments/lab.py build/release/whence
Ends with 77 where pandas, scipy or matplotlib is missing."""
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

if missing := [name for name in ("pandas", "scipy", "matplotlib") if not importlib.util.find_spec(name)]:
    print(f"skipped: {missing[0]} is missing")
    sys.exit(77)

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "examples/experiments/lab.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
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
        runs = self.small(["cope", "rope"], vary={"cope.p_max": [4, 8], "lr": ["1e-3", "1e-2"]})
        self.assertEqual(len(runs), 2 * (2 + 1) * 2)  # two lr; two CoPEs and one RoPE; two seeds
        self.assertEqual(set(runs.folder.map(lambda each: pathlib.Path(each).relative_to(self.folder).as_posix())),
                         {f"grid/lr={lr}/{scheme}.{seed}" for lr in ("1e-3", "1e-2") for scheme in ("cope-p_max=4", "cope-p_max=8", "rope") for seed in (0, 1)})
        self.assertEqual(lab.with_option("window(cdape(kerple), n=3) + cdape", "cdape", "kernel", 5), "window(cdape(kernel=5, kerple), n=3) + cdape(kernel=5)")
        self.refused("no scheme has it", self.small, ["rope"], vary={"cope.p_max": [4]})
        self.refused("unknown option|--stepz", self.small, ["rope"], settings={"stepz": 3})
        self.refused("did you mean", self.small, ["ropee"])

    def test_same_tokens(self):
        runs = self.small(["rope"], vary={"length": [8, 32]}, equal_tokens=True)
        sizes = [(run.wanted["options"]["length"], run.wanted["options"]["batch"]) for run in runs.itertuples()]
        self.assertEqual(set(sizes), {(8, 8), (32, 2)})  # SMALL: 16 x 4
        self.refused("a whole number required", self.small, ["rope"], vary={"length": [24]}, equal_tokens=True)

    def test_killed_twice_is_as_if_undisturbed(self):
        settings = ["--set", " ".join(f"{name}={value}" for name, value in {**SMALL, "steps": 400, "save-every": 20}.items())]
        command = [sys.executable, SCRIPT, "flip_flop", "--schemes", "cope,rope", "--seeds", "2", "--jobs", "2", "--out", self.folder / "a", *settings]
        for number in (signal.SIGKILL, signal.SIGINT):
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            lock, before = self.folder / "a/lab.lock", None
            while process.poll() is None:
                saved = {each.name + each.parents[1].name for each in self.folder.glob("a/*/checkpoints/step-*")}
                if before is None and lock.exists() and f"process {process.pid} " in lock.read_text():
                    before = saved
                if before is not None and saved - before:
                    break
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
        for name, content in (("metrics.jsonl", ""), ("results.jsonl", '{"half'), ("run.json", "{")):
            (pathlib.Path(runs.folder[0]) / name).write_text(content)
            self.assertTrue(lab.state(next(runs.itertuples())).startswith("damaged"), name)
            self.assertEqual(set(lab.train(runs, quiet=True).state), {"done"})
            self.assertEqual(bytes_of(runs.folder[0]), whole)
        self.assertEqual(len(list((self.folder / "grid").glob("rope.0.damaged-*"))), 3)
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
        for name, (graded, wrong) in lab.questions(run).items():
            row = found[(found.folder == run.folder) & (found.test_set == name)].iloc[0]
            self.assertAlmostEqual(row.token_error_percent, 100 * wrong.sum() / graded.sum(), 9)
            self.assertAlmostEqual(row.sequence_error_percent, 100 * (wrong > 0).mean(), 9)
        total = lab.summary(found)
        of_rope = found[(found.scheme == "rope") & (found.test_set == "sparse")]
        row = total[(total.scheme == "rope") & (total.test_set == "sparse")].iloc[0]
        self.assertAlmostEqual(row["mean"], of_rope.token_error_percent.mean(), 12)
        self.assertAlmostEqual(row.standard_error, np.sqrt((of_rope.standard_error**2).sum()) / 3, 12)
        tests = lab.differences(found)
        self.assertEqual(len(tests), 3)  # one pair on three sets
        self.assertTrue((tests.p_seeds_holm >= tests.p_seeds).all())
        written = lab.write(runs, found)
        for name in written:
            self.assertGreater((self.folder / "grid" / name).stat().st_size, 100, name)
        self.assertEqual(len(pd.read_csv(self.folder / "grid/scores.csv")), 18)
        page = (self.folder / "grid/report.html").read_text()
        self.assertLess(page.index("<table>"), page.index("<svg"))  # the result comes first
        self.assertIn("whence look", page)
        for form, words in (("latex", r"\toprule"), ("markdown", "| --- |"), ("html", "<b>")):
            self.assertIn(words, lab.marked(found, form))

    def test_holm(self):
        # Holm 1979: 0.01 x 4, then 0.02 x 3, then 0.03 x 2, then 0.04, never falling.
        corrected = lab.holm(pd.Series([0.02, 0.01, np.nan, 0.04, 0.03]))
        np.testing.assert_allclose(corrected, [0.06, 0.04, np.nan, 0.06, 0.06])

    def test_same_questions_tell_models_apart(self):
        graded = [1] * 400
        for scheme, every in (("rope", 5), ("none", 4)):
            folder = self.folder / f"{scheme}.0"
            folder.mkdir()
            wrong = [int(k % every == 0) for k in range(400)]
            (folder / "questions.jsonl").write_text(lab.json.dumps({"test_set": "all", "graded": graded, "wrong": wrong}) + "\n")
        found = pd.DataFrame([{"task": "t", "scheme": scheme, "seed": 0, "test_set": "all", "token_error_percent": 100 / every, "measure": "token_error_percent",
                               "folder": str(self.folder / f"{scheme}.0")} for scheme, every in (("rope", 5), ("none", 4))])
        row = lab.differences(found).iloc[0]
        apart = np.array([(k % 5 == 0) - 1.0 * (k % 4 == 0) for k in range(400)])
        z = apart.mean() / (apart.std(ddof=1) / 20)
        self.assertAlmostEqual(row.difference, -5)
        self.assertAlmostEqual(row.p_questions, 2 * (1 - 0.5 * (1 + lab.math.erf(abs(z) / 2**0.5))), 12)
        self.assertIsNone(row.p_seeds)

    def test_one_look_for_a_scheme(self):
        self.assertEqual(lab.look_of("cope")["color"], lab.look_of("cope(p_max=4)")["color"])
        self.assertEqual(len({lab.look_of(each)["color"] for each in ("cope", "rope", "absolute", "alibi", "dape", "cdape")}), 6)

    def test_slurm(self):
        log = self.folder / "log"
        script = lab.slurm([f"echo one >>{log}", f"echo two >>{log}"], "partition=gpu,time=2:00:00")
        self.assertIn("#SBATCH --array=1-2", script)
        self.assertIn("#SBATCH --partition=gpu", script)
        for number in "12":
            subprocess.run(["bash", "-c", script.replace("exec ", "")], env={**os.environ, "SLURM_ARRAY_TASK_ID": number}, check=True)
        self.assertEqual(log.read_text(), "one\ntwo\n")


if __name__ == "__main__":
    os.environ["WHENCE"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if not shutil.which("setpriv"):
        sys.exit("setpriv: missing; it is in util-linux")
    unittest.main(verbosity=0)
