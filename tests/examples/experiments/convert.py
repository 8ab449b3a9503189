"""Models of Hugging Face as runs and back (examples/experiments/convert.py): its own proof for small random models made by transformers, equal bytes
of weights there and back, faults that the proof finds, and refusals: tests/pytest tests/examples/experiments/convert.py"""
import json
import os
import pathlib
import re
import shutil

import pytest

for package in ("safetensors", "tokenizers", "torch", "transformers", "whence"):
    pytest.importorskip(package)
import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers

if not transformers.utils.is_torch_available() and os.environ.get("WHENCE_REQUIRED") != "1":
    pytest.skip(f"transformers {transformers.__version__} does not take torch {torch.__version__}", allow_module_level=True)
import convert
import whence

GOLDEN = pathlib.Path(__file__).parents[1] / "language/hugging_face"
SMALL = dict(vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24)
NEOX, LLAMA = dict(SMALL, intermediate_size=48), dict(SMALL, intermediate_size=48, num_key_value_heads=2)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
CONFIGS = {"gpt2": transformers.GPT2Config, "gpt_neox": transformers.GPTNeoXConfig, "llama": transformers.LlamaConfig,
           "mistral": transformers.MistralConfig, "qwen2": transformers.Qwen2Config}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    torch.manual_seed(3)
    transformers.logging.set_verbosity_error()
    monkeypatch.chdir(tmp_path)


def new():
    return pathlib.Path(str(len([*pathlib.Path().iterdir()])))  # a name for a folder


def written(kind, half=False, shard="1GB", **fields):
    """Writes a model of random weights, norms and biases included."""
    folder, config = new(), CONFIGS[kind](**{**{"gpt2": SMALL, "gpt_neox": NEOX}.get(kind, LLAMA), **fields})
    made = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    (made.half() if half else made).save_pretrained(folder, max_shard_size=shard)
    return folder


