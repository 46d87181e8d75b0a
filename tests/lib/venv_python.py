# SPDX-License-Identifier: Apache-2.0
"""Runs a test under the Python of .venv, which has the packages of tests/requirements.txt (safetensors, numpy).

    import venv_python
    venv_python.enter()
    import safetensors.numpy

enter("torch") is the same with .venv-torch, which has PyTorch, and tests/requirements-torch.txt. ./dev test makes
both. Where one is missing the test fails: another reader's word on our files is not optional.
"""

import os
import pathlib
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]


def enter(kind=""):
    """Returns inside that Python; starts the calling script again there if need be. Call it before anything else."""
    suffix = f"-{kind}" if kind else ""
    venv = TREE / f".venv{suffix}"
    python = venv / "bin/python3"
    if pathlib.Path(sys.prefix).resolve() == venv.resolve():
        return
    if not (venv / f"requirements{suffix}.txt").is_file() or not python.is_file():
        sys.exit(f"{venv} is not there or incomplete: ./dev test makes it with pip from tests/requirements{suffix}.txt")
    sys.stdout.flush()
    os.execv(python, [str(python), *sys.argv])
