"""The Python that has the packages of a script. `.ci/setup experiments` installs those of lab.py and others for the system's Python, and the one
that comes first in PATH may be another: of a virtual environment, conda or pyenv."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

SYSTEM = "/usr/bin/python3"


def require(*modules: str) -> None:
    """Returns if this Python has the modules. Else it starts the running script anew by the system's Python, if that has them, or ends with a
    sentence that helps."""
    lacking = [name for name in modules if not importlib.util.find_spec(name)]
    if not lacking:
        return
    script = pathlib.Path(getattr(sys.modules["__main__"], "__file__", None) or "a notebook")
    looks = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {modules})))"
    starts_anew = script.suffix == ".py" and pathlib.Path(SYSTEM).exists() and (
        sys.prefix != sys.base_prefix or not os.path.samefile(sys.executable, SYSTEM))  # a virtual environment links to SYSTEM
    if starts_anew and subprocess.run([SYSTEM, "-c", looks], check=False).returncode == 0:
        os.execv(SYSTEM, [SYSTEM, *sys.argv])
    pip = [{"whence": str(pathlib.Path(__file__).resolve().parents[2] / ".packaging")}.get(name, name) for name in lacking]
    reason = f"{', '.join(lacking)} missing in {sys.executable}"
    sys.exit(f"{script.name}: {reason}; install there: {sys.executable} -m pip install {' '.join(pip)}"
             + ("" if {"whence", "tokenizers", "safetensors"} & {*lacking} else f"; or for {SYSTEM}: .ci/setup {'torch' if 'torch' in lacking else 'experiments'}"))
