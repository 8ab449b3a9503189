#!/usr/bin/env python3
"""Tests models of Hugging Face as runs and back (examples/experiments/convert.py): its own proof for small random models made by transformers, equal
bytes of weights there and back, faults that the proof finds, and refusals.
    PYTHONPATH=build/release/python python3 tests/examples/experiments/convert.py
Needs numpy, safetensors, tokenizers, torch, transformers and the module; ends with 77 if one is missing, or with 1 if WHENCE_REQUIRED=1 is set."""
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples/experiments"))
sys.dont_write_bytecode = True
import packages

packages.require("numpy", "safetensors", "tokenizers", "torch", "transformers", "whence", skip=77)
import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers

if not transformers.utils.is_torch_available() and os.environ.get("WHENCE_REQUIRED") != "1":
    print(f"skipped: transformers {transformers.__version__} does not take torch {torch.__version__}")
    sys.exit(77)
import convert
import whence

GOLDEN = ROOT / "tests/examples/language/hugging_face"
SMALL = dict(vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24)
NEOX, LLAMA = dict(SMALL, intermediate_size=48), dict(SMALL, intermediate_size=48, num_key_value_heads=2)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
compared, figures = 0, []  # figures: of the proofs
numbers = itertools.count()
new = lambda: Path(f"{next(numbers)}")  # a name for a folder


def require(holds, about):
    global compared
    assert holds, about
    compared += 1


def config(kind, **fields):
    return {"gpt2": transformers.GPT2Config, "gpt_neox": transformers.GPTNeoXConfig, "llama": transformers.LlamaConfig,
            "mistral": transformers.MistralConfig, "qwen2": transformers.Qwen2Config}[kind](
        **{**{"gpt2": SMALL, "gpt_neox": NEOX}.get(kind, LLAMA), **fields})


def written(kind, folder=None, half=False, shard="1GB", **fields):
    """Writes a model of random weights, norms and biases included."""
    folder, made = folder or new(), transformers.AutoModelForCausalLM.from_config(config(kind, **fields))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    (made.half() if half else made).save_pretrained(folder, max_shard_size=shard)
    return folder


def converted(*words):
    """Returns the output of convert.py. Raises if it refuses."""
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        code = convert.main(list(map(str, words)))
    if code:
        raise convert.outside.Refused(f"{code} {wrong.getvalue()}")
    return said.getvalue()


def taken(source, *words):
    """Converts, checks what the proof says, and returns the new folder."""
    out = new()
    said = converted(source, "--out", out, *words)
    difference = float(re.search(r"proof: on \d+ tokens logits of transformers [\w.+]+ differ by (\S+) of the largest", said)[1])
    require(difference < 1e-5, said)
    figures.append(difference)
    return out


def refused(words, source, *more, out=Path("none")):
    """Checks that it refuses with `words`, and leaves nothing."""
    before = out.exists()
    try:
        said = f"nothing: {converted(source, '--out', out, *more)}"
    except convert.outside.Refused as problem:
        said = f"refused: {problem}"
    require(re.search(f"refused: .*({words})", said, re.S) and said.count("\n") == 1, f"{words!r} expected: {said}")
    require(before == out.exists() and not [*Path().glob("*.tmp-*")], "half a folder is left, or a temporary one")


