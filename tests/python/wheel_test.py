#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as `pip install .` does, with meson-python, and uses it where neither sources nor build are.

    tests/python/wheel_test.py [CASE ...]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/lib"))
import venv_python  # noqa: E402

venv_python.enter()

#: what a machine has to have: see "Python" in README.md
LIBRARIES = {"libjansson", "libxxhash", "libcrypto", "libzstd", "liburing", "libc", "libm", "ld-linux-x86-64",
             "ld-linux-aarch64"}


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="bw-wheel-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        python = str(pathlib.Path(sys.prefix) / "bin/python3")
        environ = os.environ | {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
        environ.pop("MESON", None)  # another one, which may be too old to tell meson-python of the stable ABI
        with tempfile.TemporaryDirectory(prefix="bw-wheel-build-") as build:
            cls.build = build
            run([python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", cls.dir,
                 f"--config-settings=build-dir={build}", TREE], env=environ)
        cls.wheel, = cls.dir.glob("*.whl")
        run([python, "-m", "pip", "install", "-q", "--no-deps", "--target", cls.dir / "site", cls.wheel])

    def test_it_is_for_every_python_from_the_one_that_built_it(self):
        tag = f"cp3{sys.version_info.minor}-abi3-linux_"
        self.assertRegex(self.wheel.name, rf"^breakwater-[0-9.]+-{tag}\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as z:
            metadata = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
            text = z.read(metadata).decode()
        self.assertIn("Requires-Python: >=3.11\n", text)
        version = re.search(r"version: '([0-9.]+)'", (TREE / "meson.build").read_text(encoding="utf-8")).group(1)
        self.assertIn(f"\nVersion: {version}\n", text)

    def test_it_has_all_of_the_package_and_nothing_else(self):
        package = TREE / "python/breakwater"
        sources = {str(p.relative_to(package.parent)) for p in package.rglob("*")
                   if p.suffix in (".py", ".pyi", ".typed") or p.name == "py.typed"}
        self.assertGreaterEqual(sources, {"breakwater/py.typed", "breakwater/_core.pyi"})
        with zipfile.ZipFile(self.wheel) as z:
            names = {n for n in z.namelist() if ".dist-info/" not in n}
        self.assertEqual(names, sources | {"breakwater/_core.abi3.so"})

    def test_the_extension_needs_the_systems_libraries_alone(self):
        extension = self.dir / "site/breakwater/_core.abi3.so"
        dynamic = run(["readelf", "-d", extension])
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")
        needed = {name.partition(".so")[0] for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)}
        self.assertLessEqual(needed, LIBRARIES)
        self.assertNotIn(self.build.encode(), extension.read_bytes())
        exported = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", extension]).splitlines()]
        self.assertEqual(exported, ["PyInit__core"])

    def test_it_saves_and_reads_where_nothing_else_is(self):
        text = f"""
            import array, breakwater, sys
            assert breakwater.__file__.startswith({str(self.dir)!r}), breakwater.__file__
            flags = breakwater.ALLOW_SAME_DEVICE | breakwater.ALLOW_NODE_LOCAL
            where = dict(run="r", remote_url={str(self.dir / "remote")!r})
            with breakwater.Checkpointer(job="j", launch="l", rank=0, world=1, flags=flags, **where) as ck:
                ck.save(1, [breakwater.Tensor("w", array.array("d", [1, 2, 3]))])
            into = array.array("d", [0, 0, 0])
            with breakwater.Reader(**where) as r:
                r.read([breakwater.Tensor("w", into)])
            print(into.tolist())
        """
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
        said = run([sys.executable, "-c", textwrap.dedent(text)], cwd="/",
                   env=environ | {"PYTHONPATH": str(self.dir / "site")})
        self.assertEqual(said, "[1.0, 2.0, 3.0]\n")


if __name__ == "__main__":
    unittest.main()
