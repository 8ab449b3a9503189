"""PyTorch versions of what whence benches: attention with any scheme of formulas.py, single ops, training steps and decoding of a transformer
whose tensors have whence's names ("blocks.0.attention.query.weight"). Each has run(), which returns the milliseconds of forward and backward (nan
for no backward), and results(), by our names. ../../experiments/beside_torch.py times them.
"""
from __future__ import annotations

import importlib.util
import math
import time
from typing import Any, Callable

import torch
import torch.nn.functional as F

import formulas

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HAS_FLEX = bool(importlib.util.find_spec("torch.nn.attention") and importlib.util.find_spec("torch.nn.attention.flex_attention"))
WAYS = {"eager": True, "compile": hasattr(torch, "compile"), "sdpa": HAS_SDPA, "flex": HAS_FLEX}  # true if this PyTorch has it
Tensors = dict[str, torch.Tensor]


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
    if by_sdpa and not {"logits", "pattern", "output"} & made.keys():
        q, k, bias = formulas.operands(made, p)
        return fused(q, k, p["v"], bias, made.get("allowed"))
    return formulas.attend(lambda _: made, p)["output"]


def is_fused(scheme: str, p: Tensors) -> bool:
    """True if the scheme only rotates queries and keys or adds a bias."""
    return not {"logits", "pattern", "output"} & formulas.formula(scheme)(formulas.given(p)).keys()


class Attention:
    def __init__(self, given: Tensors, scheme: str, way: str, device: str, dtype: torch.dtype):
        there = {name: tensor.to(device, dtype) for name, tensor in given.items()}
        self.cotangent = there.pop("cotangent")
        self.leaves = {name: tensor.clone().requires_grad_() for name, tensor in there.items()}
        self.scheme, formula = scheme, formulas.formula(scheme)
        self.has_backward = way != "flex" or self.cotangent.is_cuda
        self.function = self.flex if way == "flex" else compiled(lambda p: attended(formula, p, way == "sdpa"), way)
        if way == "flex":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.attend, t = torch.compile(flex_attention, dynamic=False), self.cotangent.shape[2]
            seen = formulas.parsed(scheme)[2].get("n", t)
            self.block_mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < seen), None, None, t, t, device=device)

    def flex(self, p: Tensors) -> torch.Tensor:
        p, score = formulas.given(p), None
        if "alibi" in self.scheme:
            slopes = formulas.slopes(p["q"].shape[1], **formulas.precision(p)).flatten()
            score = lambda s, b, h, i, j: s - slopes[h] * (i - j)
        elif self.scheme == "kerple":
            strength, rate = p["strength"], p["rate"]
            score = lambda s, b, h, i, j: s - strength[h] * torch.log1p(rate[h] * (i - j))
        return self.attend(p["q"], p["k"], p["v"], score_mod=score, block_mask=self.block_mask)

    def run(self) -> tuple[float, float]:
        with torch.set_grad_enabled(self.has_backward):
            self.output, forward = timed(lambda: self.function(self.leaves))
        if not self.has_backward:
            return forward, math.nan
        self.gradients, backward = timed(lambda: torch.autograd.grad(self.output, list(self.leaves.values()), self.cotangent))
        return forward, backward

    def results(self) -> Tensors:
        gradients = {f"gradient of {name}": found for name, found in zip(self.leaves, self.gradients)} if self.has_backward else {}
        return {"output": self.output, **gradients}


class Op:
    FUNCTIONS: dict[str, Callable] = {
        "add": torch.add, "gelu": lambda x: F.gelu(x, approximate="tanh"), "heads apart": lambda x: x.permute(0, 2, 1, 3).contiguous(),
        "softmax": lambda x: F.softmax(x, -1), "layer_norm": lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias),
        "cumulative_sum": lambda x: x.cumsum(-1), "embedding": lambda table, picks: F.embedding(picks, table), "cross_entropy": F.cross_entropy,
        "linear": F.linear}

    def __init__(self, given: Tensors, name: str, way: str, device: str, dtype: torch.dtype):
        there = {key: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype) for key, tensor in given.items()}
        self.cotangent = there.pop("cotangent")
        self.inputs = [tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor for tensor in there.values()]
        self.leaves = [tensor for tensor in self.inputs if tensor.requires_grad]
        self.function = compiled(self.FUNCTIONS[name], way)

    def run(self, series: int = 5) -> tuple[float, ...]:
        """Times a series of calls, as for ours, so that the time does not include starting the GPU's work."""
        def forward() -> None:
            self.output = self.function(*self.inputs)

        def backward() -> None:
            self.gradients = torch.autograd.grad(self.output, self.leaves, self.cotangent.to(self.output.dtype), retain_graph=True)
        return tuple(timed(lambda: [each() for _ in range(series)])[1] / series for each in (forward, backward))

    def results(self) -> Tensors:
        return {"output": self.output, **{f"gradient of input {k}": gradient for k, gradient in enumerate(self.gradients)}}


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
