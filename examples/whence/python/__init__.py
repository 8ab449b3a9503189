"""whence from Python: positional schemes, ops and their gradients, to compare with other code.

    describe(scheme)            a scheme's inputs, parameters, claims and probes, or an op's samples
    run(scheme, q, k, v, ...)   every intermediate, and every gradient of a cotangent, as `whence probe` writes them
    compare(ours, theirs, ...)  the first tensor that differs between two dicts of arrays, and where: `whence compare`
    op(name, ...)               one op's value, and the gradients of a cotangent; ops() has the names
    gradcheck(name)             an op's or a scheme's gradients against dual numbers and differences
    torch_function(scheme, ...) attention with a scheme as a torch.nn.Module, forward and backward by whence
    train(task, out=...)        `whence train`; its results as rows that pandas takes
    load(run)                   a trained model: forward, generate, trace, explain, causes, paths, edit, attribution,
                                lens, patch, hessian, look (runs.py)
    look(run)                   its page, shown in a notebook's cell

Arrays are numpy's or PyTorch's on the CPU, f32 or f64, of any positive strides, and are not copied; results are of the same
kind, in their own memory. ValueError says what was given and what is required.
"""
import json

from . import _whence
from ._whence import ops
from .runs import Run, load, look, train

__version__ = _whence.version
__all__ = ["describe", "run", "compare", "op", "ops", "gradcheck", "torch_function", "train", "load", "look", "Run"]


def _plain(arrays):
    """Detaches torch's arrays, to read their memory; also returns whether there are any."""
    if not isinstance(arrays, dict):
        raise ValueError(f"{type(arrays).__name__} given; a dict of arrays required")
    of_torch = any(hasattr(array, "detach") for array in arrays.values())
    return {name: array.detach() if hasattr(array, "detach") else array for name, array in arrays.items()}, of_torch


def describe(name, *, heads=4, head_dim=16, length=16, batch=1, kv_heads=0):
    return json.loads(_whence.samples_of(name) if name in ops() else _whence.describe(name, heads, head_dim, length, batch, kv_heads))


def run(scheme, q=None, k=None, v=None, x=None, *, parameters=None, cotangent=None, executor="auto", causal=True, scale=None,
        init=None, **more):
    """`more`: cotangent_logits, positions, present, mask, as describe() lists them. `init`: the seed for parameters that are not
    given. Executors other than reference return only the output and the gradients."""
    given = {"q": q, "k": k, "v": v, "x": x, "cotangent": cotangent, **more, **(parameters or {})}
    arrays, of_torch = _plain({name: array for name, array in given.items() if array is not None})
    return _whence.run(scheme, arrays, executor, causal, scale, init, of_torch)


def compare(ours, theirs, *, names=None, tolerance=None, scheme="", causal=True):
    """`ours`: the result of run(); `scheme` says what the mask hides. `names`: {"their name": "our name"}. Returns {"differs": ...,
    "first": name or None, "headline": sentences, "tensors": [...], "only ours": [...], "only theirs": [...]}."""
    lines = _whence.compare(_plain(ours)[0], _plain(theirs)[0], names or {}, tolerance, scheme, causal).splitlines()
    *tensors, whole = map(json.loads, lines)
    return {**whole, "tensors": tensors}


def op(name, *inputs, sample=None, cotangent=None):
    """`sample`: the op's sample, of those that describe() lists, with the wanted attributes (axes, scale, ...); autograd/ops/
    has them in full. Ops without attributes need none. A cotangent adds gradient.K of each input K."""
    arrays, of_torch = _plain(dict(enumerate(inputs + (cotangent,))))
    return _whence.op(name, [arrays[k] for k in range(len(inputs))], sample, arrays[len(inputs)], of_torch)


def gradcheck(name, *, length=6, differences=True, seed=1):
    return json.loads(_whence.gradcheck(name, length, differences, seed))


def torch_function(scheme, *, heads, head_dim, length, causal=True, scale=None, executor="auto", dtype=None, seed=0, kv_heads=0):
    """A torch.nn.Module: module(q, k, v) of [batch, head, query, head_dim] gives the output; module(q, k, v, x=...) where the
    scheme reads the layer's input. Its parameters have whence's names and are drawn by `seed`. After an optimiser's step,
    module.put_inside_bounds() clamps the parameters that a scheme bounds. `kv_heads`: the heads of k and v, if fewer."""
    import torch

    dtype = dtype or torch.get_default_dtype()
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype: {dtype} given; torch.float32 or torch.float64 required")
    attention = _whence.Attention(scheme, heads, head_dim, length, causal, scale, executor, dtype == torch.float32, seed, kv_heads)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, recorded, *tensors):  # q, k, v, x, then parameters
            plain = [None if tensor is None else tensor.detach() for tensor in tensors]
            output, ctx.whence_pass = attention.forward(plain[:4], plain[4:], recorded)
            ctx.save_for_backward(*tensors, output)  # so that torch detects writes into them
            return output

        @staticmethod
        def backward(ctx, cotangent):
            if torch.is_grad_enabled():  # else second derivatives would be missing without an error
                raise RuntimeError(f"create_graph=True given; {attention.text} by whence can be differentiated once")
            ctx.saved_tensors  # raises if one was overwritten since
            return None, *ctx.whence_pass.backward(cotangent.detach())

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._order = []
            for name, value, trained, low, high in attention.parameters():
                *path, last = name.split(".")
                owner = self
                for part in path:
                    if not hasattr(owner, part):
                        owner.add_module(part, torch.nn.Module())
                    owner = getattr(owner, part)
                owner.register_parameter(last, torch.nn.Parameter(value, requires_grad=trained))
                self._order.append((owner, last, low, high))

        def forward(self, q=None, k=None, v=None, x=None):
            tensors = [q, k, v, x, *(getattr(owner, name) for owner, name, _, _ in self._order)]
            recorded = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
            return Function.apply(recorded, *tensors)

        @torch.no_grad()
        def put_inside_bounds(self):
            for owner, name, low, high in self._order:
                getattr(owner, name).clamp_(low, high)

        def trace(self, q=None, k=None, v=None, x=None, cotangent=None):
            """Every intermediate by its name, and with a cotangent of the output every gradient, as run() returns."""
            own = {name: parameter.detach() for name, parameter in self.named_parameters()}
            return run(scheme, q, k, v, x, parameters=own, cotangent=cotangent, executor="reference", causal=causal, scale=scale)

        def extra_repr(self):
            return f"{attention.text}, heads={heads}, head_dim={head_dim}, causal={causal}"

    return Attention()
