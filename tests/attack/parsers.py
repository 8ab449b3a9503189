"""Runs the readers of files and texts in process on mutated bytes: seeds are the files of small runs, words are in words.dict."""
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

from tools import write_tensors


def seeds_of(attack):
    """Returns format -> bytes that its reader accepts."""
    run, language, text = attack.trained("run"), attack.language("lm"), attack.text()
    lists = [{"format": "whence tokeniser", "version": 1, "kind": kind, "vocabulary": 9, kind: tokens}
             for kind, tokens in (("characters", [*"abcé猫 "]), ("tokens", ["one", " two", "\xff", "<|endoftext|>"]))]
    given = attack.folder / "given.safetensors"
    write_tensors(given, {name: ([2, 3, 4], [k / 8 for k in range(24)]) for name in ("q", "k", "v", "cotangent")})
    paths = {"safetensors": [run / "weights.safetensors", given], "given": [given], "checkpoint": run.glob("checkpoints/*/weights.safetensors"),
             "run": [run / "run.json", language / "run.json"], "documents": [text],
             "tokeniser": [language / "tokeniser.json"]}
    texts = {"jsonl": ['{"text": "a b", "answer": 3}\n{"text": "\\u00e9", "choices": ["x", "y"], "answer": -1}\n\n'],
             "scheme": ["cope + rope", "cdape(kerple, kernel=3, width=8)", "cope(p_max=16, gates=sigmoid)", "interpolated(rope(base=1e4), factor=2)"],
             "options": ["--steps\n12\n--rate=0.5\nflip_flop\n--quiet\n--data\na\n--data=b", "--help"]}
    seeds = {format: [path.read_bytes() for path in some] for format, some in paths.items()}
    seeds["tokeniser"] += [json.dumps(each).encode() for each in lists]
    return seeds | {format: [text.encode() for text in some] for format, some in texts.items()}


def fuzzer_of(attack):
    return attack.build.parent / "fuzz/tests/whence_fuzz"


def tried(attack, engine, format, seeds, seconds):
    """Runs the mutator of whence_parsers, or libFuzzer. Returns the number of inputs, the failing inputs, and the program's end."""
    words, work = pathlib.Path(__file__).parent / "words.dict", attack.new_folder("work")
    with tempfile.TemporaryDirectory(prefix="attack_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as memory:
        settings = {"limit": seconds + 60, "env": {**os.environ, "TMPDIR": memory, "WHENCE_FUZZ": format}}
        if engine == "mutator":
            ended = attack.run([format, seeds, words, f"{attack.seed:x}", seconds, work], program=[attack.tool("whence_parsers")], **settings)
            return int(ended.out.split()[0]) if ended.code == 0 else 0, [] if ended.code == 0 else [work / f"{format}.input"], ended
        ended = attack.run([f"-max_total_time={int(seconds)}", f"-dict={words}", f"-seed={attack.seed}", "-max_len=65536", "-timeout=5", "-rss_limit_mb=1024",
                            "-print_final_stats=1", f"-artifact_prefix={work}/", work, seeds], program=[fuzzer_of(attack)], **settings)
        count = re.search(rb"number_of_executed_units: (\d+)", ended.error)
        return int(count[1]) if count else 0, [path for path in work.iterdir() if re.match("crash|oom|timeout|leak", path.name)], ended


def attack_parsers(attack, whole):
    formats = list(seeds_of(attack).items())
    attack.random.shuffle(formats)
    for k, (format, inputs) in enumerate(formats):
        seeds = attack.new_folder("seeds")
        for n, bytes in enumerate(inputs):
            (seeds / str(n)).write_bytes(bytes)
        seconds = max(0.5, min(60, (attack.end - time.time()) / (len(formats) - k)))
        engines = ["mutator", *(["fuzzer"] if fuzzer_of(attack).exists() and seconds >= 4 else [])]
        for engine in engines:
            count, found, ended = tried(attack, engine, format, seeds, seconds / len(engines))
            attack.inputs += count
            attack.notes.append(f"{format} by {engine} {count}")
            # Failing inputs are kept after their folder is gone.
            kept = [shutil.copy(path, f"/tmp/whence_{format}_{attack.seed:08x}_{n}.input") for n, path in enumerate(found[:5])]
            attack.judge(f"{format} by {engine}: {len(found)} inputs; code {ended.code}: {ended.error[-300:]}" if found or not count else None,
                         "; ".join(f"whence_parsers {format} {path}" for path in kept))