def fields(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def facts(run):
    return {name.removeprefix("model."): value for name, value in fields(run, "run.json")["facts"].items()}


def same(one, other):
    """Checks for equal names and bytes of tensors."""
    first, second = ({name: (x.dtype, x.shape, x.tobytes()) for name, x in safetensors.numpy.load_file(each).items()} for each in (one, other))
    require(first == second, f"{one} and {other} differ")


def there_and_back(theirs, run):
    back = taken(run)
    same(theirs / "model.safetensors", back / "model.safetensors")
    again = taken(back)
    require((run / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes(), "another file of weights")
    require(facts(run) == facts(again), "other facts")
    return back


def golden():
    """Models written by transformers 5, with its logits. Version 4 does not know the rotations of its config.json, and the proof says so."""
    for name in ("gpt2", "gpt_neox"):
        theirs, said = Path(shutil.copytree(GOLDEN / name, name)), safetensors.numpy.load_file(GOLDEN / name / "logits.safetensors")
        if name == "gpt_neox" and transformers.__version__ < "5":
            refused("does a newer transformers read the model otherwise", theirs)
            (theirs / "config.json").write_text(json.dumps(fields(theirs) | {"rope_parameters": None, "rotary_pct": 0.5}))
        run = taken(theirs)
        found = whence.load(str(run)).forward(said["tokens"].astype(np.int64))
        require(np.abs(found - said["logits"]).max() < 1e-5, "logits")
        there_and_back(theirs, run)


def families():
    """All families, the proof of each, options and schemes; GPT-2 and GPT-NeoX there and back."""
    half = dict(rotary_pct=0.5)
    for kind, given, has in (
            ("gpt2", {}, {"scheme": "absolute", "tied": True, "activation": "gelu"}),
            ("gpt2", dict(tie_word_embeddings=False, activation_function="relu", n_inner=40), {"tied": False, "activation": "relu", "hidden": 40}),
            ("gpt_neox", {}, {"scheme": "rope(width=2)", "norm_place": "parallel", "activation": "gelu_erf"}),
            ("gpt_neox", dict(half, tie_word_embeddings=True, use_parallel_residual=False), {"norm_place": "before", "tied": True}),
            ("gpt_neox", dict(half, attention_bias=False), {"bias": True, "attention_bias": False}),
            ("gpt_neox", dict(half, rope_scaling={"rope_type": "linear", "factor": 2.0}), {"scheme": "interpolated(rope(width=4), factor=2)"}),
            ("gpt_neox", dict(rotary_pct=1.0, rotary_emb_base=500, rope_theta=500, rope_scaling={"rope_type": "dynamic", "factor": 3.0}),
             {"scheme": "rope(base=500, scaling=dynamic, factor=3, original=24)"}),
            ("gpt_neox", dict(half, rope_scaling={"rope_type": "yarn", "factor": 4.0}),
             {"scheme": "yarn(width=4, factor=4, original=24, beta_fast=32, beta_slow=1)"}),
            ("gpt_neox", dict(half, rope_scaling=LLAMA3),
             {"scheme": "rope(width=4, scaling=llama3, factor=8, original=8, low_freq_factor=1, high_freq_factor=4)"}),
            ("llama", dict(rms_norm_eps=1e-5, rope_theta=500000.0), {"scheme": "rope(base=500000)", "kv_heads": 2, "norm": "rms", "bias": False}),
            ("llama", dict(rope_scaling=LLAMA3, tie_word_embeddings=True, num_key_value_heads=4), {"tied": True, "kv_heads": None}),
            ("llama", dict(attention_bias=True), {"bias": True, "attention_bias": True}), ("llama", dict(attention_bias=True, mlp_bias=True), {}),
            ("mistral", dict(rms_norm_eps=1e-5), {"activation": "swiglu"}), ("mistral", dict(sliding_window=None), {}),
            ("qwen2", {}, {"attention_bias": True}),
            ("qwen2", dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=4, max_window_layers=2), {"tied": True})):
        theirs = written(kind, **given)
        run = taken(theirs)
        require({name: facts(run).get(name) for name in has} == has, f"{has} required: {facts(run)}")
        print(f"{kind} {given}: {figures[-1]:.1e}")
        if kind in ("gpt2", "gpt_neox"):
            there_and_back(theirs, run)
        else:
            refused("norm: rms found; layer required, as GPT-2", run)
    theirs = written("gpt2", layer_norm_epsilon=1e-6)
    taken(taken(theirs))  # the weights there are others, and the logits the same
    for how in (dict(half=True), dict(shard="20KB")):
        taken(written("gpt_neox", **how))


def faults():
    """Faults of the map, and fields that whence does not know: the proof finds them. Others are refused by name."""
    neox, gpt2 = written("gpt_neox", rotary_pct=0.5), written("gpt2")
    whole = convert.weights_of
    for broken in (dict(scheme_of=lambda *_: "rope(width=4, base=9000)"), dict(ACTIVATIONS=convert.ACTIVATIONS | {"gelu": "gelu"}),
                   dict(weights_of=lambda model: {name: -x if name == "blocks.1.mlp.in.bias" else x for name, x in whole(model).items()}),
                   dict(weights_of=lambda model: {name: x * np.nan if name == "norm.bias" else x for name, x in whole(model).items()})):
        with unittest.mock.patch.multiple(convert, **broken):
            refused("logits of transformers .*0.0001 required|not finite|finite numbers", neox)
    refused("logits of transformers", written("gpt2", scale_attn_weights=False))
    refused("logits of transformers", written("gpt2", scale_attn_by_inverse_layer_idx=True))
    for words, kind, given in (
            ("sliding_window: 4 found; 24 or more", "mistral", dict(sliding_window=4)), ("head_dim: 4 heads", "llama", dict(head_dim=16)),
            ("sliding_window: 4 found", "qwen2", dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)),
            ("activation: gelu found; silu required", "llama", dict(hidden_act="gelu")),
            ("activation: silu found", "gpt2", dict(activation_function="silu")),
            ("rope_type: longrope with", "llama", dict(rope_scaling={"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4,
                                                                    "long_factor": [2.0] * 4, "original_max_position_embeddings": 8}))):
        refused(words, written(kind, **given))
    data = safetensors.numpy.load_file(gpt2 / "model.safetensors")
    safetensors.numpy.save_file({name: x for name, x in data.items() if "h.1.ln_1.weight" not in name}, gpt2 / "model.safetensors", {"format": "pt"})
    refused("no tensor .*h.1.ln_1.weight", gpt2)
    bert = new()
    transformers.BertConfig(hidden_size=32).save_pretrained(bert)
    refused("model_type: bert found; gpt2 or gpt_neox", bert)
    os.rename(neox / "model.safetensors", neox / "pytorch_model.bin")
    refused("no file named model.safetensors", neox)


