"""Random graphs of whence's ops against the same graphs in PyTorch: value and gradients in float64."""
import random
import subprocess
import time

import torch
import whence
from torch.nn import functional as F

from conftest import ROOT

UNARY = {"abs": torch.abs, "exp": torch.exp, "log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "square": torch.square, "reciprocal": torch.reciprocal,
         "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": lambda x: F.softplus(x, threshold=1e9), "silu": F.silu,
         "relu": F.relu, "leaky_relu": F.leaky_relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu}
BINARY = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div, "maximum": torch.maximum, "minimum": torch.minimum}
# Op -> sample, for its shapes and attributes -> the same op in PyTorch.
OPS = {
    **{name: {"drawn": f} for name, f in UNARY.items()},
    **{name: dict.fromkeys(("[3,5] [3,5]", "[2,3,4] [4]", "[3,1] [1,7]", "[5] [2,1,5]", "[] [2,3]", "[2,3,1,5] [3,4,1]"), f) for name, f in BINARY.items()},
    "concat_along": {"three parts, middle axis": lambda *x: torch.cat(x, 1), "last axis": lambda *x: torch.cat(x, -1)},
    "convolve_keys": {"width 3": lambda x, w, b: F.conv2d(x, w, b, padding=(0, 1)), "width 5, odd extents": lambda x, w, b: F.conv2d(x, w, b, padding=(0, 2)),
                      "a linear layer over the heads": F.conv2d},
    "cross_entropy": {"rows": F.cross_entropy, "leading axes": lambda x, i: F.cross_entropy(x.flatten(0, 1), i.flatten()),
                      "the sum": lambda x, i: F.cross_entropy(x.flatten(0, 1), i.flatten(), reduction="sum")},
    "cumulative_sum": {"forwards": lambda x: x.cumsum(-1), "backwards": lambda x: x.flip(-1).cumsum(-1).flip(-1), "first axis, forwards": lambda x: x.cumsum(0),
                       "middle axis, backwards": lambda x: x.flip(1).cumsum(1).flip(1)},
    "gather": {"last axis": lambda x, i: x.gather(-1, i), "first axis": lambda x, i: x.gather(0, i), "middle axis": lambda x, i: x.gather(1, i)},
    "layer_norm": dict.fromkeys(("rows", "leading axes"), lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-3)),
    "lerp_at": dict.fromkeys(("interior", "long rows"), lambda x, p: x.gather(-1, p.long()) * (p.floor() + 1 - p) + x.gather(-1, p.long() + 1) * (p - p.floor())),
    "linear": {"rows": F.linear, "leading axes": F.linear, "no bias": F.linear},
    "linear_gelu_linear": dict.fromkeys(("rows", "leading axes", "no biases"),
                                        lambda x, v, a, w, b: F.linear(F.gelu(F.linear(x, v, a), approximate="tanh"), w, b)),
    "masked": {"mask that broadcasts": lambda x, mask: torch.where(mask, x, -2.5), "mask of x's shape": lambda x, mask: torch.where(mask, x, 0.0)},
    "matmul": {**dict.fromkeys(("two matrices", "one a for a batch", "both broadcast"), torch.matmul), "batched": lambda a, b: 0.5 * (a @ b),
               "one b for a batch": lambda a, b: -2 * (a @ b)},
    "maximum_along": {"last axis": lambda x: x.amax(-1), "middle axis": lambda x: x.amax(1)},
    "mean": {"all": torch.mean, "last axis, kept": lambda x: x.mean(-1, keepdim=True), "outer axes": lambda x: x.mean((0, 1))},
    "permute": {"[b t h d] to [b h t d]": lambda x: x.transpose(1, 2)},
    "rms_norm": dict.fromkeys(("rows", "leading axes"), lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w),
    "select": {"first axis": lambda x: x[1], "last axis": lambda x: x[..., 2]},
    "slice": {"middle axis": lambda x: x[:, 1:3], "step 3": lambda x: x[:, ::3]},
    "softmax": {"no mask": lambda x, _: x.softmax(-1), "mask that broadcasts": lambda x, mask: x.masked_fill(~mask, -torch.inf).softmax(-1)},
    "sum": {"all": torch.sum, "middle axis": lambda x: x.sum(1), "two axes, kept": lambda x: x.sum((0, -1), keepdim=True)},
    "sum_to": {"inner and leading axis": lambda x: x.sum((0, 2)).unsqueeze(-1)},
    "take_rows": {"repeated rows": lambda x, i: x[i]},
    "transpose": {"last two": lambda x: x.mT, "outer and inner": lambda x: x.transpose(0, 2)},
    "unsqueeze": {"in front": lambda x: x.unsqueeze(0), "at the end": lambda x: x.unsqueeze(-1)},
}
POSITIVE = {("log", 0), ("log1p", 0), ("sqrt", 0), ("reciprocal", 0), ("divide", 1)}  # inputs that must be positive
INPUTS = {(name, each["sample"]): each["inputs"] for name in OPS for each in whence.describe(name)["samples"]}


