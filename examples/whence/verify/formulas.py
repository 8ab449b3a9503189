"""The schemes' equations from their papers in PyTorch, each once. Tests compare whence with them.

A formula takes `p`, tensors by whence's names:
    q, k, v      [batch, head, token, channel]
    x            [batch, token, head x channel], the layer's input, where the scheme reads it
    allowed      [query, key], true where a query sees a key; and `causal`, true where it sees no later one (attend() adds both)
    ...          the scheme's parameters, as `whence probe --describe SCHEME` lists them
It returns its results by the names of whence's probes. attend() completes them: from "rotated_q", "rotated_k" and "bias" it computes "logits"
[batch, head, query, key], then "pattern", then "output".

    made = attend("cope(p_max=4)", {"q": q, "k": k, "v": v, "table": table})
    made["logits"], made["pattern"], made["output"]

Any floating dtype and any device work. The formulas of PAIR_BY_PAIR are definitions: clear, and slow."""
import functools
import inspect
import math
import re

import torch
import torch.nn.functional as F

kept = functools.lru_cache(maxsize=8)  # caches constants per length, as programs do


def precision(p):
    """The dtype and device of constants: those of q, but f32 for 16 bits, which are too narrow for angles."""
    q = p["q"]
    return {"dtype": q.dtype if q.dtype in (torch.float32, torch.float64) else torch.float32, "device": q.device}


def places(p):
    return torch.arange(p["q"].shape[2], **precision(p))


def scores(p):
    return p["q"] @ p["k"].transpose(-1, -2) / math.sqrt(p["q"].shape[-1])


@kept
def steps(t, device):
    """Returns i - j, one row per query."""
    return torch.arange(t, device=device).view(t, 1) - torch.arange(t, device=device).view(1, t)


def distances(p):
    n = steps(p["q"].shape[2], p["q"].device)
    return (n.clamp(min=0) if p["causal"] else n.abs()).to(precision(p)["dtype"])


def heads_apart(x, heads):
    """[batch, token, head x channel] -> [batch, head, token, channel]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


# ---- Biases

@kept
def slopes(heads, dtype, device):
    """Press et al. 2022: 2^(-8 h / heads). If heads is no power of two: slopes of the power below, and between them those of twice that power."""
    power = 2 ** int(math.log2(heads))
    all_of = [2 ** (-8 * h / power) for h in range(1, power + 1)] + [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
    return torch.tensor(all_of, dtype=dtype, device=device).view(-1, 1, 1)


@kept
def alibi_bias(heads, t, causal, dtype, device):
    n = steps(t, device)
    return -slopes(heads, dtype, device) * (n.clamp(min=0) if causal else n.abs() - 0.5 * (n > 0)).to(dtype)


def none(p):
    return {}


def alibi(p):
    """Press et al. 2022: a slope for each head, times the distance. If later keys are also seen, earlier keys are half a step nearer (Ruoss et
    al. 2023)."""
    return {"bias": alibi_bias(*p["q"].shape[1:3], p["causal"], **precision(p))}


def kerple(p):
    """Chi et al. 2022, logarithmic: -r1 ln(1 + r2 n)."""
    strength, rate = p["strength"].view(-1, 1, 1), p["rate"].view(-1, 1, 1)
    return {"bias": -strength * torch.log1p(rate * distances(p))}


def fire(p, init_length=512):
    """Li et al. 2024: a network of the distance relative to the query's position."""
    c, threshold = p["distance_scale"], (p["threshold_scale"] * init_length).abs()
    row = torch.maximum(places(p).view(-1, 1), threshold)
    x = torch.log((c * distances(p)).abs() + 1) / (torch.log((c * row).abs() + 1) + 1e-6)
    hidden = F.relu(F.linear(x.unsqueeze(-1), p["in.weight"], p["in.bias"]))
    return {"bias": F.linear(hidden, p["out.weight"], p["out.bias"]).permute(2, 0, 1)}


