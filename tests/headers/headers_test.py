#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each public header alone, as C17 and as C++17, with every warning an error; so too the _INIT macros.

    headers_test.py INCLUDE_DIR C_COMPILER...

The C++ compiler is $CXX, c++, g++ or clang++; without one the test fails, it does not skip.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

INCLUDE = pathlib.Path(sys.argv[1])
# In C++ a function may not share its name with a struct under -Wshadow, as stat() and struct stat do.
C = sys.argv[2:] + ["-x", "c", "-std=c17", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes"]
CXX = next(filter(shutil.which, [os.environ.get("CXX", ""), "c++", "g++", "clang++"]), None)
WARNINGS = "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wundef -Wcast-qual -Werror".split()
MPI = "mpi.h"  # of a library of its own, and nothing without an MPI
HEADERS = sorted(path for path in (INCLUDE / "breakwater").glob("*.h") if path.name != MPI)


def compilers():
    if CXX is None:
        raise AssertionError("no C++ compiler found: ./dev setup installs one")
    return [C, [CXX, "-x", "c++", "-std=c++17"]]


def mpi_flags():
    """Where MPI's own header lies, as a system's: its warnings are not ours."""
    flags = subprocess.run(["pkg-config", "--cflags-only-I", "mpi-c"], capture_output=True, text=True, check=False)
    if flags.returncode:
        raise AssertionError("no MPI found: ./dev setup installs one")
    return [word for flag in flags.stdout.split() for word in ("-isystem", flag.removeprefix("-I"))]


def init_macros():
    """(struct, macro) of every initialiser: BW_READER_OPTIONS_INIT belongs to struct bw_reader_options."""
    text = "".join(header.read_text(encoding="utf-8") for header in HEADERS)
    macros = sorted(set(re.findall(r"#define (BW_\w+)_INIT\b", text)))
    return [(macro.lower(), macro + "_INIT") for macro in macros]


class Headers(unittest.TestCase):
    def compile(self, text, what, more=()):
        for compiler in compilers():
            with tempfile.TemporaryDirectory() as scratch:
                source = pathlib.Path(scratch) / "alone.c"
                source.write_text(text, encoding="utf-8")
                done = subprocess.run(
                    [
                        *compiler,
                        *WARNINGS,
                        *more,
                        "-I",
                        str(INCLUDE),
                        "-c",
                        str(source),
                        "-o",
                        str(source.with_suffix(".o")),
                    ],
                    capture_output=True,
                    text=True,
                    check=False,
                )
            self.assertEqual(done.returncode, 0, f"{what} with {compiler[0]}:\n{done.stderr}")

    def test_there_are_headers(self):
        self.assertIn("breakwater.h", [header.name for header in HEADERS])

    def test_each_header_compiles_alone_and_twice(self):
        for header in HEADERS:
            line = f"#include <breakwater/{header.name}>\n"
            self.compile(line + line, header.name)

    def test_the_header_for_mpi_compiles_alone_and_twice(self):
        line = f"#include <breakwater/{MPI}>\n"
        self.compile(line + line, MPI, mpi_flags())

    def test_the_umbrella_includes_every_header(self):
        text = (INCLUDE / "breakwater/breakwater.h").read_text(encoding="utf-8")
        included = set(re.findall(r"#include <breakwater/(\w+\.h)>", text))
        self.assertEqual(included | {"breakwater.h"}, {header.name for header in HEADERS})

    def test_every_initialiser_fits_its_struct(self):
        self.assertTrue(init_macros())
        for struct, macro in init_macros():
            self.compile(
                "#include <breakwater/breakwater.h>\n"
                f"struct {struct} made(void);\n"
                f"struct {struct} made(void) {{ struct {struct} x = {macro}; return x; }}\n",
                macro,
            )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