@pytest.fixture
def taken(capsys):
    """Converts, checks what the proof says, and returns the new folder."""
    def taken(source, *words):
        out = new()
        assert convert.main([*map(str, (source, "--out", out, *words))]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
        assert float(re.search(r"proof: on \d+ tokens logits of transformers [\w.+]+ differ by (\S+) of the largest", said)[1]) < 1e-5, said
        return out
    return taken


@pytest.fixture
def refused(capsys):
    """Checks that it refuses with `words`, and leaves nothing."""
    def refused(words, source, *more, out=pathlib.Path("none")):
        before = out.exists()
        code, said = convert.main([*map(str, (source, "--out", out, *more))]), capsys.readouterr().err
        assert code != 0 and re.search(words, said, re.S) and said.count("\n") == 1, f"{words!r} expected: {said}"
        assert before == out.exists() and not [*pathlib.Path().glob("*.tmp-*")], "half a folder is left, or a temporary one"
    return refused


def fields(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def facts(run):
    return {name.removeprefix("model."): value for name, value in fields(run, "run.json")["facts"].items()}


def same(one, other):
    """Checks for equal names and bytes of tensors."""
    first, second = ({name: (x.dtype, x.shape, x.tobytes()) for name, x in safetensors.numpy.load_file(each).items()} for each in (one, other))
    assert first == second


@pytest.fixture
def there_and_back(taken):
    def there_and_back(theirs, run):
        back = taken(run)
        same(theirs / "model.safetensors", back / "model.safetensors")
        again = taken(back)
        assert (run / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes() and facts(run) == facts(again)
        return back
    return there_and_back


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_golden(name, taken, refused, there_and_back):
    """Models written by transformers 5, with its logits. Version 4 does not know the rotations of its config.json, and the proof says so."""
    theirs, said = pathlib.Path(shutil.copytree(GOLDEN / name, name)), safetensors.numpy.load_file(GOLDEN / name / "logits.safetensors")
    if name == "gpt_neox" and transformers.__version__ < "5":
        refused("does a newer transformers read the model otherwise", theirs)
        (theirs / "config.json").write_text(json.dumps(fields(theirs) | {"rope_parameters": None, "rotary_pct": 0.5}))
    run = taken(theirs)
    assert np.abs(whence.load(str(run)).forward(said["tokens"].astype(np.int64)) - said["logits"]).max() < 1e-5
    there_and_back(theirs, run)


HALF = dict(rotary_pct=0.5)


@pytest.mark.parametrize("kind, given, has", [
    ("gpt2", {}, {"scheme": "absolute", "tied": True, "activation": "gelu"}),
    ("gpt2", dict(tie_word_embeddings=False, activation_function="relu", n_inner=40), {"tied": False, "activation": "relu", "hidden": 40}),
    ("gpt_neox", {}, {"scheme": "rope(width=2)", "norm_place": "parallel", "activation": "gelu_erf"}),
    ("gpt_neox", dict(HALF, tie_word_embeddings=True, use_parallel_residual=False), {"norm_place": "before", "tied": True}),
    ("gpt_neox", dict(HALF, attention_bias=False), {"bias": True, "attention_bias": False}),
    ("gpt_neox", dict(HALF, rope_scaling={"rope_type": "linear", "factor": 2.0}), {"scheme": "interpolated(rope(width=4), factor=2)"}),
    ("gpt_neox", dict(rotary_pct=1.0, rotary_emb_base=500, rope_theta=500, rope_scaling={"rope_type": "dynamic", "factor": 3.0}),
     {"scheme": "rope(base=500, scaling=dynamic, factor=3, original=24)"}),
    ("gpt_neox", dict(HALF, rope_scaling={"rope_type": "yarn", "factor": 4.0}),
     {"scheme": "yarn(width=4, factor=4, original=24, beta_fast=32, beta_slow=1)"}),
    ("gpt_neox", dict(HALF, rope_scaling=LLAMA3), {"scheme": "rope(width=4, scaling=llama3, factor=8, original=8, low_freq_factor=1, high_freq_factor=4)"}),
    ("llama", dict(rms_norm_eps=1e-5, rope_theta=500000.0), {"scheme": "rope(base=500000)", "kv_heads": 2, "norm": "rms", "bias": False}),
    ("llama", dict(rope_scaling=LLAMA3, tie_word_embeddings=True, num_key_value_heads=4), {"tied": True, "kv_heads": None}),
    ("llama", dict(attention_bias=True), {"bias": True, "attention_bias": True}), ("llama", dict(attention_bias=True, mlp_bias=True), {}),
    ("mistral", dict(rms_norm_eps=1e-5), {"activation": "swiglu"}), ("mistral", dict(sliding_window=None), {}), ("qwen2", {}, {"attention_bias": True}),
    ("qwen2", dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=4, max_window_layers=2), {"tied": True})])
def test_family(kind, given, has, taken, refused, there_and_back):
    """The proof of each family, options and schemes; GPT-2 and GPT-NeoX there and back."""
    theirs = written(kind, **given)
    run = taken(theirs)
    assert {name: facts(run).get(name) for name in has} == has
    if kind in ("gpt2", "gpt_neox"):
        there_and_back(theirs, run)
    else:
        refused("norm: rms found; layer required, as GPT-2", run)


def test_files(taken):
    taken(taken(written("gpt2", layer_norm_epsilon=1e-6)))  # the weights there are others, and the logits the same
    for how in (dict(half=True), dict(shard="20KB")):
        taken(written("gpt_neox", **how))


@pytest.mark.parametrize("broken", [
    dict(scheme_of=lambda *_: "rope(width=4, base=9000)"), dict(ACTIVATIONS=convert.ACTIVATIONS | {"gelu": "gelu"}),
    *(dict(weights_of=lambda model, name=name, by=by, whole=convert.weights_of: {each: x * by if each == name else x for each, x in whole(model).items()})
      for name, by in (("blocks.1.mlp.in.bias", -1), ("norm.bias", np.nan)))])
def test_the_proof_finds_faults_of_the_map(broken, refused, monkeypatch):
    for name, by in broken.items():
        monkeypatch.setattr(convert, name, by)
    refused("logits of transformers .*0.0001 required|not finite|finite numbers", written("gpt_neox", **HALF))


@pytest.mark.parametrize("words, kind, given", [
    ("logits of transformers", "gpt2", dict(scale_attn_weights=False)), ("logits of transformers", "gpt2", dict(scale_attn_by_inverse_layer_idx=True)),
    ("sliding_window: 4 found; 24 or more", "mistral", dict(sliding_window=4)), ("head_dim: 4 heads", "llama", dict(head_dim=16)),
    ("sliding_window: 4 found", "qwen2", dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    ("activation: gelu found; silu", "llama", dict(hidden_act="gelu")), ("activation: silu found", "gpt2", dict(activation_function="silu")),
    ("rope_type: longrope with", "llama", dict(rope_scaling={"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
                                                            "original_max_position_embeddings": 8}))])
def test_fields_that_whence_does_not_know(words, kind, given, refused):
    refused(words, written(kind, **given))


def test_broken_folders(refused):
    gpt2, bert = written("gpt2"), pathlib.Path("bert")
    data = safetensors.numpy.load_file(gpt2 / "model.safetensors")
    safetensors.numpy.save_file({name: x for name, x in data.items() if "h.1.ln_1.weight" not in name}, gpt2 / "model.safetensors", {"format": "pt"})
    refused("no tensor .*h.1.ln_1.weight", gpt2)
    os.rename(gpt2 / "model.safetensors", gpt2 / "pytorch_model.bin")
    refused("no file named model.safetensors", gpt2)
    transformers.BertConfig(hidden_size=32).save_pretrained(bert)
    refused("model_type: bert found; gpt2 or gpt_neox", bert)


def test_tokens(taken, refused, there_and_back):
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
    assert (own["vocabulary"], len(own["tokens"]), ids[0]) == (320, pieces.get_vocab_size(), 0)
    assert loaded.tokens(prompt=ids)[:2] == ["<s>", text[:len(own["tokens"][ids[1]])]]
    assert loaded.generate(ids, tokens=1).startswith("<s>" + text)
    wanted, read = transformers.AutoModelForCausalLM.from_pretrained(theirs), list(ids)
    for _ in range(4):
        with torch.no_grad():
            read.append(int(wanted(torch.tensor([read])).logits[0, -1, :pieces.get_vocab_size()].argmax()))
    made = b"".join(own["tokens"][number].encode("latin-1") for number in read).decode(errors="replace")
    assert loaded.generate(ids, tokens=4, temperature=0).rstrip("\n") == made.rstrip("\n")
    back = there_and_back(theirs, run)
    assert tokenizers.Tokenizer.from_file(str(back / "tokenizer.json")).encode(text).ids == ids
    fewer, byte = written("gpt2", vocab_size=260), written("gpt2", vocab_size=256)
    shutil.copy(theirs / "tokenizer.json", fewer)
    assert len(fields(taken(fewer), "tokeniser.json")["tokens"]) == 260, "tokens beyond the model are left out"
    assert facts(taken(byte))["tokeniser.kind"] == "bytes"
    shutil.copy(theirs / "tokenizer.json", byte)
    assert [facts(taken(byte, *more))["tokeniser.kind"] for more in ((), ("--tokeniser", "bytes"))] == ["tokens", "bytes"]
    assert fields(taken(written("gpt2")), "tokeniser.json")["tokens"][:2] == [" 0", " 1"]
    refused("it has 256 tokens and the model 90", written("gpt2"), "--tokeniser", "bytes")
    (byte / "tokenizer.json").write_text("[")
    refused("tokenizer.json: no JSON", byte)


def test_runs(taken, refused):
    """Training of converted models, and kinds of folders."""
    pathlib.Path("text.txt").write_text("".join(f"the cat number {i} sat on mat {i * 7 % 13}.\n" for i in range(300)))
    small = dict(data="text.txt", length=16, dim=16, layers=1, heads=2, batch=2, steps=4, warm_up=0, evaluate_to=1, quiet=True)
    for scheme in ("absolute(rows=20)", "rope"):
        run = new()
        whence.train("lm", out=str(run), scheme=scheme, **small)
        again = taken(taken(run))
        same(run / "weights.safetensors", again / "weights.safetensors")
        drawn = np.random.default_rng(0).integers(0, 256, (1, 16))
        assert (whence.load(str(run)).forward(drawn) == whence.load(str(again)).forward(drawn)).all(), "logits to the bit"
    whence.train("lm", out="on", scheme="alibi", weights_of=str(again), **small)
    assert pathlib.Path("on/weights.safetensors").exists(), "a training that begins with it"
    refused("scheme: alibi found; rope required", pathlib.Path("on"))
    refused("exists; a new folder required", run, out=pathlib.Path("on"))
    refused("run.json", pathlib.Path("nothing"))
    for name, words in (("tokeniser.json", "damaged.tokeniser.json"), ("weights.safetensors", "damaged|whence.seal"), ("run.json", "run.json")):
        damaged = pathlib.Path(shutil.copytree(run, "damaged." + name))
        data = (run / name).read_bytes()
        (damaged / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        refused(words, damaged)