def forgetting(p):
    """Lin et al. 2025: every token has a gate on everything before it. Gates of pairs, as in x-transformers, from j + 1 to i."""
    if "gate_query.weight" in p:
        query, key = (heads_apart(F.linear(p["x"], p[name]), p["q"].shape[1]) for name in ("gate_query.weight", "gate_key.weight"))
        z = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        t = z.shape[-1]
        bias = torch.stack([torch.stack([F.logsigmoid(z[:, :, i, j + 1:i + 1]).sum(-1) for j in range(t)], -1) for i in range(t)], -2)
        return {"gate_logits": z, "bias": bias}
    remaining = F.logsigmoid(F.linear(p["x"], p["gate.weight"], p["gate.bias"])).transpose(1, 2).cumsum(-1)  # [b h t]
    return {"log_kept": remaining, "bias": (remaining.unsqueeze(3) - remaining.unsqueeze(2)).clamp(max=0)}


def cable(p, step="relu"):
    """Veisi et al. 2025, third version, Eq. 2, 6 and 7: steps summed from each key up to the query, times the query's slope. Their
    first released code: steps are softplus, and there are no slopes."""
    sizes = getattr(F, step)(F.linear(p["x"], p["step.weight"], p["step.bias"])).transpose(1, 2)  # [b h t]
    t = sizes.shape[-1]
    bias = torch.stack([torch.stack([-sizes[:, :, j + 1:i + 1].sum(-1) for j in range(t)], -1) for i in range(t)], -2)
    made = {"places": sizes.cumsum(-1)}
    if "slope.weight" in p:
        made["slopes"] = F.softplus(F.linear(p["x"], p["slope.weight"])).transpose(1, 2)  # [b h t]
        bias = made["slopes"].unsqueeze(-1) * bias
    return {**made, "bias": bias}


# ---- Rotations

def turned(x, angles):
    """Pairs (m, m + d/2) of x's channels, as complex numbers, rotated by angles [..., token, pair]."""
    first, second = x.to(angles.dtype).chunk(2, dim=-1)
    pair = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pair.real, pair.imag], dim=-1).to(x.dtype)


def rotated(p, angles):
    return {"rotated_q": turned(p["q"], angles), "rotated_k": turned(p["k"], angles)}


def rope_speeds(p, base, pairs=None):
    """base^(-m / pairs)"""
    pairs = pairs or p["q"].shape[-1] // 2
    return torch.tensor([base ** (-m / pairs) for m in range(pairs)], **precision(p))