def tokens():
    """The tokens of tokenizer.json, fewer than rows; its file there and back; bytes; numbers as texts."""
    level, text = tokenizers.pre_tokenizers.ByteLevel, "the cat caf\u00e9 \u2603 sat"
    pieces = tokenizers.Tokenizer(tokenizers.models.BPE())
    pieces.pre_tokenizer, pieces.decoder = level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    pieces.train_from_iterator([text * 3], tokenizers.trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<s>"], show_progress=False, initial_alphabet=level.alphabet()))
    pieces.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    theirs = written("gpt2", vocab_size=320)
    pieces.save(str(theirs / "tokenizer.json"))
    run = taken(theirs)
    loaded, ids, own = whence.load(str(run)), pieces.encode(text).ids, fields(run, "tokeniser.json")
    require((own["vocabulary"], len(own["tokens"]), ids[0]) == (320, pieces.get_vocab_size(), 0), own)
    require(loaded.tokens(prompt=ids)[:2] == ["<s>", text[:len(own["tokens"][ids[1]])]], loaded.tokens(prompt=ids))
    require(loaded.generate(ids, tokens=1).startswith("<s>" + text), "the text of the numbers")
    wanted, read = transformers.AutoModelForCausalLM.from_pretrained(theirs), list(ids)
    for _ in range(4):
        with torch.no_grad():
            read.append(int(wanted(torch.tensor([read])).logits[0, -1, :pieces.get_vocab_size()].argmax()))
    made = b"".join(own["tokens"][number].encode("latin-1") for number in read).decode(errors="replace")
    require(loaded.generate(ids, tokens=4, temperature=0).rstrip("\n") == made.rstrip("\n"), made)
    back = there_and_back(theirs, run)
    require(tokenizers.Tokenizer.from_file(str(back / "tokenizer.json")).encode(text).ids == ids, "tokenizer.json of ours")
    fewer = written("gpt2", vocab_size=260)
    shutil.copy(theirs / "tokenizer.json", fewer)
    require(len(fields(taken(fewer), "tokeniser.json")["tokens"]) == 260, "tokens beyond the model are left out")
    byte = written("gpt2", vocab_size=256)
    require(facts(taken(byte))["tokeniser.kind"] == "bytes", "a model of bytes")
    shutil.copy(theirs / "tokenizer.json", byte)
    require([facts(taken(byte, *more))["tokeniser.kind"] for more in ((), ("--tokeniser", "bytes"))] == ["tokens", "bytes"], "as asked")
    require(fields(taken(written("gpt2")), "tokeniser.json")["tokens"][:2] == [" 0", " 1"], "numbers")
    refused("it has 256 tokens and the model 90", written("gpt2"), "--tokeniser", "bytes")
    (byte / "tokenizer.json").write_text("[")
    refused("tokenizer.json: no JSON", byte)


def ways():
    """Training of converted models, and kinds of folders."""
    Path("text.txt").write_text("".join(f"the cat number {i} sat on mat {i * 7 % 13}.\n" for i in range(300)))
    small = dict(data="text.txt", length=16, dim=16, layers=1, heads=2, batch=2, steps=4, warm_up=0, evaluate_to=1, quiet=True)
    for scheme in ("absolute(rows=20)", "rope"):
        run = new()
        whence.train("lm", out=str(run), scheme=scheme, **small)
        theirs = taken(run)
        again = taken(theirs)
        same(run / "weights.safetensors", again / "weights.safetensors")
        drawn = np.random.default_rng(0).integers(0, 256, (1, 16))
        require((whence.load(str(run)).forward(drawn) == whence.load(str(again)).forward(drawn)).all(), "logits to the bit")
    whence.train("lm", out="on", scheme="alibi", weights_of=str(again), **small)
    require(Path("on/weights.safetensors").exists(), "a training that begins with it")
    whence.train("lm", out="alibi", scheme="alibi", **small)
    refused("scheme: alibi found; rope required", Path("alibi"))
    refused("exists; a new folder required", theirs, out=Path("on"))
    refused("run.json", Path("nothing"))
    for name, words in (("tokeniser.json", "damaged.tokeniser.json"), ("weights.safetensors", "damaged|whence.seal"), ("run.json", "run.json")):
        damaged = Path(shutil.copytree(run, "damaged." + name))
        data = (run / name).read_bytes()
        (damaged / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        refused(words, damaged)


torch.manual_seed(3)
transformers.logging.set_verbosity_error()
for check in (golden, families, faults, tokens, ways):
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        before = compared
        check()
        print(f"{check.__name__}: {compared - before} comparisons")
        os.chdir(ROOT)
print(f"{compared} comparisons, the largest difference of logits {max(figures):.1e} of the largest")
