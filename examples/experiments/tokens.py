#!/usr/bin/env python3
"""Makes a token file for `whence train FILE` of texts and any tokenizer.json, with its special tokens and templates.
    examples/experiments/tokens.py tokenizer.json austen.txt --out austen.safetensors
    examples/experiments/tokens.py tokenizer.json --prompt "Emma was"     # token numbers, which generate and look of such a run read
"""
import argparse
import json
import re
import sys

import outside
import packages
packages.require("numpy", "safetensors", "tokenizers")
import numpy as np
import safetensors.numpy
import tokenizers

SELVES = [byte for byte in range(256) if 0x21 <= byte <= 0x7E or 0xA1 <= byte != 0xAD]  # bytes that GPT-2's files spell as themselves
SPELLED = {chr(byte): byte for byte in SELVES} | {chr(256 + at): byte for at, byte in enumerate(sorted({*range(256)} - {*SELVES}))}
read = lambda path: tokenizers.Tokenizer.from_str(json.dumps(outside.read_json(path)))


def bytes_of(tokenizer: tokenizers.Tokenizer) -> list[bytes]:
    """The bytes of each token as it stands behind another; none for a number without a token."""
    decoder, found = json.dumps(json.loads(tokenizer.to_str())["decoder"]), [b""] * (1 + max(tokenizer.get_vocab().values()))
    for token, number in tokenizer.get_vocab(with_added_tokens=False).items():
        byte, spelled = re.fullmatch("<0x([0-9A-F]{2})>", token), "ByteLevel" in decoder and {*token} <= SPELLED.keys()
        text = tokenizer.decoder.decode(["a", token])[1:] if tokenizer.decoder else f" {token}"
        found[number] = bytes(SPELLED[each] for each in token) if spelled else (
            bytes([int(byte[1], 16)]) if byte and "ByteFallback" in decoder else text.encode())
    added = {number: token.content.encode() for number, token in tokenizer.get_added_tokens_decoder().items()}
    return [added.get(number, each) for number, each in enumerate(found)]


def file_of(tokens: list[bytes], rows: int = 0) -> str:
    """The tokeniser.json of a run whose model has so many rows."""
    return json.dumps({"format": "whence tokeniser", "version": 1, "kind": "tokens", "vocabulary": max(rows, len(tokens)),
                       "tokens": [each.decode("latin-1") for each in tokens]}, indent=1) + "\n"


@outside.one_line(refused=3)
def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("tokenizer", help="a tokenizer.json")
    parser.add_argument("texts", nargs="*", help="text files in UTF-8, for one token file")
    made = parser.add_mutually_exclusive_group(required=True)
    made.add_argument("--prompt", help="print the token numbers of this text")
    made.add_argument("--out", help="the token file, FILE.safetensors")
    options = parser.parse_args(words)
    tokenizer = read(options.tokenizer)
    tokenizer.no_truncation(), tokenizer.no_padding()
    if options.prompt is not None:
        print(*tokenizer.encode(options.prompt).ids)
    else:
        ids = np.array([number for path in options.texts for number in tokenizer.encode(outside.read_text(path)).ids], np.int32)
        if not len(ids):
            raise outside.Refused(f"{options.out}: no token in {', '.join(options.texts) or 'no text'}; a text required")
        safetensors.numpy.save_file({"tokens": ids}, options.out, {"tokeniser": file_of(bytes_of(tokenizer))})


if __name__ == "__main__":
    sys.exit(main())
