"""The Python module `whence` with numpy, and with PyTorch if installed: tests/pytest tests/examples/python/door.py"""
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

np, whence = pytest.importorskip("numpy"), pytest.importorskip("whence")
try:
    import torch
    functional_call = torch.func.functional_call if hasattr(torch, "func") else torch.nn.utils.stateless.functional_call
except ImportError:
    torch = None

B, H, T, D = 2, 2, 5, 4
close, same = np.testing.assert_allclose, np.testing.assert_array_equal
with_torch = pytest.mark.skipif(torch is None, reason="no torch here")


def operands(dtype=np.float64, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal((B, H, T, D)).astype(dtype) for _ in range(3)]


def attention(q, k, v):
    """NoPE, causal."""
    s = np.where(np.tril(np.ones((T, T))) > 0, q @ k.swapaxes(-1, -2) / D**0.5, -np.inf)
    pattern = np.exp(s - s.max(-1, keepdims=True))
    return pattern / pattern.sum(-1, keepdims=True) @ v


def refused(words, call, *arguments, error=ValueError, **more):
    with pytest.raises(error) as caught:
        call(*arguments, **more)
    assert words in str(caught.value)


def test_describe():
    found = whence.describe("dape(kerple)", heads=H, head_dim=D, length=T)
    assert [p["name"] for p in found["parameters"]][:2] == ["base.strength", "base.rate"]
    assert found["tensors"][0]["shape"] == [1, H, T, D] and whence.describe("none", heads=4, kv_heads=2)["sizes"]["g"] == 2
    assert "[2,3,5]" in " ".join(str(s["inputs"]) for s in whence.describe("softmax")["samples"])
    refused("did you mean 'cope'", whence.describe, "coep")
    refused("heads: 0 given", whence.describe, "cope", heads=0)


def test_ctrl_c_at_a_terminal_saves(tmp_path):
    """The terminal's signal reaches Python and the program."""
    run = tmp_path / "run"
    sizes = "steps=10**7, save_every=10**7, length=256, dim=64, layers=4, batch=64, log_every=1, quiet=True"  # slow steps
    child = subprocess.Popen([sys.executable, "-c", f"import whence; whence.train('flip_flop', out={str(run)!r}, {sizes})"], start_new_session=True,
                             stderr=subprocess.DEVNULL)
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert child.poll() is None
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    child.wait(60)
    assert list((run / "checkpoints").glob("step-*"))


def test_run():
    for dtype, near in ((np.float64, 1e-14), (np.float32, 1e-6)):
        q, k, v = operands(dtype)
        found = whence.run("none", q, k, v, cotangent=np.ones_like(q))
        assert found["output"].dtype == dtype
        close(found["output"], attention(q, k, v), atol=near)
        # Each value's gradient for a cotangent of ones is the sum of its weights over all queries.
        close(found["gradient.v"][..., 0], found["pattern"].sum(-2), atol=10 * near)
    for executor in ("reference", "tiled", "strips"):
        close(whence.run("none", *operands(), executor=executor)["output"], attention(*operands()), atol=1e-13)
    once = lambda *_: whence.run("cope", *operands(), init=1)["output"]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(once, range(20)):
            same(found, once())


def test_compare():
    ours = whence.run("cope", *operands(), init=1, cotangent=operands()[0])
    theirs, names = {name.replace("positions", "pos"): value.copy() for name, value in ours.items()}, {"pos": "positions"}
    found = whence.compare(ours, theirs, names=names, tolerance=0)
    assert not found["differs"] and len(found["tensors"]) == len(ours)
    theirs["pos"][1, 0, 3, 2] += 0.5
    theirs["gates"][0, 0, 1, 3] = 1  # a masked key
    found = whence.compare(ours, theirs, names=names, scheme="cope")
    assert (found["differs"], found["first"]) == (True, "positions") and "positions (theirs: pos), at [1,0,3,2]" in found["headline"]
    assert whence.compare(ours, theirs, names=names)["first"] == "gates"
    refused("map of names", whence.compare, ours, {"a": ours["pattern"]})
    refused("NoneType given", whence.compare, ours, None)
    refused("did you mean 'cope'", whence.compare, ours, theirs, scheme="coep")


