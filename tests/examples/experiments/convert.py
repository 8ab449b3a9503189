#!/usr/bin/env python3
"""Models of Hugging Face as runs and back (examples/experiments/convert.py): logits from the published formulas in f64, equal bytes of weights, what
a file says against what config.json says, and bad files.
    PYTHONPATH=build/release/python python3 tests/examples/experiments/convert.py
Needs numpy, safetensors, tokenizers, torch and the module; ends with 77 where one is
missing, with 1 where WHENCE_REQUIRED=1 asks for them."""
import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

if missing := [name for name in ("numpy", "safetensors", "tokenizers", "torch", "whence") if not importlib.util.find_spec(name)]:
    print(f"{'required' if os.environ.get('WHENCE_REQUIRED') == '1' else 'skipped'}: {missing[0]} is missing")
    sys.exit(1 if os.environ.get("WHENCE_REQUIRED") == "1" else 77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "examples/experiments"), str(ROOT / "examples/whence/verify")]
sys.dont_write_bytecode = True
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
NEAR = 1e-5
TOKENS = 21  # of a sequence: beyond the lengths that rotations below were stretched from
compared = 0
largest = 0.0


# ---- Models of random weights, and their logits from the formulas

def drawn(*shape, around=0.0, deviation=0.3):
    return (around + deviation * torch.randn(*shape, dtype=torch.float64)).to(torch.float32).to(torch.float64)


def linear(w, name, x, turned=False):
    weight = w[name + ".weight"]
    y = x @ (weight if turned else weight.T)
    return y + w[name + ".bias"] if name + ".bias" in w else y


def layer_norm(w, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], epsilon)


