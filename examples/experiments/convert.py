#!/usr/bin/env python3
"""Models of Hugging Face as runs of whence, and runs as theirs, with the same logits.

    examples/experiments/convert.py gpt2 --out runs/gpt2         what generate, look, playground, train lm --weights-of and whence.load take
    examples/experiments/convert.py runs/gpt2 --out back         and for transformers' from_pretrained

FOLDER holds config.json and model.safetensors, as `hf download openai-community/gpt2 --local-dir gpt2` leaves them, or is a run of `train lm`.
GPT-2 and GPT-NeoX come in and go out; Llama, Mistral and Qwen2 come in. The tensors decide: which of them are there, of what sizes, and which are
equal. config.json says what no tensor does: heads, activation, rotation.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import decimal
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import sys
from typing import Any, Callable, Iterator

try:
    import numpy as np
    import safetensors.numpy
    import tokenizers
except ImportError as missing:
    sys.exit(f"convert.py: {missing.name} is missing; pip install numpy safetensors tokenizers")

VERSION = "0.1.0"  # of the form of runs
EPSILON = 1e-5  # of our norms
SIZES = ("vocabulary", "length", "dim", "layers", "heads", "hidden")
SIZES_OF_GPT2 = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner")
SIZES_OF_OTHERS = ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf", "relu": "relu"}  # written: the first of several
# Our modules and theirs; N is a block's number. Three of ours may be one of theirs.
LLAMA = {"embedding": "embed_tokens", "blocks.N.norm1": "layers.N.input_layernorm", "blocks.N.norm2": "layers.N.post_attention_layernorm",
         **{f"blocks.N.attention.{ours}": f"layers.N.self_attn.{theirs}_proj"
            for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))},
         **{f"blocks.N.mlp.{ours}": f"layers.N.mlp.{theirs}_proj" for ours, theirs in (("gate", "gate"), ("in", "up"), ("out", "down"))},
         "norm": "norm"}
MODULES = {
    "gpt2": {"embedding": "wte", "position": "wpe", "blocks.N.norm1": "h.N.ln_1", "blocks.N.norm2": "h.N.ln_2",
             **{f"blocks.N.attention.{part}": "h.N.attn.c_attn" for part in ("query", "key", "value")}, "blocks.N.attention.output": "h.N.attn.c_proj",
             "blocks.N.mlp.in": "h.N.mlp.c_fc", "blocks.N.mlp.out": "h.N.mlp.c_proj", "norm": "ln_f"},
    "gpt_neox": {"embedding": "embed_in", "blocks.N.norm1": "layers.N.input_layernorm", "blocks.N.norm2": "layers.N.post_attention_layernorm",
                 **{f"blocks.N.attention.{part}": "layers.N.attention.query_key_value" for part in ("query", "key", "value")},
                 "blocks.N.attention.output": "layers.N.attention.dense", "blocks.N.mlp.in": "layers.N.mlp.dense_h_to_4h",
                 "blocks.N.mlp.out": "layers.N.mlp.dense_4h_to_h", "norm": "final_layer_norm"},
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA}
PREFIX = {"gpt2": "transformer.", "gpt_neox": "gpt_neox.", "llama": "model.", "mistral": "model.", "qwen2": "model."}  # files of the bare model lack it
HEAD = {"gpt2": "lm_head.weight", "gpt_neox": "embed_out.weight", "llama": "lm_head.weight", "mistral": "lm_head.weight", "qwen2": "lm_head.weight"}


class Refused(ValueError):
    """An input that cannot be: the message says what was given and what is required."""


# ---- Files

def read_text(path: pathlib.Path) -> str:
    """A text in UTF-8, without the mark of byte order that some editors put before it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Refused(f"{path}: byte {problem.start} is not UTF-8; UTF-8 required") from None


def read_json(path: pathlib.Path, text: str | None = None) -> dict:
    """The object in a file of JSON."""
    try:
        found = json.loads(read_text(path) if text is None else text)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, Refused):
            raise
        raise Refused(f"{path}: no JSON: {problem}; one object required") from None
    if not isinstance(found, dict):
        raise Refused(f"{path}: no object; a JSON object required")
    return found


class Fields:
    """The fields of a JSON object, each of one kind; null is as good as nothing."""

    def __init__(self, fields: dict, place: str):
        self.fields, self.place = {name: value for name, value in fields.items() if value is not None}, place

    def refuse(self, name: str, required: str):
        found = f'"{self.fields[name]}"' if name in self.fields else "nothing"
        raise Refused(f"{self.place}: {name}: {found} found; {required} required")

    def require(self, name: str, holds: bool, required: str) -> None:
        if not holds:
            self.refuse(name, required)

    def get(self, name: str, kind: type, otherwise: Any = None, required: str = "") -> Any:
        """Its value; `otherwise` where there is none, which has to be one if that is None."""
        value, number = self.fields.get(name, otherwise), kind in (int, float)
        fits = isinstance(value, (int, float) if kind is float else kind) and not (number and isinstance(value, bool))
        self.require(name, fits and not (number and not abs(value) <= 1e300),
                     required or {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "an object"}[kind])
        return value

    def size(self, name: str) -> int:
        self.require(name, 1 <= self.get(name, int) <= 1 << 24, "1 to 16777216")
        return self.fields[name]


