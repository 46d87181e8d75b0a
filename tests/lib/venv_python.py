# SPDX-License-Identifier: Apache-2.0
"""Runs a test under the Python of .venv, which has the packages of tests/requirements.txt (safetensors, numpy).

    import venv_python
    venv_python.enter()
    import safetensors.numpy

./dev test makes .venv. Where it is missing the test fails: another reader's word on our files is not optional.
"""

import os
import pathlib
import sys

VENV = pathlib.Path(__file__).resolve().parents[2] / ".venv"


def enter():
    """Returns inside .venv's Python; starts the calling script again there if need be. Call it before anything else."""
    python = VENV / "bin/python3"
    if pathlib.Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not (VENV / "requirements.txt").is_file() or not python.is_file():
        sys.exit(f"{VENV} is not there or incomplete: ./dev test makes it with pip from tests/requirements.txt")
    sys.stdout.flush()
    os.execv(python, [str(python), *sys.argv])
