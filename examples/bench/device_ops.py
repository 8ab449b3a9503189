#!/usr/bin/env python3
"""The ops of device_ops.cpp in PyTorch, eager and under torch.compile. Prints JSON lines."""
import argparse
import json
import time

import torch
import torch.nn.functional as F

options = argparse.ArgumentParser()
options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
options.add_argument("--precision", default="f32", choices=["f32", "f16", "bf16"])
options.add_argument("--scale", type=float, default=1)
options.add_argument("--seconds", type=float, default=0.2)
options.add_argument("--compile", action="store_true")
o = options.parse_args()
torch.set_default_device(o.device)
torch.manual_seed(0)
storage = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[o.precision]


def wait():
    if o.device == "cuda":
        torch.cuda.synchronize()


def milliseconds(call):
    """The median of one call, the device drained before and after a series."""
    for _ in range(3):
        call()
    found, began = [], time.perf_counter()
    while len(found) < 3 or (time.perf_counter() - began < o.seconds and len(found) < 50):
        wait()
        before = time.perf_counter()
        for _ in range(5):
            call()
        wait()
        found.append((time.perf_counter() - before) * 1e3 / 5)
    return sorted(found)[len(found) // 2]


def scaled(size):
    return max(2, int(size * o.scale))


def numbers(*shape):
    return torch.randn(*shape).to(storage).requires_grad_()


tokens, dim, wide, vocabulary, rows = scaled(8192), 768, 3072, scaled(50257), scaled(16 * 12 * 512)
picks = torch.randint(0, vocabulary, (tokens,))
cases = {
    "add": ([numbers(tokens, wide), numbers(tokens, wide)], lambda a, b: a + b),
    "gelu": ([numbers(tokens, wide)], lambda x: F.gelu(x, approximate="tanh")),
    "heads apart": ([numbers(16, tokens // 16, 12, 64)], lambda x: x.permute(0, 2, 1, 3).contiguous()),
    "softmax": ([numbers(rows, 512)], lambda x: F.softmax(x, -1)),
    "layer_norm": ([numbers(tokens, dim), numbers(dim), numbers(dim)], lambda x, w, b: F.layer_norm(x, (dim,), w, b)),
    "cumulative_sum": ([numbers(rows // 8, 512)], lambda x: x.cumsum(-1)),
    "embedding": ([numbers(vocabulary, dim)], lambda table: F.embedding(picks, table)),
    "cross_entropy": ([numbers(tokens, vocabulary)], lambda x: F.cross_entropy(x, picks)),
    "linear": ([numbers(tokens, dim), numbers(wide, dim), numbers(wide)], lambda x, w, b: F.linear(x, w, b)),
}
for name, (inputs, function) in cases.items():
    call = torch.compile(function) if o.compile else function
    with torch.no_grad():
        forward = milliseconds(lambda: call(*inputs))
    y = call(*inputs)
    cotangent = torch.ones_like(y)
    backward = milliseconds(lambda: torch.autograd.grad(y, inputs, cotangent, retain_graph=True))
    moved = sum(x.numel() * x.element_size() for x in [*inputs, y])
    print(json.dumps({"engine": "PyTorch " + ("compiled" if o.compile else "eager"), "op": name, "device": o.device, "precision": o.precision,
                      "forward_ms": forward, "backward_ms": backward, "forward_gb_per_s": moved / forward / 1e6}), flush=True)
