#!/usr/bin/env python3
"""Converts models of Hugging Face to runs of whence and back, if the logits of both differ by 1e-4 of the largest at most.

    examples/experiments/convert.py gpt2 --out runs/gpt2     GPT-2, GPT-NeoX, Llama, Mistral or Qwen2, for all that reads a run of train lm
    examples/experiments/convert.py runs/gpt2 --out back     GPT-2 or GPT-NeoX, for transformers' from_pretrained
"""
import argparse
import hashlib
import json
import math
import pathlib
import re
import shutil
import sys
import tempfile
from typing import Any, Container, Iterator

import outside
import packages

packages.require("numpy", "safetensors", "tokenizers", "torch", "transformers", "whence")
import numpy as np
import safetensors.numpy
import tokens
import torch
import transformers
import whence

EPSILON, MOST = 1e-5, 1e-4  # of our norms; the largest difference of logits
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf", "relu": "relu", "silu": "swiglu"}
# Our modules and theirs, where N is a block's number. Three of ours may be one of theirs.
OURS = ("embedding position norm head blocks.N.norm1 blocks.N.norm2 blocks.N.attention.query blocks.N.attention.key blocks.N.attention.value "
        "blocks.N.attention.output blocks.N.mlp.gate blocks.N.mlp.in blocks.N.mlp.out").split()
GPT2 = "wte wpe ln_f lm_head h.N.ln_1 h.N.ln_2" + 3 * " h.N.attn.c_attn" + " h.N.attn.c_proj none h.N.mlp.c_fc h.N.mlp.c_proj"
NORMS = " layers.N.input_layernorm layers.N.post_attention_layernorm"
NEOX = ("embed_in none final_layer_norm embed_out" + NORMS + 3 * " layers.N.attention.query_key_value" +
        " layers.N.attention.dense none layers.N.mlp.dense_h_to_4h layers.N.mlp.dense_4h_to_h")
LLAMA = ("embed_tokens none norm lm_head" + NORMS + "".join(f" layers.N.self_attn.{part}_proj" for part in "qkvo") +
         "".join(f" layers.N.mlp.{part}_proj" for part in ("gate", "up", "down")))
FAMILIES = {"gpt2": ("transformer.", "layer_norm_epsilon", GPT2), "gpt_neox": ("gpt_neox.", "layer_norm_eps", NEOX),
            **dict.fromkeys(("llama", "mistral", "qwen2"), ("model.", "rms_norm_eps", LLAMA))}
