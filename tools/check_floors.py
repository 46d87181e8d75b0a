#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the floors of src/ look only downwards.

    tools/check_floors.py [--root DIR] [--nm ARCHIVE ...]

Reads the #include lines and the calls of every file under src/; each message says which line broke which rule. With
--nm it also looks at the undefined symbols of the given archives (format/ and hash/), so that a declaration written by
hand does not get past the check of the includes.
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys

import ctext

# Ground floor first; directories of one floor do not know each other.
FLOORS = [
    {"base"},
    {"os", "hash"},
    {"format"},
    {"io", "net"},
    {"store"},
    {"checkpoint", "dataset"},
    {"plan"},
    {"api"},
    {"cli", "mpi"},
]
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
PROGRAMS = {"cli", "mpi"}  # no part of the library, so they see of it what everybody sees
PURE = {"hash", "format"}  # no I/O at all, so not even os/

# Which of include/breakwater/ a floor may use: everything from checkpoint/ on, before that the words that all share.
SHARED_PUBLIC = {"status.h", "error.h", "tensor.h", "io.h"}

KERNEL_HEADER = re.compile(r"(unistd|fcntl|pthread|dirent|sched|poll|signal|sys/\w+|linux/\w+)\.h")
KERNEL_ALLOWED = {"os": None, "cli": None, "mpi": None, "base": {"sys/random.h", "sys/auxv.h"}}  # None: all of them
TIME_ALLOWED = {"base", "os", "cli", "mpi"}
THREADS_ALLOWED = {"os", "io", "api"}
# Loops on several threads may share a bucket; workers that find a disk full wait for the one that makes room there.
LOCKS_ALLOWED = {"store/memory_bucket.h", "store/posix.h"}


@dataclasses.dataclass
class Rule:
    """Calls that only some floors (or files) may make."""

    says: str
    calls: str
    floors: tuple
    files: tuple = ()

    def find(self, line):
        return re.search(r"(?<![\w.>])(" + self.calls.replace(" ", "|") + r")\s*\(", line)

    def allows(self, floor, where):
        return floor in self.floors or where in self.files


RULES = [
    Rule(
        "raw allocation: use base/vec.h",
        "malloc calloc realloc free strdup strndup aligned_alloc posix_memalign asprintf vasprintf",
        floors=("cli", "mpi"),
        files=("base/vec.c",),
    ),
    Rule(
        "reads the environment: only api/ and above may",
        "getenv secure_getenv setenv putenv",
        floors=("api", "cli"),
        files=("mpi/launcher.c",),  # which launcher has started us, and as which job, stands nowhere else
    ),
    Rule("the library never ends the process", "abort exit _exit _Exit quick_exit atexit", floors=("cli",)),
    Rule(
        "the library never prints",
        "printf fprintf vprintf vfprintf dprintf puts fputs putchar perror syslog",
        floors=("cli",),
    ),
    Rule(
        "reads a clock: use base/env.h",
        "clock_gettime gettimeofday time clock nanosleep usleep sleep",
        floors=("base", "os", "cli", "mpi"),
    ),
]

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]")

# Undefined symbols that show I/O, a clock, randomness or threads.
IMPURE = set("""
    open openat creat close read write readv writev pread pwrite preadv pwritev fopen fdopen fread fwrite fclose
    fsync fdatasync stat fstat lstat fstatat statx lseek truncate ftruncate unlink unlinkat rename renameat renameat2
    link linkat mkdir mkdirat opendir readdir mmap munmap socket connect send recv ioctl syscall
    clock_gettime gettimeofday time nanosleep usleep sleep getrandom getentropy rand random getenv
    json_load_file json_loadf json_loadfd json_dump_file json_dumpf json_dumpfd
    """.split())
VARIANT = re.compile(r"(__)?(.*?)(64|_chk)*")  # what a large-file or fortified build calls the same function