def rope_numbers(d, tokens, base=10000.0, scaling="none", factor=4.0, original=1, low_freq_factor=1.0, high_freq_factor=4.0,
                 short_factor=None, long_factor=None, keep=1.0):
    """The numbers that transformers' modeling_rope_utils.py makes of a configuration: the angle per step of each of d / 2 pairs, and the factor of
    sines and cosines. "ntk" is the fixed form of "dynamic"; `keep` is p-RoPE (Barbero et al. 2024), its "proportional"."""
    theta, grown = [], 1.0
    if scaling in ("ntk", "dynamic"):
        grown = factor if scaling == "ntk" else factor * max(tokens, original) / original - (factor - 1)
    for pair in range(d // 2):
        wavelength = 2 * math.pi * (base * grown ** (d / (d - 2)) if grown != 1 else base) ** (2 * pair / d)
        if scaling == "linear" or (scaling == "llama3" and wavelength > original / low_freq_factor):
            wavelength *= factor
        elif scaling == "llama3" and wavelength >= original / high_freq_factor:
            smooth = (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
            wavelength = 1 / ((1 - smooth) / (factor * wavelength) + smooth / wavelength)
        elif scaling == "longrope":
            of_pairs = long_factor if tokens > original else short_factor
            wavelength *= of_pairs[pair] if isinstance(of_pairs, tuple) else of_pairs
        theta.append(2 * math.pi / wavelength if keep == 1 or pair < int(keep * d // 2) else 0.0)
    return theta, math.sqrt(1 + math.log(factor) / math.log(original)) if scaling == "longrope" and factor > 1 else 1.0


@kept
def rope_angles(t, d, dtype, device, **configuration):
    theta, magnitude = rope_numbers(d, t, **configuration)
    return torch.arange(t, dtype=dtype, device=device).view(-1, 1) * torch.tensor(theta, dtype=dtype, device=device), magnitude


def rope(p, layout="half", width=None, **configuration):
    """Su et al. 2021: pairs of channels rotated by the position times 10000^(-2m / d), or by the numbers of rope_numbers()."""
    width = width or p["q"].shape[-1]
    angles, magnitude = rope_angles(p["q"].shape[2], width, **precision(p), **configuration)
    cos, sin = angles.cos(), angles.sin()

    def turn(x):
        pairs, rest = x[..., :width], x[..., width:]
        a, b = pairs.chunk(2, -1) if layout == "half" else (pairs[..., 0::2], pairs[..., 1::2])
        both = magnitude * (a * cos - b * sin), magnitude * (a * sin + b * cos)
        both = torch.cat(both, -1) if layout == "half" else torch.stack(both, -1).flatten(-2)
        return torch.cat([both.to(x.dtype), rest], -1)
    return {"rotated_q": turn(p["q"]), "rotated_k": turn(p["k"])}


def selective_rope(p, base=500000, activation=None):
    """Movahedi et al. 2025, their released module: norm of each head's slice, low rank, causal convolution, running sum."""
    batch, heads, t, d = p["q"].shape
    slices = p["x"].reshape(batch, t, heads, d)
    u = (slices / (slices.square().sum(-1, keepdim=True) + 1e-6).sqrt()).reshape(batch, t, heads * d)
    phi = F.linear(F.linear(u, p["down.weight"]), p["up.weight"])  # [b t (h m)]
    taps = p["convolution"].flatten(0, 1).unsqueeze(1)
    paces = F.conv1d(F.pad(phi.transpose(1, 2), (taps.shape[-1] - 1, 0)), taps, groups=phi.shape[-1])  # [b (h m) t]
    paces = (getattr(F, activation)(paces) if activation else paces).reshape(batch, heads, d // 2, t).transpose(2, 3)
    if "bias" in p:
        paces = paces + p["bias"].exp()
    made = {}
    if "gate.weight" in p:
        made["gates"] = F.linear(u, p["gate.weight"], p["gate.bias"]).sigmoid().transpose(1, 2).unsqueeze(-1)  # [b h t 1]
        paces = paces * made["gates"]
    angles = rope_speeds(p, base) * paces.cumsum(2)
    return {**made, "steps": paces, "angles": angles, **rotated(p, angles)}


def carope(p):
    """Veisi et al. 2025: powers of a bounded frequency of each token and head, summed up to the token."""
    frequency = (1 / (F.softplus(F.linear(p["x"], p["frequency.weight"], p["frequency.bias"])) + 1)).transpose(1, 2)  # [b h t]
    angles = torch.stack([torch.cumsum(frequency ** m, -1) for m in range(p["q"].shape[-1] // 2)], -1)
    return {"frequency": frequency, "angles": angles, **rotated(p, angles)}


def repo(p, base=10000):
    """Li et al. 2025: a small gated network gives every token a position in every head, for the rotation."""
    representation = F.silu(p["x"] @ p["gate.weight"].T) * (p["x"] @ p["content.weight"].T)
    positions = torch.einsum("btn,hn->bht", representation, p["position.weight"])
    return {"positions": positions, **rotated(p, positions.unsqueeze(-1) * rope_speeds(p, base))}


def pope(p, base=10000):
    """Gopalakrishnan et al. 2025: the sum over dims of magnitudes times the cosine of a distance and a learned phase."""
    d = p["q"].shape[-1]
    what_q, what_k = F.softplus(p["q"]), F.softplus(p["k"])
    where = places(p).unsqueeze(-1) * rope_speeds(p, base, d)  # [t d]
    at_k = where + p["phase"]  # [h t d]
    logits = 0
    for c in range(d):
        cosine = torch.cos(at_k[:, None, :, c] - where[None, :, None, c])  # [h i j]
        logits = logits + what_q[..., None, c] * what_k[..., None, :, c] * cosine / math.sqrt(d)
    return {"magnitude_q": what_q, "magnitude_k": what_k, "logits": logits,
            "rotated_q": torch.cat([what_q * where.cos(), what_q * where.sin()], -1),
            "rotated_k": torch.cat([what_k * at_k.cos(), what_k * at_k.sin()], -1)}


def xpos(p, gamma=0.4, scale_base=512, layout="half", width=None):
    """Sun et al. 2022: each channel pair's product, rotated by the distance and times zeta to the distance, for each pair of tokens."""
    width = width or p["q"].shape[-1]
    pairs, n = width // 2, steps(p["q"].shape[2], p["q"].device).to(p["q"].dtype)
    logits = p["q"][..., width:] @ p["k"][..., width:].transpose(-1, -2)  # dims that are not rotated
    for m, speed in enumerate(rope_speeds(p, 10000, pairs)):
        a, b = (2 * m, 2 * m + 1) if layout == "interleaved" else (m, m + pairs)
        of_q, of_k = (torch.complex(p[name][..., a], p[name][..., b]) for name in "qk")
        zeta = (2 * m / width + gamma) / (1 + gamma)
        product = (of_q[..., :, None] * of_k[..., None, :].conj() * torch.polar(torch.ones_like(n), n * speed)).real
        logits = logits + product * zeta ** (n / scale_base)
    return {"logits": logits / math.sqrt(p["q"].shape[-1])}


def qk_norm(p, rotation=None):
    """Every query and key divided by its root mean square, times a weight per dim. `rotation`: "behind" the norm, or "before" it without a weight."""
    angles, made = places(p).unsqueeze(-1) * rope_speeds(p, 10000), {}
    for name, weight in (("q", "query_weight"), ("k", "key_weight")):
        x = turned(p[name], angles) if rotation == "before" else p[name]
        normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        if rotation != "before":
            normed = normed * p["qk_norm." * (rotation == "behind") + weight]
        made["normed_" + name] = normed
    if not rotation:
        return made
    last = {name: turned(made["normed_" + name], angles) if rotation == "behind" else made["normed_" + name] for name in "qk"}
    return {**{"qk_norm." + name: value for name, value in made.items()}, "logits": scores(last)}


# ---- Schemes beyond rotations and biases

def cope(p):
    """Golovneva et al. 2024, Listing 1: gates summed from the key up to the query, 0 for keys that the query does not see; a table, interpolated
    between its rows."""
    content = scores(p)
    gates = content.sigmoid() * p["allowed"]
    positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=p["table"].shape[0] - 1)
    z = p["q"] @ p["table"].T
    floor, ceil = positions.detach().floor().long(), positions.detach().ceil().long()
    share = positions - floor
    return {"gates": gates, "positions": positions, "logits": content + (1 - share) * z.gather(-1, floor) + share * z.gather(-1, ceil)}


def score_and_bias(p, inside):
    """For DAPE and CDAPE: scores, the bias of the inner scheme, and both concatenated along the heads."""
    s = scores(p)
    bias = inside(of_base(p))["bias"].expand_as(s).to(s.dtype)
    return s, bias, torch.cat([s, bias], 1)


def dape(p, inside):
    """Zheng et al. 2024: a network over the heads of scores and biases, added to both."""
    s, bias, both = score_and_bias(p, inside)
    hidden = F.leaky_relu(F.linear(both.permute(0, 2, 3, 1), p["hidden.weight"], p["hidden.bias"]), 0.01)
    return {"logits": s + bias + F.linear(hidden, p["output.weight"], p["output.bias"]).permute(0, 3, 1, 2)}


def cdape(p, inside):
    """Zheng et al. 2024, DAPE V2: two convolutions along the keys, after masking."""
    s, bias, both = score_and_bias(p, inside)
    padding = (0, p["hidden.weight"].shape[-1] // 2)
    hidden = F.leaky_relu(F.conv2d(both * p["allowed"], p["hidden.weight"], p["hidden.bias"], padding=padding), 0.01)
    return {"logits": s + bias + F.conv2d(hidden, p["output.weight"], p["output.bias"], padding=padding)}


def shaw(p):
    """Shaw et al. 2018: a vector per clipped distance on the key side, and one on the value side."""
    q, limit = p["q"], p["key_table"].shape[0] // 2
    index = (-steps(q.shape[2], q.device)).clamp(-limit, limit) + limit
    on_keys, on_values = p["key_table"][index], p["value_table"][index]  # [i, j, d]
    logits = (q @ p["k"].transpose(-1, -2) + torch.einsum("bhid,ijd->bhij", q, on_keys)) / math.sqrt(q.shape[-1])
    pattern = softmax(logits, p)
    return {"logits": logits, "pattern": pattern, "output": pattern @ p["v"] + torch.einsum("bhij,ijd->bhid", pattern, on_values)}


def transformer_xl(p):
    """Dai et al. 2019: sinusoids of the distance through a projection, and a bias for each of the two products. If queries see later keys, whence
    counts the distance from the query to the key."""
    b, h, t, d = p["q"].shape
    n = (steps(t, p["q"].device) if p["causal"] else -steps(t, p["q"].device)).to(precision(p)["dtype"])
    frequencies = 10000.0 ** (-2 * torch.arange(h * d // 2, **precision(p)) / (h * d))
    angles = n.unsqueeze(-1) * frequencies
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)  # [i, j, h d]
    relative = F.linear(sinusoids, p["relative_projection"]).view(t, t, h, d)
    content = torch.einsum("bhid,bhjd->bhij", p["q"] + p["content_bias"].view(1, h, 1, d), p["k"])
    position = torch.einsum("bhid,ijhd->bhij", p["q"] + p["position_bias"].view(1, h, 1, d), relative)
    return {"logits": (content + position) / math.sqrt(d)}


def stick_breaking(p, rest="nowhere"):
    """Tan et al. 2024, Eq. 1, as printed: a product over the keys in between, for each query from the nearest key on. The remainder is
    added as in the authors' tests: o + (1 - sum of the weights) v."""
    earlier, s = p["allowed"].tril(-1), scores(p)
    shares, breaks = torch.sigmoid(scores(p)) * earlier, torch.log(1 - torch.sigmoid(scores(p))) * earlier
    left = torch.stack([breaks[..., j + 1:].sum(-1).exp() for j in range(s.shape[-1])], -1)
    made = {"logits": s, "shares": shares, "log_break": breaks, "stick_left": left, "pattern": shares * left}
    if rest == "self":
        made["rest"] = breaks.sum(-1, keepdim=True).exp()
        made["output"] = made["pattern"] @ p["v"] + made["rest"] * p["v"]
        made["pattern"] = made["pattern"] + torch.diag_embed(1 - made["pattern"].sum(-1))
    return made


def path(p, forget=False):
    """Yang et al. 2025: each key is reflected by all tokens after it, one after the other. `forget`: PaTH-FoX."""
    name = "path." if forget else ""
    heads, t, d = p["q"].shape[1:]
    w = F.linear(F.linear(p["x"], p[name + "down.weight"]), p[name + "up.weight"])  # [b t c]
    if name + "convolution" in p:
        taps = p[name + "convolution"].unsqueeze(1)
        w = F.silu(F.conv1d(F.pad(w.transpose(1, 2), (taps.shape[-1] - 1, 0)), taps, groups=len(taps))).transpose(1, 2)
    w = heads_apart(w, heads)
    w = w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    beta = 2 * F.linear(p["x"], p[name + "beta.weight"], p[name + "beta.bias"]).sigmoid().transpose(1, 2)  # [b h t]
    rows = []
    for i in range(t):
        row = []
        for j in range(t):
            key = p["k"][:, :, j]
            for s in range(j + 1, i + 1):
                key = key - beta[:, :, s, None] * w[:, :, s] * (w[:, :, s] * key).sum(-1, keepdim=True)
            row.append((p["q"][:, :, i] * key).sum(-1) / math.sqrt(d))
        rows.append(torch.stack(row, -1))
    logits = torch.stack(rows, -2)
    taken = []
    for i in range(t):
        taken.append(beta[:, :, i, None] * (w[:, :, i] - sum((w[:, :, i] * w[:, :, s]).sum(-1, keepdim=True) * taken[s] for s in range(i))))
    made = {name + "w": w, name + "beta": beta, name + "u": torch.stack(taken, 2), "logits": logits}
    if forget:
        fading = forgetting({**p, "gate.weight": p["forgetting.gate.weight"], "gate.bias": p["forgetting.gate.bias"]})["bias"]
        made.update({"forgetting.bias": fading, "logits": logits + fading})
    return made


def mta(p):
    """Golovneva et al. 2025, pair by pair. A kernel or a mix is the identity plus a parameter."""
    t = p["q"].shape[2]

    def convolved(x, kernel):
        queries, keys = kernel.shape[-2:]
        rows = []
        for i in range(t):
            for j in range(t):
                total = x[:, :, i, j]
                for a in range(queries):
                    for c in range(keys):
                        row, key = i - queries + 1 + a, j - keys // 2 + c
                        if 0 <= row and 0 <= key < t:
                            total = total + kernel[:, 0, a, c] * x[:, :, row, key]
                rows.append(total)
        return torch.stack(rows, -1).unflatten(-1, (t, t))

    def mixed(x, mix):  # [groups out in]
        return x + torch.einsum("goc,bgcij->bgoij", mix, x.unflatten(1, (mix.shape[0], -1))).flatten(1, 2)

    made, logits = {}, scores(p) * p["allowed"]
    if "convolution" in p:
        logits = made["convolved"] = convolved(logits, p["convolution"])
    if "scores_mix" in p:
        logits = made["mixed_scores"] = mixed(logits, p["scores_mix"])
    pattern = made["softmax"] = softmax(logits, p)
    if "pattern_convolution" in p:
        pattern = made["convolved_pattern"] = convolved(pattern, p["pattern_convolution"]) * p["allowed"]
    return {**made, "logits": logits, "pattern": mixed(pattern, p["pattern_mix"]) if "pattern_mix" in p else pattern}


def gated_output(p):
    """Qiu et al. 2025: a gate after softmax and values, before the heads are merged."""
    gate = heads_apart(F.linear(p["x"], p["gate.weight"]).sigmoid(), p["q"].shape[1])
    return {"output_gate": gate, "logits": scores(p), "output": (softmax(scores(p), p) @ p["v"]) * gate}


def sink(p, start=0.0, fixed=False):
    """gpt-oss: a column without a value goes through the softmax, and is dropped."""
    logits = scores(p)
    logit = torch.full((logits.shape[1],), float(start), **precision(p)) if fixed else p["logit"]
    column = logit.view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
    pattern = torch.cat([logits.masked_fill(~p["allowed"], -math.inf), column], -1).softmax(-1)[..., :-1]
    return {"logits": logits, "pattern": pattern, "sink_weight": (1 - pattern.sum(-1, keepdim=True)).detach()}


def ssmax(p, form="log", floor=8192):
    """Nakanishi 2025: a row that sees n keys by s log n. Llama 4's factor of the position, as its code computes it."""
    if form == "llama4":
        place = places(p).view(-1, 1)
        factor = (torch.log(torch.floor((place + 1) / floor) + 1) * 0.1 + 1).expand(*p["q"].shape[:3], 1)
    else:
        factor = p["strength"].view(1, -1, 1, 1) * torch.log(p["allowed"].sum(-1, keepdim=True).to(precision(p)["dtype"]))
    return {"factor": factor, "logits": factor * scores(p)}


def window(p, inside, n):
    """Sliding windows (Beltagy et al. 2020): each query sees the last n keys, and, if allowed, n - 1 later keys."""
    p = {**p, "allowed": p["allowed"].triu(1 - n).tril(n - 1)}
    return {**{name if name in ("logits", "pattern") else "base." + name: made for name, made in inside(of_base(p)).items()}, "allowed": p["allowed"]}


def of_base(p):
    return {name.removeprefix("base."): tensor for name, tensor in p.items()}


# ---- From a scheme's text to the output

SCHEMES = {each.__name__: each for each in (
    none, alibi, kerple, fire, forgetting, cable, rope, selective_rope, carope, repo, pope, xpos, qk_norm, cope, dape, cdape, shaw,
    transformer_xl, stick_breaking, path, mta, gated_output, sink, ssmax, window)}
SUMS = {"path + forgetting": functools.partial(path, forget=True), "qk_norm + rope": functools.partial(qk_norm, rotation="behind"),
        "rope + qk_norm": functools.partial(qk_norm, rotation="before")}
PAIR_BY_PAIR = ("forgetting(gates=pairs", "cable", "pope", "xpos", "stick_breaking", "path", "mta", "transformer_xl")
# Options that follow from the parameters and their shapes, and `decay`, `init` and `phase`, which say how they are trained and begin.
TOLD_BY_SHAPES = {"bias", "clip", "convolution", "convolve", "decay", "gate", "gates", "heads", "init", "kernel", "keys", "mix_scores", "p_max", "per",
                  "phase", "queries", "rank", "weight", "width"}


def split(text, mark):
    """Splits at marks outside brackets."""
    return [part.strip() for part in re.findall(rf"(?:[^{mark}()]|\((?:[^()]|\([^()]*\))*\))+", text)]


def value_of(text):
    """"yes", "0.5", "1:2", "half" """
    if text in ("yes", "no"):
        return text == "yes"
    numbers = [float(each) if re.search(r"[.e]", each) else int(each) for each in text.split(":") if re.fullmatch(r"-?\d+(\.\d*)?(e-?\d+)?", each)]
    return text if not numbers else tuple(numbers) if ":" in text else numbers[0]


def parsed(scheme):
    """Returns the names of a scheme text's terms, and all options with the inner scheme."""
    names, inside, options = [], [], {}
    for term in split(scheme, "+"):
        name, _, given = term.partition("(")
        names.append(name)
        for word in split(given[:-1] if given else "", ","):
            option = re.fullmatch(r"(\w+)\s*=\s*(.*)", word)
            if option:
                options[option[1]] = value_of(option[2])
            else:
                inside.append(word)
    return " + ".join(names), inside, options


def formula(scheme):
    """The function of p that a scheme's text names, with its options: formula("window(cope(p_max=2), n=3)")."""
    name, inside, options = parsed(scheme)
    function = SCHEMES.get(name) or SUMS.get(name)
    if not function:
        raise ValueError(f"{scheme}: no formula for {name} here; one of {', '.join([*SCHEMES, *SUMS])} required")
    read = set(inspect.signature(function).parameters) | (set(inspect.signature(rope_numbers).parameters) if function is rope else set())
    if unknown := options.keys() - read - TOLD_BY_SHAPES:
        raise ValueError(f"{scheme}: the formula of {name} has no {unknown.pop()}; leave it out")
    options = {key: value for key, value in options.items() if key in read}
    if "inside" in read:
        options["inside"] = formula(inside[0] if inside else "kerple")
    return functools.partial(function, **options)


@kept
def allowed_of(t, causal, device):
    return torch.ones(t, t, dtype=torch.bool, device=device).tril() if causal else torch.ones(t, t, dtype=torch.bool, device=device)


def softmax(logits, p):
    return logits.masked_fill(~p["allowed"], -math.inf).softmax(-1)


def given(p, causal=True):
    """Returns p with its mask, and with keys and values repeated for each query head that shares them."""
    heads = p["q"].shape[1]
    shared = {name: p[name].repeat_interleave(heads // p[name].shape[1], 1) for name in "kv" if p[name].shape[1] != heads}
    return {"causal": causal, "allowed": allowed_of(p["q"].shape[2], causal, p["q"].device), **p, **shared}


def operands(made, p):
    """Returns queries, keys and the bias (or None) of a scheme that has nothing else."""
    last = lambda *names, default=None: next((made[prefix + name] for name in names for prefix in ("", "base.") if prefix + name in made), default)
    return last("rotated_q", "normed_q", default=p["q"]), last("rotated_k", "normed_k", default=p["k"]), last("bias")


def attend(scheme, p, causal=True):
    """Returns the results of the scheme's formula, then logits (meaningless for masked pairs), pattern, output, and `allowed`."""
    p = given(p, causal)
    made = (scheme if callable(scheme) else formula(scheme))(p)
    p["allowed"] = made.pop("allowed", p["allowed"])
    if "logits" not in made:
        q, k, bias = operands(made, p)
        made["logits"] = scores({"q": q, "k": k}) if bias is None else scores({"q": q, "k": k}) + bias
    if "pattern" not in made:
        made["pattern"] = softmax(made["logits"], p)
    if "output" not in made:
        made["output"] = made["pattern"].to(p["v"].dtype) @ p["v"]
    return {**made, "allowed": p["allowed"]}
