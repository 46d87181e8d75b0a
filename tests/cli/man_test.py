#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages that are checked in are those that the command makes, and mandoc finds nothing to say about them."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    failed = subprocess.run([sys.executable, ROOT / "tools/gen_man.py", sys.argv[1], "--check"], check=False).returncode
    if shutil.which("mandoc"):
        for page in sorted((ROOT / "doc/man").glob("*.[17]")):
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], check=False, capture_output=True,
                                  text=True)
            if lint.returncode or lint.stdout:
                print(lint.stdout + lint.stderr)
                failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