class Weights:
    """A file of safetensors, whose tensors are read one by one: what nobody reads may be of any kind."""

    KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

    def __init__(self, path: pathlib.Path):
        self.path, size = path, path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 9 or length > min(size - 8, 100_000_000):
                raise Refused(f"{path}: no header of safetensors; a whole file required, as safetensors.torch.save_file writes it")
            header = read_json(path, file.read(length).decode("utf-8", "replace"))
        self.begin, self.metadata, self.entries = 8 + length, header.pop("__metadata__", None) or {}, header
        for name, entry in header.items():
            try:
                (begin, end), shape, kind = entry["data_offsets"], entry["shape"], entry["dtype"]
                fits = 0 <= begin <= end <= size - self.begin and all(type(extent) is int and extent >= 0 for extent in shape) and (
                    kind not in self.KINDS or math.prod(shape) * int(self.KINDS[kind][2]) == end - begin)
            except (TypeError, KeyError, ValueError):
                fits = False
            if not fits:
                raise Refused(f"{path}: tensor {name!r} does not lie in the file's {size} bytes as its header says; a whole file required")
        if not isinstance(self.metadata, dict):
            raise Refused(f"{path}: __metadata__ is no object; one required")

    def read(self, name: str) -> np.ndarray:
        """The tensor as f32."""
        entry = self.entries[name]
        if entry["dtype"] not in self.KINDS:
            raise Refused(f"{self.path}: {name!r} is {entry['dtype']}; F64, F32, F16 or BF16 required")
        raw = np.fromfile(self.path, self.KINDS[entry["dtype"]], math.prod(entry["shape"]), offset=self.begin + entry["data_offsets"][0])
        if entry["dtype"] == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        with np.errstate(over="ignore"):
            found = raw.astype(np.float32).reshape(entry["shape"])
        if not np.isfinite(found).all():
            raise Refused(f"{self.path}: {name!r} holds {found[~np.isfinite(found)][0]}; finite numbers required")
        return found

    def check_seal(self, accept_damaged: bool) -> None:
        """Refuses a file of ours whose bytes are not those that its seal was made of."""
        said, head = str(self.metadata.get("whence.seal")), None
        with open(self.path, "rb") as file:
            head = file.read(self.begin).replace(b'"whence.seal":"' + said.encode(), b'"whence.seal":"' + b"0" * 64)
            found = hashlib.sha256(head)
            for part in iter(lambda: file.read(1 << 24), b""):
                found.update(part)
        if found.hexdigest() != said:
            if not accept_damaged:
                raise Refused(f"{self.path}: is damaged: its SHA-256 is {found.hexdigest()}; {said}, as its metadata says, required; restore it from a "
                              "copy, or accept the damage (--accept-damaged)")
            print(f"warning: {self.path}: is damaged; it is used all the same", file=sys.stderr)


