#!/usr/bin/env python3
"""Times our attention, ops, training steps and decoding against PyTorch's, in one process and in turn.

    examples/experiments/beside_torch.py attention --schemes none,alibi,cope --lengths 512,2048
    examples/experiments/beside_torch.py ops --scale 0.125
    examples/experiments/beside_torch.py step --models gpt2-124m --schemes alibi,cope
    examples/experiments/beside_torch.py decode --schemes absolute,alibi --json

Both get the same numbers. Values and gradients are compared before anything is timed. If they differ by more than rounding, nothing is timed,
and the exit code is 1. Then they run in turn, ours, theirs, ours, theirs, so that other work on the machine slows both; the medians count.
Ours is timed inside the library, as in `whence bench`. PyTorch's time includes its calls from Python, as for its users. Its attention is that
of ../whence/verify/formulas.py. Ways: eager, and, if this PyTorch has them, compile, sdpa (scaled_dot_product_attention) and flex
(FlexAttention, which has no backward on the CPU).
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import math
import pathlib
import statistics
import sys
import time
from typing import Any, Callable, Iterator, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "whence/verify"))
import packages

packages.require("torch", "whence")
import torch
import torch.nn.functional as F
from whence import _whence
import formulas

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HAS_FLEX = bool(importlib.util.find_spec("torch.nn.attention") and importlib.util.find_spec("torch.nn.attention.flex_attention"))
WAYS = [way for way, has in {"eager": True, "compile": hasattr(torch, "compile"), "sdpa": HAS_SDPA, "flex": HAS_FLEX}.items() if has]
PRECISIONS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
Tensors = dict[str, torch.Tensor]
UNFUSED = {"logits", "pattern", "output"}  # a formula that makes one of these does more than rotate queries and keys or add a bias


# ---- PyTorch's side: run() returns the milliseconds of forward and backward, nan for none; results() has our names

def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Returns the function's result and its milliseconds."""
    wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
    wait()
    start = time.perf_counter()
    found = function()
    wait()
    return found, (time.perf_counter() - start) * 1e3


def compiled(function: Callable, way: str) -> Callable:
    return torch.compile(function, dynamic=False) if way == "compile" else function


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, allowed: torch.Tensor | None) -> torch.Tensor:
    """Attention with a bias as programs call it: by scaled_dot_product_attention, if available. Without `allowed` it is causal."""
    if HAS_SDPA and bias is None and allowed is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    allowed = formulas.allowed_of(q.shape[2], True, q.device) if allowed is None else allowed
    mask = torch.zeros(allowed.shape, dtype=q.dtype, device=q.device).masked_fill_(~allowed, -math.inf)
    mask = mask if bias is None else (mask + bias).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask) if HAS_SDPA else (formulas.scores({"q": q, "k": k}) + mask).softmax(-1) @ v


def attended(formula: Callable, p: Tensors, by_sdpa: bool) -> torch.Tensor:
    """Attention by the formula; by_sdpa: fused if possible."""
    made = formula(p := formulas.given(p))
    if by_sdpa and not UNFUSED & made.keys():
        q, k, bias = formulas.operands(made, p)
        return fused(q, k, p["v"], bias, made.get("allowed"))
    return formulas.attend(lambda _: made, p)["output"]


class Graph:
    """A function of named tensors, and its backward pass. A series of calls is timed as one, so that the start of the GPU's work does not count."""

    def __init__(self, given: Tensors, function: Callable, way: str, device: str, dtype: torch.dtype, series: int = 1):
        there = {name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype).clone() for name, tensor in given.items()}
        self.cotangent, self.given, self.series = there.pop("cotangent"), there, series
        self.leaves = {name: tensor.requires_grad_() for name, tensor in there.items() if tensor.is_floating_point()}
        self.function, self.has_backward = compiled(function, way), way != "flex" or self.cotangent.is_cuda

    def forward(self) -> None:
        with torch.set_grad_enabled(self.has_backward):
            self.output = self.function(self.given)

    def backward(self) -> None:
        self.gradients = torch.autograd.grad(self.output, list(self.leaves.values()), self.cotangent.to(self.output.dtype), retain_graph=self.series > 1)

    def run(self) -> tuple[float, ...]:
        return tuple(timed(lambda: [each() for _ in range(self.series)])[1] / self.series if there else math.nan
                     for each, there in ((self.forward, True), (self.backward, self.has_backward)))

    def results(self) -> Tensors:
        gradients = {f"gradient of {name}": found for name, found in zip(self.leaves, self.gradients)} if self.has_backward else {}
        return {"output": self.output, **gradients}


