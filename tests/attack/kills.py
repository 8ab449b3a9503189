"""kill -9 at random times of train, train lm and lab; the same command then goes on to the same bits."""
import os
import shutil
import signal
import time

from findings import lab_table
from tools import SIZES, TRAIN, difference, has_checkpoint, result_of


def attack_kills(attack, whole=False):
    text = attack.text()
    lab = ["lab", "counting", "--schemes", "rope", "--seeds", "2", "--jobs", "1", "--quiet", "--set", "steps=150 save-every=10 dim=8 heads=2 layers=1 batch=2 test-sequences=4"]
    commands = {"train": [*TRAIN, "--steps", "300", "--save-every", "20"],
                "train lm": ["train", "lm", "--data", text, *SIZES, "--steps", "200", "--save-every", "20", "--evaluate-to", "2", "--quiet"], "lab": lab}
    wanted, seconds, deaths = {}, {}, 0
    for name, command in commands.items():
        out = attack.new("whole")
        ended = attack.run([*command, "--out", out], limit=60)
        assert ended.code == 0, ended.error
        wanted[name] = lab_table(ended.out) if name == "lab" else result_of(out)
        seconds[name] = ended.seconds
    while not attack.time_is_up():
        name = list(commands)[attack.inputs % 3]
        out = attack.new("run")
        command = [*commands[name], "--out", out]
        attack.inputs += 1
        times = []
        for _ in range(attack.random.randint(1, 3)):
            again = ["--resume"] if name != "lab" and has_checkpoint(out) else []
            if name != "lab" and not again:
                shutil.rmtree(out, ignore_errors=True)
            process = attack.start([*command, *again])
            times.append(attack.random.uniform(0, seconds[name]))
            time.sleep(times[-1])
            process.send_signal(signal.SIGKILL)
            deaths += process.wait() == -signal.SIGKILL
        again = ["--resume"] if name != "lab" and has_checkpoint(out) else []
        if name != "lab" and not again:
            shutil.rmtree(out, ignore_errors=True)
        ended = attack.run([*command, *again], limit=60)
        found = ended.complaint({0}) if ended.code != 0 else lab_table(ended.out) if name == "lab" else result_of(out)
        if found != wanted[name]:
            attack.failed("other figures" if isinstance(found, list) else difference(found, wanted[name]),
                          f"killed after {', '.join(f'{t:.3f} s' for t in times)}: whence {' '.join(map(str, command))}")
        try:
            os.killpg(process.pid, signal.SIGKILL)  # a lab's runs, where it left them behind
        except ProcessLookupError:
            pass
    attack.notes.append(f"{deaths} deaths")
