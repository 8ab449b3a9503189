#!/usr/bin/env python3
"""Converts models of Hugging Face to runs of whence, and runs to models, with the same logits.

    examples/experiments/convert.py gpt2 --out runs/gpt2     for generate, look, train lm --weights-of and whence.load
    examples/experiments/convert.py runs/gpt2 --out back     for transformers' from_pretrained

GPT-2 and GPT-NeoX convert both ways; Llama, Mistral and Qwen2 only to runs. The tensors in a file decide the numbers of rows, layers, biases and
key heads, and if the head is tied. config.json gives what tensors do not show: heads, activation, rotation.
"""
from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import sys
import tempfile
from typing import Any, Iterator, NamedTuple

import outside
import packages
from outside import Refused, read_bytes, read_text

packages.require("numpy", "safetensors", "tokenizers")
import numpy as np
import safetensors.numpy
import tokenizers

VERSION = re.search(r"project\(whence VERSION ([\d.]+)", (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text())[1]
EPSILON = 1e-5  # of our norms
SIZES = ("vocabulary", "length", "dim", "layers", "heads", "hidden")
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf", "relu": "relu"}  # the first is written
QKV = ("query", "key", "value")


class Family(NamedTuple):
    """The names in one kind of model. `modules`: ours and theirs, where N is a block's number. Three of ours may be one of theirs."""
    prefix: str  # not in files of the bare model
    head: str
    activation: str
    epsilon: str
    sizes: tuple[str, ...]
    modules: dict[str, str]


THEIR_SIZES = ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
GPT2 = Family("transformer.", "lm_head.weight", "activation_function", "layer_norm_epsilon", (
    "vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"), {
    "embedding": "wte", "position": "wpe", "norm": "ln_f", "blocks.N.norm1": "h.N.ln_1", "blocks.N.norm2": "h.N.ln_2",
    **{f"blocks.N.attention.{part}": "h.N.attn.c_attn" for part in QKV}, "blocks.N.attention.output": "h.N.attn.c_proj",
    "blocks.N.mlp.in": "h.N.mlp.c_fc", "blocks.N.mlp.out": "h.N.mlp.c_proj"})
NEOX = Family("gpt_neox.", "embed_out.weight", "hidden_act", "layer_norm_eps", THEIR_SIZES, {
    "embedding": "embed_in", "norm": "final_layer_norm",
    "blocks.N.norm1": "layers.N.input_layernorm", "blocks.N.norm2": "layers.N.post_attention_layernorm",
    **{f"blocks.N.attention.{part}": "layers.N.attention.query_key_value" for part in QKV}, "blocks.N.attention.output": "layers.N.attention.dense",
    "blocks.N.mlp.in": "layers.N.mlp.dense_h_to_4h", "blocks.N.mlp.out": "layers.N.mlp.dense_4h_to_h"})
LLAMA = Family("model.", "lm_head.weight", "hidden_act", "rms_norm_eps", THEIR_SIZES, {
    "embedding": "embed_tokens", "norm": "norm",
    "blocks.N.norm1": "layers.N.input_layernorm", "blocks.N.norm2": "layers.N.post_attention_layernorm",
    **{f"blocks.N.attention.{part}": f"layers.N.self_attn.{part[0]}_proj" for part in (*QKV, "output")},
    **{f"blocks.N.mlp.{ours}": f"layers.N.mlp.{theirs}_proj" for ours, theirs in (("gate", "gate"), ("in", "up"), ("out", "down"))}})
FAMILIES = {"gpt2": GPT2, "gpt_neox": NEOX, "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA}


def require(holds: Any, message: str) -> None:
    if not holds:
        raise Refused(message)


def pairs(family: Family, layers: int) -> Iterator[tuple[str, str, bool, int]]:
    """Our tensors and theirs, true if one is the other's transpose, and the index of ours in a tensor of three, or -1."""
    for ours, theirs in family.modules.items():
        group, last = ("", *ours.split("."))[-2:]
        for number, leaf in itertools.product(map(str, range(layers if "N" in ours else 1)), ("weight", "bias")):
            if leaf == "weight" or ours not in ("embedding", "position") and (family is not LLAMA or not last.startswith("norm")):
                yield (f"{ours.replace('N', number)}.{'table' if ours == 'position' else leaf}", f"{theirs.replace('N', number)}.{leaf}",
                       family is GPT2 and leaf == "weight" and group in ("attention", "mlp"),
                       QKV.index(last) if theirs.endswith(("c_attn", "query_key_value")) else -1)


# ---- Files

class Fields:
    """The fields of a JSON file, each of one kind; null counts as missing."""
    KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "an object", list: "a list"}

    def __init__(self, path: pathlib.Path, fields: Any = None):
        found = outside.read_json(path) if fields is None else fields
        self.path, self.all = path, {name: value for name, value in found.items() if value is not None}

    def require(self, name: str, holds: bool, required: str) -> None:
        require(holds, f"{self.path}: {name}: {json.dumps(self.all[name]) if name in self.all else 'nothing'} found; {required} required")

    def get(self, name: str, kind: type, otherwise: Any = None) -> Any:
        """Returns the value. It is required if `otherwise` is not given."""
        value = self.all.get(name, otherwise)
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        self.require(name, fits and (kind not in (int, float) or abs(value) < 1e18), self.KINDS[kind])
        return value

    def size(self, name: str) -> int:
        self.require(name, 1 <= self.get(name, int) <= 1 << 24, "1 to 16777216")
        return self.all[name]


def tensors_in(path: pathlib.Path) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The metadata of a safetensors file, and its tensors as bytes with shape and dtype. Unread tensors may have any dtype."""
    data = read_bytes(path, 1 << 40)
    try:
        tensors = {name: {**entry, "where": f"{path}: {name!r}"} for name, entry in safetensors.deserialize(data)}
        return outside.parsed(data[8:8 + int.from_bytes(data[:8], "little")].decode(), path).get("__metadata__") or {}, tensors
    except safetensors.SafetensorError as problem:
        raise Refused(f"{path}: no whole file of safetensors: {problem}") from None


def as_f32(tensor: dict[str, Any]) -> np.ndarray:
    """A tensor's numbers. Raises Refused for another dtype, or if they are not finite."""
    codes = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    require(tensor["dtype"] in codes, f"{tensor['where']} is {tensor['dtype']}; F64, F32, F16 or BF16 required")
    raw = np.frombuffer(tensor["data"], codes[tensor["dtype"]])
    with np.errstate(over="ignore"):
        found = ((raw.astype("<u4") << 16).view("<f4") if tensor["dtype"] == "BF16" else raw).astype(np.float32).reshape(tensor["shape"])
    require(np.isfinite(found).all(), f"{tensor['where']} holds {', '.join(map(str, found[~np.isfinite(found)][:1]))}; finite numbers required")
    return found


def seal_of(data: bytes) -> str:
    """The SHA-256 of a safetensors file with zeros in place of its seal. whence detects a damaged file by it."""
    end = 8 + int.from_bytes(data[:8], "little")
    found = hashlib.sha256(re.sub(rb'"whence\.seal":"[^"]*"', b'"whence.seal":"' + b"0" * 64 + b'"', data[:end], count=1))
    found.update(memoryview(data)[end:])
    return found.hexdigest()


def page(value: Any, indent: int = 2) -> bytes:
    return (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode()


def write(out: pathlib.Path, files: dict[str, bytes]) -> None:
    """Creates the folder after everything is written, and leaves nothing after a failure."""
    require(not out.exists() or out.is_dir() and not any(out.iterdir()),
            f"--out: {out} {'holds files' if out.is_dir() else 'is a file'}; a new or an empty folder required")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.tmp-") as temporary:
        new = pathlib.Path(temporary) / "new"  # readable for others, unlike the temporary one
        new.mkdir()
        for name, data in files.items():
            (new / name).write_bytes(data)
        os.sync()
        new.rename(out)


# ---- Rotations: rope_type of a config.json, and our schemes

ORIGINAL = "original_max_position_embeddings"
ROPE_TYPES = {  # their numbers, with whence's defaults
    "default": {}, "linear": {"factor": "4"}, "proportional": {"factor": "4"}, "dynamic": {"factor": "4"},
    "llama3": {"factor": "4", ORIGINAL: "", "low_freq_factor": "1", "high_freq_factor": "4"},
    "longrope": {"factor": "4", ORIGINAL: "", "short_factor": "1", "long_factor": "1"},
    "yarn": {"factor": "4", ORIGINAL: "", "beta_fast": "32", "beta_slow": "1"}}
LIMITS = {  # of our schemes' options; a factor of positions alone may be below 1
    "factor": (1, 1e6), ORIGINAL: (1, 1e9), **dict.fromkeys(("short_factor", "long_factor"), (1e-6, 1e9)),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"), (1e-3, 1e6))}
exact = lambda number: repr(float(number)).removesuffix(".0")  # 0.0003, 500000


def scheme_of(config: Fields, head_dim: int, length: int, share: float) -> str:
    """The scheme of rope_parameters (newer versions of transformers), or of rope_scaling and separate fields. `share`: the default share of a
    head's dimensions that rotate."""
    place = "rope_scaling" if "rope_scaling" in config.all else "rope_parameters"
    rope = Fields(config.path, config.get(place, dict, {}))
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    config.require(place, kind in ROPE_TYPES, f"rope_type {', '.join(ROPE_TYPES)}")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *ROPE_TYPES[kind]}
    config.require(place, rope.all.keys() <= known, f"{', '.join(sorted(known))} alone for {kind}")
    share, base = (rope.get(newer, float, config.get(older, float, config.get(newer, float, otherwise))) for newer, older, otherwise in
                   (("partial_rotary_factor", "rotary_pct", share), ("rope_theta", "rotary_emb_base", 10000.0)))
    width, proportional = int(head_dim * share), kind == "proportional"
    least = 1.001 if kind == "yarn" else 1
    config.require("rope_theta", least <= base <= 1e12, f"{least} to 1e12")
    config.require("rotary_pct" if "rotary_pct" in config.all else "partial_rotary_factor",
                   share <= 1 and width >= 1 and (width % 2 == 0 or proportional), f"a share of {head_dim} dimensions, an even number of them,")
    trained = config.get(ORIGINAL, int, rope.get(ORIGINAL, int, length))
    least = 2 if kind == "longrope" else 1
    (config if ORIGINAL in config.all else rope).require(ORIGINAL, least <= trained <= 1e9, f"{least} to 1e9")
    otherwise = {"beta_fast": 32, "beta_slow": 1, "factor": {"proportional": 1, "longrope": max(1, length / trained)}.get(kind)}
    found = {}
    for name in ROPE_TYPES[kind]:
        low, high = (1e-6, 1e6) if name == "factor" and kind in ("linear", "proportional") else LIMITS[name]
        if name in ("short_factor", "long_factor"):
            numbers = rope.get(name, list)
            fits = len(numbers) == width // 2 and all(type(each) in (int, float) and low <= each <= high for each in numbers)
            rope.require(name, fits, f"a number of {low:g} to {high:g} for each of {width // 2} pairs")
            found[name] = ":".join(map(exact, numbers))
        else:
            number = trained if name == ORIGINAL else rope.get(name, float, otherwise.get(name))
            rope.require(name, low <= number <= high, f"{low:g} to {high:g}")
            found[name.split("_max")[0]] = exact(number)
    for less, more in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        rope.require(less, less not in found or float(found[less]) < float(found[more]), f"less than {more}")
    divided = found.pop("factor") if kind in ("linear", "proportional") else "1"  # one factor for every pair
    inside = [f"base={exact(base)}"] * (base != 10000) + [f"width={width}"] * (width != head_dim and not proportional)
    inside += [f"keep={exact(share)}"] * (proportional and share != 1) + [f"scaling={kind}"] * (kind in ("dynamic", "llama3", "longrope"))
    inside += [f"{name}={value}" for name, value in found.items()] + [f"original={length}"] * (kind == "dynamic")
    text = ("yarn" if kind == "yarn" else "rope") + (f"({', '.join(inside)})" if inside else "")
    return text if divided == "1" else f"interpolated({text}, factor={divided})"


def rope_of(scheme: str, head_dim: int, length: int) -> dict[str, Any]:
    """The fields of GPT-NeoX's config.json for a scheme, for old and new versions of transformers."""
    form = re.fullmatch(r"(?:(interpolated|pi)\()?(rope|rotary|yarn)(?:\(([\w=.:,+-]*)\))?(?:,factor=([^,()]+))?\)?", re.sub(r"\s", "", scheme))
    divided, name, options, factor = form.groups() if form else ("", "", "", "")
    own = dict(re.findall(r"(\w+)=([^,]+)", options or "")) | ({"factor": factor or "1"} if divided else {})
    scaling, keep, width = own.get("scaling", "none"), float(own.get("keep", 1)), int(own.get("width", 0))
    kind = "yarn" if name == "yarn" else "proportional" if keep != 1 else "linear" if divided else scaling.replace("none", "default")
    plain = scaling == "none" and (keep == 1 or not width) and not (divided and name == "yarn")
    known = form and kind in ROPE_TYPES and (plain or kind == scaling)
    require(known and (own.get("layout", "half"), own.get("dynamic", "no")) == ("half", "no"),
            f"scheme: {scheme} given; absolute, or rope (of layout=half, with keep over all dims of a head, or scaling=dynamic, llama3 or "
            "longrope), interpolated(rope) or yarn (of dynamic=no) required, as GPT-2 and GPT-NeoX have it")
    original = int(own.get("original", 0)) or length
    require(kind != "dynamic" or original == length,
            f"scheme: original {original} in a model of {length} tokens given; one number for both required, because transformers has one")

    def value(field: str) -> Any:
        numbers = [original] if field == ORIGINAL else [float(each) for each in own.get(field, ROPE_TYPES[kind][field]).split(":")]
        return numbers[0] if field not in ("short_factor", "long_factor") else numbers * ((width or head_dim) // 2 if len(numbers) == 1 else 1)
    fields = {"rotary_pct": keep * (width / head_dim if width else 1.0), "rotary_emb_base": float(own.get("base", 10000))}
    scaled = {} if kind == "proportional" and not divided else {field: value(field) for field in ROPE_TYPES[kind]}
    return fields if kind == "default" else {**fields, "rope_scaling": {"rope_type": kind, **scaled}}


# ---- Theirs as ours

class Theirs:
    """The tensors of a folder of Hugging Face, by names without the family's prefix."""

    def __init__(self, folder: pathlib.Path, family: Family):
        self.folder, self.family = folder, family
        self.tensors: dict[str, dict[str, Any]] = {}
        twins: dict[str, str] = {}  # names that are aliases by a file's metadata
        for metadata, tensors in map(tensors_in, self.paths()):
            twins |= metadata
            for name, tensor in tensors.items():
                first = self.tensors.setdefault(name.removeprefix(family.prefix), tensor)
                require(first is tensor, f"{folder}: {first['where']} and {tensor['where']} found; one of them required")
        for name, other in twins.items():
            if found := self.tensors.get(other.removeprefix(family.prefix)):
                self.tensors.setdefault(name.removeprefix(family.prefix), found)

    def paths(self) -> list[pathlib.Path]:
        """model.safetensors if it exists, as in transformers, else the files in the index."""
        whole, index = self.folder / "model.safetensors", self.folder / "model.safetensors.index.json"
        require(whole.exists() or index.exists() or not any(self.folder.glob("*.bin")),
                f"{self.folder}: weights of torch.save found; model.safetensors required, as save_pretrained of transformers writes it")
        if whole.exists() or not index.exists():
            return [whole]
        names = sorted({str(name) for name in Fields(index).get("weight_map", dict).values()})
        fits = names and all(re.fullmatch(r"[^./\0][^/\0]*", name) for name in names)
        require(fits, f"{index}: weight_map names {names[:3]}; files of the same folder required")
        return [self.folder / name for name in names]

    def find(self, name: str, *shape: int) -> dict[str, Any]:
        require(name in self.tensors, f"{self.folder}: no tensor {name!r}, with {self.family.prefix!r} before it or without; it required")
        found = self.tensors[name]
        require(shape in ((), tuple(found["shape"])), f"{found['where']} is {list(found['shape'])}; {list(shape)} required")
        return found

    def tables(self, vocabulary: int, dim: int, tied: bool) -> dict[str, np.ndarray]:
        """The table of tokens, and that of the head if it differs. `tied` is from config.json, but the file decides."""
        names = self.family.modules["embedding"] + ".weight", self.family.head
        there = [name for name in names if name in self.tensors]
        first, second = (self.find(name, vocabulary, dim) for name in ((there * 2)[:2] if tied and there else names))
        table, head = as_f32(first), as_f32(second)
        if first is second or tied and np.array_equal(table, head):
            return {"embedding.weight": table}
        if tied:
            print(f"note: {names[1]} is not {names[0]}, although config.json says that they are tied: the model has a separate head")
        return {"embedding.weight": table, "head.weight": head}


def weights_of(theirs: Theirs, shapes: dict[str, tuple[int, ...]], layers: int, heads: int) -> dict[str, np.ndarray]:
    """Weights of positions, blocks and norms, by our names."""
    weights = {}
    for ours, there, turned, part in pairs(theirs.family, layers):
        last, leaf = ours.split(".")[-2:]
        if last == "embedding" or leaf == "bias" and there not in theirs.tensors:
            continue
        shape = shapes.get(last, shapes["norm"])[:1 if leaf == "bias" else 2]
        whole = (3 * shape[0], *shape[1:]) if part >= 0 else shape
        tensor = as_f32(theirs.find(there, *(whole[::-1] if turned else whole)))
        tensor = tensor.T if turned else tensor
        if part >= 0:  # all heads together, or each head apart
            tensor = tensor.reshape(1 if theirs.family is GPT2 else heads, 3, -1, *shape[1:])[:, part].reshape(shape)
        weights[ours] = np.ascontiguousarray(tensor)
    biased = [group for group in ("attention", "mlp") if any(re.search(rf"\.{group}\..*bias", name) for name in weights)]
    for name in [name for name in weights if biased and re.search(rf"\.(mlp|{biased[0]})\..*weight", name)]:  # whence has all of them or none
        weights.setdefault(name.replace("weight", "bias"), np.zeros(len(weights[name]), np.float32))
    return weights


def read_theirs(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the options of our model, and its weights."""
    config = Fields(folder / "config.json")
    kind = str(config.all.get("model_type"))
    config.require("model_type", kind in FAMILIES, " or ".join(FAMILIES))
    family = FAMILIES[kind]
    gpt2, llama, theirs, fields = family is GPT2, family is LLAMA, Theirs(folder, family), dict(zip(SIZES, family.sizes))
    table, block = family.modules["embedding"] + ".weight", re.escape(family.modules["blocks.N.norm1"]).replace("N", "([0-9]{1,99})") + r"\.weight"
    extents = lambda name: (*theirs.find(name)["shape"], 0, 0)
    extent = lambda ours, axis=0: extents(family.modules[ours].replace("N", "0") + ".weight")[axis]
    vocabulary, dim, *_ = extents(table if table in theirs.tensors else family.head)
    numbers = {int(found[1]) for name in theirs.tensors if (found := re.fullmatch(block, name))}
    layers = len(numbers)
    require(numbers == {*range(layers)}, f"{folder}: {layers} layers found, the last of number {max(numbers, default=0)}; all from 0 on required")
    heads = config.size(fields["heads"])
    head_dim = max(dim // heads, 1)
    config.require(fields["dim"], 0 < dim == config.get(fields["dim"], int, dim), f"{dim}, the columns of the embedding,")
    config.require(fields["heads"], dim % heads == 0, f"a divisor of the {dim} dimensions")
    config.require(fields["layers"], 1 <= config.get(fields["layers"], int, layers) <= layers, f"1 to {layers}, the layers of the weights,")
    config.require("head_dim", config.get("head_dim", int, head_dim) == head_dim, f"{head_dim}, as {heads} heads share {dim} dimensions,")
    key, hidden = extent("blocks.N.attention.key") if llama else dim, extent("blocks.N.mlp.in", 1 if gpt2 else 0)
    length = extent("position") if gpt2 else config.size(fields["length"])
    require(key and key % head_dim == 0 and heads % (key // head_dim) == 0,
            f"{folder}: keys of {key} dimensions; a number of heads of {head_dim} that divides {heads} required")
    names = *(fields[name] for name in ("vocabulary", "length", "layers", "hidden")), "num_key_value_heads"
    for name, number in zip(names, (vocabulary, length, layers, hidden, key // head_dim)):
        if config.all.get(name, number) != number:
            print(f"note: {config.path}: {name} is {config.all[name]}, but {number} in the weights, which decide")
    weights = theirs.tables(vocabulary, dim, config.get("tie_word_embeddings", bool, gpt2)) | weights_of(theirs, {
        "norm": (dim,), "position": (length, dim), "query": (dim, dim), "key": (key, dim), "value": (key, dim), "output": (dim, dim),
        "in": (hidden, dim), "gate": (hidden, dim), "out": (dim, hidden)}, layers, heads)

    for name, wanted in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False), ("add_cross_attention", False)):
        config.require(name, config.get(name, bool, wanted) == wanted, str(wanted).lower())
    if llama and config.get("use_sliding_window", bool, kind == "mistral"):
        config.require("sliding_window", config.get("sliding_window", int, length) >= length, f"{length} or more, the length of the model,")
    config.require("layer_types", set(map(str, config.get("layer_types", list, []))) <= {"full_attention"}, "full_attention alone")
    known = {"silu": "swiglu", "swish": "swiglu"} if llama else ACTIVATIONS
    activation = config.get(family.activation, str, "gelu" if family is NEOX else [*known][0])
    epsilon = config.get(family.epsilon, float, 1e-6 if llama else EPSILON)
    config.require(family.activation, activation in known, " or ".join(known))
    config.require(family.epsilon, 1e-12 <= epsilon <= 1, "1e-12 to 1")
    if epsilon != EPSILON:  # norm(s x; s^2 e) = norm(x; e): scale everything that adds to the residual stream, and a tied head's norm
        scale = math.sqrt(EPSILON / epsilon)
        for name, tensor in weights.items():
            added = re.match(r"(embedding|position)\.|.*\.(attention\.output|mlp\.out)\.", name)
            if added or name.startswith("norm.") and "head.weight" not in weights:
                weights[name] = (tensor * np.float64(scale if added else 1 / scale)).astype(np.float32)
        print(f"note: norms have epsilon {epsilon:g} there and {EPSILON:g} here: for the same logits the residual stream is {scale:.4g} times theirs")
    left = sorted(theirs.tensors.keys() - {family.head, *(there for _, there, *_ in pairs(family, layers))})
    others = [name for name in left if not re.fullmatch(r".*\.(attn|attention)\.(masked_)?bias|.*rotary_emb\.inv_freq", name)]
    if left:
        print(f"note: {len(left) - len(others)} tensors of masks and frequencies left out" + (
            f", and {len(others)} that {kind} has no use for: {', '.join(others[:4])}{', ...' * (len(others) > 4)}" if others else ""))
    parallel = family is NEOX and config.get("use_parallel_residual", bool, True)
    bias, attention_bias = (f"blocks.0.{name}.bias" in weights for name in ("mlp.in", "attention.query"))
    return {"vocabulary": vocabulary, "outputs": 0, "length": length, "dim": dim, "layers": layers, "heads": heads,
            **({"kv_heads": key // head_dim} if key != dim else {}),
            "hidden": 0 if gpt2 and "n_inner" not in config.all and hidden == 4 * dim else hidden,
            "activation": known[activation], "norm": "rms" if llama else "layer", "norm_place": "parallel" if parallel else "before",
            "initialisation": "llama" if llama else "gpt2" if gpt2 else "neox",
            "scheme": "absolute" if gpt2 else scheme_of(config, head_dim, length, 1.0 if llama else 0.25), "executor": "auto", "causal": True,
            "bias": bias, "attention_bias": attention_bias or not bias, "tied": "head.weight" not in weights, "scale_embedding": False, "dropout": 0,
            "pattern_dropout": 0, "hidden_dropout": 0}, weights


# ---- Tokenisers

SELVES = [byte for byte in range(256) if 0x21 <= byte <= 0x7E or 0xA1 <= byte != 0xAD]  # bytes that GPT-2's files write unchanged
SPELLING = {**{byte: chr(byte) for byte in SELVES}, **{byte: chr(256 + at) for at, byte in enumerate(sorted({*range(256)} - {*SELVES}))}}
BYTES = {SPELLING[byte]: byte for byte in range(256)}
CUT = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # as GPT-2 does
SAMPLE = "It's the 12th, IT'S 3.14\r\n\r\n  of caf\u00e9 \u2603!  \t na\u00efve\u732b x\n\n\n y 1234567 don't \u1fb3_a"


def other_cut(whole: tokenizers.Tokenizer, model: dict[str, Any]) -> str:
    """The first difference from GPT-2's cuts, the only ones that whence knows; "" if there is none."""
    normal = whole.normalizer.normalize_str if whole.normalizer else lambda text: text
    theirs, ours = ([piece for piece, _ in cut.pre_tokenize_str(text)] if cut else [text] for cut, text in
                    ((whole.pre_tokenizer, normal(SAMPLE)), (CUT, SAMPLE)))
    if normal("e\u0301") != "e\u0301":
        print("note: text is not normalised, unlike in tokenizer.json: it must be in NFC")
    return next((f"{one!r} where GPT-2 has {two!r}" for one, two in zip([*theirs, ""], [*ours, ""]) if one != two), "") or next(
        (f"{name} {model[name]}" for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges") if model.get(name)), "")


def vocabulary_of(folder: pathlib.Path, anyway: bool) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Vocabulary, merges and added tokens of tokenizer.json, or of vocab.json, merges.txt and added_tokens.json."""
    path, more = folder / "tokenizer.json", folder / "added_tokens.json"
    try:
        if path.exists():
            whole = tokenizers.Tokenizer.from_str(read_text(path))
        else:
            lines = [line for line in re.split(r"\r?\n", read_text(folder / "merges.txt")) if line]
            merges = [tuple(line.split(" ")) for line in lines[bool(lines) and lines[0].startswith("#version"):]]
            whole = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=Fields(folder / "vocab.json").all, merges=merges))
            whole.pre_tokenizer = CUT
    except (Refused, OSError):
        raise
    except Exception as problem:  # it has no class of its own
        raise Refused(f"{folder}: no tokeniser of transformers: {problem}") from None
    said = json.loads(whole.to_str())
    model, added = said["model"], {token["content"]: token["id"] for token in said["added_tokens"]} | (Fields(more).all if more.exists() else {})
    require(model["type"] == "BPE" and BYTES.keys() <= model["vocab"].keys(),
            f"{folder}: a tokeniser {model['type']} found, or one without a token for each byte; byte-level BPE or --tokeniser required")
    if other := other_cut(whole, model):
        require(anyway, f"{folder}: tokenizer.json cuts text unlike GPT-2: {other}; --tokeniser gpt2 accepts its tokens all the same. Text "
                "is then cut unlike in training, so that token numbers must come from `tokenizers`")
        print(f"note: text is cut as in GPT-2, unlike in training ({other}); forward() takes token numbers from `tokenizers`")
    if read := [token["content"] for token in said["added_tokens"] if not token["special"]]:
        print(f"note: {len(read)} added tokens are recognised in text there, but not here: {', '.join(map(repr, read[:4]))}")
    return model["vocab"], [line if isinstance(line, str) else " ".join(line) for line in model["merges"]], added


def tokeniser_of(folder: pathlib.Path, given: str, rows: int) -> dict[str, Any]:
    """Our tokeniser for a model of this many tokens. `generate` never draws tokens without a text."""
    head, there = {"format": "whence tokeniser", "version": 1}, (folder / "tokenizer.json").exists() or (folder / "vocab.json").exists()
    if given not in ("", "gpt2", "bytes"):
        own = Fields(pathlib.Path(given)).all
        require(own.get("format") == head["format"] and own.get("vocabulary") == rows,
                f"--tokeniser: {given} has {own.get('vocabulary', 'no')} tokens, the model {rows}; a tokeniser.json for it required")
        return own
    require(there or given == "bytes" or rows == 256 and not given,
            f"--tokeniser: {given or 'none'} given, and {folder} has neither tokenizer.json nor vocab.json; a tokeniser of {rows} tokens "
            "required: bytes, or a tokeniser.json of whence")
    table, merges, added = vocabulary_of(folder, given == "gpt2") if there and given != "bytes" else (dict(BYTES), [], {})
    for content, number in added.items():
        text = "".join(SPELLING[byte] for byte in content.encode()) if {*content} <= {*BYTES} else content  # other texts are written unchanged
        if isinstance(number, int) and number >= rows:
            print(f"note: the added token {content!r} left out: its number is {number}, and the model has {rows}")
            table.pop(content, None)
        elif table.get(content) != number:
            table.setdefault(text, number)
    texts = {number: text for text, number in table.items() if type(number) is int and 0 <= number < rows}
    require(len(texts) == len(table), f"{folder}: {len(table)} tokens found, of which {len(texts)} have a number of their own from 0 to {rows - 1}; "
            f"all required, as the model has {rows} tokens")
    if gaps := [number for number in range(max(texts)) if number not in texts]:
        print(f"note: {len(gaps)} numbers below others have no token: they are called <|no token {gaps[0]}|> and so on")
        texts |= {number: f"<|no token {number}|>" for number in gaps}
    if rows > len(texts):
        print(f"note: the model has {rows} tokens, of which {len(texts)} have a text; generate never draws the others")
    if rows == 256 and not merges and table == BYTES:
        return {**head, "kind": "bytes", "vocabulary": 256}
    return {**head, "kind": "bpe", "vocabulary": rows, "vocab": {texts[number]: number for number in sorted(texts)}, "merges": merges}


def tokenizer_files(own: dict[str, Any]) -> dict[str, bytes]:
    """A tokeniser over bytes as tokenizer.json, and as GPT-2's two files; nothing for other tokenisers."""
    if own.get("kind") not in ("bpe", "bytes"):
        return {}
    table, lines = own.get("vocab", BYTES), own.get("merges", [])
    whole = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=table, merges=[tuple(line.split(" ")) for line in lines]))
    whole.pre_tokenizer, whole.decoder = CUT, tokenizers.decoders.ByteLevel()
    whole.add_special_tokens([text for text in table if re.fullmatch(r"<\|.+\|>", text)])
    merges = "\n".join(["#version: 0.2", *lines, ""])
    return {"tokenizer.json": whole.to_str(pretty=True).encode(), "vocab.json": page(table), "merges.txt": merges.encode()}


# ---- Ours as theirs

def read_ours(folder: pathlib.Path, accept_damaged: bool) -> tuple[Fields, dict[str, np.ndarray], dict[str, Any]]:
    """Returns the options of a run's model, its weights and its tokeniser."""
    require((folder / "run.json").exists(), f"{folder}: neither config.json nor run.json; a model of Hugging Face or a run of train lm required")
    record, path, tokeniser = Fields(folder / "run.json"), folder / "weights.safetensors", folder / "tokeniser.json"
    record.require("subject", record.all.get("subject") == "lm", '"lm", a run of train lm,')
    facts, (metadata, tensors), found = record.get("facts", dict), tensors_in(path), seal_of(read_bytes(path, 1 << 40))
    require(hashlib.sha256(read_bytes(tokeniser)).hexdigest() == facts.get("tokeniser.sha256"),
            f"{tokeniser}: another than in training; the one that {record.path} names required")
    require(found == metadata.get("whence.seal") or accept_damaged, f"{path}: is damaged: its SHA-256 is {found}; {metadata.get('whence.seal')}, its "
            "whence.seal, required; restore it from a copy, or --accept-damaged")
    options = {name.removeprefix("model."): value for name, value in facts.items() if name.startswith("model.")}
    return Fields(record.path, options), {name: as_f32(tensor) for name, tensor in tensors.items()}, Fields(tokeniser).all


def as_theirs(facts: Fields, weights: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """config.json and tensors of a model that fits GPT-2 or GPT-NeoX."""
    sizes, scheme = {name: facts.get(name, int) if name == "hidden" else facts.size(name) for name in SIZES}, facts.get("scheme", str)
    gpt2 = bool(re.fullmatch(r"(absolute|ape|learned)(\([^()]*\))?", scheme))
    family, kind, dim, heads = GPT2 if gpt2 else NEOX, "gpt2" if gpt2 else "gpt_neox", sizes["dim"], sizes["heads"]
    limits: dict[str, list[Any]] = {
        "norm": ["layer"], "norm_place": ["before"] if gpt2 else ["before", "parallel"], "activation": [*dict.fromkeys(ACTIVATIONS.values())],
        "causal": [True], "bias": [True], "attention_bias": [True] if gpt2 else [True, False], "scale_embedding": [False], "tied": [True, False],
        "outputs": [0, sizes["vocabulary"]], "kv_heads": [None, 0, heads]}
    for name, allowed in limits.items():
        facts.require(name, facts.all.get(name) in allowed, f"{' or '.join(map(json.dumps, allowed))}, as GPT-2 and GPT-NeoX have it,")
    sizes["hidden"] = sizes["hidden"] or 4 * dim
    named = {ours: there for ours, *there in pairs(family, min(sizes["layers"], 1 + len(weights)))
             if facts.all["attention_bias"] or not re.search(r"\.attention\..*bias", ours)}
    named |= {} if facts.all["tied"] else {"head.weight": [family.head, False, -1]}
    shapes = {"embedding.weight": (sizes["vocabulary"], dim), "blocks.0.attention.query.weight": (dim, dim),
              "blocks.0.mlp.in.weight": (sizes["hidden"], dim)}
    fits = dim % heads == 0 and named.keys() == weights.keys() and all(weights[name].shape == shape for name, shape in shapes.items())
    require(fits, f"{facts.path}: sizes {sizes} found{'' if facts.all['tied'] else ', and a head'}; those of the weights required")
    tensors = {}
    for ours, (there, turned, part) in named.items():
        tensor = weights[ours]
        if part == 0:  # all heads together, or each head apart
            three = [weights[ours.replace("query", each)].reshape(1 if gpt2 else heads, -1, *tensor.shape[1:]) for each in QKV]
            tensor = np.stack(three, 1).reshape(-1, *tensor.shape[1:])
        if part <= 0:
            tensors[there if there == family.head else family.prefix + there] = np.ascontiguousarray(tensor.T if turned else tensor)
    sizes["length"] = len(weights["position.table"]) if gpt2 else sizes["length"]
    dropout, pattern = facts.get("dropout", float, 0.0), facts.get("pattern_dropout", float, 0.0)
    config: dict[str, Any] = {
        "model_type": kind, "architectures": ["GPT2LMHeadModel" if gpt2 else "GPTNeoXForCausalLM"], **dict(zip(family.sizes, sizes.values())),
        family.activation: next(name for name, ours in ACTIVATIONS.items() if ours == facts.all["activation"]), family.epsilon: EPSILON,
        "tie_word_embeddings": facts.all["tied"], "torch_dtype": "float32"}
    if gpt2:
        return {**config, "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": pattern}, tensors
    return {**config, **rope_of(scheme, dim // heads, sizes["length"]), "use_parallel_residual": facts.all["norm_place"] == "parallel",
            "attention_bias": facts.all["attention_bias"], "hidden_dropout": dropout, "attention_dropout": pattern}, tensors


# ---- The command

def convert(folder: pathlib.Path, out: pathlib.Path, tokeniser: str = "", accept_damaged: bool = False) -> None:
    """Writes the model in `folder` to `out` in the other format."""
    if not (folder / "config.json").exists():
        require(not tokeniser, f"--tokeniser: {tokeniser} given, and {folder} has no config.json; a model of Hugging Face required, as a run has a "
                "tokeniser")
        run, weights, own = read_ours(folder, accept_damaged)
        config, tensors = as_theirs(run, weights)
        data = safetensors.numpy.save(tensors, {"format": "pt"})
        return write(out, {"model.safetensors": data, "config.json": page(config), **tokenizer_files(own)})
    options, weights = read_theirs(folder)
    own = tokeniser_of(folder, tokeniser, options["vocabulary"])
    facts = {f"model.{name}": value for name, value in options.items()}
    facts |= {"tokeniser.kind": own["kind"], "tokeniser.sha256": hashlib.sha256(page(own, 1)).hexdigest()}
    record = {"program": "convert", "version": VERSION, "subject": "lm", "schemes": 2, "options": {}, "given": [],
              "data": hashlib.sha256().hexdigest(), "facts": facts, "seal": "0" * 64}
    record["seal"] = hashlib.sha256(page(record)).hexdigest()
    data = safetensors.numpy.save(weights, {"whence.seal": "0" * 64})
    data = data.replace(b"0" * 64, seal_of(data).encode(), 1)
    write(out, {"weights.safetensors": data, "tokeniser.json": page(own, 1), "run.json": page(record)})


@outside.one_line(refused=3)
def main(words: list[str] | None = None) -> int:
    about = __doc__.partition("\n")
    parser = argparse.ArgumentParser(description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="a model with config.json and model.safetensors, or a run of train lm")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the other format, new or empty")
    parser.add_argument("--tokeniser", default="", help="replaces the model's tokenizer.json or vocab.json and merges.txt: bytes; a "
                        "tokeniser.json of whence; gpt2, the model's own with text cut as in GPT-2")
    parser.add_argument("--accept-damaged", action="store_true", help="accept weights of a run with a wrong checksum")
    options = parser.parse_args(words)
    convert(options.folder, options.out, options.tokeniser, options.accept_damaged)
    print(f"written: {options.out}/{{{', '.join(sorted(each.name for each in options.out.iterdir()))}}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