def test_nothing_is_copied_in_and_nothing_is_shared_out():
    x = np.arange(6.0).reshape(2, 3)
    one = whence.op("add", x, x, cotangent=np.ones((2, 3)))
    one["gradient.0"][:] = 7
    same(one["gradient.1"], np.ones((2, 3)))
    view = whence.op("contiguous", x)["output"]  # a view, because x is contiguous
    view[:] = 0
    same(x, np.arange(6.0).reshape(2, 3))
    kept = [whence.op("exp", np.zeros(1000))["output"] for _ in range(100)]  # results outlive their inputs
    assert all((each == 1).all() for each in kept)


def test_op():
    random, plain = np.random.default_rng(3), "two matrices"
    a, b, dy = random.standard_normal((3, 5)), random.standard_normal((5, 2)), random.standard_normal((3, 2))
    found = whence.op("matmul", a, b, sample=plain, cotangent=dy)
    for name, wanted in (("output", a @ b), ("gradient.0", dy @ b.T), ("gradient.1", a.T @ dy)):
        close(found[name], wanted, atol=1e-14)
    assert whence.op("exp", np.zeros((0, 3)))["output"].shape == (0, 3)
    refused("an op required", whence.op, "matmull", a, b)
    refused("matmul: no sample given; one of '", whence.op, "matmul", a, b)
    refused("matmul: 1 inputs given; 2", whence.op, "matmul", a, sample=plain)
    refused("matmul", whence.op, "matmul", a, a, sample=plain, error=RuntimeError)
    refused("sample 'x' given", whence.op, "matmul", a, b, sample="x")


def test_ops_refuse_what_would_not_fit():
    """Calls any op with arrays of wrong shapes and wild indices: a result or an exception, never a crash."""
    random, count = np.random.default_rng(4), {True: 0, False: 0}

    def wild(dtype, shape):
        extents = [max(0, int(e) + random.integers(-1, 2) * random.integers(0, 2)) for e in shape.strip("[]").split(",") if e]
        extents = extents[random.integers(0, 2) * (random.random() < 0.2):]
        return (random.integers(-3, 100, extents).astype({"i64": np.int64, "i32": np.int32}[dtype]) if dtype[0] == "i" else
                random.random(extents) < 0.5 if dtype == "bool" else random.standard_normal(extents))
    for name in whence.ops():
        for sample in 6 * whence.describe(name)["samples"]:
            inputs = [each and wild(*each.split(" ")) for each in sample["inputs"]]
            try:
                output = whence.op(name, *inputs, sample=sample["sample"])["output"]
                whence.op(name, *inputs, sample=sample["sample"], cotangent=np.ones(output.shape))
                count[True] += 1
            except (ValueError, RuntimeError):
                count[False] += 1
    assert min(count.values()) > 100


# ---- Runs of train, loaded and inspected


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return whence.train("flip_flop", out=str(tmp_path_factory.mktemp("made") / "run"), scheme="cope(p_max=6)", length=24, dim=16, layers=2, heads=2, batch=4,
                        steps=20, save_every=10, keep_checkpoints=0, test_sequences=8, lr=0.01, quiet=True)


@pytest.fixture
def run(rows):
    return whence.load(rows.folder, dtype="f64")


def test_train(rows):
    assert [row["test_set"] for row in rows] == ["in distribution", "sparse", "dense"] and "<td>sparse</td>" in rows._repr_html_()
    for words, error, more in (("--stepz", ValueError, {"out": "x", "stepz": 1}), ("holds a run", ValueError, {"out": rows.folder}),
                               ("/proc/nowhere", OSError, {"out": "/proc/nowhere"})):
        refused(words, whence.train, "flip_flop", quiet=True, error=error, **more)


def test_hessian(run, tmp_path):
    hessian, first = run.hessian(1, sample=1), run.hessian(1)
    assert hessian.loss == pytest.approx(run.loss(sample=1), abs=1e-7)
    a, b = np.random.default_rng(1).standard_normal((2, hessian.size))
    assert a @ hessian.times(b) == pytest.approx(b @ hessian.times(a), abs=1e-9 * np.linalg.norm(hessian.times(b)) * np.linalg.norm(a))
    close(hessian.times(a + 2 * b), hessian.times(a) + 2 * hessian.times(b), rtol=1e-6, atol=1e-9)
    counts = lambda run, samples: [sum(answer is not None for answer in run.predictions(sample=k)) for k in range(samples)]
    zero, one = counts(run, 2)  # the loss is a mean over all graded tokens
    close((zero + one) * run.hessian(2).times(a), zero * first.times(a) + one * hessian.times(a), rtol=1e-6, atol=1e-9)
    refused(f"f64 of {hessian.size} numbers", hessian.times, a[:3])
    refused("sequences: 0 given", run.hessian, 0)
    whence.train("counting", out=str(tmp_path / "run"), scheme="alibi", variables=2, operations=8, block=12, steps=2, dim=16, layers=1, quiet=True)
    other = whence.load(str(tmp_path / "run"), dtype="f64")  # sequences of other lengths
    assert other.hessian(4).loss == pytest.approx(np.average([other.loss(sample=k) for k in range(4)], weights=counts(other, 4)), abs=1e-12)


