#!/usr/bin/env python3
"""Tests the Python module `whence` with numpy, and with PyTorch if installed: python3 tests/examples/python/door.py"""
import pathlib
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import whence

try:
    import torch
    functional_call = torch.func.functional_call if hasattr(torch, "func") else torch.nn.utils.stateless.functional_call
except ImportError:
    torch = None

B, H, T, D = 2, 2, 5, 4


def operands(dtype=np.float64, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal((B, H, T, D)).astype(dtype) for _ in range(3)]


def attention(q, k, v):
    """NoPE, causal."""
    s = np.where(np.tril(np.ones((T, T))) > 0, q @ k.swapaxes(-1, -2) / D**0.5, -np.inf)
    pattern = np.exp(s - s.max(-1, keepdims=True))
    return pattern / pattern.sum(-1, keepdims=True) @ v


class Case(unittest.TestCase):
    def refused(self, error, words, call, *arguments, **more):
        with self.assertRaises(error) as caught:
            call(*arguments, **more)
        for word in words:
            self.assertIn(word, str(caught.exception))


class Numpy(Case):
    def test_describe(self):
        found = whence.describe("dape(kerple)", heads=H, head_dim=D, length=T)
        self.assertEqual([p["name"] for p in found["parameters"]][:2], ["base.strength", "base.rate"])
        self.assertEqual(found["tensors"][0]["shape"], [1, H, T, D])
        self.assertIn("[2,3,5]", " ".join(str(s["inputs"]) for s in whence.describe("softmax")["samples"]))
        self.refused(ValueError, ["did you mean 'cope'"], whence.describe, "coep")
        self.refused(ValueError, ["heads: 0 given"], whence.describe, "cope", heads=0)

    def test_run(self):
        for dtype, near in ((np.float64, 1e-14), (np.float32, 1e-6)):
            q, k, v = operands(dtype)
            found = whence.run("none", q, k, v, cotangent=np.ones_like(q))
            self.assertEqual(found["output"].dtype, dtype)
            np.testing.assert_allclose(found["output"], attention(q, k, v), atol=near)
            np.testing.assert_allclose(found["pattern"].sum(-1), 1, atol=near)
            # Each value's gradient for a cotangent of ones is the sum of its weights over all queries.
            np.testing.assert_allclose(found["gradient.v"][..., 0], found["pattern"].sum(-2), atol=10 * near)
        for executor in ("reference", "tiled", "strips"):
            other = whence.run("none", *operands(), executor=executor)["output"]
            np.testing.assert_allclose(other, attention(*operands()), atol=1e-13)

    def test_compare(self):
        ours = whence.run("cope", *operands(), init=1, cotangent=operands()[0])
        theirs = {name.replace("positions", "pos"): value.copy() for name, value in ours.items()}
        names = {"pos": "positions"}
        self.assertFalse(whence.compare(ours, theirs, names=names, tolerance=0)["differs"])
        self.assertEqual(len(whence.compare(ours, theirs, names=names)["tensors"]), len(ours))
        theirs["pos"][1, 0, 3, 2] += 0.5
        theirs["gates"][0, 0, 1, 3] = 1  # a masked key
        found = whence.compare(ours, theirs, names=names, scheme="cope")
        self.assertEqual((found["differs"], found["first"]), (True, "positions"))
        self.assertIn("positions (theirs: pos), at [1,0,3,2]", found["headline"])
        self.assertEqual(whence.compare(ours, theirs, names=names)["first"], "gates")
        self.refused(ValueError, ["no tensor has a name of ours", "map of names"], whence.compare, ours, {"a": ours["pattern"]})
        self.refused(ValueError, ["1 given; a name that is a str"], whence.compare, ours, {1: ours["pattern"]})
        self.refused(ValueError, ["NoneType given; a dict"], whence.compare, ours, None)
        self.refused(ValueError, ["did you mean 'cope'"], whence.compare, ours, theirs, scheme="coep")

    def test_nothing_is_copied_in_and_nothing_is_shared_out(self):
        x = np.arange(6.0).reshape(2, 3)
        found = whence.op("exp", np.arange(24.0).reshape(2, 3, 4))["output"]
        self.assertTrue(found.flags.writeable)
        one = whence.op("add", x, x, cotangent=np.ones((2, 3)))
        one["gradient.0"][:] = 7
        np.testing.assert_array_equal(one["gradient.1"], np.ones((2, 3)))
        view = whence.op("contiguous", x)["output"]  # a view, because x is contiguous
        view[:] = 0
        np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3))
        kept = [whence.op("exp", np.zeros(1000))["output"] for _ in range(100)]  # results outlive their inputs
        self.assertTrue(all((each == 1).all() for each in kept))

    def test_op(self):
        random, plain = np.random.default_rng(3), "two matrices"
        a, b, dy = random.standard_normal((3, 5)), random.standard_normal((5, 2)), random.standard_normal((3, 2))
        found = whence.op("matmul", a, b, sample=plain, cotangent=dy)
        np.testing.assert_allclose(found["output"], a @ b, atol=1e-14)
        np.testing.assert_allclose(found["gradient.0"], dy @ b.T, atol=1e-14)
        np.testing.assert_allclose(found["gradient.1"], a.T @ dy, atol=1e-14)
        self.assertEqual(whence.op("exp", np.zeros((0, 3)))["output"].shape, (0, 3))
        self.refused(ValueError, ["an op required"], whence.op, "matmull", a, b)
        self.refused(ValueError, ["matmul: no sample given; one of '"], whence.op, "matmul", a, b)
        self.refused(ValueError, ["matmul: 1 inputs given; 2 required"], whence.op, "matmul", a, sample=plain)
        self.refused(RuntimeError, ["matmul"], whence.op, "matmul", a, a, sample=plain)
        self.refused(ValueError, ["sample 'x' given; one of"], whence.op, "matmul", a, b, sample="x")

    def test_ops_refuse_what_would_not_fit(self):
        """Calls any op with arrays of wrong shapes and wild indices: a result or an exception, never a crash."""
        random = np.random.default_rng(4)
        answered = refused = 0

        def wild(dtype, shape):
            extents = [max(0, int(e) + random.integers(-1, 2) * random.integers(0, 2)) for e in shape.strip("[]").split(",") if e]
            extents = extents[random.integers(0, 2) * (random.random() < 0.2):]
            return (random.integers(-3, 100, extents).astype({"i64": np.int64, "i32": np.int32}[dtype]) if dtype[0] == "i" else
                    random.random(extents) < 0.5 if dtype == "bool" else random.standard_normal(extents))
        for name in whence.ops():
            for sample in whence.describe(name)["samples"]:
                for _ in range(6):
                    inputs = [each and wild(*each.split(" ")) for each in sample["inputs"]]
                    try:
                        output = whence.op(name, *inputs, sample=sample["sample"])["output"]
                        whence.op(name, *inputs, sample=sample["sample"], cotangent=np.ones(output.shape))
                        answered += 1
                    except (ValueError, RuntimeError):
                        refused += 1
        self.assertGreater(answered, 100)
        self.assertGreater(refused, 100)

    def test_gradcheck(self):
        for name in ("softmax", "cope(p_max=3)"):
            found = whence.gradcheck(name)
            self.assertTrue(found["ok"], found)
            self.assertGreater(found["duals"], 0)
            self.assertLess(found["duals"], 1e-12)
        self.refused(ValueError, ["did you mean 'softmax'"], whence.gradcheck, "softmaxx")

    def test_threads(self):
        q, k, v = operands()
        expected = whence.run("cope", q, k, v, init=1)["output"]
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: whence.run("cope", q, k, v, init=1)["output"], range(20)):
                np.testing.assert_array_equal(found, expected)