def rms_norm(w, name, x, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * w[name + ".weight"]


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # [b h t d]


def attend(q, k, v):
    """softmax(q k' / sqrt(d)) v, causal; several heads of queries may share one of keys."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.triu(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool), 1)
    return (scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


def speeds(config, width, tokens):
    """Angles per step, and the factor of sines and cosines, for rope_scaling of a configuration."""
    rope = dict(config.get("rope_scaling") or {})
    kind, base = rope.get("rope_type", rope.get("type", "default")), config.get("rope_theta", config.get("rotary_emb_base", 10000.0))
    length = config["max_position_embeddings"]
    original, factor = rope.get("original_max_position_embeddings", length), rope.get("factor", 1.0)
    if kind == "yarn":  # Peng et al. 2023, with the authors' ramp over pairs
        at = lambda turns: width * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))
        low, high = max(math.floor(at(rope.get("beta_fast", 32))), 0), min(math.ceil(at(rope.get("beta_slow", 1))), width - 1)
        ramp = [min(max((m - low) / max(high - low, 0.001), 0), 1) for m in range(width // 2)]
        theta = [base ** (-2 * m / width) for m in range(width // 2)]
        return [t * (1 - r) + t / factor * r for t, r in zip(theta, ramp)], 0.1 * math.log(factor) + 1
    lists = {name: tuple(rope[name]) for name in ("short_factor", "long_factor") if name in rope}
    more = {name: rope[name] for name in ("low_freq_factor", "high_freq_factor") if name in rope}
    return formulas.rope_numbers(
    width,
    tokens,
    base=base,
    scaling="none" if kind == "default" else kind,
    factor=factor,
    original=original,
    **lists,
     **more)


def turn(x, numbers):
    theta, magnitude = numbers
    width = 2 * len(theta)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * torch.tensor(theta, dtype=torch.float64)
    return torch.cat([magnitude * formulas.turned(x[..., :width], angles), x[..., width:]], -1)


def gpt2(w, c, tokens):
    epsilon = c.get("layer_norm_epsilon", 1e-5)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:tokens.shape[1]]
    act = {"gelu_new": lambda y: 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))), "relu": torch.relu}[
        c.get("activation_function", "gelu_new")]
    for n in range(sum(name.endswith("ln_1.weight") for name in w)):
        q, k, v = (split(part, c["n_head"]) for part in linear(w, f"h.{n}.attn.c_attn", layer_norm(w, f"h.{n}.ln_1", x, epsilon), True).chunk(3, -1))
        x = x + linear(w, f"h.{n}.attn.c_proj", attend(q, k, v), True)
        x = x + linear(w, f"h.{n}.mlp.c_proj", act(linear(w, f"h.{n}.mlp.c_fc", layer_norm(w, f"h.{n}.ln_2", x, epsilon), True)), True)
    return layer_norm(w, "ln_f", x, epsilon) @ w.get("lm_head.weight", w["wte.weight"]).T


def gpt_neox(w, c, tokens):
    epsilon, heads = c.get("layer_norm_eps", 1e-5), c["num_attention_heads"]
    x = w["embed_in.weight"][tokens]
    numbers = speeds(c, int(x.shape[-1] // heads * c.get("rotary_pct", 0.25)), tokens.shape[1])
    for n in range(c["num_hidden_layers"]):
        name = f"layers.{n}."
        fused = linear(w, name + "attention.query_key_value", layer_norm(w, name + "input_layernorm", x, epsilon)).unflatten(-1, (heads, 3, -1))
        q, k, v = fused.permute(3, 0, 2, 1, 4)
        attended = linear(w, name + "attention.dense", attend(turn(q, numbers), turn(k, numbers), v))
        mlp = lambda y: linear(
    w,
    name +
    "mlp.dense_4h_to_h",
    F.gelu(
        linear(
            w,
            name +
            "mlp.dense_h_to_4h",
            layer_norm(
                w,
                name +
                "post_attention_layernorm",
                y,
                 epsilon))))
        x = x + attended + mlp(x) if c.get("use_parallel_residual", True) else (x + attended) + mlp(x + attended)
    return layer_norm(w, "final_layer_norm", x, epsilon) @ w.get("embed_out.weight", w["embed_in.weight"]).T


def llama(w, c, tokens):
    epsilon, heads = c.get("rms_norm_eps", 1e-6), c["num_attention_heads"]
    x = w["embed_tokens.weight"][tokens]
    numbers = speeds(c, x.shape[-1] // heads, tokens.shape[1])
    for n in range(c["num_hidden_layers"]):
        name = f"layers.{n}."
        y = rms_norm(w, name + "input_layernorm", x, epsilon)
        q, k, v = (split(linear(w, f"{name}self_attn.{part}_proj", y), count) for part, count in
                   (("q", heads), ("k", c["num_key_value_heads"]), ("v", c["num_key_value_heads"])))
        x = x + linear(w, name + "self_attn.o_proj", attend(turn(q, numbers), turn(k, numbers), v))
        y = rms_norm(w, name + "post_attention_layernorm", x, epsilon)
        x = x + linear(w, name + "mlp.down_proj", F.silu(linear(w, name + "mlp.gate_proj", y)) * linear(w, name + "mlp.up_proj", y))
    return rms_norm(w, "norm", x, epsilon) @ w.get("lm_head.weight", w["embed_tokens.weight"]).T


FORMULAS = {"gpt2": gpt2, "gpt_neox": gpt_neox, "llama": llama, "mistral": llama, "qwen2": llama}
PREFIXES = {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}


def add_linear(w, name, out, inner, bias=True, turned=False):
    w[name + ".weight"] = drawn(inner, out) if turned else drawn(out, inner)
    if bias:
        w[name + ".bias"] = drawn(out)


def add_norm(w, name, dim, bias=True):
    w[name + ".weight"] = drawn(dim, around=1.0)
    if bias:
        w[name + ".bias"] = drawn(dim)


def gpt2_model(rows=256, dim=12, layers=2, **more):
    w = {"wte.weight": drawn(rows, dim), "wpe.weight": drawn(24, dim)}
    for n in range(layers):
        for norm in ("ln_1", "ln_2"):
            add_norm(w, f"h.{n}.{norm}", dim)
        for name, out, inner in (("attn.c_attn", 3 * dim, dim), ("attn.c_proj", dim, dim), ("mlp.c_fc", 4 * dim, dim), ("mlp.c_proj", dim, 4 * dim)):
            add_linear(w, f"h.{n}.{name}", out, inner, turned=True)
    add_norm(w, "ln_f", dim)
    return {"model_type": "gpt2", "vocab_size": rows, "n_positions": 24, "n_embd": dim, "n_layer": layers, "n_head": 2, **more}, w


def neox_model(dim=16, heads=2, tied=False, attention_bias=True, **more):
    w = {"embed_in.weight": drawn(256, dim)} | ({} if tied else {"embed_out.weight": drawn(256, dim)})
    for n in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add_norm(w, f"layers.{n}.{norm}", dim)
        for name, out, inner in (("attention.query_key_value", 3 * dim, dim), ("attention.dense", dim, dim),
                                 ("mlp.dense_h_to_4h", 24, dim), ("mlp.dense_4h_to_h", dim, 24)):
            add_linear(w, f"layers.{n}.{name}", out, inner, attention_bias or "mlp" in name)
    add_norm(w, "final_layer_norm", dim)
    return {"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": dim, "num_hidden_layers": 2,
            "num_attention_heads": heads, "intermediate_size": 24,
            "max_position_embeddings": 16, "hidden_act": "gelu", "tie_word_embeddings": tied, "attention_bias": attention_bias, **more}, w


def llama_model(kind="llama", dim=32, heads=4, key_heads=2, tied=False, biases="", **more):
    w = {"embed_tokens.weight": drawn(256, dim)} | ({} if tied else {"lm_head.weight": drawn(256, dim)})
    for n in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add_norm(w, f"layers.{n}.{norm}", dim, False)
        for part, out in (("q", dim), ("k", dim // heads * key_heads), ("v", dim // heads * key_heads), ("o", dim)):
            add_linear(w, f"layers.{n}.self_attn.{part}_proj", out, dim, part in biases)
        for part, out, inner in (("gate", 48, dim), ("up", 48, dim), ("down", dim, 48)):
            add_linear(w, f"layers.{n}.mlp.{part}_proj", out, inner, "m" in biases)
    add_norm(w, "norm", dim, False)
    return {"model_type": kind, "vocab_size": 256, "hidden_size": dim, "num_hidden_layers": 2,
            "num_attention_heads": heads, "num_key_value_heads": key_heads,
            "intermediate_size": 48, "max_position_embeddings": 16, "hidden_act": "silu", "tie_word_embeddings": tied, **more}, w


def write(folder, config, weights, dtype=torch.float32, metadata=None, bare=False, mark=b""):
    """As save_pretrained leaves it. `bare`: as it was saved without a head, so without the family's prefix."""
    folder.mkdir()
    prefix = "" if bare else PREFIXES.get(config["model_type"], "model.")
    named = {name if name in ("lm_head.weight", "embed_out.weight") else prefix + name: x for name, x in weights.items()}
    safetensors.torch.save_file({name: x.to(dtype if x.dtype == torch.float64 else x.dtype).contiguous() for name, x in named.items()},
                                folder / "model.safetensors", metadata or {"format": "pt"})
    (folder / "config.json").write_bytes(mark + json.dumps(config).encode())
    return folder


# ---- What is checked

def converted(*words):
    """What convert.py says. Raises where it refuses."""
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        code = convert.main(list(map(str, words)))
    assert "Traceback" not in wrong.getvalue()
    if code:
        raise convert.Refused(f"{code} {wrong.getvalue()}")
    return said.getvalue()


def refused(words, *command):
    """It says `words`, and leaves nothing."""
    global compared
    out = pathlib.Path(command[command.index("--out") + 1])
    before = sorted(out.iterdir()) if out.is_dir() else out.exists()
    try:
        said = converted(*command)
    except convert.Refused as problem:
        assert re.search(words, str(problem)), f"{words!r} expected: {problem}"
    else:
        raise AssertionError(f"{words!r} expected, and nothing refused: {said}")
    assert before == (sorted(out.iterdir()) if out.is_dir() else out.exists()), "half a folder is left"
    assert not [*out.parent.glob("*.tmp-*")], "a temporary folder is left"
    compared += 1


def require_near(found, wanted, bound=NEAR):
    global compared, largest
    difference = float(np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64)).max())
    assert np.asarray(found).shape == np.asarray(wanted).shape and difference <= bound, f"logits differ by {difference}, {np.asarray(found).shape}"
    assert np.abs(np.asarray(wanted)).max() > 0.1
    compared, largest = compared + 1, max(largest, difference)


