"""27 environments and 5 counts of threads: the same bits in each."""
import os

from tools import SIZES, difference, result_of

ENVIRONMENTS = [{}, *({"LC_ALL": name} for name in ("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "none")), *({"TERM": name} for name in ("", "dumb", "xterm")),
                {"COLUMNS": "1"}, {"COLUMNS": "-3"}, {"COLUMNS": "1000000"}, {"NO_COLOR": "1"}, {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "7"},
                {"OMP_NUM_THREADS": "x"}, {"OMP_DYNAMIC": "true"}, {"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "5"}, {"GOTO_NUM_THREADS": "3"},
                {"OPENBLAS_VERBOSE": "2"}, {"HOME": None}, {"HOME": "/nowhere"}, {"TMPDIR": "/nowhere"}, {"TZ": "Pacific/Chatham"},
                {"MALLOC_PERTURB_": "170"}, {"PATH": ""}]
THREADS = (1, 2, 3, 7, 16)
CLOSED = ((), (0,), (2,), (0, 2), (1,), (1, 2))


def attack_environments(attack, whole):
    # Not quiet: output must not reach a file that has the number of a closed descriptor.
    commands = [["train", "flip_flop", *"--length 40 --dim 32 --heads 2 --layers 1 --batch 5 --test-sequences 4 --steps 6 --dropout 0.1".split()],
                ["train", "lm", "--data", attack.text(), *SIZES, "--steps", "3", "--evaluate-to", "2"]]
    plan = [(environment, threads, command) for environment in ENVIRONMENTS for threads in THREADS for command in commands]
    if not whole:
        attack.random.shuffle(plan)
    wanted = {}
    for environment, threads, command in [*(({}, 1, command) for command in commands), *plan]:
        if attack.time_is_up():
            break
        closed, out = attack.random.choice(CLOSED) if len(wanted) == 2 else (), attack.new("run")
        env = {key: value for key, value in {**os.environ, **environment}.items() if value is not None}
        ended = attack.run([*command, "--threads", threads, "--out", out], env=env, closed=closed)
        attack.inputs += 1
        said = " ".join(f"{key}={value}" for key, value in environment.items()) + "".join(f" {n}>&-" for n in closed)
        attack.judge(ended.complaint({0}) or difference(result_of(out), wanted.setdefault(command[1], result_of(out))),
                     f"{said} whence {' '.join(map(str, command))} --threads {threads}")
