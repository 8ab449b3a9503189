#!/usr/bin/env python3
"""Tests models of Hugging Face as runs and back (examples/experiments/convert.py): logits from the published formulas in f64, equal bytes of weights,
contradictions of files and config.json, and bad files.
    PYTHONPATH=build/release/python python3 tests/examples/experiments/convert.py
Needs numpy, safetensors, tokenizers, torch and the module; ends with 77 if one is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import functools
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "examples/experiments"), str(ROOT / "examples/whence/verify")]
sys.dont_write_bytecode = True
import packages

packages.require("numpy", "safetensors", "tokenizers", "torch", "whence", skip=77)
import numpy as np
import safetensors.numpy
import safetensors.torch
import tokenizers
import torch
import torch.nn.functional as F

import convert
import formulas
import whence

GOLDEN = ROOT / "tests/examples/language/hugging_face"
ORIGINAL = "original_max_position_embeddings"
BOM = b"\xef\xbb\xbf"
TOKENS = 21  # of a sequence: longer than the original lengths of the scaled rotations below
compared = 0
largest = 0.0
numbers = itertools.count()
new = lambda: Path(f"{next(numbers)}")  # a name for a folder


# ---- Models of random weights, and their logits from the formulas

# Prefix, table, head, last norm, a block's name and norms; its linears with rows and columns, for d dims, k dims of keys and h hidden ones.
LLAMA = ("model.", "embed_tokens", "lm_head", "norm", "layers.{}.", ("input_layernorm", "post_attention_layernorm"), {
    "self_attn.q_proj": "d d", "self_attn.k_proj": "k d", "self_attn.v_proj": "k d", "self_attn.o_proj": "d d",
    "mlp.gate_proj": "h d", "mlp.up_proj": "h d", "mlp.down_proj": "d h"})
LAYOUTS = {
    "gpt2": ("transformer.", "wte", "lm_head", "ln_f", "h.{}.", ("ln_1", "ln_2"), {
        "attn.c_attn": "d 3d", "attn.c_proj": "d d", "mlp.c_fc": "d h", "mlp.c_proj": "h d"}),
    "gpt_neox": ("gpt_neox.", "embed_in", "embed_out", "final_layer_norm", "layers.{}.", ("input_layernorm", "post_attention_layernorm"), {
        "attention.query_key_value": "3d d", "attention.dense": "d d", "mlp.dense_h_to_4h": "h d", "mlp.dense_4h_to_h": "d h"}),
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA}


def drawn(*shape, around=0.0):
    return (around + 0.3 * torch.randn(*shape, dtype=torch.float64)).float().double()


def model(kind="gpt2", rows=256, dim=32, heads=4, keys=2, tied=False, biases=r"\d|ln_f|final", **fields):
    """config.json and weights of two layers. `biases`: which modules have one, as a pattern of their names."""
    _, table, head, last, block, norms, linears = LAYOUTS[kind]
    gpt2, llama, hidden = kind == "gpt2", LAYOUTS[kind] is LLAMA, 4 * dim if kind == "gpt2" else 48
    sizes = {"d": dim, "3d": 3 * dim, "k": dim // heads * keys, "h": hidden}
    shapes = {table: [rows, dim], last: [dim], **({"wpe": [24, dim]} if gpt2 else {} if tied else {head: [rows, dim]})}
    for at, (name, letters) in itertools.product(map(block.format, range(2)), [*linears.items(), *((name, "d") for name in norms)]):
        shapes[at + name] = [sizes[letter] for letter in letters.split()]
    w = {name + ".weight": drawn(*shape, around=float(len(shape) == 1)) for name, shape in shapes.items()}
    w |= {name + ".bias": drawn(shape[-1 if gpt2 else 0]) for name, shape in shapes.items() if re.search(biases, name)}
    return {"model_type": kind, "vocab_size": rows, **({"n_positions": 24, "n_embd": dim, "n_layer": 2, "n_head": heads} if gpt2 else {
        "hidden_size": dim, "num_hidden_layers": 2, "num_attention_heads": heads, "intermediate_size": hidden, "max_position_embeddings": 16,
        "hidden_act": "silu" if llama else "gelu", "tie_word_embeddings": tied}), **({"num_key_value_heads": keys} if llama else {}), **fields}, w


def changed(model, *changes, **fields):
    """The model with changed fields of config.json, and changed weights (names with a point). None leaves a field out."""
    whole = {name: x for each in (*model, *changes, fields) for name, x in each.items()}
    whole = {name: x for name, x in whole.items() if x is not None}
    return tuple({name: x for name, x in whole.items() if ("." in name) == weights} for weights in (False, True))


def yarn(p, width, base, factor, original, beta_fast=32, beta_slow=1):
    """Peng et al. 2023, with the authors' ramp over pairs."""
    at = lambda turns: width * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))
    low, high = max(math.floor(at(beta_fast)), 0), min(math.ceil(at(beta_slow)), width - 1)
    theta = base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    ramp = ((torch.arange(width // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    angles = formulas.places(p)[:, None] * (theta * (1 - ramp) + theta / factor * ramp)
    return {f"rotated_{name}": torch.cat([(0.1 * math.log(factor) + 1) * formulas.turned(p[name][..., :width], angles), p[name][..., width:]], -1)
            for name in "qk"}


def rotation(c, head_dim):
    """The formula of a configuration's rotation."""
    rope, length = dict(c.get("rope_parameters", c.get("rope_scaling")) or {}), c["max_position_embeddings"]
    kind, original = rope.pop("rope_type", rope.pop("type", "default")), rope.pop(ORIGINAL, length)
    base = rope.pop("rope_theta", c.get("rope_theta", c.get("rotary_emb_base", 10000.0)))
    share = rope.pop("partial_rotary_factor", c.get("rotary_pct", 0.25 if c["model_type"] == "gpt_neox" else 1.0))
    extent = {"keep": share} if kind == "proportional" else {"width": int(head_dim * share)}
    options = dict(base=base, original=original, factor=length / original, **extent)
    options |= {name: tuple(value) if isinstance(value, list) else value for name, value in rope.items()}
    scaling = {"default": "none", "proportional": "linear"}.get(kind, kind)
    return functools.partial(yarn, **options) if kind == "yarn" else functools.partial(formulas.rope, scaling=scaling, **options)


def logits(model, tokens):
    c, w = model
    _, table, head, last, block, norms, linears = LAYOUTS[c["model_type"]]
    gpt2, llama = c["model_type"] == "gpt2", "embed_tokens.weight" in w
    (*inputs, output), (*into, out) = ([name for name in linears if ("mlp" in name) == mlp] for mlp in (False, True))
    heads = c["n_head" if gpt2 else "num_attention_heads"]
    epsilon = next((value for name, value in c.items() if "_eps" in name), 1e-6 if llama else 1e-5)
    act = {"gelu_new": functools.partial(F.gelu, approximate="tanh"), "gelu": F.gelu, "relu": torch.relu, "silu": F.silu}[
        c.get("activation_function", "gelu_new") if gpt2 else c["hidden_act"] or "gelu"]
    linear = lambda name, x: x @ (w[name + ".weight"] if gpt2 else w[name + ".weight"].T) + w.get(name + ".bias", 0)
    norm = lambda name, x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * w[name + ".weight"] if llama else F.layer_norm(
        x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], epsilon)

    def attention(at, y):
        parts = [linear(at + name, y) for name in inputs]
        if len(parts) == 1:  # of all heads at once, or of each
            parts = parts[0].chunk(3, -1) if gpt2 else [part.flatten(2) for part in parts[0].unflatten(-1, (heads, 3, -1)).unbind(-2)]
        head_dim = y.shape[-1] // heads
        p = {name: formulas.heads_apart(part, part.shape[-1] // head_dim) for name, part in zip("qkv", parts)}
        return linear(at + output, formulas.attend("none" if gpt2 else rotation(c, head_dim), p)["output"].transpose(1, 2).flatten(2))

    x = w[table + ".weight"][tokens] + (w["wpe.weight"][:tokens.shape[1]] if gpt2 else 0)
    for at in map(block.format, range(2)):
        middle = x + attention(at, norm(at + norms[0], x))
        y = norm(at + norms[1], x if c["model_type"] == "gpt_neox" and c.get("use_parallel_residual", True) else middle)
        inside = act(linear(at + into[0], y))
        x = middle + linear(at + out, inside * linear(at + into[1], y) if len(into) > 1 else inside)
    return norm(last, x) @ w.get(head + ".weight", w[table + ".weight"]).T


def write(folder, model, dtype=torch.float32, metadata=None, bare=False, mark=b""):
    """Writes a model like save_pretrained. `bare`: without a head, and so without the family's prefix."""
    prefix, _, head, *_ = LAYOUTS.get(model[0]["model_type"], LAYOUTS["gpt2"])
    folder.mkdir()
    safetensors.torch.save_file({name if bare or name == head + ".weight" else prefix + name: x.to(dtype) if x.dtype == torch.float64 else x
                                 for name, x in model[1].items()}, folder / "model.safetensors", metadata or {"format": "pt"})
    (folder / "config.json").write_bytes(mark + json.dumps(model[0]).encode())
    return folder


# ---- What is checked

def converted(*words):
    """Returns the output of convert.py. Raises if it refuses."""
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        code = convert.main(list(map(str, words)))
    assert "Traceback" not in wrong.getvalue()
    if code:
        raise convert.Refused(f"{code} {wrong.getvalue()}")
    return said.getvalue()


def require(holds, about):
    global compared
    assert holds, about
    compared += 1


def refused(words, source, *more, out=Path("none")):
    """Checks that it refuses with `words`, and leaves nothing. `source`: a folder, or a model."""
    source = source if isinstance(source, Path) else write(new(), source)
    before = out.exists(), sorted(out.glob("*"))
    try:
        said = f"nothing: {converted(source, '--out', out, *more)}"
    except convert.Refused as problem:
        said = f"refused: {problem}"
    require(re.search(f"refused: .*({words})", said, re.S), f"{words!r} expected: {said}")
    require(before == (out.exists(), sorted(out.glob("*"))) and not [*out.parent.glob("*.tmp-*")], "half a folder is left, or a temporary one")


def require_near(run, wanted, tokens, dtype="f64"):
    global largest
    found, wanted = whence.load(str(run), dtype=dtype).forward(np.asarray(tokens)), np.asarray(wanted)
    difference = float(np.abs(found - wanted).max())
    require(found.shape == wanted.shape and difference <= 1e-5 and np.abs(wanted).max() > 0.1, f"{run}: logits differ by {difference}")
    largest = max(largest, difference)


def fields(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def facts(run):
    return {name.removeprefix("model."): value for name, value in fields(run, "run.json")["facts"].items()}


def same(one, other):
    """Checks for equal names and bytes of tensors."""
    first, second = ({name: (x.dtype, x.shape, x.tobytes()) for name, x in safetensors.numpy.load_file(each).items()} for each in (one, other))
    require(first == second, f"{one} and {other} differ")


def there_and_back(theirs, run, *words):
    back, again = (run.with_suffix(end) for end in (".back", ".again"))
    converted(run, "--out", back)
    same(theirs / "model.safetensors", back / "model.safetensors")
    converted(back, "--out", again, *words)
    require((run / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes(), "another file of weights")
    require(facts(run) | {"hidden": 0} == facts(again) | {"hidden": 0}, "other facts")  # n_inner is written whatever it is
    return back


def taken(theirs, wanted, says="", **has):
    """Converts a folder, and compares the logits with the formulas', and facts. Returns the run."""
    run = theirs.with_name(theirs.name + ".run")
    said = converted(theirs, "--out", run)
    require(re.search(says, said), f"{says!r} expected: {said}")
    tokens = torch.randint(0, 256, (2, TOKENS))
    require_near(run, logits(wanted, tokens), tokens)
    found = facts(run)
    require({name: found.get(name) for name in has} == has, f"{has} required: {found}")
    return run


def golden():
    """Converts models written by transformers: its logits, and the bytes of the weights there and back."""
    eleven = Path("eleven.json")
    words = {"format": "whence tokeniser", "version": 1, "kind": "words", "vocabulary": 11, "words": [*"abcdefghij"]}
    eleven.write_text(json.dumps(words, indent=1) + "\n")
    for name in ("gpt2", "gpt_neox"):
        run = Path(f"{name}.run")
        converted(GOLDEN / name, "--out", run, "--tokeniser", eleven)
        said = safetensors.numpy.load_file(GOLDEN / name / "logits.safetensors")
        require_near(run, said["logits"], said["tokens"], "f32")
        there_and_back(GOLDEN / name, run, "--tokeniser", eleven)
        refused("has neither tokenizer.json nor", GOLDEN / name)
        refused("256 tokens found, of which 11 have a number", GOLDEN / name, "--tokeniser", "bytes")


def files_decide():
    """Contradictions of config.json and the tensors, and unread fields."""
    gpt2 = model()
    table, other = gpt2[1]["wte.weight"], drawn(256, 32)
    masks = {f"h.{n}.attn.bias": torch.ones(1, 1, 24, 24, dtype=torch.uint8) for n in range(2)} | {"h.0.attn.masked_bias": torch.tensor(math.nan)}
    value, headed = {"value_head.weight": torch.ones(3, dtype=torch.int8)}, changed(gpt2, {"wte.weight": None, "lm_head.weight": table})
    both, own = (changed(gpt2, {"lm_head.weight": each}) for each in (table, other))
    small, halves = model(n_inner=None, layer_norm_epsilon=1e-6, activation_function="relu"), (torch.float16, torch.bfloat16)
    for given, wanted, how, says, has in (
            (changed(gpt2, masks), gpt2, {}, "note: 3 tensors of masks and frequencies left out\n", {}),
            (changed(gpt2, masks | value), gpt2, {}, "3 tensors of masks .* and 1 that gpt2 has no use for: value_head.weight", {}),
            (headed, gpt2, {}, "", {"tied": True}),
            (changed(headed, tie_word_embeddings=False), gpt2, {"metadata": {"transformer.wte.weight": "lm_head.weight"}}, "", {"tied": True}),
            (both, gpt2, {}, "", {"tied": True}), (changed(both, tie_word_embeddings=False), gpt2, {}, "", {"tied": False}),
            (changed(gpt2, vocab_size=300, n_positions=99, n_inner=7, n_layer=1), gpt2, {}, "n_layer is 1, but 2 in the weights",
             dict(vocabulary=256, length=24, hidden=128, layers=2)), (gpt2, gpt2, {"bare": True, "mark": BOM}, "", {"hidden": 0}),
            *((gpt2, changed(gpt2, {name: x.to(half).double() for name, x in gpt2[1].items()}), {"dtype": half}, "", {}) for half in halves),
            *((each, each, {}, "norms have epsilon 1e-06", {"activation": "relu"}) for each in (small, changed(small, {"lm_head.weight": other})))):
        taken(write(new(), given, **how), wanted, says, **has)
    run = taken(write(Path("own"), own), own, "a separate head", tied=False)
    require(fields(there_and_back(Path("own"), run))["tie_word_embeddings"] is False, "and stays one")
    untied, ln_1 = {"tie_word_embeddings": False}, "h.1.ln_1.weight"
    for words, *changes in (
            ("no tensor 'wte.weight'", {"lm_head.weight": table, "wte.weight": None}, untied), ("no tensor 'lm_head.weight'", untied),
            ("'lm_head.weight' is \\[255, 32\\]", {"lm_head.weight": drawn(255, 32)}), ("a whole number", {"n_head": True}),
            ("is \\[32, 95\\]; \\[32, 96\\] required", {"h.1.attn.c_attn.weight": drawn(32, 95)}), ("n_head: nothing found", {"n_head": None}),
            ("is I8", {ln_1: torch.ones(32, dtype=torch.int8)}), ("holds nan", {ln_1: torch.full((32,), math.nan)}), ("of the 32", {"n_head": 5}),
            ("n_layer: 3 found; 1 to 2", {"n_layer": 3}), ("n_embd: 34 found; 32", {"n_embd": 34}), ("true required", {"scale_attn_weights": False}),
            ("gelu_new or", {"activation_function": "quick"}), ("gpt2 or gpt_neox or llama", {"model_type": "bert"}),
            ("1e-12 to 1", {"layer_norm_epsilon": -1.0})):
        refused(words, changed(gpt2, *changes))


def shards():
    gpt2, newer, parts = model(), model(), Path("parts")
    whole = safetensors.torch.load_file(write(parts, gpt2) / "model.safetensors")
    os.remove(parts / "model.safetensors")
    shard_of = lambda k: f"model-0000{1 + k % 2}-of-00002.safetensors"
    index = {name: shard_of(k) for k, name in enumerate(whole)}
    for k in range(2):
        safetensors.torch.save_file({name: whole[name] for name in whole if index[name] == shard_of(k)}, parts / shard_of(k), {"format": "pt"})
    at = parts / "model.safetensors.index.json"
    write_index = lambda named: at.write_bytes(BOM + json.dumps({"weight_map": named}).encode())
    write_index(index)
    taken(parts, gpt2)
    shutil.copy(at, write(Path("newer"), newer))  # an old index next to a newer file
    taken(Path("newer"), newer)
    safetensors.torch.save_file({"transformer.wte.weight": whole["transformer.wte.weight"]}, parts / "model-00003-of-00002.safetensors")
    for named, words in ((index | {"x": "model-00003-of-00002.safetensors"}, "wte.weight' and .*wte.weight' found; one of them"),
                         ({"x": "../model.safetensors"}, "the same folder"), ({}, "the same folder"), ({"x": "model-9.safetensors"}, "model-9")):
        write_index(named)
        refused(words, parts)
    os.remove(at)
    (parts / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    refused("weights of torch.save found", parts)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8}
LONGROPE = {"rope_type": "longrope", "factor": 4.0, ORIGINAL: 8, "short_factor": [1.0, 2.5], "long_factor": [3.0, 7.0]}
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 8}


def rotations():
    """GPT-NeoX with every rope_type: the scheme and the logits, also after converting back; and schemes that cannot be converted."""
    neox, half = functools.partial(model, "gpt_neox"), functools.partial(model, "gpt_neox", rotary_pct=0.5)
    newer = lambda **rope: neox(rope_parameters=rope)
    untold = neox(hidden_act=None, rope_scaling={"rope_type": "longrope", ORIGINAL: 8, "short_factor": [1.0], "long_factor": [3.0]})
    runs = []
    for given, scheme, has in (
            (half(), "rope(width=4)", {"norm_place": "parallel"}),
            (half(rope_scaling={"rope_type": "linear", "factor": 2.0}, use_parallel_residual=False), "interpolated(rope(width=4), factor=2)",
             {"norm_place": "before"}),
            (neox(rope_scaling={"type": "dynamic", "factor": 3.0, "rope_theta": 500.0}, rotary_pct=1),
             "rope(base=500, scaling=dynamic, factor=3, original=16)", {}),
            (half(rope_scaling=LLAMA3), "rope(width=4, scaling=llama3, factor=8, original=8, low_freq_factor=1, high_freq_factor=4)", {}),
            (half(rope_scaling=LONGROPE), "rope(width=4, scaling=longrope, factor=4, original=8, short_factor=1:2.5, long_factor=3:7)", {}),
            (half(rope_scaling=YARN), "yarn(width=4, factor=4, original=8, beta_fast=32, beta_slow=1)", {}),
            (newer(rope_type="default", partial_rotary_factor=0.25, rope_theta=700.0), "rope(base=700, width=2)", {}),
            (newer(rope_type="proportional", partial_rotary_factor=0.5), "rope(keep=0.5)", {}),
            (newer(rope_type="proportional", partial_rotary_factor=0.5, factor=3.0), "interpolated(rope(keep=0.5), factor=3)", {}),
            (untold, "rope(width=2, scaling=longrope, factor=2, original=8, short_factor=1, long_factor=3)", {"activation": "gelu_erf"}),
            (half(dim=24, heads=3, rotary_emb_base=500), "rope(base=500, width=4)", {"heads": 3}), (neox(tied=True), "rope(width=2)", {"tied": True}),
            (neox(biases="mlp|norm", attention_bias=False), "rope(width=2)", {"bias": True, "attention_bias": False})):
        theirs = write(new(), given)
        runs.append(taken(theirs, given, scheme=scheme, **has))
        there_and_back(theirs, runs[-1])
    for words, rope in (
            ("rope_type default, linear", {"rope_type": "su"}), ("factor: nothing found", {"rope_type": "linear"}),
            ("alone for yarn", YARN | {"mscale": 1}), ("1 to 1e9", YARN | {ORIGINAL: 0}), ("each of 2 pairs", LONGROPE | {"long_factor": [1.0]}),
            ("a number", {"rope_type": "linear", "factor": "2"}), ("an object", "linear"),
            *(("factor: .* found; 1e-06 to 1e[+]06", {"rope_type": "linear", "factor": factor}) for factor in (-1, 0, 1e-300, 1e7)),
            ("factor: -4", YARN | {"factor": -4}), ("less than beta_fast", YARN | {"beta_fast": 1, "beta_slow": 2}), ("factor: 0", LLAMA3 | {"factor": 0}),
            ("less than high_freq", LLAMA3 | {"low_freq_factor": 5.0}), ("of 1e-06 to", LONGROPE | {"short_factor": [0, -1]}),
            ("2 to 1e9", LONGROPE | {ORIGINAL: 1}), ("factor: 0", {"rope_type": "dynamic", "factor": 0})):
        refused(words, half(rope_scaling=rope))
    refused("rotary_pct: 0.4 found", neox(rotary_pct=0.4))
    run, tied = runs[0], runs[-2]
    kept = (run / "run.json").read_text()
    (tied / "run.json").write_text((tied / "run.json").read_text().replace('"model.tied": true', '"model.tied": false'))
    refused("and a head; those of the weights", tied)
    own = "absolute, or rope"
    schemes = {"rope(scaling=ntk)": own, "interpolated(rope(scaling=dynamic), factor=2)": own, "window(rope, n=3)": own, "rope + alibi": own,
               "rope(keep=0.5, width=4)": own, "yarn(dynamic=yes)": "dynamic=no", "rope(layout=interleaved)": "layout=half",
               "rope(scaling=dynamic, original=7)": "original 7 in a model of 16"}
    options = [("norm", '"rms"'), ("activation", '"swiglu"'), ("norm_place", '"after"'), ("causal", "false"), ("bias", "false"), ("heads", "3"),
               ("layers", "1"), ("layers", "3"), ("layers", "9000000"), ("vocabulary", "255"), ("hidden", "23"), ("tied", "true"), ("dim", '"x"')]
    for words, text in (*((words, kept.replace("rope(width=4)", scheme)) for scheme, words in schemes.items()),
                        *(("required", re.sub(rf'("model.{field}": )[^,]*', rf"\g<1>{value}", kept)) for field, value in options),
                        ("kv_heads: 1 found; null or 0 or 4", kept.replace('"model.heads": 4', '"model.heads": 4, "model.kv_heads": 1'))):
        (run / "run.json").write_text(text)
        refused(words, run)
    (run / "run.json").write_text(kept.replace("rope(width=4)", "rope(width=4, scaling=longrope, factor=4, original=8, short_factor=1.5)"))
    converted(run, "--out", "one.back")
    rope = fields(Path("one.back"))["rope_scaling"]
    require((rope["short_factor"], rope["long_factor"]) == ([1.5, 1.5], [1.0, 1.0]), rope)


def llamas():
    """Llama, Mistral, SmolLM2 and Qwen2 in their published form."""
    llama, qwen2 = functools.partial(model, "llama", biases="^$"), functools.partial(model, "qwen2", biases="[qkv]_proj", rms_norm_eps=1e-6)
    for name, given in {
            "llama": llama(rms_norm_eps=1e-5, rope_theta=500000.0, head_dim=8), "llama of 1e-6": llama(keys=4),
            "llama3": llama(rms_norm_eps=1e-5, rope_scaling=LLAMA3), "yarn": llama(rope_scaling=YARN),
            "biases everywhere": llama(biases="proj", attention_bias=True, mlp_bias=True), "biases of attention": llama(biases="self_attn"),
            "smollm2": llama(tied=True, rms_norm_eps=1e-5, rope_theta=100000.0, keys=1),
            "qwen2": qwen2(tied=True, rope_theta=1e6, use_sliding_window=False, sliding_window=4, layer_types=["full_attention"] * 2),
            "mistral": model("mistral", biases="^$", rms_norm_eps=1e-5, sliding_window=None)}.items():
        frequencies = {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)} if name == "llama" else {}
        keys = given[0]["num_key_value_heads"]
        run = taken(write(Path(name), changed(given, frequencies)), given, "1 tensors of masks" if frequencies else "",
                    tied=given[0]["tie_word_embeddings"], kv_heads=keys if keys < 4 else None)
        refused('norm: "rms" found; "layer", as GPT-2', run)
    biased = [name for name, x in safetensors.numpy.load_file("qwen2.run/weights.safetensors").items() if name.endswith("bias") and x.any()]
    require(len(biased) == 6 and all(re.search("query|key|value", name) for name in biased), "biases of q, k and v alone")
    for words, more in (
            ("16 or more", dict(sliding_window=4)), ("head_dim: 16 found; 8", dict(head_dim=16)), ("silu or swish", dict(hidden_act="gelu")),
            ("keys of 16", dict(num_attention_heads=1)), ("full_attention alone", dict(layer_types=["sliding_attention"])),
            ("max_position_embeddings: nothing", dict(max_position_embeddings=None))):
        refused(words, model("mistral", biases="^$", **{"sliding_window": None, **more}))


def tokenisers():
    byte_level, text = tokenizers.pre_tokenizers.ByteLevel, "It's the 12th\r\n  of caf\u00e9 \u2603! the cat sat"
    pieces = tokenizers.Tokenizer(tokenizers.models.BPE())
    pieces.pre_tokenizer, pieces.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    pieces.train_from_iterator([(text + " on the mat, the dog's <pad> in the house. ") * 3], tokenizers.trainers.BpeTrainer(
        vocab_size=296, special_tokens=["<|endoftext|>"], show_progress=False, initial_alphabet=byte_level.alphabet()))
    pieces.add_special_tokens(["<pad>", "caf\u00e9"])
    pieces.add_tokens(["  in the"])
    count, whole = pieces.get_vocab_size(), json.loads(pieces.to_str())
    alone = tokenizers.Tokenizer.from_str(json.dumps({**whole, "added_tokens": []}))
    given = model(rows=320)
    given[1]["wte.weight"][count:] += 40 * given[1]["ln_f.bias"]  # greedy decoding would draw only these

    theirs, run = write(Path("whole"), given), Path("whole.run")
    (theirs / "tokenizer.json").write_bytes(BOM + pieces.to_str().encode())
    said = converted(theirs, "--out", run)
    require(f"320 tokens, of which {count} have a text" in said and "1 added tokens are recognised in text there" in said, said)
    own = fields(run, "tokeniser.json")
    require((own["vocabulary"], len(own["vocab"]), own["vocab"]["caf\u00c3\u00a9"]) == (320, count, pieces.token_to_id("caf\u00e9")), "an added one")
    loaded, ids, spelling = whence.load(str(run)), alone.encode(text).ids, {number: token for token, number in own["vocab"].items()}
    rows = loaded.tokens(prompt=text)
    shown = [(row, spelling[number].replace("\u0120", " ")) for row, number in zip(rows, ids) if re.fullmatch(r"\u0120?[!-~]+", spelling[number])]
    require(len(ids) - 1 <= len(rows) <= len(ids) and len(shown) > 8 and all(row == token for row, token in shown), f"{rows}: {shown}")
    require(logits(given, torch.tensor([alone.encode("the cat").ids]))[0, -1].argmax() >= count, "the largest logit has no token")
    drew = [loaded.generate(begun, tokens=12, greedy=True)[len(begun) + 1:] for begun in ("the cat", "the dog", "in the house")]
    require(any(drew), "tokens without text were drawn")

    files = write(Path("files"), given)
    (files / "vocab.json").write_bytes(BOM + json.dumps(whole["model"]["vocab"]).encode())
    lines = [each if isinstance(each, str) else " ".join(each) for each in whole["model"]["merges"]]
    (files / "merges.txt").write_bytes(BOM + "\r\n".join(["#version: 0.2", *lines, ""]).encode())
    (files / "added_tokens.json").write_text(json.dumps({"<pad>": count - 3, "caf\u00e9": count - 2, "  in the": count - 1}))
    converted(files, "--out", "files.run")
    require(fields(Path("files.run"), "tokeniser.json") == own, "the same of both forms")
    back = there_and_back(files, Path("files.run"))
    again = tokenizers.Tokenizer.from_file(str(back / "tokenizer.json"))
    require(again.encode(text).ids == ids and again.decode(ids) == text, "tokenizer.json of ours")
    require(len(again.encode("<|endoftext|>").ids) == 1, "a special token")

    digits = dict(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, whole["pre_tokenizer"]]})
    vocab = whole["model"]["vocab"]
    for outcome, words, rows, change, inside, *more in (  # `change`: of tokenizer.json; `inside`: of its model
            ("refused", "unlike GPT-2: '\u0120' where GPT-2 has '\u012012'", 320, digits, {}),
            ("taken", "unlike in training", 320, digits, {}, "--tokeniser", "gpt2"),
            ("refused", "unlike GPT-2", 320, dict(pre_tokenizer={**whole["pre_tokenizer"], "add_prefix_space": True}), {}),
            ("refused", "unlike GPT-2", 320, dict(normalizer={"type": "Lowercase"}), {}),
            ("taken", "in NFC", 320, dict(normalizer={"type": "NFC"}), {}),
            ("refused", "ignore_merges True", 320, {}, dict(ignore_merges=True)),
            ("refused", "byte-level BPE or --tokeniser required", 320, dict(added_tokens=[]), dict(vocab={"a": 0}, merges=[])),
            ("refused", "no tokeniser of transformers", 320, {}, dict(merges=["\u0120 nothing"])),
            ("taken", "'  in the' left out", count - 1, {}, {}),
            ("taken", "'  in the' left out", count - 1, {}, dict(vocab={**vocab, "  in the": count - 1})),
            ("refused", "a number of their own from 0 to 289", 290, {}, {}),
            ("taken", "3 numbers below others have no token", 320, {}, dict(vocab={**vocab, "gap": count + 3}))):
        theirs = write(new(), model(rows=rows))
        (theirs / "tokenizer.json").write_text(json.dumps({**whole, **change, "model": {**whole["model"], **inside}}))
        if outcome == "taken":
            require(words in converted(theirs, "--out", f"{theirs}.run", *more) and whence.load(f"{theirs}.run"), words)
        else:
            refused(words, theirs, *more)


def ways():
    """Training of converted models, and kinds of folders."""
    text, empty, on = map(Path, ("text.txt", "empty", "on"))
    text.write_text("".join(f"the cat number {i} sat on mat {i * 7 % 13}.\n" for i in range(300)))
    small = dict(data="text.txt", length=16, dim=16, layers=1, heads=2, batch=2, steps=4, warm_up=0, evaluate_to=1, quiet=True)
    for scheme in ("absolute(rows=20)", "rope"):
        run, theirs, again = (Path(scheme + end) for end in (".run", ".theirs", ".again"))
        whence.train("lm", out=str(run), scheme=scheme, **small)
        converted(run, "--out", theirs)
        converted(theirs, "--out", again)
        same(run / "weights.safetensors", again / "weights.safetensors")
        tokens = np.random.default_rng(0).integers(0, 256, (1, 16))
        require((whence.load(str(run)).forward(tokens) == whence.load(str(again)).forward(tokens)).all(), "logits to the bit")
    whence.train("lm", out=str(on), scheme="alibi", weights_of=str(again), **small)
    require((on / "weights.safetensors").exists(), "a training that begins with it")
    require(fields(Path("absolute(rows=20).theirs"))["n_positions"] == 20, "a table of another length")
    for out, words in ((theirs, "holds files"), (text, "is a file"), (text / "x", "4 convert.py|File exists|Not a directory")):
        refused(words, theirs, out=out)
    empty.mkdir()
    converted(theirs, "--out", empty)
    require((empty / "run.json").exists() and fields(empty, "tokeniser.json")["kind"] == "bytes", "an empty folder; bytes, as they were")
    refused("neither config.json nor run.json", Path("none"))
    refused("as a run has a tokeniser", run, "--tokeniser", "bytes")
    for name, words in (("tokeniser.json", "another than in training"), ("weights.safetensors", "is damaged: its SHA-256")):
        damaged = Path(shutil.copytree(run, "damaged." + name))
        data = (run / name).read_bytes()
        (damaged / name).write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        refused(words, damaged)
    converted(damaged, "--out", "accepted", "--accept-damaged")
    with unittest.mock.patch.object(Path, "write_bytes", side_effect=OSError(28, "No space left on device")):
        refused("No space left", theirs)


def hostile():
    """Pipes, devices, names that claim a size, long values: one line, and a code."""
    for number in ("30000000", "9" * 30):
        refused("3 layers found, the last of number", changed(model(), {f"h.{number}.ln_1.weight": drawn(32)}))
    for name, words, put in (("config.json", "4 .*not a regular", os.mkfifo), ("config.json", "4 .*not a regular", lambda path: path.symlink_to("/dev/zero")),
                             ("model.safetensors", "4 .*not a regular", os.mkfifo), ("config.json", "no JSON", lambda path: path.write_text("[" * 100000)),
                             ("config.json", "model_type' given twice", lambda path: path.write_text('{"model_type": 1, "model_type": 2}'))):
        (theirs := write(new(), model()) / name).unlink()
        put(theirs)
        refused(words, theirs.parent)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        require(convert.main([str(write(new(), model(activation_function="\x1b\u202e" * 100000))), "--out", "none"]) == 3, "refused")
    require(len(said.getvalue()) < 600 and said.getvalue().isprintable() is False and said.getvalue()[:-1].isprintable(), said.getvalue())


def damages():
    """Changes, cuts and inserts bytes in every file: a refusal or a whole run must follow."""
    theirs, run, out = map(Path, ("theirs", "run", "out"))
    write(theirs, model("gpt_neox", rope_scaling={"rope_type": "linear", "factor": 2.0}))
    for name, content in (("vocab.json", json.dumps(convert.BYTES)), ("merges.txt", "#version: 0.2\n"), ("added_tokens.json", '{"\u00ff": 255}')):
        (theirs / name).write_text(content)
    converted(theirs, "--out", run)
    draw, outcomes = random.Random(5), dict(taken=0, refused=0)
    put = [b"null", b"-1", b"[]", b"{}", b'"', b"1e999", b"99999999999999999999", b"\0", b"\xff", b"NaN"]
    other = lambda found: draw.choice([found[0], b"0", b"7", b"true", b'"x"', b"-3", b"1e30"]) if draw.random() < 0.2 else found[0]
    for path in sorted([*theirs.iterdir(), *run.iterdir()]):
        whole = path.read_bytes()
        at = lambda: draw.randrange(min(len(whole), 600))
        for k in range(60):
            cut, length = at(), draw.randrange(1, 9)
            path.write_bytes((whole[:cut], whole[:cut] + bytes([draw.randrange(256)]) + whole[cut + 1:],
                              whole[:cut] + draw.choice(put) + whole[cut + length:], re.sub(rb"\d+", other, whole[:600]) + whole[600:])[k % 4])
            try:
                converted(path.parent, "--out", out, *["--accept-damaged"] * (k % 3 == 0))
                shutil.rmtree(out)
                outcomes["taken"] += 1
            except convert.Refused:
                outcomes["refused"] += 1
            assert not out.exists() and not [*out.parent.glob("*.tmp-*")]
        path.write_bytes(whole)
    require(outcomes["refused"] > 100, outcomes)
    return outcomes


torch.manual_seed(3)
for check in (golden, files_decide, shards, rotations, llamas, tokenisers, ways, hostile, damages):
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        before = compared
        said = check()
        print(f"{check.__name__}: {compared - before} comparisons {said or ''}")
        os.chdir(ROOT)
print(f"{compared} comparisons, the largest difference of logits {largest:.1e}")