def require(holds, about):
    global compared
    assert holds, about
    compared += 1


def facts(run):
    return json.loads((run / "run.json").read_text())["facts"]


def taken(folder, config, weights, name="model", *, says="", words=(), **how):
    """Writes, converts and compares the logits with the formulas'. Returns the run."""
    theirs = write(folder / name, config, weights, **how)
    said = converted(theirs, "--out", folder / f"{name}.run", *words)
    require(re.search(says, said), f"{says!r} expected: {said}")
    tokens = torch.randint(0, 256, (2, TOKENS))
    exact = {key: x for key, x in weights.items() if x.dtype == torch.float64}
    wanted = FORMULAS[config["model_type"]](exact, config, tokens).numpy()
    found = whence.load(str(folder / f"{name}.run"), dtype="f64").forward(tokens.numpy())
    require_near(found, wanted)
    return folder / f"{name}.run"


def same_bits(one, other):
    first, second = (safetensors.numpy.load_file(each) for each in (one, other))
    require(first.keys() == second.keys() and all(first[name].tobytes() == second[name].tobytes() for name in first), f"{one} and {other} differ")


def golden(folder):
    """Models that transformers wrote, with its logits: the logits, and the bytes of the weights there and back."""
    (folder / "eleven.json").write_text(json.dumps({"format": "whence tokeniser", "version": 1,
     "kind": "words", "vocabulary": 11, "words": [*"abcdefghij"]}, indent=1) + "\n")
    for name in ("gpt2", "gpt_neox"):
        run, back, again = (folder / f"{name}.{which}" for which in ("run", "back", "again"))
        converted(GOLDEN / name, "--out", run, "--tokeniser", folder / "eleven.json")
        said = safetensors.numpy.load_file(GOLDEN / name / "logits.safetensors")
        require_near(whence.load(str(run)).forward(said["tokens"]), said["logits"])
        converted(run, "--out", back)
        same_bits(GOLDEN / name / "model.safetensors", back / "model.safetensors")
        converted(back, "--out", again, "--tokeniser", folder / "eleven.json")
        require((run / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes(), "another file of weights")
        refused("has neither tokenizer.json nor", GOLDEN / name, "--out", folder / "none")
        refused("256 tokens found, of which 11 have a number", GOLDEN / name, "--out", folder / "none", "--tokeniser", "bytes")


def files_decide(folder):
    """Where config.json says one thing and the tensors another, and what nobody reads."""
    config, w = gpt2_model()
    masks = {f"h.{n}.attn.bias": torch.ones(1, 1, 24, 24, dtype=torch.uint8) for n in range(2)} | {"h.0.attn.masked_bias": torch.tensor(math.nan)}
    taken(folder, config, w | masks, "masks", says="note: 3 tensors of masks and frequencies left out\n")
    taken(folder, config, w | masks | {"value_head.weight": torch.ones(3, dtype=torch.int8)},
          "value", says="and 1 that gpt2 has no use for: value_head.weight")
    head = {"lm_head.weight": w["wte.weight"], **{name: x for name, x in w.items() if name != "wte.weight"}}
    both = head | {"wte.weight": w["wte.weight"]}
    only_head = lambda name, metadata, **more: write(folder / name, {**config, **more}, head, metadata=metadata)
    for name, metadata, more in (("twin", {"transformer.wte.weight": "lm_head.weight"}, {"tie_word_embeddings": False}), ("head", None, {})):
        converted(only_head(name, metadata, **more), "--out", folder / f"{name}.run")
        tokens = torch.randint(0, 256, (1, TOKENS))
        require_near(whence.load(str(folder / f"{name}.run")).forward(tokens.numpy()), gpt2(w, config, tokens).numpy())
        require(facts(folder / f"{name}.run")["model.tied"] is True, "tied")
    refused("no tensor 'wte.weight'", only_head("apart", None, tie_word_embeddings=False), "--out", folder / "none")
    require(facts(taken(folder, config, both, "copy"))["model.tied"] is True, "an equal copy is tied")
    own = both | {"lm_head.weight": drawn(256, 12)}
    require(facts(taken(folder, config, own, "own", says="a head of its own"))["model.tied"] is False, "a head of its own")
    converted(folder / "own.run", "--out", folder / "own.back")
    same_bits(folder / "own/model.safetensors", folder / "own.back/model.safetensors")
    require(json.loads((folder / "own.back/config.json").read_text())["tie_word_embeddings"] is False, "and stays one")
    require(facts(taken(folder, {**config, "tie_word_embeddings": False}, both, "equal"))
            ["model.tied"] is False, "two tables that happen to be equal")
    refused("no tensor 'lm_head.weight'", write(folder / "no", {**config, "tie_word_embeddings": False}, w), "--out", folder / "none")
    refused("'lm_head.weight' is \\[255, 12\\]", write(folder / "short", config, both | {"lm_head.weight": drawn(255, 12)}), "--out", folder / "none")

    wrong = {"vocab_size": 300, "n_positions": 99, "n_inner": 7, "n_layer": 1}
    said = taken(folder, {**config, **wrong}, w, "sizes", says="n_layer is 1, and 2 in the weights")
    require([facts(said)[f"model.{name}"] for name in ("vocabulary", "length", "hidden", "layers")] == [256, 24, 48, 2], "sizes of the weights")
    for name, value, words in (("n_layer", 3, "n_layer: 3 found; 1 to 2"), ("n_embd", 14, "n_embd: 14 found; 12"),
                               ("n_head", 5, "a divisor of the 12"),
                               ("n_head", None, "n_head: nothing found"), ("n_head", True, "a whole number"),
                               ("activation_function", "quick", "gelu_new or"),
                               ("scale_attn_weights", False, "true required"), ("model_type", "bert", "gpt2 or gpt_neox or llama"),
                               ("layer_norm_epsilon", -1.0, "1e-12 to 1")):
        refused(words, write(folder / f"{name}-{value}", {**config, name: value}, w), "--out", folder / "none")
    refused("no tensor 'h.1.mlp.c_fc.weight'", write(folder / "lost", config,
            {name: x for name, x in w.items() if name != "h.1.mlp.c_fc.weight"}), "--out", folder / "none")
    refused(
    "is \\[12, 35\\]; \\[12, 36\\] required",
    write(
        folder /
        "narrow",
        config,
        w | {
            "h.1.attn.c_attn.weight": drawn(
                12,
                35)}),
                "--out",
                folder /
                 "none")
    refused("is I8", write(folder / "int", config, w | {"h.1.ln_1.weight": torch.ones(12, dtype=torch.int8)}), "--out", folder / "none")
    refused("holds nan", write(folder / "nan", config, w | {"h.1.ln_1.weight": torch.full((12,), math.nan)}), "--out", folder / "none")

    taken(folder, config, w, "bare", bare=True)
    taken(folder, config, w, "mark", mark=b"\xef\xbb\xbf")
    for kind in (torch.float16, torch.bfloat16):
        theirs = write(folder / str(kind), config, w, dtype=kind)
        converted(theirs, "--out", folder / f"{kind}.run")
        tokens = torch.randint(0, 256, (1, TOKENS))
        require_near(whence.load(str(folder / f"{kind}.run")).forward(tokens.numpy()),
                     gpt2({name: x.to(kind).double() for name, x in w.items()}, config, tokens).numpy())
    wider = gpt2_model(n_inner=None, layer_norm_epsilon=1e-6, activation_function="relu")
    taken(folder, *wider, "epsilon", says="norms have epsilon 1e-06")
    taken(folder, wider[0], wider[1] | {"lm_head.weight": drawn(256, 12)}, "epsilon2", says="norms have epsilon 1e-06")


def shards(folder):
    config, w = gpt2_model()
    whole = safetensors.torch.load_file(write(folder / "parts", config, w) / "model.safetensors")
    os.remove(folder / "parts/model.safetensors")
    names = sorted(whole)
    index = {name: f"model-0000{1 + k % 2}-of-00002.safetensors" for k, name in enumerate(names)}
    for file in sorted(set(index.values())):
        safetensors.torch.save_file({name: whole[name] for name in names if index[name] == file}, folder / "parts" / file, {"format": "pt"})
    write_index = lambda where, table: (folder /
    where /
    "model.safetensors.index.json").write_bytes(b"\xef\xbb\xbf" +
     json.dumps({"weight_map": table}).encode())
    write_index("parts", index)
    converted(folder / "parts", "--out", folder / "parts.run")
    tokens = torch.randint(0, 256, (1, TOKENS))
    require_near(whence.load(str(folder / "parts.run")).forward(tokens.numpy()), gpt2(w, config, tokens).numpy())
    shutil.copytree(folder / "parts", folder / "older")  # an index of before, beside the file that was written since
    newer = gpt2_model()
    shutil.copy(write(folder / "newer", *newer) / "model.safetensors", folder / "older/model.safetensors")
    os.remove(folder / "older/model-00001-of-00002.safetensors")
    converted(folder / "older", "--out", folder / "older.run")
    require_near(whence.load(str(folder / "older.run")).forward(tokens.numpy()), gpt2(newer[1], newer[0], tokens).numpy())
    safetensors.torch.save_file({"transformer.wte.weight": whole["transformer.wte.weight"]}, folder / "parts/model-00003-of-00002.safetensors")
    write_index("parts", index | {"x": "model-00003-of-00002.safetensors"})
    refused("wte.weight' and .*wte.weight' found; one of them", folder / "parts", "--out", folder / "none")
    for table, words in (({"x": "../model.safetensors"}, "the same folder"), ({}, "the same folder"),
                         ({"x": "model-9.safetensors"}, "No such file|model-9")):
        write_index("parts", table)
        refused(words, folder / "parts", "--out", folder / "none")
    os.remove(folder / "parts/model.safetensors.index.json")
    (folder / "parts/pytorch_model.bin").write_bytes(b"PK\x03\x04")
    refused("weights of torch.save found", folder / "parts", "--out", folder / "none")


def rotations(folder):
    """GPT-NeoX with every rope_type: the scheme, the logits, and both again after the way back."""
    lists = {"short_factor": [1.0, 2.5], "long_factor": [3.0, 7.0]}
    stretched = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    cases = {
    "rope(width=4)": None,
    "interpolated(rope(width=4), factor=2)": {
        "rope_type": "linear",
        "factor": 2.0},
        "rope(base=500, width=4, scaling=dynamic, factor=3, original=16)": {
            "type": "dynamic",
            "factor": 3.0,
            "rope_theta": 500.0},
            "rope(width=4, scaling=llama3, factor=8, original=8, low_freq_factor=1, high_freq_factor=4)": {
                "rope_type": "llama3",
                ORIGINAL: 8,
                **stretched},
                "rope(width=4, scaling=longrope, factor=4, original=8, short_factor=1:2.5, long_factor=3:7)": {
                    "rope_type": "longrope",
                    "factor": 4.0,
                    ORIGINAL: 8,
                    **lists},
                    "yarn(width=4, factor=4, original=8, beta_fast=32, beta_slow=1)": {
                        "rope_type": "yarn",
                        "factor": 4.0,
                         ORIGINAL: 8}}
    for k, (scheme, rope) in enumerate(cases.items()):
        for parallel in (True, False):
            name = f"{k}.{parallel}"
            config, w = neox_model(rotary_pct=0.5, use_parallel_residual=parallel, **({"rope_scaling": rope} if rope else {}))
            if rope and "rope_theta" in rope:
                config["rotary_emb_base"] = rope["rope_theta"]
            run = taken(folder, config, w, name)
            require(facts(run)["model.scheme"] == scheme, f"{facts(run)['model.scheme']}; {scheme} required")
            back, again = folder / f"{name}.back", folder / f"{name}.again"
            converted(run, "--out", back)
            converted(back, "--out", again)
            same_bits(folder / name / "model.safetensors", back / "model.safetensors")
            require(
    facts(again) == facts(run) and (
        run /
        "weights.safetensors").read_bytes() == (
            again /
            "weights.safetensors").read_bytes(),
             "there and back")
    newer = neox_model(rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.25, "rope_theta": 700.0})
    newer[0]["rotary_emb_base"] = 700.0
    require(facts(taken(folder, *newer, "newer"))["model.scheme"] == "rope(base=700, width=2)", "rope_parameters")
    for rope, scheme in (({"partial_rotary_factor": 0.5}, "rope(keep=0.5)"),
                         ({"partial_rotary_factor": 0.5, "factor": 3.0}, "interpolated(rope(keep=0.5), factor=3)")):
        config, w = neox_model(rope_parameters={"rope_type": "proportional", **rope})
        run = folder / f"keep{len(rope)}.run"
        converted(write(folder / f"keep{len(rope)}", config, w), "--out", run)
        converted(run, "--out", folder / f"keep{len(rope)}.back")
        converted(folder / f"keep{len(rope)}.back", "--out", folder / f"keep{len(rope)}.again")
        require(facts(run) == facts(folder / f"keep{len(rope)}.again") and facts(run)["model.scheme"] == scheme, scheme)
    for heads in (1, 3, 6):
        run = taken(folder, *neox_model(24, heads, rotary_pct=0.5), f"heads{heads}")
        converted(run, "--out", folder / f"heads{heads}.back")
        same_bits(folder / f"heads{heads}/model.safetensors", folder / f"heads{heads}.back/model.safetensors")
    tied = taken(folder, *neox_model(tied=True), "tied")
    require(facts(tied)["model.tied"] is True, "tied")
    (tied / "run.json").write_text((tied / "run.json").read_text().replace('"model.tied": true', '"model.tied": false'))
    refused("and a head; those of the weights", tied, "--out", folder / "none")
    untold, w = neox_model(rope_scaling={"rope_type": "longrope", ORIGINAL: 8, "short_factor": [1.0], "long_factor": [3.0]})
    del untold["hidden_act"]
    run = folder / "untold.run"
    converted(write(folder / "untold", untold, w), "--out", run)
    require(facts(run)["model.scheme"] == "rope(width=2, scaling=longrope, factor=2, original=8, short_factor=1, long_factor=3)",
            "a factor that follows")
    require(facts(run)["model.activation"] == "gelu_erf", "what is not said")
    refused("rotary_pct: 0.4 found", write(folder / "odd", *neox_model(rotary_pct=0.4)), "--out", folder / "none")
    unbiased = taken(folder, *neox_model(attention_bias=False), "unbiased")
    require((facts(unbiased)["model.bias"], facts(unbiased)["model.attention_bias"]) == (True, False), "no biases in attention")
    converted(unbiased, "--out", folder / "unbiased.back")
    same_bits(folder / "unbiased/model.safetensors", folder / "unbiased.back/model.safetensors")
    for rope, words in (
    ({
        "rope_type": "su"}, "rope_type default, linear"), ({
            "rope_type": "linear"}, "factor: nothing found"), ({
                "rope_type": "yarn", "factor": 2, "mscale": 1}, "alone for yarn"), ({
                    "rope_type": "yarn", "factor": 4.0, ORIGINAL: 0}, "1 or more"), ({
                        "rope_type": "longrope", "factor": 4.0, ORIGINAL: 8, **lists, "long_factor": [1.0]}, "each of 2 pairs"), ({
                            "rope_type": "linear", "factor": "2"}, "a number"), ("linear", "an object")):
        refused(words, write(folder /
    re.sub(r"\W", "", f"bad{rope}"), *
    [{**each, "rope_scaling": rope} if k == 0 else each for k, each in enumerate(neox_model(rotary_pct=0.5))]), "--out", folder /
     "none")
    run = folder / "0.True.run"
    kept = (run / "run.json").read_text()
    for scheme, words in (("rope(scaling=ntk)", "absolute, or rope"), ("interpolated(rope(scaling=dynamic), factor=2)", "absolute, or rope"),
                          ("window(rope, n=3)", "absolute, or"),
                          ("rope + alibi", "absolute, or"), ("alibi", "absolute, or"), ("rope(keep=0.5, width=4)", "absolute, or"),
                          ("yarn(dynamic=yes)", "dynamic=no"),
                          ("rope(layout=interleaved)", "layout=half"), ("rope(scaling=dynamic, original=7)", "original 7 in a model of 16")):
        (run / "run.json").write_text(kept.replace("rope(width=4)", scheme))
        refused(words, run, "--out", folder / "none")
    (run / "run.json").write_text(kept.replace("rope(width=4)", "rope(width=4, scaling=longrope, factor=4, original=8, short_factor=1.5)"))
    converted(run, "--out", folder / "one.back")
    rope = json.loads((folder / "one.back/config.json").read_text())["rope_scaling"]
    require((rope["short_factor"], rope["long_factor"]) == ([1.5, 1.5], [1.0, 1.0]), rope)
    (run / "run.json").write_text(kept.replace('"model.heads": 2', '"model.heads": 2, "model.kv_heads": 1'))
    refused("kv_heads: 1 found; null or 0 or 2", run, "--out", folder / "none")
    for field, value in (("norm", '"rms"'), ("activation", '"swiglu"'), ("norm_place", '"after"'),
                         ("causal", "false"), ("bias", "false"), ("heads", "3"), ("layers", "1"),
                         ("layers", "3"), ("layers", "9000000"), ("vocabulary", "255"), ("hidden", "23"), ("tied", "true"), ("dim", '"x"')):
        (run / "run.json").write_text(re.sub(rf'("model.{field}": )[^,]*', rf"\g<1>{value}", kept))
        refused("required", run, "--out", folder / "none")