def flex(scheme: str, length: int, device: str) -> Callable[[Tensors], torch.Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    attend, seen = torch.compile(flex_attention, dynamic=False), formulas.parsed(scheme)[2].get("n", length)
    block_mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < seen), None, None, length, length, device=device)

    def attention(p: Tensors) -> torch.Tensor:
        p, score = formulas.given(p), None
        if "alibi" in scheme:
            slopes = formulas.slopes(p["q"].shape[1], **formulas.precision(p)).flatten()
            score = lambda s, b, h, i, j: s - slopes[h] * (i - j)
        elif scheme == "kerple":
            score = lambda s, b, h, i, j: s - p["strength"][h] * torch.log1p(p["rate"][h] * (i - j))
        return attend(p["q"], p["k"], p["v"], score_mod=score, block_mask=block_mask)
    return attention


OPS: dict[str, Callable] = {
    "add": torch.add, "gelu": lambda x: F.gelu(x, approximate="tanh"), "heads apart": lambda x: x.permute(0, 2, 1, 3).contiguous(),
    "softmax": lambda x: F.softmax(x, -1), "layer_norm": lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias),
    "cumulative_sum": lambda x: x.cumsum(-1), "embedding": lambda table, picks: F.embedding(picks, table), "cross_entropy": F.cross_entropy,
    "linear": F.linear}


