"""Kills train and train lm by -9 at random times. The same command then resumes to the same bits, and leaves no temporary files."""
import time

from tools import SIZES, TRAIN, go_on, result_of


def attack_kills(attack, whole):
    commands = [[*TRAIN, "--steps", "300", "--save-every", "20"],
                ["train", "lm", "--data", attack.text(), *SIZES, "--steps", "200", "--save-every", "20", "--evaluate-to", "2", "--quiet"]]
    undisturbed = []
    for k, command in enumerate(commands):
        ended = attack.run([*command, "--out", attack.new(f"whole{k}")], limit=60)
        assert ended.code == 0, ended.error
        undisturbed.append((ended.seconds, result_of(attack.folder / f"whole{k}")))
    deaths = 0
    while not attack.time_is_up():
        (seconds, wanted), command = undisturbed[attack.inputs % 2], commands[attack.inputs % 2]
        out, times = attack.new("run"), []
        attack.inputs += 1
        for _ in range(attack.random.randint(1, 3)):
            process = attack.start(go_on(command, out))
            times.append(attack.random.uniform(0, seconds))
            time.sleep(times[-1])
            process.kill()
            deaths += process.wait() < 0
        attack.judge_end(attack.run(go_on(command, out), limit=60), out, wanted,
                         f"killed after {', '.join(f'{t:.3f} s' for t in times)}: whence {' '.join(map(str, command))}")
    attack.notes.append(f"{deaths} deaths")
