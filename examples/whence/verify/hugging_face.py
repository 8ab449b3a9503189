#!/usr/bin/env python3
"""GPT-2 and GPT-NeoX as PyTorch has them against `whence convert`, both ways: the same logits to 1e-5.
Needs torch, transformers and safetensors. Usage: examples/whence/verify/hugging_face.py [--whence PROGRAM]; --golden tests/examples/language/hugging_face writes what tests/examples/language/convert.cpp reads."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
BOUND = 1e-5


def models():
    """Small ones of random weights, each with what another lacks."""
    gpt2 = {"vocab_size": 256, "n_positions": 40, "n_layer": 2, "bos_token_id": None, "eos_token_id": None}
    neox = {"vocab_size": 256, "max_position_embeddings": 64, "num_hidden_layers": 2, "bos_token_id": None, "eos_token_id": None}
    yield "gpt2", GPT2LMHeadModel(GPT2Config(**gpt2, n_embd=48, n_head=3))
    yield "gpt2, untied, another hidden size, relu", GPT2LMHeadModel(GPT2Config(**gpt2, n_embd=32, n_head=4, n_inner=80, activation_function="relu", tie_word_embeddings=False))
    yield "gpt_neox", GPTNeoXForCausalLM(GPTNeoXConfig(**neox, hidden_size=64, num_attention_heads=4, intermediate_size=256))
    yield "gpt_neox, all dims rotate, one after the other", GPTNeoXForCausalLM(GPTNeoXConfig(
        **neox, hidden_size=48, num_attention_heads=3, intermediate_size=96, rotary_pct=1.0, use_parallel_residual=False, hidden_act="gelu_new"))
    stretched = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    lists = {"short_factor": [1.0, 1.5, 2.0, 4.0], "long_factor": [1.0, 3.0, 8.0, 20.0], "original_max_position_embeddings": 8}
    for kind, more in {"linear": {}, "dynamic": {}, "proportional": {"partial_rotary_factor": 0.7}, "llama3": stretched, "longrope": lists, "yarn": {"original_max_position_embeddings": 8}}.items():
        parameters = {"rope_type": kind, "rope_theta": 100.0, "factor": 3.0, "partial_rotary_factor": 0.5, **more}
        yield f"gpt_neox, rope_type {kind}", GPTNeoXForCausalLM(GPTNeoXConfig(
            **{**neox, "max_position_embeddings": 16}, hidden_size=32, num_attention_heads=2, intermediate_size=64, rope_parameters=parameters))
    yield "gpt_neox, tied", GPTNeoXForCausalLM(GPTNeoXConfig(**neox, hidden_size=32, num_attention_heads=2, intermediate_size=64, rotary_pct=0.5, tie_word_embeddings=True))


def move(model):
    """No bias or norm stays at its beginning, where an error would not show."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) * parameter.abs().mean().clamp(min=0.1))
    return model.eval()


def write_golden(folder):
    """Tiny ones with their logits."""
    none = {"bos_token_id": None, "eos_token_id": None}
    tiny = {"gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=9, n_layer=2, n_embd=6, n_head=3, **none)),
            "gpt_neox": GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=11, max_position_embeddings=16, num_hidden_layers=2, hidden_size=8, num_attention_heads=2, intermediate_size=10, rotary_pct=0.5, **none))}
    for name, model in tiny.items():
        tokens = torch.randint(0, 11, (2, 9))
        move(model).save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        with torch.no_grad():
            save_file({"tokens": tokens, "logits": model(tokens).logits}, folder / name / "logits.safetensors")


def difference(program, model, tokens, folder):
    """The largest differences of logits: ours of theirs, and theirs of what we write back."""
    theirs, ours, back = folder / "theirs", folder / "ours", folder / "back"
    move(model).save_pretrained(theirs)
    with torch.no_grad():
        wanted = model(tokens).logits
    save_file({"tokens": tokens}, folder / "tokens.safetensors")

    def convert(*words):
        subprocess.run([program, "convert", *map(str, words), "--tokens", folder / "tokens.safetensors", "--logits", folder / "logits.safetensors"], check=True, stdout=subprocess.DEVNULL)
        return load_file(folder / "logits.safetensors")["logits"]
    there = (convert(theirs, "--out", ours) - wanted).abs().max().item()
    convert(ours, "--out", back)
    with torch.no_grad():
        again = type(model).from_pretrained(back).eval()(tokens).logits
    return there, (again - wanted).abs().max().item(), wanted.abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whence", default="whence", help="the program")
    parser.add_argument("--golden", type=pathlib.Path, help="write tiny models there, and end")
    arguments = parser.parse_args()
    program = arguments.whence
    torch.manual_seed(0)
    if arguments.golden:
        return write_golden(arguments.golden)
    failed = False
    for name, model in models():
        tokens = torch.randint(0, 256, (3, 29))
        with tempfile.TemporaryDirectory() as folder:
            there, back, size = difference(program, model, tokens, pathlib.Path(folder))
        failed = failed or not max(there, back) < BOUND
        print(f"{name}: largest difference of logits {there:.1e} in whence, {back:.1e} back in PyTorch, of logits up to {size:.1f}")
    sys.exit(f"FAILED: a difference above {BOUND}" if failed else 0)


if __name__ == "__main__":
    main()