def llamas(folder):
    """Llama, Mistral, SmolLM2 and Qwen2 as they come, and every rotation."""
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8}
    pairs = {"short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}
    cases = {
        "llama": llama_model(rms_norm_eps=1e-5, rope_theta=500000.0, head_dim=8), "llama of 1e-6": llama_model(key_heads=4),
        "llama3": llama_model(rms_norm_eps=1e-5, rope_scaling=llama3), "linear": llama_model(rope_scaling={"type": "linear", "factor": 4.0}),
        "dynamic": llama_model(rope_scaling={"type": "dynamic", "factor": 2.0}),
        "yarn": llama_model(rope_scaling={"rope_type": "yarn", "factor": 4.0, ORIGINAL: 8}),
        "longrope": llama_model(rope_scaling={"rope_type": "longrope", "factor": 4.0, ORIGINAL: 8, **pairs}),
        "biases everywhere": llama_model(biases="qkvom", attention_bias=True, mlp_bias=True),
        "biases of attention": llama_model(biases="qkvo", attention_bias=True),
        "smollm2": llama_model(tied=True, rms_norm_eps=1e-5, rope_theta=100000.0, key_heads=1), "smollm2 of 1e-6": llama_model(tied=True),
        "qwen2": llama_model("qwen2", biases="qkv", tied=True, rms_norm_eps=1e-6, rope_theta=1e6, use_sliding_window=False, sliding_window=4,
                             layer_types=["full_attention"] * 2),
        "qwen2 of a head": llama_model("qwen2", biases="qkv", rms_norm_eps=1e-6),
        "mistral": llama_model("mistral", rms_norm_eps=1e-5, sliding_window=None)}
    for name, (config, w) in cases.items():
        frequencies = {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)} if name == "llama" else {}
        run = taken(folder, config, w | frequencies, name, says="1 tensors of masks" if frequencies else "")
        found = facts(run)
        require(found.get("model.kv_heads", 4) == config["num_key_value_heads"], "heads of keys")
        require(found["model.tied"] == config["tie_word_embeddings"], "tied")
        refused('norm: "rms" found; "layer", as GPT-2', run, "--out", folder / "none")
    biased = {name: x for name, x in safetensors.numpy.load_file(folder / "qwen2.run/weights.safetensors").items() if name.endswith("bias")}
    require(all(bool(x.any()) == bool(re.search("query|key|value", name))
            for name, x in biased.items()) and len(biased) == 14, "biases of q, k and v alone")
    config, w = llama_model("mistral")
    for more, words in (
    (dict(
        sliding_window=4), "16 or more"), (dict(
            head_dim=16), "head_dim: 16 found; 8"), (dict(
                hidden_act="gelu"), "silu or swish"), (dict(
                    layer_types=["sliding_attention"]), "full_attention alone"), (dict(
                        num_attention_heads=8), "as many as divide|keys|head_dim"), (dict(
                            max_position_embeddings=None), "max_position_embeddings: nothing")):
        given = {**config, "sliding_window": None, **more}
        if "num_attention_heads" in more:
            given |= {"num_attention_heads": 1}  # keys of half a head
        refused(words, write(folder / re.sub(r"\W", "", f"x{more}"), given, w), "--out", folder / "none")