class Runs(Case):
    """Runs of train, loaded and inspected."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.made_run = f"{cls.folder.name}/run"
        cls.rows = whence.train("flip_flop", out=cls.made_run, scheme="cope(p_max=6)", length=24, dim=16, layers=2, heads=2, batch=4, steps=20, save_every=10,
                                keep_checkpoints=0, test_sequences=8, lr=0.01, quiet=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_train(self):
        self.assertEqual([row["test_set"] for row in self.rows], ["in distribution", "sparse", "dense"])
        self.assertEqual(self.rows.folder, self.made_run)
        self.assertIn("<td>sparse</td>", self.rows._repr_html_())
        self.refused(ValueError, ["--stepz: unknown option given", "--steps"], whence.train, "flip_flop", out="x", stepz=1, quiet=True)
        self.refused(ValueError, ["holds a run"], whence.train, "flip_flop", out=self.made_run, quiet=True)
        self.refused(OSError, ["/proc/nowhere"], whence.train, "flip_flop", out="/proc/nowhere", quiet=True)

    def test_hessian(self):
        run = whence.load(self.made_run, dtype="f64")
        hessian, first = run.hessian(1, sample=1), run.hessian(1)
        self.assertAlmostEqual(hessian.loss, run.loss(sample=1))
        a, b = np.random.default_rng(1).standard_normal((2, hessian.size))
        self.assertAlmostEqual(a @ hessian.times(b), b @ hessian.times(a), delta=1e-9 * np.linalg.norm(hessian.times(b)) * np.linalg.norm(a))
        np.testing.assert_allclose(hessian.times(a + 2 * b), hessian.times(a) + 2 * hessian.times(b), rtol=1e-6, atol=1e-9)
        counts = [sum(answer is not None for answer in run.predictions(sample=k)) for k in (0, 1)]  # the loss is a mean over all graded tokens
        np.testing.assert_allclose(sum(counts) * run.hessian(2).times(a), counts[0] * first.times(a) + counts[1] * hessian.times(a), rtol=1e-6, atol=1e-9)
        self.refused(ValueError, [f"f64 of {hessian.size} numbers required"], hessian.times, a[:3])
        self.refused(ValueError, ["sequences: 0 given"], run.hessian, 0)
        whence.train("counting", out=f"{self.made_run}.of_lengths", scheme="alibi", variables=2, operations=8, block=12, steps=2, dim=16, layers=1, quiet=True)
        run = whence.load(f"{self.made_run}.of_lengths", dtype="f64")  # sequences of other lengths
        counts = [sum(answer is not None for answer in run.predictions(sample=k)) for k in range(4)]
        self.assertAlmostEqual(run.hessian(4).loss, np.average([run.loss(sample=k) for k in range(4)], weights=counts), 12)

    def test_forward(self):
        run = whence.load(self.made_run, dtype="f64")
        tokens = np.array([[0, 3, 1, 4], [2, 3, 0, 4]])
        logits = run.forward(tokens)
        self.assertEqual((logits.shape, logits.dtype), ((2, 4, 5), np.float64))
        np.testing.assert_allclose(run.forward(tokens[:, :2]), logits[:, :2], atol=1e-12)  # no row sees later tokens
        self.refused(ValueError, ["tokens: 5 given; 0 to 4"], run.forward, tokens + 1)
        self.refused(ValueError, ["[batch, token] required"], run.forward, tokens[0])
        for given in (tokens + 0.5, tokens / 0.7, tokens * np.nan, tokens > 1, tokens.astype(str)):
            self.refused(ValueError, ["tokens: ", "whole numbers required"], run.forward, given)
        if torch:
            np.testing.assert_array_equal(run.forward(torch.from_numpy(tokens)).numpy(), logits)

    def test_trace(self):
        run = whence.load(self.made_run, dtype="f64")
        traced, name = run.trace(sample=1), "blocks.1.attention.position.gates"
        gates = traced[name]
        self.assertEqual(gates.value.shape, (1, 2, 23, 23))
        self.assertIn("blocks.0.attention.position.table", traced)
        head, i, j = np.unravel_index(np.abs(gates.gradient[0]).argmax(), gates.gradient[0].shape)
        place = f"gates layer=1 head={head} i={i} j={j}"
        edited = run.edit(f"{place} += 1e-6", sample=1)
        self.assertAlmostEqual(edited.predicted, 1e-6 * gates.gradient[0, head, i, j], delta=1e-18)
        self.assertAlmostEqual(edited.real, edited.predicted, delta=1e-3 * abs(edited.predicted))
        self.assertIn(f"dLoss/d {name}[0,{head},{i},{j}]", run.explain(f"dLoss/d{place}", sample=1))
        answers = [answer for answer in run.predictions(sample=1) if answer]
        self.assertAlmostEqual(np.mean([-np.log(answer.probability) for answer in answers]), run.loss(sample=1))
        self.assertEqual(len(run.tokens(sample=1, length=5)), 5)
        self.assertEqual({row["gradient of"] for row in run.paths()}, {"x", "q", "k", "v"})
        self.assertTrue(any(row["quantity"] == "position.gates" and row["masked %"] > 40 for row in run.causes()))
        self.refused(ValueError, ["'gats' in layer 0 given"], run.edit, "gats = 0")

    def test_logits(self):
        run = whence.load(self.made_run, dtype="f64")
        parts, lens = run.attribution(), run.lens()
        size = sum(abs(part["logit"]) for part in parts)
        self.assertAlmostEqual(sum(part["logit"] for part in parts), lens[-1]["logit"], delta=1e-12 * size)
        self.assertEqual([row["layer"] for row in lens], [None, 0, 1])
        self.assertEqual([part["part"] for part in parts if part["layer"] == 1], ["attention bias", "head 0", "head 1", "MLP bias", "MLP"])
        self.assertAlmostEqual(lens[-1]["probability"], [answer for answer in run.predictions() if answer][-1].probability)
        before, *heads = run.patch("output", from_sample=1)
        self.assertEqual([row["patch"] for row in heads], [f"output layer={layer} head={head}" for layer in (0, 1) for head in (0, 1)])
        self.assertEqual(before["logit"], lens[-1]["logit"])
        for row in heads:
            patched = dict(patch=row["patch"], from_sample=1)
            self.assertAlmostEqual(run.loss(**patched) - run.loss(), row["real"])
            self.assertEqual(run.lens(**patched)[-1]["logit"], row["logit"])
        self.assertTrue(any(row["real"] for row in heads))
        name = "blocks.1.attention.output"
        patched, there = run.trace(patch="output layer=1", from_sample=1), run.trace(sample=1)
        np.testing.assert_array_equal(patched[name].value, there[name].value)
        self.assertFalse(patched["blocks.1.attention.v"].gradient.any())  # patched numbers pass no gradient on
        self.refused(ValueError, ["--from required"], run.patch, "output")
        self.refused(ValueError, ['"z" given; one of'], run.attribution, answer="z")

    def test_steps(self):
        run = whence.load(self.made_run)
        self.assertEqual(run.steps, [10, 20])
        self.assertFalse(whence.load(self.made_run, step=0).trace()["blocks.0.attention.position.table"].value.any())
        self.assertEqual(whence.load(self.made_run, step=20).loss(), run.loss())
        self.refused(ValueError, ["--step: 5 given"], whence.load, self.made_run, step=5)
        self.refused(ValueError, ["no folder"], whence.load, "nowhere/run")

    def test_page(self):
        page = whence.look(whence.load(self.made_run), length=8)
        self.assertTrue(page._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html'))
        self.assertIn("look-data", whence.look("dape(kerple)", length=4))

    def test_text(self):
        text = pathlib.Path(self.folder.name) / "text.txt"
        text.write_text("the cat sat on the mat.\n" * 40)
        whence.train(str(text), out=f"{self.folder.name}/lm", steps=2, warm_up=0, dim=16, layers=1, heads=2, length=16, batch=2, evaluate_to=1, quiet=True)
        run = whence.load(f"{self.folder.name}/lm")
        self.assertTrue(run.generate("the cat", tokens=5, temperature=0).startswith("the cat"))
        self.assertEqual(run.tokens(prompt="abc"), ["a", "b"])  # the third is the target of the second
        self.assertEqual("".join(run.tokens(length=7)), "the cat")
        text.unlink()
        self.assertEqual(whence.load(run.folder).forward([[1, 2, 3]]).shape, (1, 3, 256))  # the model needs no text
        self.assertEqual(whence.load(run.folder).tokens(prompt="abc"), ["a", "b"])
        self.refused(ValueError, ["--prompt TEXT required"], whence.load(run.folder).loss)
        self.assertEqual(whence.load("absolute").forward(np.zeros((1, 16))).shape, (1, 16, 26))


@unittest.skipIf(torch is None, "no torch here")
class Torch(Case):
    def made(self, scheme, **more):
        return whence.torch_function(scheme, **{"heads": H, "head_dim": D, "length": T, "dtype": torch.float64, **more})

    def inputs(self):
        return [torch.from_numpy(each).requires_grad_() for each in operands()]

    def test_results_are_of_the_same_kind(self):
        q, k, v = self.inputs()
        found = whence.run("none", q, k, v)["output"]
        self.assertIsInstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), attention(*operands()), atol=1e-14)

    def test_gradients(self):
        for scheme in ("cdape(kerple)", "cope(p_max=3)", "rope", "alibi", "shaw", "t5"):
            for executor in ("auto", "reference"):
                function = self.made(scheme, executor=executor)
                for parameter in function.parameters():  # moves tables away from zero
                    torch.nn.init.uniform_(parameter, 0.1, 0.9)
                names = [name for name, _ in function.named_parameters()]

                def call(q, k, v, *parameters):
                    return functional_call(function, dict(zip(names, parameters)), (q, k, v))

                self.assertTrue(torch.autograd.gradcheck(call, (*self.inputs(), *function.parameters())), scheme)

    def test_shared_keys(self):
        q, k, v = self.inputs()
        k, v = (each[:, :1].detach().requires_grad_() for each in (k, v))
        s = (q @ k.transpose(-1, -2) / D**0.5).masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf)  # one key head for both query heads
        theirs = s.softmax(-1) @ v
        ours = self.made("none", kv_heads=1)(q, k, v)
        for expected, found in zip((theirs, *torch.autograd.grad(theirs.sin().sum(), (q, k, v))),
                                   (ours, *torch.autograd.grad(ours.sin().sum(), (q, k, v)))):
            torch.testing.assert_close(found, expected, atol=1e-13, rtol=0)
        self.assertEqual(whence.describe("none", heads=4, kv_heads=2)["sizes"]["g"], 2)

    def test_parameters_have_our_names_and_numbers(self):
        function = self.made("dape(kerple)", seed=3)
        names = [p["name"] for p in whence.describe("dape(kerple)", heads=H, head_dim=D, length=T)["parameters"]]
        self.assertEqual([name for name, _ in function.named_parameters()], names)
        q, k, v = (x.detach() for x in self.inputs())
        drawn = whence.run("dape(kerple)", q, k, v, parameters={n: p.detach() for n, p in function.named_parameters()})
        torch.testing.assert_close(function(q, k, v), drawn["output"], rtol=0, atol=1e-13)
        with torch.no_grad():
            function.base.strength.fill_(-1)
        function.put_inside_bounds()
        self.assertTrue((function.base.strength > 0).all())

    def test_trace(self):
        function, (q, k, v) = self.made("cope(p_max=3)"), [x.detach() for x in self.inputs()]
        traced = function.trace(q, k, v, cotangent=torch.ones_like(q))
        torch.testing.assert_close(traced["output"], function(q, k, v).detach(), rtol=0, atol=1e-13)
        self.assertTrue({"gates", "pattern", "gradient.q", "gradient.gates", "gradient.table"} <= set(traced))

    def test_written_over(self):
        function, (q, k, v) = self.made("none"), self.inputs()
        output = function(q, k, v)
        with torch.no_grad():
            k += 1
        self.refused(RuntimeError, ["modified by an inplace operation"], output.sum().backward)

    def test_nothing_is_copied(self):
        """Writes that torch does not notice are seen, because the pass uses the caller's own numbers."""
        for executor in ("reference", "tiled"):
            function, (q, k, v) = self.made("none", executor=executor), self.inputs()
            output = function(q, k, v)
            k.detach().numpy()[:] = 0
            gradient = torch.autograd.grad(output.square().sum(), q)[0]
            self.assertEqual(gradient.abs().max(), 0, executor)

    def test_twice(self):
        function, (q, k, v) = self.made("none"), self.inputs()
        self.refused(RuntimeError, ["create_graph=True given; none by whence can be differentiated once"], torch.autograd.grad,
                     function(q, k, v).sum(), q, create_graph=True)
        output = function(q, k, v)  # one graph, two backward passes
        first = torch.autograd.grad(output.sum(), q, retain_graph=True)[0]
        torch.testing.assert_close(torch.autograd.grad(output.sum(), q)[0], first, rtol=0, atol=0)


if __name__ == "__main__":
    if torch is None:
        print("PyTorch: SKIPPED: not importable here")
    unittest.main(verbosity=1 if "-v" not in sys.argv else 2)