def test_forward(run):
    tokens = np.array([[0, 3, 1, 4], [2, 3, 0, 4]])
    logits = run.forward(tokens)
    assert (logits.shape, logits.dtype) == ((2, 4, 5), np.float64)
    close(run.forward(tokens[:, :2]), logits[:, :2], atol=1e-12)  # no row sees later tokens
    refused("tokens: 5 given; 0 to 4", run.forward, tokens + 1)
    refused("[batch, token]", run.forward, tokens[0])
    for given in (tokens + 0.5, tokens * np.nan, tokens > 1, tokens.astype(str)):
        refused("whole numbers", run.forward, given)
    if torch:
        same(run.forward(torch.from_numpy(tokens)).numpy(), logits)


def test_trace(run):
    traced, name = run.trace(sample=1), "blocks.1.attention.position.gates"
    gates = traced[name]
    assert gates.value.shape == (1, 2, 23, 23) and "blocks.0.attention.position.table" in traced
    head, i, j = np.unravel_index(np.abs(gates.gradient[0]).argmax(), gates.gradient[0].shape)
    place = f"gates layer=1 head={head} i={i} j={j}"
    edited = run.edit(f"{place} += 1e-6", sample=1)
    assert edited.predicted == pytest.approx(1e-6 * gates.gradient[0, head, i, j], abs=1e-18)
    assert edited.real == pytest.approx(edited.predicted, rel=1e-3)
    assert f"dLoss/d {name}[0,{head},{i},{j}]" in run.explain(f"dLoss/d{place}", sample=1)
    answers = [answer for answer in run.predictions(sample=1) if answer]
    assert np.mean([-np.log(answer.probability) for answer in answers]) == pytest.approx(run.loss(sample=1), abs=1e-7)
    assert len(run.tokens(sample=1, length=5)) == 5 and {row["gradient of"] for row in run.paths()} == {"x", "q", "k", "v"}
    assert any(row["quantity"] == "position.gates" for row in run.causes())
    refused("'gats' in layer 0", run.edit, "gats = 0")


def test_logits(run):
    parts, lens = run.attribution(), run.lens()
    assert sum(part["logit"] for part in parts) == pytest.approx(lens[-1]["logit"], abs=1e-12 * sum(abs(part["logit"]) for part in parts))
    assert [row["layer"] for row in lens] == [None, 0, 1] and {*parts[0]} >= {"part", "layer"}
    assert lens[-1]["probability"] == pytest.approx([answer for answer in run.predictions() if answer][-1].probability, abs=1e-7)
    before, *heads = run.patch("output", from_sample=1)
    assert [row["patch"] for row in heads] == [f"output layer={layer} head={head}" for layer in (0, 1) for head in (0, 1)]
    assert before["logit"] == lens[-1]["logit"] and any(row["real"] for row in heads)
    for row in heads:
        patched = dict(patch=row["patch"], from_sample=1)
        assert run.loss(**patched) - run.loss() == pytest.approx(row["real"], abs=1e-7) and run.lens(**patched)[-1]["logit"] == row["logit"]
    refused("--from", run.patch, "output")
    refused('"z" given', run.attribution, answer="z")


def test_steps(rows):
    run = whence.load(rows.folder)
    assert run.steps == [10, 20] and whence.load(rows.folder, step=20).loss() == run.loss()
    assert not whence.load(rows.folder, step=0).trace()["blocks.0.attention.position.table"].value.any()
    refused("--step: 5 given", whence.load, rows.folder, step=5)
    refused("no folder", whence.load, "nowhere/run")
    assert whence.look(run, length=8)._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html')
    assert "look-data" in whence.look("dape(kerple)", length=4)