class Transformer:
    """A pre-norm transformer as in GPT-2. The caller gives its attention as a function, attention(p, layer, begin), of p["q"], p["k"], p["v"]
    and p["x"] as in formulas.py."""

    def __init__(self, p, heads, attention):
        self.p, self.heads, self.attention = p, heads, attention
        self.layers = 1 + max(int(name.split(".")[1]) for name in p if name.startswith("blocks."))
        self.dim = p["embedding.weight"].shape[1]

    def linear(self, x, name):
        return F.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, (self.dim,), self.p[name + ".weight"], self.p[name + ".bias"])

    def of_scheme(self, layer):
        """The parameters of a layer's scheme, by the names in its formula."""
        own = f"blocks.{layer}.attention.position."
        return {name[len(own):]: tensor for name, tensor in self.p.items() if name.startswith(own)}

    def __call__(self, tokens, begin=0):
        """Logits [batch, token, answer] of tokens [batch, token], the first at position `begin`."""
        x = F.embedding(tokens, self.p["embedding.weight"])
        if "position.table" in self.p:  # the scheme `absolute`
            x = x + self.p["position.table"][begin:begin + tokens.shape[1]]
        for layer in range(self.layers):
            path = f"blocks.{layer}."
            normed = self.norm(x, path + "norm1")
            q, k, v = (self.linear(normed, f"{path}attention.{name}").unflatten(-1, (-1, self.dim // self.heads)).transpose(1, 2)
                       for name in ("query", "key", "value"))
            attended = self.attention({"q": q, "k": k, "v": v, "x": normed}, layer, begin)
            x = x + self.linear(attended.transpose(1, 2).flatten(-2), path + "attention.output")
            x = x + self.linear(F.gelu(self.linear(self.norm(x, path + "norm2"), path + "mlp.in"), approximate="tanh"), path + "mlp.out")
        return F.linear(self.norm(x, "norm"), self.p["embedding.weight"])


class Step:
    """Training steps: fused attention if the scheme allows it, AdamW, autocast for 16 bits."""

    def __init__(self, given: Tensors, scheme: str, heads: int, way: str, device: str, dtype: torch.dtype):
        there = {name: tensor.to(device).clone() for name, tensor in given.items()}
        self.tokens, self.targets, self.device, self.dtype = there.pop("tokens"), there.pop("targets"), device, dtype
        self.p = {name: tensor.requires_grad_() for name, tensor in there.items()}
        formula = formulas.formula("none" if scheme == "absolute" else scheme)
        self.model = Transformer(self.p, heads, lambda p, layer, begin: attended(formula, {**p, **self.model.of_scheme(layer)}, True))
        self.loss = compiled(lambda: F.cross_entropy(self.model(self.tokens).flatten(0, 1).float(), self.targets.flatten()), way)
        fuses = {"fused": True} if device == "cuda" or hasattr(torch, "compile") else {}
        self.optimizer = torch.optim.AdamW(self.p.values(), lr=3e-4, weight_decay=0.1, **fuses)
        self.scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)(enabled=dtype == torch.float16)
        self.scaler.scale(loss := self.forward()).backward()
        self.first = {"loss": loss, **{f"gradient of {name}": x.grad.clone() for name, x in self.p.items()}}

    def forward(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        narrow = self.dtype != torch.float32
        with torch.autocast(self.device, dtype=self.dtype if narrow else torch.bfloat16, enabled=narrow):
            return self.loss()

    def learn(self, loss: torch.Tensor) -> None:
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.p.values(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        loss.item()

    def run(self) -> tuple[float, float]:
        loss, forward = timed(self.forward)
        return forward, timed(lambda: self.learn(loss))[1]

    def results(self) -> Tensors:
        return self.first


class Decode:
    """Decoding token by token, with a cache of keys and values."""

    def __init__(self, given: Tensors, scheme: str, heads: int, prompt: int, device: str):
        there = {name: tensor.to(device) for name, tensor in given.items()}
        self.tokens, self.prompt, self.scheme, self.heads = there.pop("tokens"), prompt, scheme, heads
        self.model = Transformer(there, heads, self.attention)
        wide, self.length = self.model.dim // heads, self.tokens.shape[1]
        self.kept = torch.zeros(2, self.model.layers, 1, len(there["blocks.0.attention.key.weight"]) // wide, self.length, wide, device=device)

    def attention(self, p: Tensors, layer: int, begin: int) -> torch.Tensor:
        end = begin + p["q"].shape[2]
        self.kept[0, layer, :, :, begin:end], self.kept[1, layer, :, :, begin:end] = p["k"], p["v"]
        p = formulas.given({"q": p["q"], "k": self.kept[0, layer, :, :, :end], "v": self.kept[1, layer, :, :, :end]})
        bias = formulas.alibi_bias(self.heads, self.length, True, **formulas.precision(p))[:, begin:end, :end] if self.scheme == "alibi" else None
        return fused(p["q"], p["k"], p["v"], bias, formulas.allowed_of(self.length, True, p["q"].device)[begin:end, :end])

    def run(self) -> tuple[float, float]:
        with torch.inference_mode():
            self.model(self.tokens[:, :self.prompt])
            logits, forward = timed(lambda: [self.model(self.tokens[:, at:at + 1], at) for at in range(self.prompt, self.length)])
        self.last = logits[-1]
        return forward, math.nan

    def results(self) -> Tensors:
        return {"logits": self.last}


# ---- Cases

class Case(NamedTuple):
    facts: dict[str, Any]
    ours: Any
    theirs: Callable[[str], Any]  # takes a way
    ways: list[str]
    allowed: float  # largest difference, relative to the norms


def attention(given: argparse.Namespace) -> Iterator[Case]:
    for length in given.lengths:
        for scheme in given.schemes:
            for gates in ("initial", "sparse") if "cope" in scheme else ("initial",):
                ours = _whence.measured_attention(scheme, length, given.heads, given.kv_heads, given.head_dim, given.batch, gates == "sparse",
                                                  given.executor, given.precision, given.device)
                tensors = ours.given
                has_flex = scheme in ("none", "alibi", "kerple") or scheme.startswith("window(alibi")
                formula = formulas.formula(scheme)
                function = lambda way: flex(scheme, length, given.device) if way == "flex" else lambda p: attended(formula, p, way == "sdpa")
                has_sdpa = not UNFUSED & formula(formulas.given(tensors)).keys()
                yield Case({"scheme": scheme, "gates": gates, "length": length}, ours,
                           lambda way: Graph(tensors, function(way), way, given.device, PRECISIONS[given.precision]),
                           ["eager", "compile", *["sdpa"] * has_sdpa, *["flex"] * has_flex], rounding(scheme, given.precision))


def rounding(scheme: str, precision: str) -> float:
    """The largest difference between two correct programs. CoPE's gradient jumps where a position passes an integer, and rounding moves some
    positions across, in 16 bits too many for a comparison. The weights of DAPE's mixes sum over all pairs, so their rounding error is largest."""
    if precision == "f32":
        return 2e-2 if "cope" in scheme else 5e-4 if "dape" in scheme else 1e-4
    return math.inf if "cope" in scheme else (64 if "dape" in scheme else 8) * {"f16": 2.0**-11, "bf16": 2.0**-8}[precision]


def ops(given: argparse.Namespace) -> Iterator[Case]:
    for ours in _whence.measured_ops(given.scale, given.precision, given.device):
        yield Case({"op": ours.name}, ours, lambda way: Graph(ours.given, lambda given: OPS[ours.name](*given.values()), way, given.device,
                                                              PRECISIONS[given.precision], series=5), ["eager", "compile"],
                   {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}[given.precision])


def step(given: argparse.Namespace) -> Iterator[Case]:
    for model in given.models:
        for scheme in given.schemes:
            ours = _whence.measured_step(model, scheme, given.batch, given.lengths, given.executor, given.precision, given.device)
            tensors = ours.given
            yield Case({"model": model, "scheme": scheme, "batch": len(tensors["tokens"]), "length": tensors["tokens"].shape[1]}, ours,
                       lambda way: Step(tensors, scheme, ours.heads, way, given.device, PRECISIONS[given.precision]), ["eager", "compile"],
                       1e-2 if "cope" in scheme else 1e-4)  # layer after layer


def decode(given: argparse.Namespace) -> Iterator[Case]:
    for scheme in given.schemes:
        ours = _whence.measured_decode(scheme, given.prompt, given.tokens, given.kv_heads, given.precision, given.device)
        yield Case({"scheme": scheme, "prompt": given.prompt, "tokens": given.tokens}, ours,
                   lambda way: Decode(ours.given, scheme, ours.heads, given.prompt, given.device), ["eager"], 1e-4)


def largest_difference(ours: Tensors, theirs: Tensors) -> tuple[float, str]:
    """The largest |ours - theirs| / |theirs|, and its tensor. Some gradients are zero up to rounding, as for a bias that softmax ignores. So the
    divisor is at least a tenth of the largest gradient's norm. A missing tensor is infinitely far."""
    if lacking := ours.keys() ^ theirs.keys():
        return math.inf, min(lacking)
    norms = {name: tensor.detach().double().norm().item() for name, tensor in theirs.items()}
    least = 0.1 * max((norm for name, norm in norms.items() if name.startswith("gradient")), default=0)
    found = []
    for name, norm in norms.items():
        apart = (ours[name].double() - theirs[name].detach().cpu().double()).norm().item()
        relative = apart / max(norm, least if name.startswith("gradient") else 0, 1e-300) if apart else 0.0
        found.append((relative if math.isfinite(relative) else math.inf, name))
    return max(found)


def compared(case: Case, way: str, repetitions: int) -> dict[str, Any]:
    """A row: the difference of the results, and medians in milliseconds. The ratio is for the work that both do: forward, if one has no backward."""
    theirs = case.theirs(way)
    has_backward = not math.isnan(case.ours.run()[1] + theirs.run()[1])
    row, found = {**case.facts, "way": way}, case.ours.results
    if found:  # steps in 16 bits are not compared, because autocast rounds differently
        found = {name: tensor for name, tensor in found.items() if has_backward or not name.startswith("gradient")}
        row["difference"], row["where"] = largest_difference(found, theirs.results())
        if not row["difference"] <= case.allowed:
            return {**row, "refused": f"{row['where']} differs by {row['difference']:.1e} of its norm; at most {case.allowed:.1e} is rounding"}
    both: dict[str, list[float]] = {"ours": [], "theirs": []}
    parts: dict[str, list[float]] = {}
    for _ in range(repetitions):
        for name, run in (("ours", case.ours.run), ("theirs", theirs.run)):
            time.sleep(0.02)  # waiting threads spin for a while
            forward, backward = run()[:2]
            both[name].append(forward + (backward if has_backward else 0))
            for part, taken in (("forward", forward), ("backward", backward)):
                parts.setdefault(f"{name}_{part}_ms", []).append(taken)
    for name, taken in both.items():
        low, middle, high = statistics.quantiles(taken, n=4, method="inclusive") if repetitions > 1 else taken * 3
        row |= {f"{name}_ms": middle, f"{name}_spread_ms": (high - low) / 2}
    medians = {name: statistics.median(taken) for name, taken in parts.items() if not math.isnan(taken[0])}
    return {**row, **medians, "ratio": row["theirs_ms"] / row["ours_ms"]}


def cells(row: dict[str, Any], facts: dict[str, Any]) -> dict[str, str]:
    """A row of the table, by column."""
    times = {} if "refused" in row else {f"{name} ms": f"{row[f'{name}_ms']:.3g} ±{row[f'{name}_spread_ms']:.2g}" for name in ("ours", "theirs")} | {
        "theirs / ours": f"{row['ratio']:.2f}"}
    apart = f"{row['difference']:.1e}" if "difference" in row else "-"
    return {**facts, "way": row["way"], **times, "apart": apart, **({"": row["refused"]} if "refused" in row else {})}


# ---- The command line

def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' given; a whole number from 1 on required")
    return int(text)


listed = lambda kind: lambda text: [kind(each) for each in text.split(",")]


def schemes(text: str) -> list[str]:
    for name in formulas.split(text, ","):
        try:
            formulas.formula("none" if name == "absolute" else name)
        except ValueError as refused:
            raise argparse.ArgumentTypeError(str(refused))
        if name.startswith(formulas.PAIR_BY_PAIR):
            raise argparse.ArgumentTypeError(f"{name} given; its formula goes pair by pair, so that its time has no meaning; another scheme required")
    return formulas.split(text, ",")


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    benches = whole.add_subparsers(dest="bench", required=True, metavar="attention|ops|step|decode")
    options = {
        attention: {"schemes": (schemes, "none,alibi,kerple,cope,dape(kerple),cdape(kerple)"), "lengths": (listed(count), "512,2048"),
                    "heads": (count, 12), "kv-heads": (int, 0), "head-dim": (count, 64), "batch": (count, 1), "executor": (str, "auto")},
        ops: {"scale": (float, 0.125)},
        step: {"models": (listed(str), "gpt2-124m"), "schemes": (schemes, "absolute,alibi"), "batch": (int, 0), "lengths": (int, 0),
               "executor": (str, "auto")},
        decode: {"schemes": (schemes, "absolute,alibi"), "prompt": (count, 64), "tokens": (count, 64), "kv-heads": (int, 0)}}
    for bench, own in options.items():
        one = benches.add_parser(bench.__name__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        one.set_defaults(cases=bench)
        for name, (kind, value) in own.items():
            one.add_argument(f"--{name}", type=kind, default=value, help=f"as in `whence bench {bench.__name__}`")
        one.add_argument("--precision", choices=["f32"] if bench is decode else list(PRECISIONS), default="f32", help="dtype of all numbers")
        one.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="device of both")
        one.add_argument("--repetitions", type=count, default=5, help="timed runs after a warm-up; the median counts")
        one.add_argument("--threads", type=count, default=_whence.threads(), help="threads of both, on the CPU")
        one.add_argument("--ways", default="all", help=f"this PyTorch has {', '.join(WAYS)}")
        one.add_argument("--json", action="store_true", help="a line of JSON for each row")
    return whole


def main() -> int:
    given = parser().parse_args()
    torch.set_num_threads(given.threads)
    _whence.set_threads(given.threads)
    torch.backends.cudnn.allow_tf32 = False  # convolutions in f32, like matrix products
    wanted = WAYS if given.ways == "all" else given.ways.split(",")
    if unknown := {*wanted} - {*WAYS}:
        parser().error(f"--ways: {min(unknown)} given; PyTorch {torch.__version__} has {', '.join(WAYS)}")
    rows, began = [], time.time()
    where = {"bench": given.bench, "torch": torch.__version__, "device": given.device, "precision": given.precision, "threads": given.threads}
    try:
        for case, way in ((case, way) for case in given.cases(given) for way in case.ways if way in wanted):
            rows.append(row := compared(case, way, given.repetitions))
            texts = cells(row, case.facts)
            for line in [json.dumps({**where, **row})] if given.json else [*[texts] * (len(rows) == 1), texts.values()]:
                print(line if given.json else "  ".join(f"{text!s:>14}" for text in line), flush=True)
    except (ValueError, MemoryError) as refused:
        sys.exit(f"beside_torch.py {given.bench}: {refused}")
    differing = sum("refused" in row for row in rows)
    print(f"{len(rows)} comparisons with PyTorch {torch.__version__}, {given.threads} threads each, {differing} differ, {time.time() - began:.1f} s",
          file=sys.stderr)
    return 1 if differing or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
