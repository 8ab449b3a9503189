"""Logits [b h i j] by the papers' formulas in PyTorch, of q, k and the scheme's parameters by name; the mask comes afterwards.
Shaw's also says what the pattern adds to the values."""
import functools
import math

import torch
import torch.nn.functional as F


def steps(t):
    """i - j, one row per query."""
    return torch.arange(t).view(t, 1) - torch.arange(t).view(1, t)


def distances(t, causal):
    return (steps(t).clamp(min=0) if causal else steps(t).abs()).double()


def scores(p):
    return p["q"] @ p["k"].transpose(-1, -2) / math.sqrt(p["q"].shape[-1])


def seen(t, causal):
    return torch.ones(t, t).tril().double() if causal else torch.ones(t, t).double()


def none(p, causal):
    return scores(p)


def rope(p, causal):
    """Su et al. 2021: pairs (m, m + d / 2) turned by t 10000^(-2m / d)."""
    def turn(x):
        t, d = x.shape[2:]
        angles = torch.arange(t).double().view(t, 1) * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
    return scores({"q": turn(p["q"]), "k": turn(p["k"])})


def alibi_bias(p, causal):
    """Press et al. 2022, causal: slopes 2^(-8 h / heads), where the heads are a power of two."""
    heads, t = p["q"].shape[1:3]
    return -(2.0 ** (-8.0 * torch.arange(1, heads + 1).double() / heads)).view(-1, 1, 1) * distances(t, causal)


def kerple_bias(p, causal, prefix=""):
    """Chi et al. 2022, logarithmic: -r1 ln(1 + r2 n)."""
    strength, rate = p[prefix + "strength"].view(-1, 1, 1), p[prefix + "rate"].view(-1, 1, 1)
    return -strength * torch.log1p(rate * distances(p["q"].shape[2], causal))


def alibi(p, causal):
    return scores(p) + alibi_bias(p, causal)


def kerple(p, causal):
    return scores(p) + kerple_bias(p, causal)


def cope(p, causal):
    """Golovneva et al. 2024, Listing 1: gates summed from j up to i, a table read between its rows."""
    s = scores(p)
    gates = torch.sigmoid(s) * seen(s.shape[-1], causal)
    positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=p["table"].shape[0] - 1)
    z = p["q"] @ p["table"].t()
    above, below = positions.ceil().long(), positions.floor().long()
    weight = positions - below
    return s + z.gather(-1, above) * weight + z.gather(-1, below) * (1 - weight)


def score_and_bias(p, causal):
    """Of DAPE and CDAPE, over KERPLE where they have its parameters, else over ALiBi."""
    s = scores(p)
    return s, (kerple_bias(p, causal, "base.") if "base.rate" in p else alibi_bias(p, causal)).expand_as(s)


def dape(p, causal):
    """Zheng et al. 2024: a network over the heads of scores and biases, beside both."""
    s, b = score_and_bias(p, causal)
    x = torch.cat([s, b], 1).permute(0, 2, 3, 1)
    hidden = F.leaky_relu(F.linear(x, p["hidden.weight"], p["hidden.bias"]), 0.01)
    return s + b + F.linear(hidden, p["output.weight"], p["output.bias"]).permute(0, 3, 1, 2)


def cdape(p, causal):
    """Zheng et al. 2024, DAPE V2: two convolutions along the keys over what the causal mask leaves."""
    s, b = score_and_bias(p, causal)
    x = torch.cat([s, b], 1) * seen(s.shape[-1], causal)
    padding = (0, p["hidden.weight"].shape[-1] // 2)
    hidden = F.leaky_relu(F.conv2d(x, p["hidden.weight"], p["hidden.bias"], padding=padding), 0.01)
    return s + b + F.conv2d(hidden, p["output.weight"], p["output.bias"], padding=padding)


def shaw(p, causal):
    """Shaw et al. 2018: a vector per clipped distance on the key side, and one on the value side."""
    q, limit = p["q"], p["key_table"].shape[0] // 2
    index = (-steps(q.shape[2])).clamp(-limit, limit) + limit
    on_keys, on_values = p["key_table"][index], p["value_table"][index]  # [i, j, d]
    logits = (q @ p["k"].transpose(-1, -2) + torch.einsum("bhid,ijd->bhij", q, on_keys)) / math.sqrt(q.shape[-1])
    return logits, lambda pattern: torch.einsum("bhij,ijd->bhid", pattern, on_values)


def transformer_xl(p, causal):
    """Dai et al. 2019: sinusoids of the distance through a projection, and a bias for each of the two products."""
    b, h, t, d = p["q"].shape
    n = steps(t) if causal else -steps(t)
    frequencies = 10000.0 ** (-2 * torch.arange(h * d // 2).double() / (h * d))
    angles = n.double().unsqueeze(-1) * frequencies
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)  # [i, j, h d]
    relative = F.linear(sinusoids, p["relative_projection"]).view(t, t, h, d)
    content = torch.einsum("bhid,bhjd->bhij", p["q"] + p["content_bias"].view(1, h, 1, d), p["k"])
    position = torch.einsum("bhid,ijhd->bhij", p["q"] + p["position_bias"].view(1, h, 1, d), relative)
    return (content + position) / math.sqrt(d)


def fire(p, causal, init_length=512):
    """Li et al. 2024: a network of the distance relative to where the query stands."""
    t = p["q"].shape[2]
    c, threshold = p["distance_scale"], (p["threshold_scale"] * init_length).abs()
    row = torch.maximum(torch.arange(t).double().view(t, 1), threshold)
    x = torch.log((c * distances(t, causal)).abs() + 1) / (torch.log((c * row).abs() + 1) + 1e-6)
    hidden = F.relu(F.linear(x.unsqueeze(-1), p["in.weight"], p["in.bias"]))
    return scores(p) + F.linear(hidden, p["out.weight"], p["out.bias"]).permute(2, 0, 1)


FORMULAS = {"none": none, "alibi": alibi, "kerple": kerple, "rope": rope, "cope": cope, "dape": dape, "cdape": cdape, "shaw": shaw,
            "transformer_xl": transformer_xl, "fire": fire, "fire(init_length=3)": functools.partial(fire, init_length=3)}


def attend(scheme, p, causal=True):
    """The logits with their mask, the pattern, and the output of p["q"], p["k"], p["v"]."""
    found = FORMULAS.get(scheme, FORMULAS[scheme.split("(")[0]])(p, causal)
    logits, on_values = found if isinstance(found, tuple) else (found, lambda pattern: 0)
    pattern = logits.masked_fill(seen(logits.shape[-1], causal) == 0, -math.inf).softmax(-1)
    return logits * seen(logits.shape[-1], causal), pattern, pattern @ p["v"] + on_values(pattern)
