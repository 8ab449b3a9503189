"""The readers of files and texts in process, on mutated bytes: seeds are the files of small runs, words are in seeds/*.dict."""
import os
import pathlib
import shutil
import time

from tools import TEXT, write_tensors

FORMATS = ("safetensors", "given", "state", "run", "jsonl", "vocabulary", "scheme", "options", "tokeniser", "lengths", "documents")


def make_seeds(attack):
    """A folder per format."""
    run, language, text = attack.trained("run"), attack.language("lm"), attack.text()
    for kind, size in (("bpe", 280), ("words", 40), ("characters", 30)):
        attack.run(["tokenize", "--data", text, "--kind", kind, "--vocabulary", size, "--out", f"{kind}.json"])
    attack.run(["tokenize", "--tokeniser", "bpe.json", "--data", text, "--export", "gpt2"])
    write_tensors(attack.folder / "given.safetensors", {name: ([2, 3, 4], [k / 8 for k in range(24)]) for name in ("q", "k", "v", "cotangent")})
    files = {"safetensors": [run / "weights.safetensors", attack.folder / "given.safetensors"], "given": [attack.folder / "given.safetensors"],
             "state": [*run.glob("checkpoints/*/state.json")], "run": [run / "run.json", language / "run.json"],
             "tokeniser": [attack.folder / f"{kind}.json" for kind in ("bpe", "words", "characters")] + [language / "tokeniser.json"],
             "lengths": [language / "lengths.json"], "documents": [text]}
    texts = {"jsonl": ['{"text": "a b", "answer": 3}\n{"text": "\\u00e9", "choices": ["x", "y"], "answer": -1}\n\n'],
             "vocabulary": [(attack.folder / "gpt2/vocab.json").read_text() + "\0" + (attack.folder / "gpt2/merges.txt").read_text()],
             "scheme": ["cope + rope", "cdape(kerple, kernel=3, width=8)", "cope(p_max=16, gates=sigmoid)", "interpolated(rope(base=1e4), factor=2)"],
             "options": ["--steps\n12\n--rate=0.5\nflip_flop\n--quiet\n--data\na\n--data=b", "--complete\n--sc", "--help"]}
    for format in FORMATS:
        folder = attack.new_folder(f"seeds_{format}")
        for k, path in enumerate(files.get(format, [])):
            if path.exists():
                shutil.copy(path, folder / str(k))
        for k, text in enumerate(texts.get(format, [])):
            (folder / f"text{k}").write_text(text)


def attack_parsers(attack, whole=False):
    program = attack.build / "tests/attack/whence_parsers"
    if not program.exists():
        raise LookupError("no whence_parsers; build it: cmake --build build/release --target whence_parsers")
    make_seeds(attack)
    dictionaries = pathlib.Path(__file__).resolve().parent / "seeds"
    formats = list(FORMATS)
    attack.random.shuffle(formats)
    for k, format in enumerate(formats):
        seconds = 60 if whole else max(0.5, (attack.end - time.time()) / (len(formats) - k))
        ended = attack.run([format, attack.folder / f"seeds_{format}", dictionaries / f"{format}.dict", f"{attack.seed:x}", seconds, attack.folder], program=[program],
                           limit=seconds + 30, env={**os.environ, "TMPDIR": "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(attack.folder)})
        if ended.code == 0:
            count = int(ended.out.split()[0])
            attack.inputs += count
            attack.notes.append(f"{format} {count}")
        else:
            # The input that did it outlives this folder.
            kept = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"whence_{format}_{attack.seed:08x}.input"
            shutil.copy(attack.folder / f"{format}.input", kept)
            said = ended.error.decode(errors="replace").strip()[-300:]
            attack.failed(f"{format}: {'hangs' if ended.code is None else f'code {ended.code}'}: {said}", f"whence_parsers {format} {kept}")
