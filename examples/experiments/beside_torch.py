#!/usr/bin/env python3
"""Times our attention, ops, training steps and decoding against PyTorch's, in one process and in turn.

    examples/experiments/beside_torch.py attention --schemes none,alibi,cope --lengths 512,2048
    examples/experiments/beside_torch.py ops --scale 0.125
    examples/experiments/beside_torch.py step --models gpt2-124m --schemes alibi,cope
    examples/experiments/beside_torch.py decode --schemes absolute,alibi --json

Both get the same numbers. Values and gradients are compared before anything is timed. If they differ by more than rounding, nothing is timed,
and the exit code is 1. Then they run in turn, ours, theirs, ours, theirs, so that other work on the machine slows both; the medians count.
Ours is timed inside the library, as in `whence bench`. PyTorch's time includes its calls from Python, as for its users. PyTorch's side is
../whence/verify/by_pytorch.py, with the attention of formulas.py. Ways: eager, and, if this PyTorch has them, compile, sdpa
(scaled_dot_product_attention) and flex (FlexAttention, which has no backward on the CPU).
"""
from __future__ import annotations

import argparse
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
from whence import _whence
import by_pytorch
import formulas
from by_pytorch import WAYS

PRECISIONS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
Tensors = dict[str, torch.Tensor]


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
                yield Case({"scheme": scheme, "gates": gates, "length": length}, ours,
                           lambda way: by_pytorch.Attention(tensors, scheme, way, given.device, PRECISIONS[given.precision]),
                           ["eager", "compile", *["sdpa"] * by_pytorch.is_fused(scheme, tensors), *["flex"] * has_flex],
                           rounding(scheme, given.precision))


def rounding(scheme: str, precision: str) -> float:
    """The largest difference between two correct programs. CoPE's gradient jumps where a position passes an integer, and rounding moves some
    positions across, in 16 bits too many for a comparison. The weights of DAPE's mixes sum over all pairs, so their rounding error is largest."""
    if precision == "f32":
        return 2e-2 if "cope" in scheme else 5e-4 if "dape" in scheme else 1e-4
    return math.inf if "cope" in scheme else (64 if "dape" in scheme else 8) * {"f16": 2.0**-11, "bf16": 2.0**-8}[precision]


def ops(given: argparse.Namespace) -> Iterator[Case]:
    for ours in _whence.measured_ops(given.scale, given.precision, given.device):
        yield Case({"op": ours.name}, ours, lambda way: by_pytorch.Op(ours.given, ours.name, way, given.device, PRECISIONS[given.precision]),
                   ["eager", "compile"], {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}[given.precision])


def step(given: argparse.Namespace) -> Iterator[Case]:
    for model in given.models:
        for scheme in given.schemes:
            ours = _whence.measured_step(model, scheme, given.batch, given.lengths, given.executor, given.precision, given.device)
            tensors = ours.given
            yield Case({"model": model, "scheme": scheme, "batch": len(tensors["tokens"]), "length": tensors["tokens"].shape[1]}, ours,
                       lambda way: by_pytorch.Step(tensors, scheme, ours.heads, way, given.device, PRECISIONS[given.precision]), ["eager", "compile"],
                       1e-2 if "cope" in scheme else 1e-4)  # layer after layer


def decode(given: argparse.Namespace) -> Iterator[Case]:
    for scheme in given.schemes:
        ours = _whence.measured_decode(scheme, given.prompt, given.tokens, given.kv_heads, given.precision, given.device)
        yield Case({"scheme": scheme, "prompt": given.prompt, "tokens": given.tokens}, ours,
                   lambda way: by_pytorch.Decode(ours.given, scheme, ours.heads, given.prompt, given.device), ["eager"], 1e-4)


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


def texts_of(row: dict[str, Any], facts: dict[str, Any]) -> dict[str, str]:
    """A row of the table, by column."""
    text = {name: str(value) for name, value in facts.items()} | {"way": row["way"]}
    if "refused" not in row:
        text |= {f"{name} ms": f"{row[f'{name}_ms']:.3g} ±{row[f'{name}_spread_ms']:.2g}" for name in ("ours", "theirs")}
        text["theirs / ours"] = f"{row['ratio']:.2f}"
    return text | {"apart": f"{row['difference']:.1e}" if "difference" in row else "-"} | ({"": row["refused"]} if "refused" in row else {})


# ---- The command line

def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' given; a whole number from 1 on required")
    return int(text)


def lengths(text: str) -> list[int]:
    return [count(each) for each in text.split(",")]


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
        attention: {"schemes": (schemes, "none,alibi,kerple,cope,dape(kerple),cdape(kerple)"), "lengths": (lengths, "512,2048"), "heads": (count, 12),
                    "kv-heads": (int, 0), "head-dim": (count, 64), "batch": (count, 1), "executor": (str, "auto")},
        ops: {"scale": (float, 0.125)},
        step: {"models": (lambda text: text.split(","), "gpt2-124m"), "schemes": (schemes, "absolute,alibi"), "batch": (int, 0), "lengths": (int, 0),
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
        one.add_argument("--ways", default="all", help=f"this PyTorch has {', '.join(way for way, has in WAYS.items() if has)}")
        one.add_argument("--json", action="store_true", help="a line of JSON for each row")
    return whole


def main() -> int:
    given = parser().parse_args()
    torch.set_num_threads(given.threads)
    _whence.set_threads(given.threads)
    torch.backends.cudnn.allow_tf32 = False  # convolutions in f32, like matrix products
    wanted = [way for way, has in WAYS.items() if has] if given.ways == "all" else given.ways.split(",")
    if unknown := [way for way in wanted if not WAYS.get(way)]:
        parser().error(f"--ways: {unknown[0]} given; PyTorch {torch.__version__} has {', '.join(way for way, has in WAYS.items() if has)}")
    rows, columns, began = [], [], time.time()
    try:
        for case in given.cases(given):
            for way in case.ways:
                if way not in wanted:
                    continue
                rows.append(row := compared(case, way, given.repetitions))
                if given.json:
                    where = {"torch": torch.__version__, "device": given.device, "precision": given.precision, "threads": given.threads}
                    print(json.dumps({"bench": given.bench, **where, **row}), flush=True)
                    continue
                texts = texts_of(row, case.facts)
                if not columns:
                    columns = [*texts]
                    print("  ".join(f"{name:>14}" for name in columns))
                print("  ".join(f"{text:>14}" for text in texts.values()), flush=True)
    except (ValueError, MemoryError) as refused:
        sys.exit(f"beside_torch.py {given.bench}: {refused}")
    differing = sum("refused" in row for row in rows)
    print(f"{len(rows)} comparisons with PyTorch {torch.__version__}, {given.threads} threads each, {differing} differ, {time.time() - began:.1f} s",
          file=sys.stderr)
    return 1 if differing or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
