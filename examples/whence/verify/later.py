#!/usr/bin/env python3
"""The schemes that came after the papers, by their own papers' formulas in PyTorch, causal; run as a program it writes the worked
examples that tests/nn/positional/worked/later.cpp holds against ours: values, intermediates and all gradients in f64.

    python3 examples/whence/verify/later.py > tests/nn/positional/worked/later.json

A formula gets the tensors of a probe's file by name (`whence probe --describe "forgetting"`) and the options of the scheme's
text, and returns what it makes, by the names of our probes: "logits", "pattern" and "output" where they are not the usual ones.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

from formulas import scores, seen

BATCH, HEADS, LENGTH, HEAD_DIM = 1, 2, 5, 4
DIM = HEADS * HEAD_DIM


def forgetting(p, bias=0):
    """Lin et al. 2025: every token decides how much of what came before it stays."""
    kept = F.logsigmoid(F.linear(p["x"], p["gate.weight"], p["gate.bias"])).transpose(1, 2).cumsum(-1)  # [b h t]
    fading = (kept.unsqueeze(3) - kept.unsqueeze(2)).clamp(max=0)
    return {"log_kept": kept, "bias": fading, "logits": scores(p) + fading}


def turned(x, angles):
    """x [b h t d] with pairs (m, m + d/2), as complex numbers, turned by angles that broadcast to [b h t d/2]."""
    first, second = x.chunk(2, dim=-1)
    pair = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pair.real, pair.imag], dim=-1)


def rope_speeds(base, pairs=HEAD_DIM // 2):
    return torch.tensor([base ** (-m / pairs) for m in range(pairs)])


def rotated(p, q, k):
    return {"rotated_q": q, "rotated_k": k, "logits": scores({**p, "q": q, "k": k})}


def selective_rope(p, base=500000, kernel=4, activation=None, bias=False, gate=False):
    """Movahedi et al. 2025, their released module: norm of each head's slice, low rank, causal convolution, running sum."""
    slices = p["x"].reshape(BATCH, LENGTH, HEADS, HEAD_DIM)
    u = (slices / (slices.square().sum(-1, keepdim=True) + 1e-6).sqrt()).reshape(BATCH, LENGTH, DIM)
    phi = F.linear(F.linear(u, p["down.weight"]), p["up.weight"])  # [b t (h m)]
    taps = p["convolution"].reshape(-1, 1, kernel)
    steps = F.conv1d(F.pad(phi.transpose(1, 2), (kernel - 1, 0)), taps, groups=phi.shape[-1])  # [b (h m) t]
    steps = (activation(steps) if activation else steps).reshape(BATCH, HEADS, HEAD_DIM // 2, LENGTH).transpose(2, 3)
    if bias:
        steps = steps + p["bias"].exp()
    made = {}
    if gate:
        made["gates"] = F.linear(u, p["gate.weight"], p["gate.bias"]).sigmoid().transpose(1, 2).unsqueeze(-1)  # [b h t 1]
        steps = steps * made["gates"]
    angles = rope_speeds(base) * steps.cumsum(2)
    return {**made, "steps": steps, "angles": angles, **rotated(p, turned(p["q"], angles), turned(p["k"], angles))}


def carope(p):
    """Veisi et al. 2025: powers of a bounded frequency of each token and head, summed up to the token."""
    frequency = (1 / (F.softplus(F.linear(p["x"], p["frequency.weight"], p["frequency.bias"])) + 1)).transpose(1, 2)  # [b h t]
    angles = torch.stack([torch.cumsum(frequency ** m, -1) for m in range(HEAD_DIM // 2)], -1)
    return {"frequency": frequency, "angles": angles, **rotated(p, turned(p["q"], angles), turned(p["k"], angles))}


def repo(p, base=10000):
    """Li et al. 2025: a small gated network gives every token a position in every head, at which it is rotated."""
    representation = F.silu(p["x"] @ p["gate.weight"].T) * (p["x"] @ p["content.weight"].T)
    positions = torch.einsum("btn,hn->bht", representation, p["position.weight"])
    angles = positions.unsqueeze(-1) * rope_speeds(base)
    return {"positions": positions, **rotated(p, turned(p["q"], angles), turned(p["k"], angles))}


def pope(p, base=10000):
    """Gopalakrishnan et al. 2025: the sum over dims of magnitudes times the cosine of a distance and a learned phase."""
    what_q, what_k = F.softplus(p["q"]), F.softplus(p["k"])
    where = torch.arange(LENGTH, dtype=torch.float64).unsqueeze(-1) * rope_speeds(base, HEAD_DIM)  # [t d]
    at_k = where + p["phase"]  # [h t d]
    logits = torch.zeros(BATCH, HEADS, LENGTH, LENGTH)
    for c in range(HEAD_DIM):
        cosine = torch.cos(at_k[:, None, :, c] - where[None, :, None, c])  # [h i j]
        logits = logits + what_q[..., None, c] * what_k[..., None, :, c] * cosine / math.sqrt(HEAD_DIM)
    return {"magnitude_q": what_q, "magnitude_k": what_k, "logits": logits,
            "rotated_q": torch.cat([what_q * where.cos(), what_q * where.sin()], -1),
            "rotated_k": torch.cat([what_k * at_k.cos(), what_k * at_k.sin()], -1)}


def stick_breaking(p, rest="nowhere"):
    """Tan et al. 2024, Eq. 1, as it is printed: a product over the keys between, query by query from the nearest key on. The rest as
    the authors' tests add it: o + (1 - sum of the weights) v."""
    earlier = seen(LENGTH, True).tril(-1)
    shares, breaks = torch.sigmoid(scores(p)) * earlier, torch.log(1 - torch.sigmoid(scores(p))) * earlier
    left = torch.stack([breaks[..., j + 1:].sum(-1).exp() for j in range(LENGTH)], -1)
    made = {"logits": scores(p), "shares": shares, "log_break": breaks, "stick_left": left, "pattern": shares * left}
    if rest == "self":
        made["rest"] = breaks.sum(-1, keepdim=True).exp()
        made["output"] = made["pattern"] @ p["v"] + made["rest"] * p["v"]
        made["pattern"] = made["pattern"] + torch.diag_embed(1 - made["pattern"].sum(-1))
    return made


def path(p, heads=HEADS, taps=3, forget=False):
    """Yang et al. 2025: each key is turned by the reflections of all tokens behind it, one after the other."""
    name = "path." if forget else ""
    w = F.linear(F.linear(p["x"], p[name + "down.weight"]), p[name + "up.weight"])  # [b t c]
    if taps:
        w = F.silu(F.conv1d(F.pad(w.transpose(1, 2), (taps - 1, 0)), p[name + "convolution"].unsqueeze(1), groups=DIM)).transpose(1, 2)
    w = w.unflatten(-1, (heads, -1)).transpose(1, 2)
    w = w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    beta = 2 * F.linear(p["x"], p[name + "beta.weight"], p[name + "beta.bias"]).sigmoid().transpose(1, 2)  # [b h t]
    rows = []
    for i in range(LENGTH):
        row = []
        for j in range(LENGTH):
            key = p["k"][:, :, j]
            for s in range(j + 1, i + 1):
                key = key - beta[:, :, s, None] * w[:, :, s] * (w[:, :, s] * key).sum(-1, keepdim=True)
            row.append((p["q"][:, :, i] * key).sum(-1) / math.sqrt(HEAD_DIM))
        rows.append(torch.stack(row, -1))
    logits = torch.stack(rows, -2)
    taken = []
    for t in range(LENGTH):
        taken.append(beta[:, :, t, None] * (w[:, :, t] - sum((w[:, :, t] * w[:, :, s]).sum(-1, keepdim=True) * taken[s] for s in range(t))))
    made = {name + "w": w, name + "beta": beta, name + "u": torch.stack(taken, 2), "logits": logits}
    if forget:  # PaTH-FoX
        fading = forgetting({**p, "gate.weight": p["forgetting.gate.weight"], "gate.bias": p["forgetting.gate.bias"]})
        made.update({"forgetting.bias": fading["bias"], "logits": logits + fading["bias"]})
    return made


def mta(p, queries=2, keys=3, group=2, where="scores", mix_scores=False):
    """Golovneva et al. 2025, pair by pair: what is there less the identity is a parameter."""
    allowed = seen(LENGTH, True)

    def convolved(x, kernel):
        rows = []
        for i in range(LENGTH):
            for j in range(LENGTH):
                total = x[:, :, i, j]
                for a in range(queries):
                    for c in range(keys):
                        row, key = i - queries + 1 + a, j - keys // 2 + c
                        if 0 <= row and 0 <= key < LENGTH:
                            total = total + kernel[:, 0, a, c] * x[:, :, row, key]
                rows.append(total)
        return torch.stack(rows, -1).unflatten(-1, (LENGTH, LENGTH))

    def mixed(x, mix):  # [groups out in]
        return x + torch.einsum("goc,bgcij->bgoij", mix, x.unflatten(1, (mix.shape[0], -1))).flatten(1, 2)

    made, logits = {}, scores(p) * allowed
    if where != "pattern":
        logits = made["convolved"] = convolved(logits, p["convolution"])
    if mix_scores:
        logits = made["mixed_scores"] = mixed(logits, p["scores_mix"])
    pattern = made["softmax"] = logits.masked_fill(allowed == 0, -math.inf).softmax(-1)
    if where != "scores":
        pattern = made["convolved_pattern"] = convolved(pattern, p["pattern_convolution"]) * allowed
    return {**made, "logits": logits, "pattern": mixed(pattern, p["pattern_mix"]) if group > 1 else pattern}


def forgetting_pairs(p, width=3):
    """Per query, as x-transformers makes the gates; from j + 1 to i, as Lin et al. count them."""
    query, key = (F.linear(p["x"], p[name]).unflatten(-1, (HEADS, width)).transpose(1, 2) for name in ("gate_query.weight", "gate_key.weight"))
    z = query @ key.transpose(-1, -2) / math.sqrt(width)
    bias = torch.stack([torch.stack([F.logsigmoid(z[:, :, i, j + 1:i + 1]).sum(-1) for j in range(LENGTH)], -1) for i in range(LENGTH)], -2)
    return {"gate_logits": z, "bias": bias, "logits": scores(p) + bias}


def cable(p, weight=True, step=F.relu):
    """Veisi et al. 2025, third version, Eq. 2, 6 and 7: steps summed from each key up to the query, times the query's slope. Their
    first released code: steps are softplus, and there are no slopes."""
    steps = step(F.linear(p["x"], p["step.weight"], p["step.bias"])).transpose(1, 2)  # [b h t]
    bias = torch.stack([torch.stack([-steps[:, :, j + 1:i + 1].sum(-1) for j in range(LENGTH)], -1) for i in range(LENGTH)], -2)
    made = {"places": steps.cumsum(-1)}
    if weight:
        made["slopes"] = F.softplus(F.linear(p["x"], p["slope.weight"])).transpose(1, 2)  # [b h t]
        bias = made["slopes"].unsqueeze(-1) * bias
    return {**made, "bias": bias, "logits": scores(p) + bias}


def gated_output(p, per_head=False):
    """Qiu et al. 2025: behind softmax and values, before the heads are merged."""
    gate = F.linear(p["x"], p["gate.weight"]).sigmoid().unflatten(-1, (HEADS, 1 if per_head else HEAD_DIM)).transpose(1, 2)
    allowed = seen(LENGTH, True)
    pattern = scores(p).masked_fill(allowed == 0, -math.inf).softmax(-1)
    return {"output_gate": gate, "logits": scores(p), "output": (pattern @ p["v"]) * gate}


def sink(p, fixed=None):
    """gpt-oss: a column that no value belongs to goes through the softmax, and is dropped."""
    logit = p["logit"] if fixed is None else torch.full((HEADS,), fixed)
    logits = scores(p)
    column = logit.view(1, HEADS, 1, 1).expand(BATCH, HEADS, LENGTH, 1)
    pattern = torch.cat([logits.masked_fill(seen(LENGTH, True) == 0, -math.inf), column], -1).softmax(-1)[..., :-1]
    return {"logits": logits, "pattern": pattern, "sink_weight": (1 - pattern.sum(-1, keepdim=True)).detach()}


def ssmax(p, form="log", floor=8192):
    """Nakanishi 2025: row i, which sees i + 1 keys, by s log(i + 1). Llama 4's factor as its code computes it from the place."""
    place = torch.arange(LENGTH).double().view(LENGTH, 1)
    if form == "llama4":
        factor = (torch.log(torch.floor((place + 1) / floor) + 1) * 0.1 + 1).expand(BATCH, HEADS, LENGTH, 1)
    else:
        factor = p["strength"].view(1, HEADS, 1, 1) * torch.log(place + 1)
    return {"factor": factor, "logits": factor * scores(p)}


def rope_numbers(d, kind="default", base=10000.0, tokens=1, length=1, factor=1.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1,
                 short_factor=None, long_factor=None, partial_rotary_factor=1.0):
    """What transformers' modeling_rope_utils.py makes of a configuration: the angle per step of each of d / 2 pairs, and the factor of sines and
    cosines. "ntk" is the fixed form of "dynamic", "proportional" is p-RoPE (Barbero et al. 2024)."""
    trained, theta, grown = original_max_position_embeddings, [], 1.0
    if kind in ("ntk", "dynamic"):
        grown = factor if kind == "ntk" else factor * max(tokens, length) / length - (factor - 1)
    for pair in range(d // 2):
        wavelength = 2 * math.pi * (base * grown ** (d / (d - 2)) if grown != 1 else base) ** (2 * pair / d)
        if kind == "linear" or (kind == "llama3" and wavelength > trained / low_freq_factor):
            wavelength *= factor
        elif kind == "llama3" and wavelength >= trained / high_freq_factor:
            smooth = (trained / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
            wavelength = 1 / ((1 - smooth) / (factor * wavelength) + smooth / wavelength)
        elif kind == "longrope":
            wavelength *= (long_factor if tokens > trained else short_factor)[pair]
        turns = kind != "proportional" or pair < int(partial_rotary_factor * d // 2)
        theta.append(2 * math.pi / wavelength if turns else 0.0)
    return theta, math.sqrt(1 + math.log(factor) / math.log(trained)) if kind == "longrope" and factor > 1 else 1.0


def rope(p, pairs="half", width=None, **configuration):
    """Su et al. 2021 at these angles."""
    theta, magnitude = rope_numbers(width or HEAD_DIM, tokens=LENGTH, **configuration)
    angles = torch.arange(LENGTH).double().view(-1, 1) * torch.tensor(theta)

    def turn(x):
        y, count = x.clone(), len(theta)
        for m in range(count):
            first, second = (m, m + count) if pairs == "half" else (2 * m, 2 * m + 1)
            a, c, s = x, angles[:, m].cos(), angles[:, m].sin()
            y[..., first] = magnitude * (a[..., first] * c - a[..., second] * s)
            y[..., second] = magnitude * (a[..., first] * s + a[..., second] * c)
        return y
    q, k = turn(p["q"]), turn(p["k"])
    return {"rotated_q": q, "rotated_k": k, "logits": q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)}


def window(p, inside, n, **options):
    """Sliding windows (Beltagy et al. 2020): each query sees the last n keys."""
    allowed = seen(LENGTH, True).triu(1 - n)
    made = inside({**{name.removeprefix("base."): tensor for name, tensor in p.items()}, "allowed": allowed}, **options)
    return {**{name if name in ("logits", "pattern") else "base." + name: tensor for name, tensor in made.items()}, "allowed": allowed}


def cope(p, p_max):
    """Golovneva et al. 2024: gates from key to query, those of keys that the query does not see closed."""
    content = scores(p)
    gates = content.sigmoid() * p["allowed"]
    positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=p_max)
    z = p["q"] @ p["table"].T
    floor, ceil = positions.detach().floor().long(), positions.detach().ceil().long()
    share = positions - floor
    return {"gates": gates, "positions": positions, "logits": content + (1 - share) * z.gather(-1, floor) + share * z.gather(-1, ceil)}


LONG = {"factor": 4.0, "original_max_position_embeddings": 4, "short_factor": [1.0, 2.0], "long_factor": [1.5, 6.0]}


def xpos(p, gamma=0.4, scale_base=512, interleaved=False, width=HEAD_DIM):
    """Sun et al. 2022: each pair's product turned by the distance and times zeta to the distance, pair by pair of tokens."""
    pairs = width // 2
    logits = torch.zeros(BATCH, HEADS, LENGTH, LENGTH)
    logits = logits + p["q"][..., width:] @ p["k"][..., width:].transpose(-1, -2)  # dims that stay
    distance = torch.arange(LENGTH, dtype=torch.float64)[:, None] - torch.arange(LENGTH, dtype=torch.float64)
    for m, speed in enumerate(rope_speeds(10000, pairs)):
        a, b = (2 * m, 2 * m + 1) if interleaved else (m, m + pairs)
        of_q, of_k = (torch.complex(p[name][..., a], p[name][..., b]) for name in "qk")
        zeta = (2 * m / width + gamma) / (1 + gamma)
        product = (of_q[..., :, None] * of_k[..., None, :].conj() * torch.polar(torch.ones_like(distance), distance * speed)).real
        logits = logits + product * zeta ** (distance / scale_base)
    return {"logits": logits / math.sqrt(HEAD_DIM)}


def qk_norm(p, rope_behind=False, rope_before=False):
    """Every query and key divided by its root mean square, times a weight per dim, beside a rotation in either order."""
    angles = torch.arange(LENGTH, dtype=torch.float64).unsqueeze(-1) * rope_speeds(10000)
    made = {}
    for name, weight in (("q", "query_weight"), ("k", "key_weight")):
        x = turned(p[name], angles) if rope_before else p[name]
        normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        if not rope_before:
            normed = normed * p["qk_norm." * rope_behind + weight]
        made["normed_" + name] = normed
    last = {name: turned(made["normed_" + name], angles) if rope_behind else made["normed_" + name] for name in "qk"}
    if rope_behind or rope_before:
        made = {"qk_norm." + name: value for name, value in made.items()}
    return {**made, "logits": scores({**p, **last})}


# Text, formula with the options that it needs, and the shape of each parameter.
CASES = [
    ("forgetting", forgetting, {}, {"gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}),
    ("selective_rope", selective_rope, {}, {"down.weight": (16, DIM), "up.weight": (DIM // 2, 16), "convolution": (HEADS, 2, 4)}),
    ("selective_rope(rank=2, kernel=2, base=10, gate=yes)", selective_rope, {"base": 10, "kernel": 2, "gate": True},
     {"down.weight": (2, DIM), "up.weight": (DIM // 2, 2), "convolution": (HEADS, 2, 2), "gate.weight": (HEADS, DIM),
      "gate.bias": (HEADS,)}),
    ("selective_rope(rank=2, base=10, activation=silu, bias=yes)", selective_rope, {"base": 10, "activation": F.silu, "bias": True},
     {"down.weight": (2, DIM), "up.weight": (DIM // 2, 2), "convolution": (HEADS, 2, 4), "bias": (HEADS, 1, 2)}),
    ("repo(base=100, width=3)", repo, {"base": 100},
     {"gate.weight": (3, DIM), "content.weight": (3, DIM), "position.weight": (HEADS, 3)}),
    ("carope", carope, {}, {"frequency.weight": (HEADS, DIM), "frequency.bias": (HEADS,)}),
    ("pope", pope, {}, {"phase": (HEADS, 1, HEAD_DIM)}),
    ("pope(base=50, phase=uniform)", pope, {"base": 50}, {"phase": (HEADS, 1, HEAD_DIM)}),
    ("stick_breaking", stick_breaking, {}, {}),
    ("stick_breaking(rest=self)", stick_breaking, {"rest": "self"}, {}),
    ("path(rank=3)", path, {}, {"down.weight": (3, DIM), "up.weight": (DIM, 3), "convolution": (DIM, 3), "beta.weight": (HEADS, DIM),
                                "beta.bias": (HEADS,)}),
    ("path(rank=3, convolution=0)", path, {"taps": 0}, {"down.weight": (3, DIM), "up.weight": (DIM, 3),
                                                        "beta.weight": (HEADS, DIM), "beta.bias": (HEADS,)}),
    ("path(rank=3) + forgetting", path, {"forget": True},
     {"path.down.weight": (3, DIM), "path.up.weight": (DIM, 3), "path.convolution": (DIM, 3), "path.beta.weight": (HEADS, DIM),
      "path.beta.bias": (HEADS,), "forgetting.gate.weight": (HEADS, DIM), "forgetting.gate.bias": (HEADS,)}),
    ("mta(queries=2, keys=3)", mta, {}, {"convolution": (HEADS, 1, 2, 3), "pattern_mix": (1, HEADS, HEADS)}),
    ("mta(queries=3, keys=3, convolve=both, mix_scores=yes, heads=1)", mta,
     {"queries": 3, "group": 1, "where": "both", "mix_scores": True},
     {"convolution": (HEADS, 1, 3, 3), "pattern_convolution": (HEADS, 1, 3, 3), "scores_mix": (1, HEADS, HEADS)}),
    ("forgetting(gates=pairs, width=3)", forgetting_pairs, {}, {"gate_query.weight": (3 * HEADS, DIM), "gate_key.weight": (3 * HEADS, DIM)}),
    ("cable", cable, {}, {"step.weight": (HEADS, DIM), "step.bias": (HEADS,), "slope.weight": (HEADS, DIM)}),
    ("cable(weight=no, step=softplus)", cable, {"weight": False, "step": F.softplus}, {"step.weight": (HEADS, DIM), "step.bias": (HEADS,)}),
    ("gated_output", gated_output, {}, {"gate.weight": (DIM, DIM)}),
    ("gated_output(per=head)", gated_output, {"per_head": True}, {"gate.weight": (HEADS, DIM)}),
    ("sink", sink, {}, {"logit": (HEADS,)}),
    ("sink(start=1, fixed=yes)", sink, {"fixed": 1.0}, {}),
    ("ssmax", ssmax, {}, {"strength": (HEADS,)}),
    ("ssmax(form=llama4, floor=2)", ssmax, {"form": "llama4", "floor": 2}, {}),
    ("rope(keep=0.5)", rope, {"kind": "proportional", "partial_rotary_factor": 0.5}, {}),
    ("rope(base=100, scaling=ntk, factor=3)", rope, {"kind": "ntk", "base": 100.0, "factor": 3.0}, {}),
    ("rope(scaling=dynamic, factor=2, original=4)", rope, {"kind": "dynamic", "factor": 2.0, "length": 4}, {}),
    ("rope(base=50, scaling=llama3, factor=8, original=6)", rope, {"kind": "llama3", "base": 50.0, "factor": 8.0, "original_max_position_embeddings": 6}, {}),
    ("rope(layout=interleaved, scaling=longrope, original=4, short_factor=1:2, long_factor=1.5:6)", rope, {"pairs": "interleaved", "kind": "longrope", **LONG}, {}),
    ("rope(width=2, scaling=longrope, original=8, short_factor=3)", rope, {"width": 2, "kind": "longrope", **LONG, "original_max_position_embeddings": 8, "short_factor": [3.0]}, {}),
    ("window(forgetting, n=2)", window, {"inside": forgetting, "n": 2}, {"base.gate.weight": (HEADS, DIM), "base.gate.bias": (HEADS,)}),
    ("window(cope(p_max=2), n=3)", window, {"inside": cope, "n": 3, "p_max": 2}, {"base.table": (3, HEAD_DIM)}),
    ("xpos", xpos, {}, {}),
    ("xpos(scale_base=4, layout=interleaved, width=2)", xpos, {"scale_base": 4, "interleaved": True, "width": 2}, {}),
    ("xpos(gamma=1, scale_base=8)", xpos, {"gamma": 1, "scale_base": 8}, {}),
    ("qk_norm", qk_norm, {}, {"query_weight": (HEAD_DIM,), "key_weight": (HEAD_DIM,)}),
    ("qk_norm + rope", qk_norm, {"rope_behind": True},
     {"qk_norm.query_weight": (HEAD_DIM,), "qk_norm.key_weight": (HEAD_DIM,)}),
    ("rope + qk_norm(weight=none)", qk_norm, {"rope_before": True}, {}),
    ("xpos(scale_base=4)", xpos, {"scale_base": 4}, {}, 1),  # grouped queries: one head of keys and values for both
    ("forgetting", forgetting, {}, {"gate.weight": (HEADS, DIM), "gate.bias": (HEADS,)}, 1),
    ("window(cope(p_max=3), n=3)", window, {"inside": cope, "n": 3, "p_max": 3}, {"base.table": (4, HEAD_DIM)}, 1),
]


# Of heads and runs as models have them: text, dims of a head, tokens of the run, and the configuration.
ROTATIONS = [
    ("rope(base=500000, scaling=llama3, factor=8, original=8192)", 128, 1, {"kind": "llama3", "base": 500000.0, "factor": 8.0, "original_max_position_embeddings": 8192}),
    ("rope(base=500000, scaling=llama3, factor=32, original=8192, low_freq_factor=2, high_freq_factor=3)", 64, 1,
     {"kind": "llama3", "base": 500000.0, "factor": 32.0, "original_max_position_embeddings": 8192, "low_freq_factor": 2.0, "high_freq_factor": 3.0}),
    ("rope(scaling=dynamic, factor=4, original=64)", 32, 64, {"kind": "dynamic", "factor": 4.0, "length": 64}),
    ("rope(scaling=dynamic, factor=4, original=64)", 32, 200, {"kind": "dynamic", "factor": 4.0, "length": 64}),
    ("rope(scaling=ntk, factor=8)", 64, 1, {"kind": "ntk", "factor": 8.0}),
    ("interpolated(rope, factor=8)", 64, 1, {"kind": "linear", "factor": 8.0}),
    ("rope(keep=0.25)", 256, 1, {"kind": "proportional", "partial_rotary_factor": 0.25}),
    ("rope(keep=0.29)", 200, 1, {"kind": "proportional", "partial_rotary_factor": 0.29}),
    *[("rope(scaling=longrope, factor=32, original=100, short_factor=1:1:1.1:1.5, long_factor=1:2.5:17:64)", 8, tokens,
       {"kind": "longrope", "factor": 32.0, "original_max_position_embeddings": 100, "short_factor": [1, 1, 1.1, 1.5], "long_factor": [1, 2.5, 17, 64]})
      for tokens in (100, 101)],
]


def rotation(text, d, tokens, configuration):
    theta, magnitude = rope_numbers(d, tokens=tokens, **configuration)
    return {"scheme": text, "head dim": d, "tokens": tokens, "theta": theta, "magnitude": magnitude}


def attend(formula, p, options):
    """What the formula makes, and what follows from it."""
    made = formula(p, **options)
    allowed = made.pop("allowed", seen(LENGTH, True))
    if "logits" in made:
        made["logits"] = made["logits"] * allowed
    if "pattern" not in made:
        made["pattern"] = made["logits"].masked_fill(allowed == 0, -math.inf).softmax(-1)
    if "output" not in made:
        made["output"] = made["pattern"] @ p["v"]
    return made


def entry(tensor):
    return {"shape": list(tensor.shape), "data": tensor.detach().flatten().tolist()}


def example(text, formula, options, parameters, key_heads=HEADS):
    generator = torch.Generator().manual_seed(sum(map(ord, text)))

    def normal(shape):  # three digits: short in the file
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 1000).round() / 1000

    by_head = (BATCH, HEADS, LENGTH, HEAD_DIM)
    by_key_head = (BATCH, key_heads, LENGTH, HEAD_DIM)
    given = {"q": normal(by_head), "k": normal(by_key_head), "v": normal(by_key_head), "x": normal((BATCH, LENGTH, DIM))}
    given.update((name, normal(shape)) for name, shape in parameters.items())
    cotangent = normal(by_head)
    leaves = {name: tensor.requires_grad_() for name, tensor in given.items()}
    copied = {name: leaves[name].repeat_interleave(HEADS // key_heads, 1) for name in "kv"}  # of each query head's group
    made = attend(formula, {**leaves, **copied}, options)
    inside = {name: value for name, value in made.items() if value.requires_grad and name not in ("logits", "pattern", "output")}
    gradients = torch.autograd.grad((made["output"] * cotangent).sum(), [*leaves.values(), *inside.values()], allow_unused=True)
    expected = dict(made)
    for name, gradient in zip([*leaves, *inside], gradients):
        if gradient is not None:
            expected["gradient." + name] = gradient
    for unread in [name for name in leaves if "gradient." + name not in expected]:
        del given[unread]
    return {"scheme": text, "given": {name: entry(t) for name, t in {**given, "cotangent": cotangent}.items()},
            "expected": {name: entry(t) for name, t in expected.items()}}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    rows = ",\n".join(json.dumps(example(*case)) for case in CASES)
    rotations = ",\n".join(json.dumps(rotation(*each)) for each in ROTATIONS)
    sys.stdout.write('{"made by": "examples/whence/verify/later.py",\n"examples": [\n' + rows + '\n],\n"rotations": [\n' + rotations + "\n]}\n")
