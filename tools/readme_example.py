#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the C example of README.md, so that what a reader copies is what the tests compile and run.

    tools/readme_example.py > example.c
"""
import re
import sys

import ctext


def example():
    found = re.search(r"^```c\n(.*?)^```$", ctext.read(ctext.ROOT / "README.md"), re.S | re.M)
    if not found:
        sys.exit("README.md: no block of C")
    return found.group(1)


if __name__ == "__main__":
    sys.stdout.write(example())
