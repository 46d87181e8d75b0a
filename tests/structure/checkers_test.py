#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants a violation of each rule in a scratch tree and expects the checkers of tools/ to name it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True

import check_floors  # noqa: E402
import check_selfspeak  # noqa: E402
import check_style  # noqa: E402
import check_symbols  # noqa: E402
import gen_map  # noqa: E402

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class Tree(unittest.TestCase):
    """A scratch tree that a test fills and checks."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def assert_finds(self, findings, *parts):
        self.assertTrue(
            any(all(part in finding for part in parts) for finding in findings), f"{parts} not in {findings}"
        )


class Floors(Tree):
    def check(self, name, line):
        self.put(name, SPDX + line + "\n")
        return check_floors.check_tree(self.root)

    def test_looking_down_is_allowed(self):
        allowed = {
            "src/base/error.c": '#include <breakwater/error.h>\n#include "base/text.h"\n#include <string.h>',
            "src/os/os_system.c": (
                '#include <unistd.h>\n#include <sys/stat.h>\nint f(void) { return open("x", 0) + fsync(1); }'
            ),
            "src/io/engine.c": '#include "os/thread.h"\n#include "base/vec.h"\nvoid f(void *p) { bwi_free(p); }',
            "src/checkpoint/save.c": (
                '#include <breakwater/save.h>\n#include "store/store.h"\nvoid g(struct t *t) { t->free(t);'
                " os->time(os); }"
            ),
            "src/plan/cost.c": '#include "checkpoint/policy.h"',
            "src/api/save_api.c": (
                '#include <breakwater/breakwater.h>\n#include "os/thread.h"\n#include "checkpoint/save.h"'
            ),
            "src/cli/main.c": (
                '#include <breakwater/breakwater.h>\n#include <unistd.h>\n#include "cli/verb.h"\nint m(void) {'
                ' printf("x"); exit(1); }'
            ),
        }
        for name, text in allowed.items():
            self.put(name, SPDX + text + "\n")
        self.assertEqual(check_floors.check_tree(self.root), [])

    def test_looking_up(self):
        self.assert_finds(
            self.check("src/base/x.c", '#include "store/store.h"'), "src/base/x.c:2:", "store/ is above base/"
        )
        self.assert_finds(
            self.check("src/store/y.c", '#include "api/z.h"'), "src/store/y.c:2:", "api/ is above store/"
        )

    def test_looking_aside(self):
        self.assert_finds(self.check("src/hash/x.c", '#include "os/os.h"'), "hash/ and os/ are on one floor")
        self.assert_finds(self.check("src/io/y.c", '#include "net/http.h"'), "io/ and net/ are on one floor")
        self.assert_finds(
            self.check("src/dataset/z.c", '#include "checkpoint/a.h"'), "dataset/ and checkpoint/ are on one floor"
        )

    def test_format_does_not_know_os(self):
        self.assert_finds(
            self.check("src/format/x.c", '#include "os/os.h"'), "src/format/x.c:2:", "format/ does no I/O"
        )

    def test_the_command_line_sees_only_the_public_headers(self):
        self.assert_finds(self.check("src/cli/x.c", '#include "base/span.h"'), "cli/ sees only <breakwater/...>")

    def test_the_library_for_mpi_sees_only_the_public_headers(self):
        self.assert_finds(self.check("src/mpi/x.c", '#include "base/span.h"'), "mpi/ sees only <breakwater/...>")
        self.assert_finds(self.check("src/mpi/x.c", '#include "cli/verb.h"'), "mpi/ sees only <breakwater/...>")

    def test_only_one_file_reads_what_launchers_leave_in_the_environment(self):
        line = 'const char *f(void) { return getenv("SLURM_JOB_ID"); }'
        self.assertEqual(self.check("src/mpi/launcher.c", line), [])
        self.assert_finds(self.check("src/mpi/ranks.c", line), "src/mpi/ranks.c:2:", "reads the environment")

    def test_public_headers_below_checkpoint(self):
        self.assert_finds(self.check("src/store/x.c", "#include <breakwater/save.h>"), "store/ may include only")
        self.assertEqual(self.check("src/store/x.c", "#include <breakwater/tensor.h>"), [])

    def test_kernel_headers(self):
        for header in ["unistd.h", "fcntl.h", "sys/mman.h", "pthread.h", "linux/fs.h"]:
            self.assert_finds(
                self.check("src/store/x.c", f"#include <{header}>"), header, "only os/ talks to the kernel"
            )
        self.assert_finds(self.check("src/base/x.c", "#include <sys/stat.h>"), "only os/ talks to the kernel")

    def test_threads(self):
        self.assert_finds(self.check("src/checkpoint/x.c", '#include "os/thread.h"'), "threads exist only in")

    def test_clocks(self):
        self.assert_finds(self.check("src/io/x.c", "#include <time.h>"), "src/io/x.c:2:", "reads a clock")
        self.assert_finds(
            self.check("src/store/x.c", "long f(void) { return time(NULL); }"), "time()", "reads a clock"
        )

    def test_calls(self):
        cases = {
            "p = malloc(4);": "raw allocation",
            "free(p);": "raw allocation",
            "char *s = strdup(t);": "raw allocation",
            'x = getenv("A");': "reads the environment",
            "abort();": "never ends the process",
            "exit(1);": "never ends the process",
            'printf("x");': "never prints",
            'fprintf(stderr, "x");': "never prints",
        }
        for line, rule in cases.items():
            self.assert_finds(self.check("src/store/x.c", line), "src/store/x.c:2:", rule)

    def test_comments_and_strings_do_not_count(self):
        self.assertEqual(
            self.check("src/store/x.c", '/* malloc(1)\n#include <unistd.h> */ const char *s = "exit(1)"; // free(p)'),
            [],
        )

    def test_a_commented_include_is_seen_when_it_is_real(self):
        self.assert_finds(self.check("src/store/x.c", "#  include <unistd.h> /* why */"), "src/store/x.c:2:")

    def test_unknown_directories_and_bare_names(self):
        self.assert_finds(self.check("src/misc/x.c", ""), "misc/ is not a floor")
        self.assert_finds(self.check("src/io/x.c", '#include "engine.h"'), "included with their directory")

    def test_symbols_of_pure_floors(self):
        source = self.put(
            "pure.c", 'extern int open(const char *, int, ...);\nint f(void);\nint f(void) { return open("x", 0); }\n'
        )
        subprocess.run(["cc", "-c", str(source), "-o", str(self.root / "pure.o")], check=True)
        self.assert_finds(check_floors.check_archive(str(self.root / "pure.o")), "refers to open()")
        source.write_text("int g(int);\nint h(int);\nint h(int x) { return g(x) + 1; }\n")
        subprocess.run(["cc", "-c", str(source), "-o", str(self.root / "pure.o")], check=True)
        self.assertEqual(check_floors.check_archive(str(self.root / "pure.o")), [])


class Style(Tree):
    def check(self, name, text):
        self.put(name, text)
        return check_style.check_tree(self.root)

    def test_a_tidy_tree_has_no_findings(self):
        self.put("src/base/a.c", SPDX + "int f(int x) {\n    return x;\n}\n")
        self.put("tools/a.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\nprint(1)\n")
        self.assertEqual(check_style.check_tree(self.root), [])

    def test_long_function(self):
        body = "static int f(int x,\n             int y) {\n" + "    x++;\n" * 78 + "    return x + y;\n}\n"
        self.assert_finds(self.check("tests/a.c", SPDX + body), "tests/a.c:2: f() has 82 lines, at most 80")

    def test_median(self):
        body = "int f(int x) {\n" + "    x++;\n" * 19 + "    return x;\n}\n"
        self.assert_finds(self.check("src/base/a.c", SPDX + body), "the median function has 22 lines")

    def test_functions_are_found_in_every_layout(self):
        text = """struct s {
    int (*call)(int x);
};
static const struct s table[] = {
    {NULL},
};
enum e { A, B };
ATTRIBUTE(1, 2)
static struct s *one(const struct s *a, int (*f)(int)) {
    if (a) {
        return NULL;
    }
    return NULL;
}
static inline int two(void) { return 2; }
int declared(int x);
unsigned long
three(int x)
{
    return (unsigned long)x;
}
"""
        self.assertEqual(check_style.functions(text), [("one", 8, 7), ("two", 15, 1), ("three", 17, 5)])

    def test_long_file(self):
        self.assert_finds(self.check("src/base/a.c", SPDX + "int x;\n" * 900), "the file has 901 lines")

    def test_long_line(self):
        self.assert_finds(
            self.check("src/base/a.h", SPDX + "/* " + "x" * 120 + " */\n"),
            "src/base/a.h:2: the line has 126 characters",
        )

    def test_spdx(self):
        self.assert_finds(self.check("src/base/a.c", "int x;\n"), "src/base/a.c:1:", "SPDX")
        self.assert_finds(self.check("tools/a.py", "#!/usr/bin/env python3\nprint(1)\n"), "tools/a.py:1:", "SPDX")

    def test_same_name_on_two_floors(self):
        self.put("src/base/a.c", SPDX)
        self.assert_finds(self.check("src/io/a.c", SPDX), "src/io/a.c: src/base/a.c has the same file name")

    def test_marks(self):
        for mark in ["TO" + "DO", "FIX" + "ME", "X" * 3]:
            self.assert_finds(self.check("doc/a.md", f"# Title\n{mark}: something\n"), "doc/a.md:2:", mark)
        self.assertEqual(self.check("doc/a.md", "# mkstemp(XXXXXX) and XXH3\n"), [])

    def test_public_headers_carry_comment(self):
        text = SPDX + "/** what */\nint a(void);\nint b(void);\nint c(void);\n"
        self.assert_finds(
            self.check("include/breakwater/a.h", text), "include/breakwater/a.h: 40% of the lines carry comment"
        )
        self.assertEqual(
            self.check("include/breakwater/a.h", SPDX + "/**\n * what\n */\nint a(void);\nint b(void); /**< b */\n"),
            [],
        )

    def test_tabs_blanks_and_newlines(self):
        self.assert_finds(self.check("src/base/a.c", SPDX + "\tint x;\n"), "src/base/a.c:2: a tab")
        self.assert_finds(self.check("src/base/a.c", SPDX + "int x; \n"), "src/base/a.c:2: blanks at the end")
        self.assert_finds(
            self.check("src/base/a.c", SPDX + "int x;"), "src/base/a.c: must end with exactly one newline"
        )


class Symbols(unittest.TestCase):
    def test_three_lists_that_differ(self):
        out = check_symbols.compare({"bw_a", "bw_b", "other"}, {"bw_a", "bw_c", "other"}, {"bw_a", "bw_b", "bwi_x"})
        for part in [
            "other: public functions are named bw_",
            "bw_b: declared as BW_API and missing",
            "bw_c: in src/api",
            "other: declared as BW_API and not defined",
            "bwi_x: exported by the library",
        ]:
            self.assertTrue(any(part in finding for finding in out), f"{part} not in {out}")
        self.assertEqual(check_symbols.compare({"bw_a"}, {"bw_a"}, {"bw_a"}), [])

    def test_declarations_and_version_script_agree_on_how_names_are_read(self):
        with tempfile.TemporaryDirectory() as scratch:
            header = pathlib.Path(scratch) / "h.h"
            header.write_text(
                "#define BW_API x\n/** BW_API int bw_no(void); */\nBW_API enum bw_e bw_a(struct bw_x *x,\n  int y);\n"
                "BW_API const char *bw_b(void);\nint bw_hidden(void);\n"
            )
            names = gen_map.declared([header])
        self.assertEqual(names, ["bw_a", "bw_b"])
        self.assertEqual(check_symbols.listed(gen_map.version_script(names)), {"bw_a", "bw_b"})


class SelfSpeak(Tree):
    def test_paths_and_phrases(self):
        for text in [
            "see /" "work/main",
            "cd /" "root/x",
            "Co-authored-by: x",
            "see PROTOCOL.md",
            "as issue 12 says",
        ]:
            self.put("doc/a.md", f"# Title\n{text}\n")
            self.assert_finds(check_selfspeak.check_tree(self.root), "doc/a.md:2:")

    def test_ordinary_words(self):
        self.put(
            "doc/a.md", "# The agent of a node\nopen_root() on file:///nvme/bw, src/work.c, a session of training\n"
        )
        self.assertEqual(check_selfspeak.check_tree(self.root), [])


if __name__ == "__main__":
    unittest.main()
