#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command with a terminal for standard error, and prints what it drew there, carriage returns as line ends."""
import os
import pty
import subprocess
import sys


def main():
    ours, theirs = pty.openpty()
    child = subprocess.Popen(sys.argv[1:], stderr=theirs)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        drawn += part
    code = child.wait()
    for line in drawn.decode().replace("\n", "").split("\r"):
        if line.strip():
            print(line.rstrip())
    return code


if __name__ == "__main__":
    sys.exit(main())