def test_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat.\n" * 40)
    whence.train(str(text), out=str(tmp_path / "lm"), steps=2, warm_up=0, dim=16, layers=1, heads=2, length=16, batch=2, evaluate_to=1, quiet=True)
    run = whence.load(str(tmp_path / "lm"))
    assert run.generate("the cat", tokens=5, temperature=0).startswith("the cat")
    assert "".join(run.tokens(length=7)) == "the cat"
    text.unlink()  # the model needs no text
    gone = whence.load(run.folder)
    assert gone.forward([[1, 2, 3]]).shape == (1, 3, 256) and gone.tokens(prompt="abc") == ["a", "b"]  # the third is the target of the second
    refused("--prompt", gone.loss)
    assert whence.load("absolute").forward(np.zeros((1, 16))).shape == (1, 16, 26)


# ---- PyTorch


def made(scheme, **more):
    return whence.torch_function(scheme, **{"heads": H, "head_dim": D, "length": T, "dtype": torch.float64, **more})


@pytest.fixture
def inputs():
    return [torch.from_numpy(each).requires_grad_() for each in operands()]


@with_torch
@pytest.mark.parametrize("scheme", ["cdape(kerple)", "cope(p_max=3)", "rope", "alibi", "shaw", "t5"])
@pytest.mark.parametrize("executor", ["auto", "reference"])
def test_gradients(scheme, executor, inputs):
    function = made(scheme, executor=executor)
    for parameter in function.parameters():  # moves tables away from zero
        torch.nn.init.uniform_(parameter, 0.1, 0.9)
    names = [name for name, _ in function.named_parameters()]
    call = lambda q, k, v, *parameters: functional_call(function, dict(zip(names, parameters)), (q, k, v))
    assert torch.autograd.gradcheck(call, (*inputs, *function.parameters()))


@with_torch
def test_shared_keys(inputs):
    q, k, v = inputs
    assert isinstance(whence.run("none", q, k, v)["output"], torch.Tensor)
    k, v = (each[:, :1].detach().requires_grad_() for each in (k, v))
    s = (q @ k.transpose(-1, -2) / D**0.5).masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf)  # one key head for both query heads
    results = [(y, *torch.autograd.grad(y.sin().sum(), (q, k, v))) for y in (s.softmax(-1) @ v, made("none", kv_heads=1)(q, k, v))]
    for expected, found in zip(*results):
        torch.testing.assert_close(found, expected, atol=1e-13, rtol=0)


@with_torch
def test_parameters_have_our_names_and_numbers(inputs):
    function, (q, k, v) = made("dape(kerple)", seed=3), [x.detach() for x in inputs]
    names = [p["name"] for p in whence.describe("dape(kerple)", heads=H, head_dim=D, length=T)["parameters"]]
    assert [name for name, _ in function.named_parameters()] == names
    drawn = whence.run("dape(kerple)", q, k, v, parameters={n: p.detach() for n, p in function.named_parameters()})
    torch.testing.assert_close(function(q, k, v), drawn["output"], rtol=0, atol=1e-13)
    traced = function.trace(q, k, v, cotangent=torch.ones_like(q))
    torch.testing.assert_close(traced["output"], function(q, k, v).detach(), rtol=0, atol=1e-13)
    assert {"pattern", "gradient.q", "gradient.base.rate"} <= {*traced}
    with torch.no_grad():
        function.base.strength.fill_(-1)
    function.put_inside_bounds()
    assert (function.base.strength > 0).all()


@with_torch
@pytest.mark.parametrize("executor", ["reference", "tiled"])
def test_writes_are_seen(executor, inputs):
    """Those that torch does not notice, because the pass uses the caller's own numbers; others are refused."""
    function, (q, k, v) = made("none", executor=executor), inputs
    output = function(q, k, v)
    k.detach().numpy()[:] = 0
    assert torch.autograd.grad(output.square().sum(), q)[0].abs().max() == 0
    output = function(q, k, v)
    with torch.no_grad():
        k += 1
    refused("modified by an inplace operation", output.sum().backward, error=RuntimeError)


@with_torch
def test_twice(inputs):
    function, (q, k, v) = made("none"), inputs
    refused("create_graph=True given", torch.autograd.grad, function(q, k, v).sum(), q, create_graph=True, error=RuntimeError)
    output = function(q, k, v)  # one graph, two backward passes
    first, second = (torch.autograd.grad(output.sum(), q, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(second, first, rtol=0, atol=0)