def impure(symbol):
    return VARIANT.fullmatch(symbol).group(2) in IMPURE or symbol.startswith("pthread_")


def check_public(floor, name):
    if name in SHARED_PUBLIC or LEVEL[floor] >= LEVEL["checkpoint"]:
        return None
    return f"{floor}/ may include only {', '.join('<breakwater/' + n + '>' for n in sorted(SHARED_PUBLIC))}"


def check_internal(floor, where, name):
    target = name.split("/")[0]
    if "/" not in name:
        return 'internal headers are included with their directory, as in "base/span.h"'
    if target not in LEVEL:
        return f"{target}/ is not a floor"
    if floor in PROGRAMS and target != floor:
        return f"{floor}/ sees only <breakwater/...>"
    if target != floor and LEVEL[target] == LEVEL[floor]:
        return f"{floor}/ and {target}/ are on one floor and do not know each other"
    if LEVEL[target] > LEVEL[floor]:
        return f"{target}/ is above {floor}/"
    if floor in PURE and target == "os":
        return f"{floor}/ does no I/O"
    if name == "os/thread.h" and floor not in THREADS_ALLOWED and where not in LOCKS_ALLOWED:
        return "threads exist only in os/, io/ and the outermost loop (api/)"
    return None


def check_system(floor, name):
    allowed = KERNEL_ALLOWED.get(floor, set())
    if KERNEL_HEADER.fullmatch(name) and allowed is not None and name not in allowed:
        return "only os/ talks to the kernel"
    if name == "time.h" and floor not in TIME_ALLOWED:
        return "reads a clock: use base/env.h"
    return None


def check_include(where, quote, name):
    floor = where.split("/")[0]
    if name.startswith("breakwater/"):
        return check_public(floor, name[len("breakwater/") :])
    return check_internal(floor, where, name) if quote == '"' else check_system(floor, name)


def check_file(root, path):
    where = path.relative_to(root / "src")
    floor = where.parts[0]
    if len(where.parts) < 2 or floor not in LEVEL:
        return [f"src/{where}: {floor}/ is not a floor; known are {', '.join(sorted(LEVEL))}"]
    text = ctext.read(path)
    out = []
    for number, line in enumerate(ctext.blank(text, strings=False).splitlines(), 1):
        found = INCLUDE.match(line)
        rule = check_include(str(where), *found.groups()) if found else None
        if rule:
            out.append(f"src/{where}:{number}: {line.strip()}: {rule}")
    for number, line in enumerate(ctext.blank(text).splitlines(), 1):
        for rule in RULES:
            found = rule.find(line)
            if found and not rule.allows(floor, str(where)):
                out.append(f"src/{where}:{number}: {found.group(1)}(): {rule.says}")
    return out


def check_tree(root):
    out = []
    for path in ctext.files(root, ["src"], {".c", ".h"}):
        out += check_file(root, path)
    return out


def check_archive(archive):
    """Undefined symbols of an archive's members that a pure floor has no use for."""
    listing = subprocess.run(["nm", "-A", "-u", archive], capture_output=True, text=True, check=True).stdout
    out = []
    for line in listing.splitlines():
        member, symbol = line.rsplit(None, 1)
        symbol = symbol.split("@")[0]
        if impure(symbol):
            out.append(
                f"{member.rsplit(':', 1)[0].strip()}: refers to {symbol}(): format/ and hash/ do no I/O, read no"
                " clock and know no thread"
            )
    return out


def main():
    parser = argparse.ArgumentParser(description="check that the floors look only downwards")
    parser.add_argument("--root", type=pathlib.Path, default=ctext.ROOT)
    parser.add_argument("--nm", nargs="*", default=[], metavar="ARCHIVE", help="archives of floors that do no I/O")
    options = parser.parse_args()
    findings = check_tree(options.root)
    for archive in options.nm:
        findings += check_archive(archive)
    return ctext.report(findings)


if __name__ == "__main__":
    sys.exit(main())
