#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the pages refer to: linked files and headings exist, and so do the ./dev commands that they name."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import ctext  # noqa: E402

PAGES = ctext.files(ROOT, ["doc"], {".md"}) + sorted(ROOT.glob("*.md"))


def without_code(text):
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.S | re.M)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", ctext.read(path), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_there_are_pages(self):
        self.assertIn(ROOT / "README.md", PAGES)

    def test_links_lead_somewhere(self):
        broken = []
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code(ctext.read(page))):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                path = (page.parent / name).resolve() if name else page
                if not path.exists():
                    broken.append(f"{page.relative_to(ROOT)}: {target}: no such file")
                elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                    broken.append(f"{page.relative_to(ROOT)}: {target}: no such heading")
        self.assertEqual(broken, [])

    def test_named_commands_exist(self):
        usage = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  \./dev (\w+)", usage, re.M))
        self.assertIn("test", known)
        for page in PAGES:
            named = set(re.findall(r"\./dev (\w+)", ctext.read(page)))
            self.assertLessEqual(named, known, f"{page.relative_to(ROOT)} names commands that ./dev does not have")


if __name__ == "__main__":
    unittest.main()