def tokenisers(folder):
    text = "It's the 12th\r\n  of caf\u00e9 \u2603! the cat sat on the mat, the dog's <pad> in the house. " * 3
    pieces = tokenizers.Tokenizer(tokenizers.models.BPE())
    pieces.pre_tokenizer, pieces.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    pieces.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=296, special_tokens=["<|endoftext|>"], show_progress=False,
                                                                      initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    pieces.add_special_tokens(["<pad>", "caf\u00e9"])
    pieces.add_tokens(["  in the"])
    count = pieces.get_vocab_size()
    config, w = gpt2_model(rows=320)
    w["wte.weight"][count:] *= 40  # greedy would draw nothing else
    w["wte.weight"][count:] += 30 * w["ln_f.bias"]
    plain = "It's the 12th\r\n  of caf\u00e9 \u2603! the cat sat"

    def read(run):
        rows = whence.load(str(run)).tokens(prompt=plain + " on the")
        ids = pieces_alone.encode(plain + " on the").ids
        table = json.loads((run / "tokeniser.json").read_text())["vocab"]
        spelling = {number: token for token, number in table.items()}
        require(len(ids) - 1 <= len(rows) <= len(ids), f"{len(rows)} tokens; {len(ids)} required")
        shown = [(row, spelling[number].replace("\u0120", " ")) for row, number in zip(
            rows, ids) if spelling[number].isascii() or spelling[number][1:].isascii()]
        require(all(row == own for row, own in shown if own.isprintable() and own[0] not in "\u010a\u010d") and len(shown) > 8, f"{shown}")
    whole = json.loads(pieces.to_str())
    pieces_alone = tokenizers.Tokenizer.from_str(json.dumps({**whole, "added_tokens": []}))
    theirs = write(folder / "whole", config, w)
    (theirs / "tokenizer.json").write_bytes(b"\xef\xbb\xbf" + pieces.to_str().encode())
    said = converted(theirs, "--out", folder / "whole.run")
    require(f"320 tokens, of which {count} have a text" in said and "1 added tokens are not read out of text" in said, said)
    own = json.loads((folder / "whole.run/tokeniser.json").read_text())
    require((own["vocabulary"], len(own["vocab"]), own["vocab"]["caf\u00c3\u00a9"]) ==
            (320, count, pieces.token_to_id("caf\u00e9")), "rows, tokens, an added one")
    read(folder / "whole.run")
    drawn_text = whence.load(str(folder / "whole.run")).generate("the cat", tokens=12, greedy=True)
    tokens = torch.tensor([pieces_alone.encode("the cat").ids])
    require(gpt2(w, config, tokens)[0, -1].argmax() >= count, "the largest logit has no token")
    require(len(drawn_text.rstrip("\n")) > len("the cat"), f"{drawn_text!r}: tokens without text were drawn")

    files = write(folder / "files", config, w)
    (files / "vocab.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(whole["model"]["vocab"]).encode())
    lines = [each if isinstance(each, str) else " ".join(each) for each in whole["model"]["merges"]]
    (files / "merges.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["#version: 0.2", *lines, ""]).encode())
    (files / "added_tokens.json").write_text(json.dumps({"<pad>": count - 3, "caf\u00e9": count - 2, "  in the": count - 1}))
    converted(files, "--out", folder / "files.run")
    require(json.loads((folder / "files.run/tokeniser.json").read_text()) == own, "the same of both forms")
    converted(folder / "files.run", "--out", folder / "files.back")
    converted(folder / "files.back", "--out", folder / "files.again")
    require((folder / "files.again/tokeniser.json").read_bytes() == (folder / "files.run/tokeniser.json").read_bytes(), "and there and back")
    same = tokenizers.Tokenizer.from_file(str(folder / "files.back/tokenizer.json"))
    require(same.encode(plain).ids == pieces_alone.encode(plain).ids and same.decode(same.encode(plain).ids) == plain, "tokenizer.json of ours")

    def other(name, words=(), rows=None, **change):
        model = {**whole["model"], **change.pop("model", {})}
        given = write(folder / name, *gpt2_model(rows=rows)) if rows else write(folder / name, config, w)
        (given / "tokenizer.json").write_text(json.dumps({**whole, **change, "model": model}))
        return [given, "--out", folder / f"{name}.run", *words]
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, whole["pre_tokenizer"]]}
    refused("otherwise than GPT-2: '\u0120' where GPT-2 has '\u012012'", *other("digits", pre_tokenizer=digits))
    require("otherwise than in training" in converted(*other("digits2", ("--tokeniser", "gpt2"), pre_tokenizer=digits)), "as GPT-2 all the same")
    refused("ignore_merges True", *other("ignored", model={"ignore_merges": True}))
    refused("otherwise than GPT-2", *other("prefix", pre_tokenizer={**whole["pre_tokenizer"], "add_prefix_space": True}))
    refused("otherwise than GPT-2", *other("lower", normalizer={"type": "Lowercase"}))
    require("in NFC" in converted(*other("nfc", normalizer={"type": "NFC"})), "NFC")
    refused("byte-level BPE or --tokeniser required", *other("few", model={"vocab": {"a": 0}, "merges": []}, added_tokens=[]))
    refused("no tokeniser of transformers", *other("broken", model={"merges": ["\u0120 nothing"]}))
    require("'  in the' left out: it is number" in converted(*other("less", rows=count - 1)), "an added token beyond the rows")
    longer = {**whole["model"]["vocab"], "  in the": count - 1}
    require("'  in the' left out" in converted(*other("less2", rows=count - 1, model={"vocab": longer})), "one that the vocabulary has, too")
    require(len(same.encode("<|endoftext|>").ids) == 1, "a special token")
    refused("a number of their own from 0 to 289", *other("fewer", rows=290))
    gap = {**whole["model"]["vocab"], "gap": count + 3}
    require("3 numbers below others have no token" in converted(*other("gap", model={"vocab": gap})), "numbers without a token")
    whence.load(str(folder / "gap.run"))


