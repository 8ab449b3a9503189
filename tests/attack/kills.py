"""kill -9 at random times of train, train lm and lab; the same command then goes on to the same bits."""
import time

from tools import SIZES, TRAIN, alive, children_of, go_on, result_of


def attack_kills(attack, whole):
    commands = [[*TRAIN, "--steps", "300", "--save-every", "20"],
                ["train", "lm", "--data", attack.text(), *SIZES, "--steps", "200", "--save-every", "20", "--evaluate-to", "2", "--quiet"],
                ["lab", "counting", "--schemes", "rope", "--seeds", "2", "--jobs", "1", "--quiet", "--set",
                 "steps=150 save-every=10 dim=8 heads=2 layers=1 batch=2 test-sequences=4"]]

    def ended_well(command, out):
        """How long the command took to end well, and the result of each run in `out`."""
        ended = attack.run(command, limit=60)
        wrong = ended.complaint({0})
        return ended.seconds, wrong or [result_of(path.parent) for path in [*out.glob("weights.safetensors"), *sorted(out.glob("*/weights.safetensors"))]]
    undisturbed = [ended_well([*command, "--out", attack.new(f"whole{k}")], attack.folder / f"whole{k}") for k, command in enumerate(commands)]
    deaths = 0
    while not attack.time_is_up():
        (seconds, wanted), command = undisturbed[attack.inputs % 3], commands[attack.inputs % 3]
        out, times, orphans = attack.new("run"), [], []
        attack.inputs += 1
        for _ in range(attack.random.randint(1, 3)):
            process = attack.start(go_on(command, out))
            times.append(attack.random.uniform(0, seconds))
            time.sleep(times[-1])
            children = children_of(process.pid)
            process.kill()
            deaths += process.wait() < 0
            time.sleep(0.1 if children else 0)
            orphans += filter(alive, children)
        said = f"killed after {', '.join(f'{t:.3f} s' for t in times)}: whence {' '.join(map(str, command))}"
        attack.judge(f"{len(orphans)} runs go on without their lab" if orphans else None, said)
        found = ended_well(go_on(command, out), out)[1]
        attack.judge(None if found == wanted else found if isinstance(found, str) else "another result", said)
    attack.notes.append(f"{deaths} deaths")