def write_weights(path: pathlib.Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Safetensors with the seal that whence looks for: the file's SHA-256 with zeros in its place."""
    safetensors.numpy.save_file({name: np.ascontiguousarray(tensor) for name, tensor in sorted(tensors.items())}, path,
                                {**metadata, "whence.seal": "0" * 64})
    found = hashlib.sha256()
    with open(path, "r+b") as file:
        place = file.read(8 + int.from_bytes(file.read(8), "little")).index(b'"whence.seal":"' + b"0" * 64) + 8 + len('"whence.seal":"')
        file.seek(0)
        for part in iter(lambda: file.read(1 << 24), b""):
            found.update(part)
        file.seek(place)
        file.write(found.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())


def write_text(path: pathlib.Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def page(value: Any, indent: int | None = 2) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def new_folder(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder beside `out` that becomes it when all is written, and is gone where something fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"--out: {out} {'holds files' if out.is_dir() else 'is a file'}; a new or empty folder required")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.parent / f"{out.name}.tmp-{os.getpid()}"
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# ---- Rotations: rope_type of a config.json, and our schemes

ORIGINAL = "original_max_position_embeddings"
ROPE_TYPES = {"default": [], "linear": ["factor"], "proportional": ["factor"], "dynamic": ["factor"],
              "llama3": ["factor", ORIGINAL, "low_freq_factor", "high_freq_factor"],
              "longrope": ["factor", ORIGINAL, "short_factor", "long_factor"], "yarn": ["factor", ORIGINAL, "beta_fast", "beta_slow"]}
PRESET = {"factor": "4", "low_freq_factor": "1", "high_freq_factor": "4", "short_factor": "1", "long_factor": "1", "beta_fast": "32", "beta_slow": "1"}


def exact(number: float) -> str:
    """The number as whence writes it: 0.0003, 500000, 1e-06."""
    plain = number == 0 or 1e-5 <= abs(number) < 1e15
    return (format(decimal.Decimal(repr(float(number))), "f") if plain else repr(float(number))).removesuffix(".0")


def scheme_of(config: Fields, head_dim: int, length: int, whole: bool) -> str:
    """The scheme of rope_parameters, as newer versions of transformers have it, or of rope_scaling beside fields of their own. `whole`: all dims of
    a head turn where nothing else is said, as in Llama; a quarter else, as in GPT-NeoX."""
    place = "rope_scaling" if "rope_scaling" in config.fields else "rope_parameters"
    rope = Fields(config.get(place, dict, {}), config.place)
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    config.require(place, kind in ROPE_TYPES, f"rope_type {', '.join(ROPE_TYPES)}")

    def either(newer: str, older: str, otherwise: float) -> float:
        return rope.get(newer, float, config.get(older, float, config.get(newer, float, otherwise)))
    share, base = either("partial_rotary_factor", "rotary_pct", 1.0 if whole else 0.25), either("rope_theta", "rotary_emb_base", 10000.0)
    config.require("rope_theta", 1 <= base <= 1e12, "1 to 1e12")
    width, proportional = int(head_dim * share), kind == "proportional"
    config.require("partial_rotary_factor", share <= 1 and width >= 1 and width % 2 == 0, f"a share of the {head_dim} dimensions of a head, an even number of them,")
    trained = config.get(ORIGINAL, float, rope.get(ORIGINAL, float, float(length)))
    config.require(ORIGINAL, trained >= 1, "1 or more")
    otherwise = {ORIGINAL: trained, "beta_fast": 32.0, "beta_slow": 1.0, **({"factor": 1.0} if proportional else {}),
                 **({"factor": max(1.0, length / trained)} if kind == "longrope" else {})}
    found: dict[str, str] = {}
    for name in ROPE_TYPES[kind]:
        if name in ("short_factor", "long_factor"):
            numbers = rope.get(name, list, required=f"a number for each of {width // 2} pairs")
            rope.require(name, len(numbers) == width // 2 and all(type(each) in (int, float) for each in numbers), f"a number for each of {width // 2} pairs")
            found[name] = ":".join(map(exact, numbers))
        else:
            found["original" if name == ORIGINAL else name] = exact(trained if name == ORIGINAL else rope.get(name, float, otherwise.get(name)))
    factor = float(found.get("factor", 1))
    magnitude = {"yarn": 0.1 * math.log(max(factor, 1)) + 1, "longrope": math.sqrt(1 + math.log(max(factor, 1)) / math.log(max(trained, 2)))}.get(kind)
    rope.require("attention_factor", magnitude is None or abs(rope.get("attention_factor", float, magnitude) - magnitude) < 1e-9,
                 f"{magnitude}, which follows from the factor,")
    rope.require("truncate", rope.get("truncate", bool, True), "true")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *ROPE_TYPES[kind], *(["attention_factor", "truncate"] if magnitude else [])}
    if unknown := rope.fields.keys() - known:
        config.refuse(place, f"{', '.join(sorted(known))} alone for {kind}, no {sorted(unknown)[0]},")
    inside = [f"base={exact(base)}"] * (base != 10000) + [f"width={width}"] * (width != head_dim and not proportional)
    inside += [f"keep={exact(share)}"] * (proportional and share != 1) + [f"scaling={kind}"] * (kind in ("dynamic", "llama3", "longrope"))
    around = kind in ("linear", "proportional")
    if not around:
        inside += [f"{name}={value}" for name, value in found.items()] + [f"original={length}"] * (kind == "dynamic")
    text = ("yarn" if kind == "yarn" else "rope") + (f"({', '.join(inside)})" if inside else "")
    return f"interpolated({text}, factor={found['factor']})" if around and factor != 1 else text


def parsed(text: str) -> tuple[str, dict[str, str], tuple | None] | None:
    """ "interpolated(rope(base=500), factor=2)" as ("interpolated", {"factor": "2"}, ("rope", {"base": "500"}, None)); None for a sum of schemes."""
    whole = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if not whole or "+" in re.sub(r"[eE]\+", "", text):
        return None
    inside, options = None, {}
    for part in re.findall(r"(?:[^,()]|\([^()]*\))+", whole[2] or ""):
        name, equals, value = part.partition("=")
        if equals and "(" not in name:
            options[name.strip()] = value.strip()
        elif part.strip():
            inside = parsed(part)
    aliases = {"rotary": "rope", "pi": "interpolated", "ape": "absolute", "learned": "absolute"}
    return aliases.get(whole[1], whole[1]), options, inside


def rope_of(scheme: tuple[str, dict[str, str], tuple | None], head_dim: int, length: int) -> dict[str, Any]:
    """The fields of GPT-NeoX's config.json for such a rotation, as versions of transformers old and new read it."""
    outer, options, inside = scheme
    name, own, _ = inside if outer == "interpolated" and inside else scheme
    scaling, keep, width = own.get("scaling", "none"), float(own.get("keep", 1)), int(own.get("width", 0))
    kind = "yarn" if outer == "yarn" else "default" if scaling == "none" else scaling
    if keep != 1:
        kind = "proportional" if scaling == "none" and width == 0 else "?"
    elif outer == "interpolated":
        kind = "linear" if scaling == "none" else "?"
    if (outer, name) not in {("rope", "rope"), ("yarn", "yarn"), ("interpolated", "rope")} or kind not in ROPE_TYPES:
        raise Refused(f"scheme: {outer} given; absolute, or rope (with keep over all dims of a head, or scaling=dynamic, llama3 or longrope), "
                      "interpolated(rope) or yarn required, as GPT-2 and GPT-NeoX have it")
    for option, required in (("layout", "half"), ("dynamic", "no")):
        if own.get(option, required) != required:
            raise Refused(f"scheme: {option}={own[option]} given; {option}={required} required, as GPT-NeoX has it")
    original, pairs = int(own.get("original", 0)) or length, (width or head_dim) // 2
    fields: dict[str, Any] = {"rotary_pct": keep * (width / head_dim if width else 1.0), "rotary_emb_base": float(own.get("base", 10000))}
    if kind == "dynamic" and original != length:
        raise Refused(f"scheme: original {original} in a model of {length} tokens given; one number for both required, as transformers has one")
    scaled: dict[str, Any] = {"rope_type": kind}
    for field in ROPE_TYPES[kind]:
        if field == ORIGINAL:
            scaled[field] = original
        elif field in ("short_factor", "long_factor"):
            numbers = [float(each) for each in own.get(field, PRESET[field]).split(":")]
            scaled[field] = numbers * pairs if len(numbers) == 1 else numbers
        elif kind not in ("linear", "proportional") or outer == "interpolated":
            scaled[field] = float(options.get(field, "1" if outer == "interpolated" else PRESET[field]))
    return fields if kind == "default" else {**fields, "rope_scaling": scaled}


# ---- Theirs as ours

class Theirs:
    """The weights of a folder of Hugging Face by their names, without the prefix that files of the bare model lack."""

    def __init__(self, folder: pathlib.Path, prefix: str):
        self.folder, self.prefix, self.places, self.used = folder, prefix, {}, set()
        alias: dict[str, str] = {}
        for file in map(Weights, self.paths()):
            for name in file.entries:
                self.places.setdefault(name.removeprefix(prefix), []).append((file, name))
            alias |= {name.removeprefix(prefix): str(other).removeprefix(prefix) for name, other in file.metadata.items()}
        self.stands_for = {name: other for name, other in alias.items() if other in self.places and name not in self.places}

    def paths(self) -> list[pathlib.Path]:
        """model.safetensors where it is, whatever an index beside it says, as transformers does; else the files that the index lists."""
        whole, index = self.folder / "model.safetensors", self.folder / "model.safetensors.index.json"
        if whole.exists() or not index.exists():
            if not whole.exists() and any(self.folder.glob("*.bin")):
                raise Refused(f"{self.folder}: weights of torch.save alone found; model.safetensors required: save_pretrained of transformers writes it")
            return [whole]
        names = sorted({str(each) for each in Fields(read_json(index), str(index)).get("weight_map", dict).values()})
        if bad := [name for name in names if not re.fullmatch(r"[^./\0][^/\0]*", name)]:
            raise Refused(f"{index}: file {bad[0]!r} found; one of the same folder required")
        if not names:
            raise Refused(f"{index}: no file in weight_map; one required")
        return [self.folder / name for name in names]

    def __contains__(self, name: str) -> bool:
        return name in self.places or name in self.stands_for

    def find(self, name: str, shape: tuple[int, ...] | None = None) -> tuple[Weights, str, tuple[int, ...]]:
        """Its file, its name there, and its shape. Refused where it is not there once, or has another shape."""
        name = self.stands_for.get(name, name)
        places = self.places.get(name, [])
        if len(places) != 1:
            raise Refused(f"{self.folder}: " + (f"tensor {name!r} stands in {' and '.join(str(file.path) for file, _ in places)}; once required" if places
                                                else f"no tensor {self.prefix + name!r}, with or without {self.prefix!r}; it required"))
        self.used.add(name)
        (file, full), = places
        found = tuple(file.entries[full]["shape"])
        if shape and found != shape:
            raise Refused(f"{file.path}: {full!r} is {list(found)}; {list(shape)} required")
        return file, full, found

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """The tensor as f32."""
        file, full, _ = self.find(name, shape)
        return file.read(full)


class Model:
    """A model as runs of whence have it: `facts`, which are its options, and `weights` by our names. `notes`: what a reader has to know."""

    def __init__(self, facts: dict[str, Any], weights: dict[str, np.ndarray], notes: list[str]):
        self.facts, self.weights, self.notes = facts, weights, notes


def tables_of(theirs: Theirs, config: Fields, embedding: str, head: str, tied: bool, notes: list[str]) -> tuple[np.ndarray, np.ndarray | None]:
    """The table of tokens, and that of the logits if it is another. `tied`: config.json says that they are one; the file knows better."""
    one = {theirs.stands_for.get(embedding), theirs.stands_for.get(head)} & {embedding, head}
    there = [name for name in (embedding, head) if name in theirs.places]
    if len(there) == 1 and (tied or one):
        return theirs.read(there[0]), None
    if there == [embedding]:
        raise Refused(f"{theirs.folder}: no tensor {head!r}; it required, as {config.place} says that tie_word_embeddings is false")
    table = theirs.read(embedding)
    logits = theirs.read(head, table.shape)
    if tied and np.array_equal(table, logits):
        return table, None
    if tied:
        notes.append(f"{head} is no copy of {embedding}, whatever tie_word_embeddings says: the model has a head of its own")
    return table, logits


def scaled_residuals(weights: dict[str, np.ndarray], epsilon: float, tied: bool) -> None:
    """Makes norms of our epsilon give what those of `epsilon` gave: norm(s x; s^2 e) = norm(x; e), so that all that adds to the residual stream is
    multiplied by s. A tied head undoes it in the last norm."""
    scale = math.sqrt(EPSILON / epsilon)
    for name, tensor in weights.items():
        if re.search(r"^(embedding|position)\.|\.attention\.output\.|\.mlp\.out\.", name):
            weights[name] = (tensor * np.float64(scale)).astype(np.float32)
        elif tied and name.startswith("norm."):
            weights[name] = (tensor / np.float64(scale)).astype(np.float32)


def theirs_as_ours(folder: pathlib.Path) -> Model:
    """Reads config.json and the weights of a folder."""
    place, notes = folder / "config.json", []
    config = Fields(read_json(place), str(place))
    kind = config.get("model_type", str, "", required=f"one of {', '.join(MODULES)}")
    config.require("model_type", kind in MODULES, f"one of {', '.join(MODULES)}")
    gpt2, llama = kind == "gpt2", MODULES[kind] is LLAMA
    modules, theirs, fields = MODULES[kind], Theirs(folder, PREFIX[kind]), dict(zip(SIZES, SIZES_OF_GPT2 if gpt2 else SIZES_OF_OTHERS))
    table, logits = tables_of(theirs, config, modules["embedding"] + ".weight", HEAD[kind], config.get("tie_word_embeddings", bool, gpt2), notes)
    if table.ndim != 2 or not table.size:
        raise Refused(f"{folder}: the embedding is {list(table.shape)}; [tokens, dimensions] required")

    block = re.compile(re.escape(modules["blocks.N.norm1"]).replace("N", r"(\d+)", 1) + r"\.weight")
    layers = 1 + max((int(found[1]) for found in map(block.fullmatch, theirs.places) if found), default=-1)
    vocabulary, dim = table.shape
    heads = config.size(fields["heads"])
    config.require(fields["heads"], dim % heads == 0, f"a divisor of {dim}, the dimensions of a token,")
    config.require("head_dim", config.get("head_dim", int, dim // heads) == dim // heads, f"{dim // heads}, as {heads} heads share {dim} dimensions,")
    config.require(fields["layers"], 1 <= config.get(fields["layers"], int, layers) <= layers, f"1 to {layers}, the blocks of the weights,")
    config.require(fields["dim"], config.get(fields["dim"], int, dim) == dim, f"{dim}, as the embedding has it,")
    rows = lambda name, axis=0: (theirs.find(name + ".weight")[2] or (0,))[axis]
    hidden = rows(modules["blocks.N.mlp.in"].replace("N", "0"), -1 if gpt2 else 0)
    length = rows("wpe") if gpt2 else config.size(fields["length"])
    key = rows("layers.0.self_attn.k_proj") if llama else dim
    key_heads = key // (dim // heads)
    if key % (dim // heads) or not key_heads or heads % key_heads:
        raise Refused(f"{folder}: keys of {key} numbers found; so many heads of {dim // heads} required as divide {heads}")
    for name, said, found in [*((fields[size], config.fields.get(fields[size]), found) for size, found in
                              (("vocabulary", vocabulary), ("length", length), ("layers", layers), ("hidden", hidden))),
                              ("num_key_value_heads", config.fields.get("num_key_value_heads") if llama else None, key_heads)]:
        if said not in (None, found):
            notes.append(f"{place} says {name} {said}, the weights {found}: as the weights")

    shapes = {"query": (dim, dim), "key": (key, dim), "value": (key, dim), "output": (dim, dim), "gate": (hidden, dim), "in": (hidden, dim),
              "out": (dim, hidden), "position": (length, dim)}
    weights: dict[str, np.ndarray] = {"embedding.weight": table} | ({} if logits is None else {"head.weight": logits})
    for ours, name in modules.items():
        last = ours.rpartition(".")[2]
        shape, fused = shapes.get(last, (dim,)), name.endswith(("c_attn", "query_key_value"))
        for number in map(str, range(layers if "N" in ours else 1)):
            path, there = ours.replace("N", number), name.replace("N", number)
            if ours == "position":
                weights["position.table"] = theirs.read(there + ".weight", shape)
                continue
            for leaf, wanted in (("weight", shape), ("bias", shape[:1])) if ours != "embedding" else ():
                is_norm = last.startswith("norm")
                if leaf == "bias" and (is_norm and llama or not is_norm and f"{there}.bias" not in theirs):
                    continue
                whole = (3 * wanted[0], *wanted[1:]) if fused else wanted
                turned = gpt2 and leaf == "weight" and not is_norm
                tensor = theirs.read(f"{there}.{leaf}", whole[::-1] if turned else whole)
                tensor = tensor.T if turned else tensor
                if fused:
                    third = ("query", "key", "value").index(last)
                    tensor = (tensor.reshape(3, dim, *wanted[1:])[third] if gpt2
                              else tensor.reshape(heads, 3, dim // heads, *wanted[1:])[:, third].reshape(wanted))
                weights[f"{path}.{leaf}"] = np.ascontiguousarray(tensor)

    kinds = {which: [name for name in weights if f".{which}." in name and name.endswith(".weight")] for which in ("attention", "mlp")}
    biased = {which: any(name.replace(".weight", ".bias") in weights for name in names) for which, names in kinds.items()}
    if any(biased.values()):  # ours are all there, or none
        for name in kinds["mlp"] + kinds["attention"] * biased["attention"]:
            weights.setdefault(name.replace(".weight", ".bias"), np.zeros(len(weights[name]), np.float32))
    if gpt2:
        for name, wanted in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False), ("add_cross_attention", False)):
            config.require(name, config.get(name, bool, wanted) == wanted, str(wanted).lower())
    if llama:
        windowed = config.get("use_sliding_window", bool, kind == "mistral")
        config.require("sliding_window", not windowed or config.get("sliding_window", int, length) >= length, f"{length} or more, as there is no window,")
        config.require("layer_types", set(config.get("layer_types", list, [], "a list")) <= {"full_attention"}, "full_attention alone")
    activation, acts = "activation_function" if gpt2 else "hidden_act", {"silu": "swiglu", "swish": "swiglu"} if llama else ACTIVATIONS
    name = config.get(activation, str, "silu" if llama else "gelu_new" if gpt2 else "gelu")
    config.require(activation, name in acts, " or ".join(acts))
    parallel = kind == "gpt_neox" and config.get("use_parallel_residual", bool, True)
    facts = {"vocabulary": vocabulary, "outputs": 0, "length": length, "dim": dim, "layers": layers, "heads": heads,
             **({"kv_heads": key_heads} if key_heads != heads else {}),
             "hidden": 0 if gpt2 and "n_inner" not in config.fields and hidden == 4 * dim else hidden, "activation": acts[name],
             "norm": "rms" if llama else "layer", "norm_place": "parallel" if parallel else "before",
             "initialisation": "llama" if llama else "gpt2" if gpt2 else "neox",
             "scheme": "absolute" if gpt2 else scheme_of(config, dim // heads, length, llama), "executor": "auto", "causal": True,
             "bias": any(biased.values()), "attention_bias": biased["attention"] or not any(biased.values()), "tied": logits is None,
             "scale_embedding": False, "dropout": 0, "pattern_dropout": 0, "hidden_dropout": 0}
    field = "layer_norm_epsilon" if gpt2 else "rms_norm_eps" if llama else "layer_norm_eps"
    epsilon = config.get(field, float, 1e-6 if llama else EPSILON)
    config.require(field, 1e-12 <= epsilon <= 1, "1e-12 to 1")
    if epsilon != EPSILON:
        scaled_residuals(weights, epsilon, logits is None)
        notes.append(f"norms have epsilon {epsilon:g}, ours {EPSILON:g}: the residual stream is {math.sqrt(EPSILON / epsilon):.4g} times theirs, logits are the same")
    masks = re.compile(r".*\.(attn|attention)\.(masked_)?bias|.*rotary_emb\.inv_freq")
    left = sorted(theirs.places.keys() - theirs.used)
    if unread := [name for name in left if not masks.fullmatch(name)]:
        notes.append(f"{len(unread)} tensors left out, as {kind} reads none of them: {', '.join(unread[:4])}{', ...' * (len(unread) > 4)}")
    notes.append(f"{len(left) - len(unread)} tensors of masks and frequencies left out")
    return Model(facts, weights, notes)


# ---- Tokenisers

CODES = [code for code in range(256) if 0x21 <= code <= 0x7E or 0xA1 <= code <= 0xFF and code != 0xAD]
SPELLING = {**{byte: chr(byte) for byte in CODES}, **{byte: chr(256 + at) for at, byte in enumerate(sorted(set(range(256)) - set(CODES)))}}
TEXT = "It's the 12th, IT'S 3.14\r\n\r\n  of caf\u00e9 \u2603!  \t na\u00efve\u732b x\n\n\n y 1234567 don't \u1fb3_a"
CUT = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # as GPT-2 does


def spelled(text: bytes) -> str:
    """As GPT-2's files spell bytes: " the" as "\u0120the"."""
    return "".join(SPELLING[byte] for byte in text)


def named(content: str) -> str:
    """An added token as a vocabulary has it. One of other characters than bytes are spelled with stands for itself."""
    return spelled(content.encode()) if set(content) <= set(SPELLING.values()) else content


def read_tokenizer_json(path: pathlib.Path, as_gpt2: bool, notes: list[str]) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Vocabulary, merges and added tokens. Refused where it cuts text otherwise than GPT-2, unless `as_gpt2`."""
    try:
        whole = tokenizers.Tokenizer.from_str(read_text(path))
    except Refused:
        raise
    except Exception as problem:  # the package has no error of its own
        raise Refused(f"{path}: no tokenizer.json: {problem}") from None
    said = json.loads(whole.to_str())
    model, normal, cut = said["model"], whole.normalizer, whole.pre_tokenizer
    if model["type"] != "BPE" or not set(map(spelled, map(bytes, zip(range(256))))) <= model["vocab"].keys():
        raise Refused(f"{path}: {model['type']}, with a token for each byte or without, found; BPE with one for each of 256 required; --tokeniser FILE "
                      "names one of whence tokenize")
    pieces = lambda by: [piece for piece, _ in by.pre_tokenize_str(normal.normalize_str(TEXT) if normal else TEXT)] if by else [TEXT]
    ours = [piece for piece, _ in CUT.pre_tokenize_str(TEXT)]
    other = next((f"{one!r} where GPT-2 has {two!r}" for one, two in zip([*pieces(cut), ""], [*ours, ""]) if one != two), "")
    other = other or next((f"{name} {model[name]}" for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
                           if model.get(name)), "")
    if other and not as_gpt2:
        raise Refused(f"{path}: cuts text otherwise than GPT-2: {other}; --tokeniser gpt2 takes its tokens all the same, and text is then read otherwise than "
                      "in training; logits of numbers stay right")
    if other:
        notes.append(f"text is cut as GPT-2 does, otherwise than in training ({other}): give whence.load(...).forward the numbers of `tokenizers`")
    if normal and normal.normalize_str("e\u0301") != "e\u0301":
        notes.append("text is not normalised first, as tokenizer.json would: it has to be in NFC")
    if read := [each["content"] for each in said["added_tokens"] if not each["special"]]:
        notes.append(f"{len(read)} added tokens are never read out of text, as whence does that with none: {', '.join(map(repr, read[:4]))}")
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    return model["vocab"], merges, {each["content"]: each["id"] for each in said["added_tokens"]}


def read_gpt2_files(folder: pathlib.Path) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Of vocab.json and merges.txt, with added_tokens.json and tokenizer_config.json where they are."""
    added, config = {}, folder / "tokenizer_config.json"
    if (folder / "added_tokens.json").exists():
        added |= read_json(folder / "added_tokens.json")
    if config.exists():
        for number, token in Fields(read_json(config), str(config)).get("added_tokens_decoder", dict, {}).items():
            if number.isdigit() and isinstance(token, dict):
                added[str(token.get("content"))] = int(number)
    merges = [line for line in re.split(r"\r?\n", read_text(folder / "merges.txt")) if line]
    return read_json(folder / "vocab.json"), merges[merges[:1] != [] and merges[0].startswith("#version"):], added


def bpe(place: pathlib.Path, vocabulary: dict[str, int], merges: list[str], added: dict[str, int], rows: int, notes: list[str]) -> dict:
    """A tokeniser of ours for a model of so many tokens. Those of them that have no text, `generate` never draws."""
    table = dict(vocabulary)
    for content, number in added.items():
        if table.get(content, table.get(named(content))) == number:
            continue
        if isinstance(number, int) and number >= rows:
            notes.append(f"the added token {content!r} left out: it is number {number}, and the model has {rows}")
        elif table.setdefault(named(content), number) != number:
            raise Refused(f"{place}: token {content!r} has the numbers {table[named(content)]} and {number}; one required")
    texts: dict[int, str] = {}
    for text, number in table.items():
        if type(number) is not int or not 0 <= number < rows or number in texts:
            raise Refused(f"{place}: token {text!r} has number {number!r}; each once, 0 to {rows - 1}, required, as the model has {rows} tokens")
        texts[number] = text
    if gaps := [number for number in range(max(texts) + 1) if number not in texts]:
        notes.append(f"{len(gaps)} numbers below others have no token, the first {gaps[0]}: they are called <|no token {gaps[0]}|>, ...")
        table |= {f"<|no token {number}|>": number for number in gaps}
    for line in merges:
        left, _, right = line.partition(" ")
        if not (left in table and right in table and left + right in table):
            raise Refused(f"{place}: merge {line!r} found; two tokens that make a third required")
    if lacking := [byte for byte in range(256) if SPELLING[byte] not in table]:
        raise Refused(f"{place}: no token for byte {lacking[0]}; one for each required, as in GPT-2")
    if rows == 256 and not merges and all(table[SPELLING[byte]] == byte for byte in range(256)):
        return {"format": "whence tokeniser", "version": 1, "kind": "bytes", "vocabulary": 256}
    if rows > len(table):
        notes.append(f"the model has {rows} tokens, of which {len(table)} have a text; generate never draws the others")
    return {"format": "whence tokeniser", "version": 1, "kind": "bpe", "vocabulary": rows, "vocab": dict(sorted(table.items(), key=lambda item: item[1])),
            "merges": merges}


def tokeniser_of(folder: pathlib.Path, given: str, rows: int, notes: list[str]) -> dict:
    """The tokeniser that was given, or that of tokenizer.json, of GPT-2's two files, or bytes where the model has 256 tokens."""
    whole, files = folder / "tokenizer.json", [folder / "vocab.json", folder / "merges.txt"]
    bytes_alone = {SPELLING[byte]: byte for byte in range(256)}
    if given not in ("", "gpt2", "bytes"):
        own = read_json(pathlib.Path(given))
        if own.get("format") != "whence tokeniser" or own.get("kind") not in ("bytes", "characters", "words", "bpe"):
            raise Refused(f"--tokeniser: {given} is no file of whence tokenize; one, bytes or gpt2 required")
        if own["kind"] == "bpe":
            fields = Fields(own, given)
            return bpe(pathlib.Path(given), fields.get("vocab", dict), fields.get("merges", list, [], "a list"), {}, rows, notes)
        tokens = 256 if own["kind"] == "bytes" else 1 + len(own[own["kind"]])
        if own["kind"] != "bytes" and tokens != rows:
            raise Refused(f"--tokeniser: {given} has {tokens} tokens and the model {rows}; the tokeniser that the model was trained with required")
        if own["kind"] != "bytes":
            return own
    if given not in ("", "gpt2"):
        return bpe(pathlib.Path(given), bytes_alone, [], {}, rows, notes)
    if whole.exists():
        return bpe(whole, *read_tokenizer_json(whole, given == "gpt2", notes), rows, notes)
    if all(each.exists() for each in files):
        return bpe(files[0], *read_gpt2_files(folder), rows, notes)
    if rows == 256 and not given:
        return bpe(folder, bytes_alone, [], {}, rows, notes)
    raise Refused(f"--tokeniser: {given or 'none'} given, and {folder} has neither tokenizer.json nor vocab.json and merges.txt; a tokeniser of {rows} tokens "
                  "required: bytes, or a file of whence tokenize")


# ---- Ours as theirs

def read_run(folder: pathlib.Path, accept_damaged: bool) -> tuple[Model, dict]:
    """A run of train lm, and its tokeniser."""
    record = read_json(folder / "run.json")
    facts = Fields(record.get("facts") if isinstance(record.get("facts"), dict) else {}, str(folder / "run.json"))
    if record.get("subject") != "lm":
        raise Refused(f"{folder}: a run of {record.get('subject')} given; one of train lm required")
    weights = Weights(folder / "weights.safetensors")
    weights.check_seal(accept_damaged)
    found = {name.removeprefix("model."): value for name, value in facts.fields.items() if name.startswith("model.")}
    return Model(found, {name: weights.read(name) for name in weights.entries}, []), read_json(folder / "tokeniser.json")


def ours_as_theirs(model: Model, place: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """config.json and tensors of a model whose options GPT-2 or GPT-NeoX have."""
    facts = Fields(model.facts, place)
    sizes = {name: facts.get(name, int) for name in SIZES}
    scheme = parsed(facts.get("scheme", str)) or ("a sum", {}, None)
    gpt2, parallel, heads = scheme[0] == "absolute", facts.get("norm_place", str) == "parallel", sizes["heads"]
    kind, activation = "gpt2" if gpt2 else "gpt_neox", facts.get("activation", str)
    for name, holds, required in (("kv_heads", facts.get("kv_heads", int, heads) in (0, heads), "as many as heads"), ("norm", facts.get("norm", str) == "layer", "layer"),
                                  ("norm_place", facts.get("norm_place", str) == "before" or parallel and not gpt2, "before" if gpt2 else "before or parallel"),
                                  ("activation", activation in ACTIVATIONS.values(), "gelu, gelu_erf or relu"), ("causal", facts.get("causal", bool), "true"),
                                  ("bias", facts.get("bias", bool), "true"), ("attention_bias", facts.get("attention_bias", bool) or not gpt2, "true"),
                                  ("scale_embedding", not facts.get("scale_embedding", bool), "false"),
                                  ("outputs", facts.get("outputs", int) in (0, sizes["vocabulary"]), "one per token")):
        facts.require(name, holds, f"{required}, as GPT-2 and GPT-NeoX have it,")
    rotation = {} if gpt2 else rope_of(scheme, sizes["dim"] // heads, sizes["length"])
    tensors: dict[str, np.ndarray] = {}
    for ours, name in MODULES[kind].items():
        for number in map(str, range(sizes["layers"] if "N" in ours else 1)):
            there = PREFIX[kind] + name.replace("N", number)
            for leaf in ("weight", "bias"):
                path = "position.table" if ours == "position" else f"{ours.replace('N', number)}.{leaf}"
                if path not in model.weights or f"{there}.{leaf}" in tensors or (ours, leaf) == ("position", "bias"):
                    if leaf == "weight" and path not in model.weights:
                        raise Refused(f"{place}: no weights {path}; those of its options required")
                    continue
                if name.endswith(("c_attn", "query_key_value")):
                    thirds = [model.weights[path.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
                    tensor = (np.concatenate(thirds) if gpt2 else
                              np.stack([each.reshape(heads, -1, *each.shape[1:]) for each in thirds], 1).reshape(-1, *thirds[0].shape[1:]))
                else:
                    tensor = model.weights[path]
                tensors[f"{there}.{leaf}"] = tensor.T if gpt2 and leaf == "weight" and ".h." in there and ".ln_" not in there else tensor
    if not facts.get("tied", bool):
        tensors[HEAD[kind]] = model.weights["head.weight"]
    if gpt2:
        sizes["length"] = len(model.weights["position.table"])
    sizes["hidden"] = sizes["hidden"] or 4 * sizes["dim"]
    config: dict[str, Any] = {"model_type": kind, "architectures": ["GPT2LMHeadModel" if gpt2 else "GPTNeoXForCausalLM"],
                              **dict(zip(SIZES_OF_GPT2 if gpt2 else SIZES_OF_OTHERS, sizes.values())),
                              "activation_function" if gpt2 else "hidden_act": next(name for name, own in ACTIVATIONS.items() if own == activation), **rotation}
    dropout, pattern = float(facts.get("dropout", float)), float(facts.get("pattern_dropout", float))
    config |= {} if gpt2 else {"use_parallel_residual": parallel}
    config |= {"layer_norm_epsilon" if gpt2 else "layer_norm_eps": EPSILON}
    config |= {} if gpt2 else {"attention_bias": facts.get("attention_bias", bool)}
    config |= {"tie_word_embeddings": facts.get("tied", bool)}
    config |= {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": pattern} if gpt2 else {"hidden_dropout": dropout, "attention_dropout": pattern}
    return {**config, "torch_dtype": "float32"}, tensors


def write_tokenizer(folder: pathlib.Path, own: dict) -> list[str]:
    """tokenizer.json, and GPT-2's two files, of a tokeniser of ours over bytes. Returns the names of the files."""
    if own.get("kind") not in ("bpe", "bytes"):
        return []
    table = own.get("vocab", {SPELLING[byte]: byte for byte in range(256)})
    merges = own.get("merges", [])
    whole = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=table, merges=[tuple(line.split(" ")) for line in merges]))
    whole.pre_tokenizer, whole.decoder = CUT, tokenizers.decoders.ByteLevel()
    whole.add_special_tokens([text for text in table if text.startswith("<|") and text.endswith("|>")])
    write_text(folder / "tokenizer.json", whole.to_str(pretty=True) + "\n")
    write_text(folder / "vocab.json", json.dumps(table, ensure_ascii=False, separators=(",", ":")))
    write_text(folder / "merges.txt", "".join(f"{line}\n" for line in ["#version: 0.2", *merges]))
    return ["tokenizer.json", "vocab.json", "merges.txt"]


# ---- The command

def convert(folder: pathlib.Path, out: pathlib.Path, tokeniser: str = "", accept_damaged: bool = False) -> list[str]:
    """Writes the other form of the model in `folder` to `out`. Returns what there is to say."""
    if (folder / "config.json").exists():
        model = theirs_as_ours(folder)
        own = tokeniser_of(folder, tokeniser, model.facts["vocabulary"], model.notes)
        text = page(own, 1)
        facts = {**{f"model.{name}": value for name, value in model.facts.items()}, "tokeniser.kind": own["kind"],
                 "tokeniser.sha256": hashlib.sha256(text.encode()).hexdigest()}
        record = {"program": "convert", "version": VERSION, "subject": "lm", "schemes": 2, "options": {}, "given": [], "data": hashlib.sha256().hexdigest(),
                  "facts": facts}
        with new_folder(out) as new:
            write_weights(new / "weights.safetensors", model.weights, {})
            write_text(new / "tokeniser.json", text)
            write_text(new / "run.json", page(record))
        return [f"model: {model.facts['scheme']}, {sum(tensor.size for tensor in model.weights.values())} parameters", *(f"note: {note}" for note in model.notes),
                f"written: {out}/{{run.json, tokeniser.json, weights.safetensors}}"]
    if not (folder / "run.json").exists():
        raise Refused(f"{folder}: neither config.json nor run.json; a model of Hugging Face or a run of train lm required")
    if tokeniser:
        raise Refused("--tokeniser: given with a run, which has its own; a folder with config.json required")
    model, own = read_run(folder, accept_damaged)
    config, tensors = ours_as_theirs(model, str(folder / "run.json"))
    with new_folder(out) as new:
        write_weights(new / "model.safetensors", tensors, {"format": "pt"})
        files = write_tokenizer(new, own)
        write_text(new / "config.json", page(config))
    return [f"written: {out}/{{{', '.join(['config.json', 'model.safetensors', *files])}}}"]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[1:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="config.json and model.safetensors of theirs, or a run of train lm")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="new folder for the other form")
    parser.add_argument("--tokeniser", default="", help="of theirs: bytes; a file of whence tokenize; gpt2: the tokens of tokenizer.json, with text cut as GPT-2 "
                        "does whatever it says. Left out: tokenizer.json, or vocab.json and merges.txt")
    parser.add_argument("--tokens", type=pathlib.Path, help='safetensors file with "tokens", i64 [batch, time]')
    parser.add_argument("--logits", type=pathlib.Path, help="file for the logits of these, to compare; by the module whence")
    parser.add_argument("--accept-damaged", action="store_true", help="use weights of ours whose checksum is wrong, with a warning")
    options = parser.parse_args(words)
    try:
        if bool(options.tokens) != bool(options.logits):
            raise Refused("--tokens, --logits: one given; both or none required")
        for line in convert(options.folder, options.out, options.tokeniser, options.accept_damaged):
            print(line)
        if options.tokens:
            import whence
            try:
                tokens = safetensors.numpy.load_file(options.tokens)["tokens"]
                run = options.out if (options.out / "run.json").exists() else options.folder
                safetensors.numpy.save_file({"logits": np.ascontiguousarray(whence.load(str(run)).forward(tokens))}, options.logits)
            except (KeyError, safetensors.SafetensorError, ValueError) as problem:
                raise Refused(f'--tokens: {options.tokens}: {problem}; "tokens" of i64 [batch, time] required') from None
            print(f"written: {options.logits}")
        return 0
    except ImportError as missing:
        print(f"convert.py: --logits: {missing.name} is missing; pip install .packaging", file=sys.stderr)
        return 2
    except (Refused, OSError) as problem:
        print(f"convert.py: {problem}", file=sys.stderr)
        return 3 if isinstance(problem, Refused) else 4
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
