#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every generated file that is checked in is what its generator makes.

Every tools/gen_*.py understands --check: it writes nothing and fails, naming the file, when one is out of date.
"""

import subprocess
import sys

import ctext


def main():
    generators = sorted((ctext.ROOT / "tools").glob("gen_*.py"))
    failed = [
        g.name for g in generators if subprocess.run([sys.executable, str(g), "--check"], check=False).returncode
    ]
    return ctext.report([f"tools/{name} --check failed" for name in failed])


if __name__ == "__main__":
    sys.exit(main())
