"""Flips one bit in a checkpoint or a run: refused with 3 or 7, or without any effect."""
import shutil

from tools import RUN, flip, result_of


def attack_bits(attack, whole):
    run, language = attack.trained("whole_run"), attack.language("whole_lm")
    half = attack.folder / "half_run"
    shutil.copytree(run, half)
    shutil.rmtree(half / "checkpoints/step-000004")
    generate = ["generate", "--tokens", "8", "--quiet", "--seed", "1"]
    subjects = [("resume", half, [*half.glob("checkpoints/step-000003/*")], [*RUN, "--resume", "--out"], lambda out, ended: result_of(out), result_of(run)),
                ("generate", language, [language / name for name in ("weights.safetensors", "run.json", "tokeniser.json")], generate,
                 lambda out, ended: ended.out, attack.run([*generate, language]).out)]
    refused = {name: 0 for name, *_ in subjects}
    for k in range(4000):
        if attack.time_is_up():
            break
        name, folder, files, command, found, wanted = subjects[k % 2]
        path = attack.random.choice(files)
        bit = attack.random.randrange(8 * path.stat().st_size)
        flipped = attack.new("flipped")
        shutil.copytree(folder, flipped)
        flip(flipped / path.relative_to(folder), bit)
        ended = attack.run([*command, flipped])
        attack.judge(ended.complaint({0, 3, 7}) or ("believed" if ended.code == 0 and found(flipped, ended) != wanted else None),
                     f"bit {bit} of {path.relative_to(folder)}: whence {' '.join(command)}")
        attack.inputs += 1
        refused[name] += ended.code != 0
    attack.notes.append(", ".join(f"{name}: {count} refused" for name, count in refused.items()))
