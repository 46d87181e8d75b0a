#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests ./dev in a copy of what it needs, with stand-ins for the programs that it would run."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTE = """#!/bin/sh
echo "begin ${{0##*/}} $1" >>"$LOG"
{}
echo "end ${{0##*/}} $1" >>"$LOG"
"""
# `python3 -m venv` makes what is then used; `meson setup` what is then built.
PYTHON = """case "$*" in
'-m venv .venv') sleep 0.2 && mkdir .venv .venv/bin && printf '#!/bin/sh\\n' >.venv/bin/pip && chmod +x .venv/bin/pip ;;
tools/mutants.py* | tools/run_tests.py*) exec "$REAL" "$@" ;;
esac"""
MESON = """case $1 in
setup) sleep 0.2 && mkdir "$2" && touch "$2/build.ninja" ;;
introspect) echo '[{"name":"sound","suite":["x:unit"]},{"name":"broken","suite":["x:unit"]}]' ;;
test)
    log=build/meson-logs/testlog.json
    while [ $# -gt 1 ]; do
        [ "$1" != --logbase ] || log=build/meson-logs/$2.json
        shift
    done
    mkdir -p build/meson-logs && : >"$log" && touch running.$1
    until [ -e running.sound ] && [ -e running.broken ]; do sleep 0.1; done
    result=OK && [ $1 = sound ] || result=FAIL
    echo "{\\"name\\":\\"$1\\",\\"result\\":\\"$result\\"}" >>"$log" && touch ended.$1
    until [ -e ended.sound ] && [ -e ended.broken ]; do sleep 0.1; done
    ;;
esac"""


class Dev(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="breakwater-dev.", dir=os.environ.get("BW_TEST_DIR"))
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.tree, self.bin, self.log = self.scratch / "tree", self.scratch / "bin", self.scratch / "log"
        ignore = shutil.ignore_patterns("__pycache__", "corpus")
        for name in ("tools", "tests/model", "tests/mutants", "tests/soak", "fuzz", "bench", "examples"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=ignore)
        for name in ("dev", "tests/requirements.txt", "tests/requirements-torch.txt"):
            shutil.copy(ROOT / name, self.tree / name)
        for name in ("src", "python"):  # what mutants are made of
            (self.tree / name).symlink_to(ROOT / name)
        self.bin.mkdir()
        self.log.touch()
        for name, does in (("python", PYTHON), ("meson", MESON), ("ninja", "sleep 0.2")):
            self.stand_in(name, NOTE.format(does))
        self.stand_in("dpkg-query", "#!/bin/sh\necho installed\n")
        self.env = {**os.environ, "LOG": str(self.log), "PATH": f"{self.bin}:{os.environ['PATH']}",
                    "PYTHONDONTWRITEBYTECODE": "1", "REAL": sys.executable, "PYTHON": str(self.bin / "python"),
                    "MESON": str(self.bin / "meson")}

    def stand_in(self, name, script):
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def dev(self, *words):
        return subprocess.run(["./dev", *words], cwd=self.tree, env=self.env, capture_output=True, text=True,
                              check=False, timeout=60)

    def files(self):
        return sorted(self.tree.rglob("*"))

    def test_help_of_each_command_is_shown_and_nothing_else_done(self):
        before = self.files()
        commands = set(re.findall(r"^  \./dev (\w+)", self.dev("help").stdout, re.M)) - {"help"}
        self.assertGreater(len(commands), 10)
        for command in sorted(commands):
            done = self.dev(command, "name", "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            self.assertRegex(done.stdout, rf"\AUsage:\n  \./dev {command}\b")
            self.assertEqual(set(re.findall(r"^  \./dev (\w+)", done.stdout, re.M)), {command})
        self.assertEqual(self.files(), before)
        self.assertEqual(self.log.read_text(), "")

    def test_help_of_a_soak_is_that_of_its_program_too(self):
        self.assertIn("kill says of its options is shown after ./dev build", self.dev("soak", "kill", "--help").stdout)
        built = self.tree / "build/tests/soak"
        built.mkdir(parents=True)
        self.stand_in(built / "kill_soak", "#!/bin/sh\necho told by the program: $*\n")
        said = self.dev("soak", "kill", "--help").stdout.splitlines()
        self.assertEqual((said[0], said[-1]), ("Usage:", "told by the program: --help"))
        self.assertNotIn("told by", self.dev("soak", "--help").stdout)

    def test_an_unknown_name_is_named_and_fails(self):
        for command, list_of in (("model", "model"), ("mutants", "mutants")):
            done = self.dev(command, "no_such_thing")
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stdout, rf"failed: no_such_thing: no such .*\./dev {list_of} --list")
            self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed")
        self.assertRegex(self.dev("model", "DECIDERS=3").stdout, "DECIDERS=3: only large runs; ./dev model --large")
        for command in ("soak", "fuzz"):
            done = self.dev(command, "no_such_thing")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("no_such_thing; there are: ", done.stderr)

    def test_an_unknown_option_runs_nothing(self):
        for command in ("build", "test", "coverage", "valgrind", "model", "mutants", "fuzz"):
            done = self.dev(command, "--no-such-option")
            self.assertNotEqual(done.returncode, 0, command)
            self.assertIn("unknown option --no-such-option", done.stderr)
        self.assertNotIn("meson", self.log.read_text())

    def test_what_a_command_does_not_take_is_refused(self):
        (self.tree / "build").mkdir()
        for command in ("setup", "lint", "fmt", "clean"):
            done = self.dev(command, "surplus")
            self.assertEqual(done.returncode, 1, command)
            self.assertRegex(done.stderr, rf"\./dev: {command}: .*surplus")
        self.assertTrue((self.tree / "build").is_dir())

    def test_relative_paths_are_those_of_the_caller(self):
        (self.tree / "build/tests/soak").mkdir(parents=True)
        (self.tree / "build/build.ninja").touch()
        says = '#!/bin/sh\necho "$0 in $PWD: $*"\n'
        for program in ("build/tests/soak/kill_soak", "examples/quickstart.sh", "bench/run.sh"):
            self.stand_in(self.tree / program, says)
        for words, program in (("soak kill", "build/tests/soak/kill_soak"), ("bench", "bench/run.sh"),
                               ("quickstart", "examples/quickstart.sh")):  # fmt: skip
            done = subprocess.run([self.tree / "dev", *words.split(), "here"], cwd=self.scratch, env=self.env,
                                  text=True, capture_output=True, check=False, timeout=60)
            self.assertEqual(done.stdout.splitlines()[-1], f"{self.tree / program} in {self.scratch}: here", done)

    def test_fuzz_says_at_once_what_it_will_do(self):
        said = self.dev("fuzz", "--runs", "5", "json", "url").stdout.splitlines()
        self.assertEqual(said[0], "fuzzing, each for 5 inputs, after building what has changed: json url")

    def test_two_at_once_count_their_own_tests(self):
        both = [subprocess.Popen(["./dev", "test", name], cwd=self.tree, env=self.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for name in ("sound", "broken")]
        said = [p.communicate(timeout=60)[0].splitlines()[-1] for p in both]
        self.assertEqual(said, ["1 passed, 0 failed", "0 passed, 1 failed"])

    def test_two_at_once_make_what_they_share_one_after_the_other(self):
        both = [subprocess.Popen(["./dev", "test", "some_test"], cwd=self.tree, env=self.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
        said = [p.communicate(timeout=60)[0] for p in both]
        self.assertEqual([s.count("some_test: no such test") for s in said], [1, 1], said)
        made = [line for line in self.log.read_text().splitlines() if line.split()[2] in ("-m", "setup", "-C")]
        once = ["begin python -m", "end python -m", "begin meson setup", "end meson setup"]
        self.assertEqual(made, once + 2 * ["begin ninja -C", "end ninja -C"])


if __name__ == "__main__":
    unittest.main()
