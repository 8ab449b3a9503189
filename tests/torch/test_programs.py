"""The module with PyTorch, models and token files of others, and random graphs of whence's ops."""
import subprocess
import sys

import pytest

from conftest import PROGRAM, ROOT
from door import Torch  # its tests run here


@pytest.mark.parametrize("script", ["examples/experiments/score.py", "examples/experiments/convert.py", "attack/beside_torch.py"])
def test_script(script, tmp_path):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip() or "1"
    words = [commit, "8"] if script.startswith("attack") else [PROGRAM]  # a seed, and seconds
    done = subprocess.run([sys.executable, ROOT / "tests" / script, *words], cwd=tmp_path)
    if done.returncode == 77:
        pytest.skip("a package is missing (above)")
    assert done.returncode == 0
