#!/usr/bin/env python3
"""The model of training_step.cpp in PyTorch, in its best form here: fused AdamW, scaled_dot_product_attention wherever the scheme allows it
(not CoPE, whose bias depends on the scores), autocast for 16 bits, torch.compile if asked. Prints one JSON line."""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

options = argparse.ArgumentParser()
options.add_argument("--scheme", default="cope", choices=["cope", "rope", "absolute", "none"])
options.add_argument("--model", default="", choices=["", "gpt2-124m"], help="random tokens of its vocabulary; its own sizes")
options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
options.add_argument("--precision", default="f32", choices=["f32", "f16", "bf16"])
options.add_argument("--compile", action="store_true", help="torch.compile of the model")
for name, default in [("length", 512), ("dim", 256), ("layers", 4), ("heads", 4), ("batch", 16), ("steps", 10), ("warm-up", 3), ("threads", 2)]:
    options.add_argument("--" + name, type=int, default=default)
options.add_argument("--p-max", type=int, default=64)
options.add_argument("--materialise", action="store_true", help="never use scaled_dot_product_attention")
o = options.parse_args()
torch.set_num_threads(o.threads)
torch.manual_seed(0)
torch.set_default_device(o.device)
vocabulary = 5
if o.model:
    o.dim, o.layers, o.heads, o.scheme, vocabulary = 768, 12, 12, "absolute", 50257
storage = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[o.precision]
head_dim = o.dim // o.heads


def rotate(x, angles):
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(o.dim, o.dim) for _ in range(4))
        if o.scheme == "cope":
            self.table = nn.Parameter(torch.zeros(o.p_max + 1, head_dim))

    def forward(self, x, mask, angles):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, o.heads, head_dim).transpose(1, 2) for f in (self.query, self.key, self.value))
        if o.scheme == "rope":
            q, k = rotate(q, angles), rotate(k, angles)
        if o.scheme == "cope" or o.materialise:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(head_dim) + mask
            if o.scheme == "cope":  # Listing 1 of the paper
                gates = torch.sigmoid(scores)
                position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=o.p_max)
                above, below = position.ceil().long(), position.floor().long()
                z = q @ self.table.t()
                w = position - below
                scores = scores + z.gather(-1, above) * w + z.gather(-1, below) * (1 - w)
            mixed = torch.softmax(scores, -1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(o.dim), nn.LayerNorm(o.dim), Attention()
        self.wide, self.narrow = nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)

    def forward(self, x, mask, angles):
        x = x + self.attention(self.norm1(x), mask, angles)
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, o.dim)
        self.blocks = nn.ModuleList([Block() for _ in range(o.layers)])
        self.norm = nn.LayerNorm(o.dim)
        if o.scheme == "absolute":
            self.positions = nn.Parameter(torch.randn(o.length, o.dim) * 0.02)

    def forward(self, tokens):
        t = tokens.shape[1]
        x = self.embedding(tokens)
        if o.scheme == "absolute":
            x = x + self.positions[:t]
        mask = torch.full((t, t), float("-inf")).triu(1)
        theta = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.arange(t)[:, None] * theta
        for block in self.blocks:
            x = block(x, mask, angles)
        return self.norm(x) @ self.embedding.weight.t()


def synchronise():
    if o.device == "cuda":
        torch.cuda.synchronize()


def batch():
    tokens = torch.randint(0, vocabulary, (o.batch, o.length - 1))
    if o.model:
        return tokens, torch.randint(0, vocabulary, tokens.shape)
    return tokens, torch.where(tokens == 1, torch.randint(3, 5, tokens.shape), -1)


model = Decoder()
for parameter in model.parameters():
    if parameter.dim() > 1:
        nn.init.normal_(parameter, 0, 0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
scaler = torch.amp.GradScaler(o.device, enabled=o.precision == "f16")
forward = torch.compile(model) if o.compile else model
seconds = []
for step in range(o.warm_up + o.steps):
    tokens, targets = batch()
    synchronise()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(o.device, dtype=storage, enabled=o.precision != "f32"):
        loss = F.cross_entropy(forward(tokens).flatten(0, 1).float(), targets.flatten(), ignore_index=-1)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    loss.item()
    synchronise()
    if step >= o.warm_up:
        seconds.append(time.perf_counter() - start)
seconds.sort()
median = seconds[len(seconds) // 2]
peak = torch.cuda.max_memory_allocated() / 2**20 if o.device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"engine": "PyTorch " + torch.__version__, "form": "compiled" if o.compile else "eager", "scheme": o.scheme, "device": o.device,
                  "precision": o.precision, "threads": torch.get_num_threads(), "median_ms": median * 1e3, "best_ms": seconds[0] * 1e3,
                  "tokens_per_second": o.batch * (o.length - 1) / median, "peak_mib": peak}))
