"""One flipped bit in a checkpoint or a run: refused with 3 or 7, or without any effect."""
import shutil

from system_calls import RUN
from tools import flip, result_of


def outcome(attack, ended, wanted, found, what):
    if ended.code in (3, 7):
        wrong = ended.complaint()
    elif ended.code == 0:
        wrong = None if found() == wanted else "believed"
    else:
        wrong = ended.complaint({0, 3, 7}) or f"exit code {ended.code}"
    if wrong:
        attack.failed(wrong, what)


def attack_bits(attack, whole=False):
    subjects = {}
    run = attack.trained("whole_run")
    shutil.copytree(run, attack.new("half_run"))
    half = attack.folder / "half_run"
    shutil.rmtree(half / "checkpoints/step-000004")
    language = attack.language("whole_lm")
    generate = ["generate", "--tokens", "8", "--quiet", "--seed", "1", "--run"]
    text = attack.run([*generate, language]).out
    subjects["resume"] = (half, [*half.glob("checkpoints/step-000003/*")], [*RUN[:-1], "--resume", "--out"], lambda out, ended: result_of(out), result_of(run))
    subjects["generate"] = (language, [language / name for name in ("weights.safetensors", "run.json", "tokeniser.json")], generate,
                            lambda out, ended: ended.out, text)
    counts = {name: [0, 0, 0] for name in subjects}  # refused, without effect, neither
    for k in range(len(subjects) * 2000):
        if attack.time_is_up():
            break
        name = list(subjects)[k % len(subjects)]
        folder, files, command, found, wanted = subjects[name]
        path = attack.random.choice(files)
        bit = attack.random.randrange(8 * path.stat().st_size)
        shutil.copytree(folder, attack.new("flipped"))
        flipped = attack.folder / "flipped"
        flip(flipped / path.relative_to(folder), bit)
        before = len(attack.failures)
        ended = attack.run([*command, flipped])
        outcome(attack, ended, wanted, lambda: found(flipped, ended), f"bit {bit} of {path.relative_to(folder)}: whence {' '.join(map(str, command))}")
        attack.inputs += 1
        counts[name][2 if len(attack.failures) > before else 0 if ended.code else 1] += 1
    attack.notes.append("; ".join(f"{name}: {refused} of {refused + harmless + bad} places refused, {harmless} without effect"
                                  for name, (refused, harmless, bad) in counts.items()))