def passed(inputs):
    """Masks as numpy's: PyTorch hands out its own from 2.0 on."""
    return [x.numpy() if x is not None and x.dtype == torch.bool else x for x in inputs]


class Ours(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, sample, *inputs):
        ctx.call = name, sample, inputs
        return whence.op(name, *passed(inputs), sample=sample)["output"]

    @staticmethod
    def backward(ctx, cotangent):
        name, sample, inputs = ctx.call
        found = whence.op(name, *passed(inputs), sample=sample, cotangent=cotangent.contiguous())
        return None, None, *(found.get(f"gradient.{k}") for k in range(len(inputs)))


def compared(seed):
    """Returns the drawn graph, and the largest relative difference of the value and of each leaf's gradient."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    leaves, nodes, names, totals = [], [], [], [0.0, 0.0]  # a node is a pair: ours and PyTorch's

    def leaf(*shape):
        leaves.append(torch.randn(shape, dtype=torch.float64, requires_grad=True))
        return leaves[-1]

    def drawn(name, k, like, first):
        """An input: its own numbers, moved by those of an earlier node, within the op's domain."""
        if like is None:
            return None, None
        kind, shape = like.split(" ")
        shape = [int(extent) for extent in shape.strip("[]").split(",") if extent]
        if kind != "f64":
            axis = -1 if name == "cross_entropy" else 0 if name == "take_rows" else next((n for n, extent in enumerate(shape) if extent != first[n]), -1)
            seen = torch.rand(shape) < 0.6
            seen[..., 0] = True  # PyTorch's softmax of a wholly masked row is NaN
            return (seen,) * 2 if kind == "bool" else (torch.randint(0, first[axis], shape),) * 2
        own, node = leaf(*shape), choose.choice([*nodes, None])
        mixer = None if node is None else leaf(node[0].numel(), own.numel())
        pair = [own if node is None else own + 0.1 * torch.tanh(each.flatten() @ mixer).reshape(shape) for each in node or (0, 0)]
        if (name, k) in POSITIVE:
            pair = [F.softplus(each) + 0.1 for each in pair]
        return [torch.sigmoid(each) * (first[-1] - 1) for each in pair] if name == "lerp_at" and k == 1 else pair
    for _ in range(choose.randint(2, 7)):
        name = choose.choice(list(OPS))
        sample = choose.choice(list(OPS[name]))
        shapes = INPUTS[name, sample]
        first = [int(extent) for extent in shapes[0].split(" ")[1].strip("[]").split(",") if extent]
        ours, theirs = zip(*[drawn(name, k, like, first) for k, like in enumerate(shapes)])
        nodes.append((Ours.apply(name, sample, *ours), OPS[name][sample](*theirs)))
        names.append(f"{name} ({sample})")
        weights = leaf(*nodes[-1][1].shape)
        totals = [total + (y * weights).sum() for total, y in zip(totals, nodes[-1])]
    found, wanted = ([total, *torch.autograd.grad(total, leaves)] for total in totals)
    return ", ".join(names), max(float((a - b).detach().abs().max() / max(1e-3, b.detach().abs().max())) for a, b in zip(found, wanted))


def test_graphs():
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip() or "1"
    end, seed = time.time() + 8, int(commit, 16)
    while time.time() < end:
        what, far = compared(seed)
        assert far < 1e-10, f"graph {seed:x}: {what}"
        seed += 1
