"""Random options of the commands, read from their --help, and the command really run: a documented end, one line of message, no NaN."""
import json
import re

from tools import CODES, SIZES

OPTION = re.compile(r"^  --([a-z0-9-]+)(?: (N|X|TEXT|NAME))?\s*(.*)$")
NEVER = {"help", "version", "from", "out", "data", "device", "jobs", "set", "schemes", "in", "run", "dump", "threads", "rows", "columns", "vary"}
WORDS = {"scheme": ["rope", "cope", "none", "alibi", "dape(kerple)", "cdape(kerple)", "t5", "fire", "cope + rope", "forgetting", "shaw", "yarn", "hard_attention"],
         "task-sample": ["0", "3"], "tokeniser": ["bytes", "bpe.json", "nothere.json"], "prompt": ["", "the cat", "\x00"[:0] + "\u00e4"],
         "at": ["i=3 j=2", "i=", "j=99999"], "explain": ["logits layer=0 head=0 i=3 j=2", "dLoss/dlogits layer=0 head=1 i=3 j=1", "nonsense i=1"],
         "read": ["pattern layer=0 head=1 i=3"], "edit": ["logits layer=0 head=1 = 0", "x"], "describe": ["rope", "cope(p_max=8)"]}
SMALL = {**dict(zip((name[2:] for name in SIZES[::2]), SIZES[1::2])), "steps": 3, "quiet": None}
SETS = {"test-sequences": 3, "validation-sequences": 3}
# Command -> the options that it has unless others are drawn.
BASES = {"train flip_flop": {**SMALL, **SETS}, "train counting": {**SMALL, **SETS}, "train lm": {"data": "text.txt", **SMALL, "evaluate-to": 2},
         "generate lm": {"tokens": 6}, "look run": {"threads": 1}, "look lm": {"text": "text.txt", "length": 8}, "probe": {"describe": "rope"},
         "lab flip_flop": {"seeds": 1, "schemes": "rope", "quiet": None}, "tokenize": {"data": "text.txt"}}


def options_of(attack, command):
    """name -> (kind, explanation), from --help."""
    page = attack.run([*command.replace(" run", "").replace("look lm", "look").replace("generate lm", "generate").split(), "--help"]).out.decode()
    found, name = {}, None
    for line in page.splitlines():
        match = OPTION.match(line)
        if match:
            name = match[1]
            found[name] = [match[2], match[3]]
        elif name and line.startswith("      "):
            found[name][1] += " " + line.strip()
        else:
            name = None
    return {name: (kind, text) for name, (kind, text) in found.items() if name not in NEVER}


def value_of(random, name, kind, text):
    if name in WORDS:
        return random.choice(WORDS[name])
    allowed = re.search(r"\(([^()]*?)(?:; (?:default[^()]*|no default))?\)\s*$", text)
    allowed = allowed[1] if allowed else ""
    if kind == "NAME":
        return random.choice([word.strip() for word in allowed.split(",")] or ["x"])
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", allowed)]
    low = numbers[0] if numbers else 0
    high = numbers[1] if len(numbers) > 1 else low + 12
    if kind == "N":
        return str(int(random.choice([low, low + 1, low - 1, min(high, low + random.randint(0, 12)), random.choice((2, 4, 8))])))
    if kind == "X":
        return str(random.choice([low, high if high < 100 else 1, random.uniform(low, min(high, low + 1)), "1e-30", "nan", -1]))
    return random.choice(["", "x", "text.txt", "1"])


def finite(folder):
    """What in the logs is no number. JSON has no infinity: the perplexity of a loss above 709 is null, so is what follows from it."""
    for path in [*folder.glob("metrics.jsonl"), *folder.glob("results.jsonl")]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        beyond = any(name.endswith("loss") and value is not None and value > 709 for line in lines for name, value in line.items())
        for line in lines:
            if any(value is None and not (beyond and ("perplexity" in name or name == "delta_p")) or value != value for name, value in line.items()):
                return f"{path.name}: {json.dumps(line)[:120]}"
    return None


def attack_options(attack, whole):
    attack.text()
    attack.language("lm"), attack.trained("run")
    attack.run(["tokenize", "--data", "text.txt", "--kind", "bpe", "--vocabulary", "300", "--out", "bpe.json"])
    known = {command: options_of(attack, command) for command in BASES}
    accepted = 0
    while not attack.time_is_up():
        command = attack.random.choice(list(BASES))
        options, names = dict(BASES[command]), list(known[command])
        for name in attack.random.sample(names, min(len(names), attack.random.choice((0, 1, 1, 2, 3, 5)))):
            kind, text = known[command][name]
            options[name] = value_of(attack.random, name, kind, text) if kind else None
        out = attack.new("out")
        if command.startswith(("train", "lab")):
            options["out"] = "out"
        if command.startswith("lab"):
            options["set"] = "steps=2 dim=8 heads=2 layers=1 batch=2 test-sequences=3 length=8"
        arguments = [*command.split(), *(f"--{name}" if value is None else f"--{name}={value}" for name, value in options.items())]
        ended = attack.run(arguments, limit=40)
        attack.inputs += 1
        accepted += ended.code == 0
        attack.judge(ended.complaint(CODES - {1}) or (finite(out) if ended.code == 0 and out.is_dir() else None), ["whence", *arguments])
    attack.notes.append(f"{accepted} accepted and run, the others refused")