is_tied = lambda model: model.get_output_embeddings().weight is model.get_input_embeddings().weight
page = lambda value, indent=2: (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode()
exact = lambda number: repr(float(number)).removesuffix(".0")  # 0.0003, 500000


def require(holds: Any, message: str) -> None:
    if not holds:
        raise outside.Refused(message)


def views(model: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields our tensors as views of theirs; a third of a tensor, of all heads together or of each head apart, has a dimension more."""
    config, theirs = model.config, {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    gpt2, (prefix, _, modules) = config.model_type == "gpt2", FAMILIES[config.model_type]
    for ours, there in zip(OURS, modules.split()):
        for at in range(2 * (config.num_hidden_layers if "N" in ours else ours != "head" or not is_tied(model))):
            number, leaf = str(at // 2), ("weight", "bias")[at % 2]
            name = f"{'' if ours == 'head' else prefix}{there.replace('N', number)}.{leaf}"
            if name in theirs:
                view = theirs[name].T if gpt2 and leaf == "weight" and re.search(r"\.(attn|mlp)\.", name) else theirs[name]
                if there.endswith(("c_attn", "query_key_value")):
                    view = view.reshape(1 if gpt2 else config.num_attention_heads, 3, -1, *view.shape[1:])
                    view = view[:, ("query", "key", "value").index(ours.split(".")[-1])]
                yield f"{ours.replace('N', number)}.{'table' if ours == 'position' else leaf}", view


def loaded(folder: pathlib.Path) -> Any:
    """Their model in f32. No code of the folder runs, and no tensor stays as it was drawn."""
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    require(config.model_type in FAMILIES, f"model_type: {config.model_type} found; {' or '.join(FAMILIES)} required")
    if getattr(config, "max_window_layers", 0) >= config.num_hidden_layers:
        config.sliding_window = None  # no layer has one, which older versions of transformers forget
    window, length = getattr(config, "sliding_window", None), config.max_position_embeddings
    require(not window or window >= length, f"sliding_window: {window} found; {length} or more, the length of the model, required")
    model, about = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, local_files_only=True, attn_implementation="eager", use_safetensors=True, output_loading_info=True)
    require(not about["missing_keys"], f"no tensor {', '.join(sorted(about['missing_keys'])[:4])} found; it required")
    return model.float().eval()


def prove(model: Any, folder: pathlib.Path) -> None:
    drawn = np.random.default_rng(0).integers(0, model.get_input_embeddings().num_embeddings, (1, min(model.config.max_position_embeddings, 200)))
    wanted = model(torch.from_numpy(drawn)).logits.detach().numpy()
    found = np.abs(whence.load(str(folder)).forward(drawn) - wanted).max() / max(1.0, np.abs(wanted).max())
    print(said := f"proof: on {drawn.size} tokens logits of transformers {transformers.__version__} differ by {found:.1e} of the largest at most")
    require(found <= MOST, f"{said}; {MOST} required; does a newer transformers read the model otherwise?")


ORIGINAL = "original_max_position_embeddings"
ROPE_TYPES = {"default": {}, "linear": {"factor": 4}, "dynamic": {"factor": 4},  # their numbers, with whence's defaults
              "llama3": {"factor": 4, ORIGINAL: 0, "low_freq_factor": 1, "high_freq_factor": 4},
              "yarn": {"factor": 4, ORIGINAL: 0, "beta_fast": 32, "beta_slow": 1}}


def scheme_of(config: Any, head_dim: int) -> str:
    rope = dict(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})  # of newer transformers, or older
    older, base = rope.pop("type", "default"), rope.pop("rope_theta", getattr(config, "rope_theta", 10000.0))
    share = rope.pop("partial_rotary_factor", getattr(config, "partial_rotary_factor", getattr(config, "rotary_pct", 1.0)))
    known, length, width = ROPE_TYPES.get(kind := rope.pop("rope_type", older)), config.max_position_embeddings, int(head_dim * share)
    require(known is not None and rope.keys() <= known.keys(), f"rope_type: {kind} with {[*rope]} found; {ROPE_TYPES} required")
    rope = known | rope | {ORIGINAL: rope.get(ORIGINAL, length)}
    inside = [f"base={exact(base)}"] * (base != 10000) + [f"width={width}"] * (width != head_dim)
    inside += [f"scaling={kind}"] * (kind in ("dynamic", "llama3"))
    inside += [f"{name.split('_max')[0]}={exact(rope[name])}" for name in known if kind != "linear"] + [f"original={length}"] * (kind == "dynamic")
    text = ("yarn" if kind == "yarn" else "rope") + (f"({', '.join(inside)})" if inside else "")
    return f"interpolated({text}, factor={exact(rope['factor'])})" if kind == "linear" else text


def rope_of(scheme: str, head_dim: int, length: int) -> dict[str, Any]:
    """The fields of GPT-NeoX's config.json for a scheme; of another scheme, which scheme_of() tells."""
    own = dict(re.findall(r"(\w+)=([^,() ]+)", scheme))
    kind = "linear" if scheme.startswith("interpolated(") else "yarn" if scheme.startswith("yarn") else own.get("scaling", "default")
    rope = {field: int(own.get("original", length)) if field == ORIGINAL else float(own.get(field, otherwise))
            for field, otherwise in ROPE_TYPES.get(kind, {}).items()}
    fields = {"rotary_pct": int(own.get("width", head_dim)) / head_dim, "rotary_emb_base": float(own.get("base", 10000))}
    return fields | ({"rope_scaling": {"rope_type": kind, **rope}} if rope else {})


def weights_of(model: Any) -> dict[str, np.ndarray]:
    whole = lambda view, more: np.ascontiguousarray(view.reshape(-1, *view.shape[2:]) if more else view)
    weights = {name: whole(view, view.ndim + name.endswith("bias") > 2) for name, view in views(model)}
    biased = [group for group in ("attention", "mlp") if any(re.search(rf"\.{group}\..*bias", name) for name in weights)]
    for name in [name for name in weights if biased and re.search(rf"\.(mlp|{biased[0]})\..*weight", name)]:  # whence has all of them or none
        weights.setdefault(name.replace("weight", "bias"), np.zeros(len(weights[name]), np.float32))
    epsilon = getattr(model.config, FAMILIES[model.config.model_type][1])
    if epsilon != EPSILON:  # norm(s x; s^2 e) = norm(x; e): scale everything that adds to the residual stream, and a tied head's norm
        scale = math.sqrt(EPSILON / epsilon)
        for name, tensor in weights.items():
            added = re.match(r"(embedding|position)\.|.*\.(attention\.output|mlp\.out)\.", name)
            if added or name.startswith("norm.") and is_tied(model):
                weights[name] = (tensor * np.float64(scale if added else 1 / scale)).astype(np.float32)
        print(f"note: norms have epsilon {epsilon:g} there and {EPSILON:g} here: for the same logits the residual stream is {scale:.4g} times theirs")
    return weights


def options_of(model: Any, names: Container[str]) -> dict[str, Any]:
    """The options of our model whose weights have these names."""
    config, kind = model.config, model.config.model_type
    dim, heads, llama = config.hidden_size, config.num_attention_heads, FAMILIES[kind][2] is LLAMA
    activation, kv_heads = config.activation_function if kind == "gpt2" else config.hidden_act, getattr(config, "num_key_value_heads", heads) or heads
    require(heads * (getattr(config, "head_dim", None) or dim // heads) == dim, f"head_dim: {heads} heads that share {dim} dimensions required")
    wanted = [name for name in ACTIVATIONS if (name == "silu") == llama]
    require(activation in wanted, f"activation: {activation} found; {' or '.join(wanted)} required")
    bias, attention_bias = (f"blocks.0.{name}.bias" in names for name in ("mlp.in", "attention.query"))
    return {"vocabulary": model.get_input_embeddings().num_embeddings, "length": config.max_position_embeddings, "dim": dim,
            "layers": config.num_hidden_layers, "heads": heads, **({"kv_heads": kv_heads} if kv_heads != heads else {}),
            "hidden": config.n_inner or 4 * dim if kind == "gpt2" else config.intermediate_size, "tied": is_tied(model),
            "scheme": "absolute" if kind == "gpt2" else scheme_of(config, dim // heads), "activation": ACTIVATIONS[activation],
            "norm": "rms" if llama else "layer", "norm_place": "parallel" if getattr(config, "use_parallel_residual", False) else "before",
            "initialisation": {"gpt2": "gpt2", "gpt_neox": "neox"}.get(kind, "llama"), "bias": bias, "attention_bias": attention_bias or not bias,
            "executor": "auto", "causal": True, "scale_embedding": False, "outputs": 0, "dropout": 0, "pattern_dropout": 0, "hidden_dropout": 0}


def write_ours(folder: pathlib.Path, new: pathlib.Path, given: str | None) -> None:
    model, path, kind = loaded(folder), folder / "tokenizer.json", "tokens"
    weights, rows = weights_of(model), model.get_input_embeddings().weight.shape[0]
    if given or rows == 256 and not path.exists():
        kind, own = "bytes", page({"format": "whence tokeniser", "version": 1, "kind": "bytes", "vocabulary": 256}, 1)
    else:  # without a tokenizer.json, tokens are called by their numbers
        texts = tokens.bytes_of(tokens.read(path)) if path.exists() else [f" {number}".encode() for number in range(rows)]
        own = tokens.file_of(texts[:rows], rows).encode()
    facts = {f"model.{name}": value for name, value in options_of(model, weights).items()}
    facts |= {"tokeniser.kind": kind, "tokeniser.sha256": hashlib.sha256(own).hexdigest()}
    record = {"program": "convert", "version": whence.__version__, "subject": "lm", "schemes": 2, "options": {}, "given": [],
              "data": hashlib.sha256().hexdigest(), "facts": facts, "seal": "0" * 64}  # a seal is the SHA-256 of the file with zeros in its place
    record["seal"] = hashlib.sha256(page(record)).hexdigest()
    data = safetensors.numpy.save(weights, {"whence.seal": "0" * 64})
    data = data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)
    for name, content in (("weights.safetensors", data), ("tokeniser.json", own), ("run.json", page(record))):
        (new / name).write_bytes(content)
    prove(model, new)


def write_theirs(folder: pathlib.Path, new: pathlib.Path) -> None:
    record, _ = outside.read_json(folder / "run.json"), whence.load(str(folder))  # which refuses a damaged run
    weights = safetensors.numpy.load_file(folder / "weights.safetensors")
    require(record["subject"] == "lm", f"a run of {record['subject']} given; one of train lm required")
    facts = {name.removeprefix("model."): value for name, value in record["facts"].items()}
    scheme, dim, heads, dropout, pattern = (facts[name] for name in ("scheme", "dim", "heads", "dropout", "pattern_dropout"))
    activation, gpt2 = {"gelu_erf": "gelu", "relu": "relu"}.get(facts["activation"], "gelu_new"), scheme.startswith("absolute")
    length, hidden = len(weights["position.table"]) if gpt2 else facts["length"], facts["hidden"] or 4 * dim
    common = {"vocab_size": facts["vocabulary"], "num_hidden_layers": facts["layers"], "num_attention_heads": heads, "hidden_size": dim,
              "max_position_embeddings": length, "tie_word_embeddings": facts["tied"], "bos_token_id": None, "eos_token_id": None}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.GPT2Config(**common, n_inner=hidden, activation_function=activation, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=pattern)
        if gpt2 else transformers.GPTNeoXConfig(
            **common, **rope_of(scheme, dim // heads, length), intermediate_size=hidden, hidden_act=activation, hidden_dropout=dropout,
            attention_dropout=pattern, use_parallel_residual=facts["norm_place"] == "parallel", attention_bias=facts["attention_bias"]))
    there, ours = dict(views(model)), options_of(model, weights) | {"kv_heads": heads} | ({"scheme": scheme} if gpt2 else {})
    facts["kv_heads"] = facts.get("kv_heads") or heads
    for name in ("norm", "scheme", "norm_place", "activation", "kv_heads", "bias", "attention_bias", "scale_embedding", "causal"):
        require(facts[name] == ours[name], f"{name}: {facts[name]} found; {ours[name]} required, as GPT-2 and GPT-NeoX have it")
    require(there.keys() == weights.keys(), "other weights found than GPT-2 and GPT-NeoX have")
    for name, view in there.items():  # by which the model gets them
        view[...] = weights[name].reshape(view.shape)
    model.save_pretrained(new, safe_serialization=True)
    prove(loaded(new), folder)


@outside.one_line(refused=3)
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="a model with config.json and model.safetensors, or a run of train lm")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the other format, new")
    parser.add_argument("--tokeniser", choices=("bytes",), help="the model reads bytes, whatever tokenizer.json says")
    folder, out, given = vars(parser.parse_args(words)).values()
    require(not out.exists(), f"--out: {out} exists; a new folder required")
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=f"{out.name}.tmp-") as temporary:
        (new := pathlib.Path(temporary) / "new").mkdir()  # readable for others, unlike the temporary one
        write_ours(folder, new, given) if (folder / "config.json").exists() else write_theirs(folder, new)
        if (folder / "tokenizer.json").exists():
            shutil.copy(folder / "tokenizer.json", new)
        new.rename(out)
    print(f"written: {out}/{{{', '.join(sorted(each.name for each in out.iterdir()))}}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