def ways(folder):
    """Training, and what a folder may be."""
    text = folder / "text.txt"
    text.write_text("".join(f"the cat number {i} sat on mat {i * 7 % 13}.\n" for i in range(300)))
    for scheme in ("rope", "absolute", "absolute(rows=20)"):
        run = folder / f"{scheme}.run"
        whence.train(
    "lm",
    out=str(run),
    quiet=True,
    data=str(text),
    scheme=scheme,
    length=16,
    dim=16,
    layers=1,
    heads=2,
    batch=2,
    steps=4,
    warm_up=0,
     evaluate_to=1)
        converted(run, "--out", folder / f"{scheme}.theirs")
        converted(folder / f"{scheme}.theirs", "--out", folder / f"{scheme}.again")
        same_bits(run / "weights.safetensors", folder / f"{scheme}.again/weights.safetensors")
        tokens = np.random.default_rng(0).integers(0, 256, (1, 16))
        require((whence.load(str(run)).forward(tokens) == whence.load(str(folder / f"{scheme}.again")).forward(tokens)).all(), "logits to the bit")
    whence.train(
    "lm",
    out=str(
        folder /
        "on"),
        quiet=True,
        data=str(text),
        scheme="alibi",
        length=16,
        dim=16,
        layers=1,
        heads=2,
        batch=2,
        steps=2,
        warm_up=0,
        evaluate_to=1,
        weights_of=str(
            folder /
             "rope.again"))
    require((folder / "on/weights.safetensors").exists(), "a training that begins with it")
    theirs, run = folder / "rope.theirs", folder / "rope.run"
    for out, words in ((theirs, "holds files"), (text, "is a file"), (text / "x", "4 convert.py|File exists|Not a directory")):
        refused(words, theirs, "--out", out)
    require(json.loads((folder / "absolute(rows=20).theirs/config.json").read_text())["n_positions"] == 20, "a table of another length")
    (folder / "empty").mkdir()
    converted(theirs, "--out", folder / "empty")
    require(json.loads((folder / "empty/tokeniser.json").read_text())["kind"] == "bytes", "bytes, as they were")
    require((folder / "empty/run.json").exists(), "an empty folder")
    refused("neither config.json nor run.json", folder / "on" / "nothing", "--out", folder / "none")
    refused("as a run has a tokeniser", run, "--out", folder / "none", "--tokeniser", "bytes")
    (run / "tokeniser.json").write_text(kept := (run / "tokeniser.json").read_text() + " ")
    refused("another than in training", run, "--out", folder / "none")
    (run / "tokeniser.json").write_text(kept[:-1])
    weights = bytearray((run / "weights.safetensors").read_bytes())
    weights[-3] ^= 1
    (run / "weights.safetensors").write_bytes(weights)
    refused("is damaged: its SHA-256", run, "--out", folder / "none")
    converted(run, "--out", folder / "accepted", "--accept-damaged")
    real, written = pathlib.Path.write_bytes, []

    def full(path, data):  # the second file finds no room
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return real(path, data)
    pathlib.Path.write_bytes = full
    try:
        refused("No space left", theirs, "--out", folder / "none")
    finally:
        pathlib.Path.write_bytes = real
    require(len(written) == 2 and not written[0].exists(), "no room")


