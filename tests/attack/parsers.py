"""The readers of files and texts in process, on mutated bytes: seeds are the files of small runs, words are in seeds/*.dict."""
import os
import pathlib
import re
import shutil
import time

from tools import write_tensors

FORMATS = ("safetensors", "given", "checkpoint", "run", "jsonl", "vocabulary", "scheme", "options", "tokeniser", "lengths", "documents")


def make_seeds(attack):
    """A folder per format."""
    run, language, text = attack.trained("run"), attack.language("lm"), attack.text()
    for kind, size in (("bpe", 280), ("words", 40), ("characters", 30)):
        attack.run(["tokenize", "--data", text, "--kind", kind, "--vocabulary", size, "--out", f"{kind}.json"])
    attack.run(["tokenize", "--tokeniser", "bpe.json", "--data", text, "--export", "gpt2"])
    write_tensors(attack.folder / "given.safetensors", {name: ([2, 3, 4], [k / 8 for k in range(24)]) for name in ("q", "k", "v", "cotangent")})
    files = {"safetensors": [run / "weights.safetensors", attack.folder / "given.safetensors"], "given": [attack.folder / "given.safetensors"],
             "checkpoint": [*run.glob("checkpoints/*/weights.safetensors")], "run": [run / "run.json", language / "run.json"],
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


def fuzzed(attack, format, dictionary, seconds):
    """By libFuzzer or AFL, whichever is built (in turn, where both are): inputs, and what is wrong."""
    built = [name for name in ("fuzz", "afl") if (attack.build.parent / name / "tests/attack/whence_fuzz").exists()]
    kind = attack.random.choice(built)
    program, seeds, work = attack.build.parent / kind / "tests/attack/whence_fuzz", attack.folder / f"seeds_{format}", attack.new_folder("fuzzing")
    environment = {**os.environ, "WHENCE_FUZZ": format, "AFL_SKIP_CPUFREQ": "1", "AFL_NO_UI": "1", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1",
                   "TMPDIR": str(attack.folder)}
    if kind == "fuzz":
        command = [program, f"-max_total_time={int(seconds)}", f"-dict={dictionary}", f"-seed={attack.seed}", "-max_len=65536", "-timeout=5", "-rss_limit_mb=1024",
                   "-print_final_stats=1", f"-artifact_prefix={work}/", work, seeds]
        ended = attack.run([], program=command, limit=seconds + 60, env=environment)
        count = re.search(rb"number_of_executed_units: (\d+)", ended.error)
        found = [path for path in work.iterdir() if re.match("crash|oom|timeout|leak", path.name)]
    else:
        ended = attack.run(["-V", int(seconds), "-i", seeds, "-o", work, "-x", dictionary, "-m", "none", "-t", "5000", "--", program], program=["afl-fuzz"],
                           limit=seconds + 60, env=environment)
        stats = work / "default/fuzzer_stats"
        count = re.search(rb"execs_done\s*: (\d+)", stats.read_bytes()) if stats.exists() else None
        found = [path for path in work.glob("default/*/id*") if path.parent.name in ("crashes", "hangs")]
    kept = []
    for path in found[:5]:
        kept.append(str(pathlib.Path("/tmp") / f"whence_{format}_{path.name.split(',')[0]}.input"))
        shutil.copy(path, kept[-1])
    wrong = f"{len(found)} inputs: {kept}" if found else None if count else ended.error.decode(errors="replace")[-300:]
    return kind, int(count[1]) if count else 0, wrong


def attack_parsers(attack, whole=False):
    program = attack.build / "tests/attack/whence_parsers"
    if not program.exists():
        raise LookupError("no whence_parsers; build it: cmake --build build/release --target whence_parsers")
    make_seeds(attack)
    dictionaries = pathlib.Path(__file__).resolve().parent / "seeds"
    formats = list(FORMATS)
    attack.random.shuffle(formats)
    for k, format in enumerate(formats):
        seconds = max(0.5, min(60, (attack.end - time.time()) / (len(formats) - k)))
        if seconds >= 4 and any((attack.build.parent / name / "tests/attack/whence_fuzz").exists() for name in ("fuzz", "afl")):
            kind, count, wrong = fuzzed(attack, format, dictionaries / f"{format}.dict", seconds / 2)
            attack.inputs += count
            attack.notes.append(f"{format} by {kind} {count}")
            seconds /= 2
            if wrong:
                attack.failed(f"{format} by {kind}: {wrong}", f"WHENCE_FUZZ={format} build/{kind}/tests/attack/whence_fuzz FILE")
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
