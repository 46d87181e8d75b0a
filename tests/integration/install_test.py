#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs into a scratch directory and builds a program against what lies there, as a distribution would.

install_test.py BUILD VERSION PREFIX C_COMPILER...
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

BUILD, VERSION, PREFIX = sys.argv[1:4]
COMPILER = sys.argv[4:]
HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include/breakwater"
PROGRAM = """
#include <breakwater/breakwater.h>
#include <stdio.h>
int main(void) {
    printf("%s %d.%d.%d ", bw_version(), BW_VERSION_MAJOR, BW_VERSION_MINOR, BW_VERSION_PATCH);
    puts(bw_level_name(BW_LOCAL));
    return 0;
}
"""


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def install_command():
    """The command behind "ninja install", without the rebuild, by the very meson that configured the build."""
    return shlex.split(run(["ninja", "-C", BUILD, "-t", "commands", "install"]).splitlines()[-1])


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.dest = cls.scratch / "dest"
        run([*install_command(), "--quiet"], cwd=BUILD, env={**os.environ, "DESTDIR": str(cls.dest)})
        cls.prefix = cls.dest / PREFIX.lstrip("/")
        cls.pc = next(cls.prefix.rglob("breakwater.pc"), None)

    def pkg_config(self, *args, package="breakwater"):
        env = {**os.environ, "PKG_CONFIG_LIBDIR": str(self.pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(self.dest)}
        env.pop("PKG_CONFIG_PATH", None)
        return run(["pkg-config", *args, package], env=env).split()

    def test_all_public_headers_are_there_and_nothing_else(self):
        installed = {p.name for p in (self.prefix / "include/breakwater").iterdir()}
        self.assertEqual(installed, {p.name for p in HEADERS.glob("*.h")})
        self.assertTrue((self.pc.parent / "breakwater-mpi.pc").is_file())

    def test_the_library_has_its_three_names(self):
        names = {p.name for p in self.pc.parent.parent.glob("libbreakwater*")}
        self.assertEqual(
            names,
            {f"lib{name}.so{end}" for name in ("breakwater", "breakwater-mpi") for end in ("", ".0", f".{VERSION}")},
        )

    def test_the_command_runs_from_where_it_was_installed(self):
        env = {**os.environ, "LD_LIBRARY_PATH": str(self.pc.parent.parent)}
        said = run([str(self.prefix / "bin/breakwater"), "--version"], env=env)
        self.assertIn(VERSION, said)

    def test_nothing_internal_is_installed(self):
        for path in self.prefix.rglob("*"):
            self.assertFalse(path.suffix == ".a" or "bwi" in path.name or "test" in path.name, path)

    def test_pkg_config_needs_no_other_package(self):
        self.assertEqual(self.pkg_config("--modversion"), [VERSION])
        self.assertEqual(self.pkg_config("--print-requires"), [])
        self.assertEqual(self.pkg_config("--print-requires-private"), [])

    def test_a_program_compiles_links_and_runs(self):
        source = self.scratch / "program.c"
        source.write_text(PROGRAM, encoding="utf-8")
        program = self.scratch / "program"
        flags = self.pkg_config("--cflags", "--libs")
        run([*COMPILER, "-std=c17", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(program), *flags])
        said = run([str(program)], env={**os.environ, "LD_LIBRARY_PATH": str(self.pc.parent.parent)})
        self.assertEqual(said, f"{VERSION} {VERSION} local\n")

    def test_a_program_for_mpi_compiles_and_links(self):
        source = self.scratch / "ranks.c"
        source.write_text(
            "#include <breakwater/mpi.h>\nint main(void) { return bw_mpi_close(0, 0, 0); }\n", encoding="utf-8"
        )
        flags = self.pkg_config("--cflags", "--libs", package="breakwater-mpi")
        env = {**os.environ, "OMPI_CC": COMPILER[-1]}
        run(["mpicc", "-std=c17", "-Wall", "-Wextra", str(source), "-o", str(self.scratch / "ranks"), *flags], env=env)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