def damages(folder):
    """Bytes changed, cut off and put in, in every file: a refusal or a run, and never half of one."""
    config, w = neox_model(rope_scaling={"rope_type": "linear", "factor": 2.0})
    theirs = write(folder / "theirs", config, w)
    (theirs / "vocab.json").write_text(json.dumps({token: byte for token, byte in convert.BYTES.items()}))
    (theirs / "merges.txt").write_text("#version: 0.2\n")
    (theirs / "added_tokens.json").write_text('{"\u00ff": 255}')
    converted(theirs, "--out", folder / "run")
    draw, outcomes = random.Random(5), {"taken": 0, "refused": 0}
    for source in (theirs, folder / "run"):
        for name in sorted(each.name for each in source.iterdir()):
            whole = (source / name).read_bytes()
            for k in range(60):
                content = bytearray(whole)
                at = draw.randrange(min(len(content), 600) or 1)
                if k % 4 == 0:
                    content[at:] = b""
                elif k % 4 == 1:
                    content[at:at + 1] = bytes([draw.randrange(256)])
                elif k % 4 == 2:
                    content[at:at + draw.randrange(1, 9)] = draw.choice([b"null", b"-1", b"[]", b"{}", b'"',
                                                   b"1e999", b"99999999999999999999", b"\0", b"\xff", b"NaN"])
                else:
                    content = bytearray(re.sub(rb"\d+",
    lambda found: draw.choice([found[0],
    b"0",
    b"7",
    b"true",
    b'"x"',
    b"-3",
    b"1e30"]) if draw.random() < 0.2 else found[0],
     bytes(content[:600])) + bytes(content[600:]))
                (source / name).write_bytes(content)
                try:
                    converted(source, "--out", folder / "out", *["--accept-damaged"] * (k % 3 == 0))
                    outcomes["taken"] += 1
                    shutil.rmtree(folder / "out")
                except convert.Refused:
                    outcomes["refused"] += 1
                    assert not (folder / "out").exists() and not [*folder.glob("*.tmp-*")]
            (source / name).write_bytes(whole)
    require(outcomes["refused"] > 100, outcomes)
    return outcomes


ORIGINAL = "original_max_position_embeddings"
torch.manual_seed(3)
for check in (golden, files_decide, shards, rotations, llamas, tokenisers, ways, damages):
    with tempfile.TemporaryDirectory() as made:
        before = compared
        said = check(pathlib.Path(made))
        print(f"{check.__name__}: {compared - before} comparisons {said or ''}")
print(f"{compared} comparisons, the largest difference of logits {largest:.1e}")
