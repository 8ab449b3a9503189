"""Random graphs of ops: all registered ops against dual numbers, and, if --python has PyTorch and whence, 46 of them against its float64."""
import os
import pathlib
import subprocess
import time


def attack_graphs(attack, whole):
    programs = [[attack.tool("whence_graph")]]
    environment = {**os.environ, "PYTHONPATH": f"{attack.build}/python:{os.environ.get('PYTHONPATH', '')}"}
    if subprocess.run([attack.python, "-c", "import torch, whence"], capture_output=True, env=environment).returncode == 0:
        programs.append([attack.python, pathlib.Path(__file__).with_name("beside_torch.py")])
    else:
        attack.notes.append("not compared with PyTorch, for --python lacks it, or the module whence")
    seconds = max(1, min(300, (attack.end - time.time()) / len(programs)))
    for program in programs:
        ended = attack.run([f"{attack.seed:x}", seconds], program=program, limit=seconds + 60, env=environment)
        command = f"{' '.join(map(str, program))} {attack.seed:x} {seconds:.0f}"
        attack.inputs += int(ended.out.split()[0]) if ended.out.strip() else 0
        attack.notes.append(ended.out.decode().strip())
        for line in ended.error.decode(errors="replace").strip().splitlines()[:20] if ended.code == 1 else []:
            attack.judge(line, command)
        attack.judge(None if ended.code in (0, 1) else f"exit code {ended.code}: {ended.error[-200:]}", command)
