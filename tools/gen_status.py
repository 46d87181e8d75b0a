#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes everything that lists status codes from the one table, tools/status.json.

    tools/gen_status.py          writes include/breakwater/status.h, src/base/status_table.inc, doc/status.md and
                                 python/breakwater/errors.py
    tools/gen_status.py --check  writes nothing; fails and names each file that is out of date
    tools/gen_status.py --man    prints the section STATUS of the manual page to standard output

The generated files are checked in, so that building needs no Python and a reader finds them in place.
"""
import argparse
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = {"n": int, "name": str, "text": str, "class": str, "exit": int, "retry": str, "usable": str,
          "doc": str}
CLASSES = {
    "none": "nothing went wrong",
    "caller": "the request itself is wrong or cannot be met as it stands",
    "resource": "something has run out: memory or space",
    "media": "a device or file system failed; says nothing about the data",
    "corrupt": "stored data is not what was written",
    "conflict": "somebody else decided first",
    "transient": "not now; waiting or asking again is right",
    "internal": "a defect of Breakwater",
}
# The exception of each code in Python, and the built-in one that it is as well.
EXCEPTIONS = {
    "E_INVALID": ("InvalidError", "ValueError"),
    "E_STATE": ("StateError", None),
    "E_NOMEM": ("NoMemoryError", "MemoryError"),
    "E_IO": ("StorageError", "OSError"),
    "E_NOSPACE": ("NoSpaceError", "OSError"),
    "E_ACCESS": ("AccessError", "PermissionError"),
    "E_NOTFOUND": ("NotFoundError", "LookupError"),
    "E_EXISTS": ("ExistsError", "FileExistsError"),
    "E_CORRUPT": ("CorruptError", None),
    "E_FORMAT": ("FormatError", None),
    "E_VERSION": ("VersionError", None),
    "E_TIMEOUT": ("DeadlineError", "TimeoutError"),
    "E_UNKNOWN": ("UnknownOutcomeError", None),
    "E_SUPERSEDED": ("SupersededError", None),
    "E_LAUNCH_LOST": ("LaunchLostError", None),
    "E_NOT_MEMBER": ("NotMemberError", None),
    "E_ABORTED": ("AbortedError", None),
    "E_SKIPPED": ("SkippedError", None),
    "E_BUSY": ("BusyError", None),
    "E_COVERAGE": ("CoverageError", "ValueError"),
    "E_MISMATCH": ("MismatchError", "ValueError"),
    "E_LIMIT": ("LimitError", None),
    "E_UNSUPPORTED": ("UnsupportedError", None),
    "E_FOREIGN": ("ForeignError", None),
    "E_REFUSED": ("RefusedError", None),
    "E_CANCELLED": ("CancelledError", None),
    "E_INTERNAL": ("InternalError", None),
}
EXIT_CODES = {
    0: "success",
    1: "failed",
    2: "wrong usage",
    3: "damaged data",
    4: "not found",
    5: "superseded by another job or launch",
}


def load():
    """Reads and checks the table; a hole in the numbers or a wrong field is an error that names the entry."""
    codes = json.loads((ROOT / "tools/status.json").read_text(encoding="utf-8"))["codes"]
    names = set()
    for at, code in enumerate(codes):
        for key, kind in FIELDS.items():
            if not isinstance(code.get(key), kind):
                sys.exit(f"status.json: entry {at}: \"{key}\" must be of type {kind.__name__}")
        if set(code) != set(FIELDS):
            sys.exit(f"status.json: entry {at}: unknown keys {sorted(set(code) - set(FIELDS))}")
        if code["n"] != at:
            sys.exit(f"status.json: entry {at}: number {code['n']}, expected {at}")
        if not re.fullmatch(r"OK|E_[A-Z_]+", code["name"]) or code["name"] in names:
            sys.exit(f"status.json: entry {at}: bad or repeated name {code['name']!r}")
        if code["class"] not in CLASSES or code["exit"] not in EXIT_CODES:
            sys.exit(f"status.json: entry {at}: unknown class {code['class']!r} or exit code {code['exit']}")
        if re.search(r"[^\x20-\x7e]|\*/", "".join(str(v) for v in code.values())):
            sys.exit(f"status.json: entry {at}: only printable ASCII without the end of a C comment")
        if code["n"] and code["name"] not in EXCEPTIONS:
            sys.exit(f"status.json: entry {at}: {code['name']} has no exception: see EXCEPTIONS")
        names.add(code["name"])
    return codes


def comment(text, indent, width=96):
    """Lines of a C comment body."""
    lead = indent + " * "
    return "\n".join(lead + line for line in textwrap.wrap(text, width - len(lead)))


def header(codes):
    out = [HEADER_TOP.rstrip("\n"), "enum bw_status {"]
    for c in codes:
        out.append("    /**")
        out.append(comment(f"{c['text'][0].upper()}{c['text'][1:]}. {c['doc']}", "    "))
        if c["n"]:
            out.append("     *")
            out.append(comment(f"Try again: {c['retry']}.", "    "))
            out.append(comment(f"Object still usable: {c['usable']}.", "    "))
        out.append("     */")
        out.append(f"    BW_{c['name']} = {-c['n']},")
    out.append("};")
    exits = "\n".join(f" *   - {n}: {what}" for n, what in EXIT_CODES.items())
    out.append(HEADER_END.replace("@EXITS@", exits).rstrip("\n"))
    return "\n".join(out) + "\n"


def table(codes):
    def quote(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    rows = [f"{{{quote('BW_' + c['name'])}, {quote(c['text'])}, {quote(c['retry'])}, {c['exit']}}}, /* {-c['n']} */"
            for c in codes]
    return ("/* SPDX-License-Identifier: Apache-2.0 */\n"
            "/* Made by tools/gen_status.py from tools/status.json. Do not edit. Row n is status -n. */\n"
            + "\n".join(rows) + "\n")


def markdown(codes):
    out = [MARKDOWN_TOP.rstrip("\n"), ""]
    out += ["| class | means |", "|---|---|"]
    out += [f"| {name} | {what} |" for name, what in CLASSES.items()]
    out += ["", "## Exit codes of the command line", "", "| exit code | means |", "|---|---|"]
    out += [f"| {n} | {what} |" for n, what in EXIT_CODES.items()]
    out += ["", "## Codes", "", "| code | number | text | class | exit code |", "|---|---|---|---|---|"]
    out += [f"| [`BW_{c['name']}`](#bw_{c['name'].lower()}) | {-c['n']} | {c['text']} | {c['class']} | {c['exit']} |"
            for c in codes]
    for c in codes:
        out += ["", f"### BW_{c['name']}", "", c["doc"]]
        if c["n"]:
            out += ["", f"* Try again: {c['retry']}.", f"* Object still usable: {c['usable']}."]
    return "\n".join(out) + "\n"


def roff(text):
    """Text that troff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def manual(codes):
    out = ['.\\" Made by tools/gen_status.py from tools/status.json. Do not edit.', ".SH STATUS"]
    for c in codes:
        out += [".TP", f".BR BW_{c['name']} \" (\\-{c['n']})\"" if c["n"] else ".BR BW_OK \" (0)\"", roff(c["doc"])]
        if c["n"]:
            out += [f"Try again: {roff(c['retry'])}.", f"Exit code: {c['exit']}."]
    return "\n".join(out) + "\n"


def exceptions(codes):
    out = [PYTHON_TOP.rstrip("\n")]
    for c in codes[1:]:
        name, builtin = EXCEPTIONS[c["name"]]
        doc = textwrap.wrap(f"{c['text'][0].upper()}{c['text'][1:]}. {c['doc']}", 110)
        out += ["", "", f"class {name}(Error{', ' + builtin if builtin else ''}):"]
        out += [f'    """{doc[0]}'] + [f"    {line}" for line in doc[1:]]
        out += ["", f"    Try again: {c['retry']}.", '    """', "", f"    status = {-c['n']}"]
    out += ["", "", "_BY_STATUS = {", "    error.status: error", "    for error in ("]
    out += [f"        {EXCEPTIONS[c['name']][0]}," for c in codes[1:]]
    out += ["    )", "}", "", PYTHON_END.rstrip("\n")]
    return "\n".join(out) + "\n"


PYTHON_TOP = '''\
# SPDX-License-Identifier: Apache-2.0
# Made by tools/gen_status.py from tools/status.json. Do not edit.
"""The exceptions: one for each status of the library, all of them Error."""


class Error(Exception):
    """Something that the library says has failed.

    Its text names the object, what was expected and what was found. Where a built-in exception says what kind of
    failure it is, it is one of these as well: a deadline is a TimeoutError, a full disk an OSError.
    """

    status = 0  #: the library's number
    stage = 0  #: part of a flow, a number of enum bw_stage
    os_errno = 0  #: of the system call that failed, or 0
    http_status = 0  #: of an object store's answer, or 0
'''

PYTHON_END = """\
def make(status, message, stage=0, os_errno=0, http_status=0):
    \"\"\"The exception of a status, not raised. A number that this version does not know is an InternalError.\"\"\"
    error = _BY_STATUS.get(status, InternalError)(message)
    error.status, error.stage, error.os_errno, error.http_status = status, stage, os_errno, http_status
    if os_errno and isinstance(error, OSError):
        error.errno = os_errno
    return error
"""

HEADER_TOP = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tools/gen_status.py from tools/status.json. Do not edit. */
/**
 * @file status.h
 * The status codes: what every function of Breakwater that can fail returns.
 *
 * 0 is success, failures are negative. The numbers are stable for ever; a new
 * code takes the next free number, so a program must be ready for numbers that
 * it does not know and treat them like BW_E_INTERNAL.
 *
 * A code is coarse on purpose: it answers "what may be done about it". What
 * happened to which object stands in the message of struct bw_error.
 *
 * Everything here is a pure function of a number: safe on any thread, nothing
 * to free; the strings are static and never NULL.
 */
#ifndef BW_STATUS_H
#define BW_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Marks what the shared library exports; nothing else is visible outside of it. */
#define BW_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What a call came to.
 *
 * "Try again" says whether the same call can succeed later, and when. "Object
 * still usable" says whether the handle that was used may be used on.
 */
"""

HEADER_END = """\

/** The name of a code as it is written in C, such as "BW_E_NOSPACE"; "?" for a number that is no code. */
BW_API const char *bw_status_name(int status);

/** A few words of lower-case English, such as "no space left"; "unknown status" for a number that is no code. */
BW_API const char *bw_status_text(int status);

/**
 * The exit code that a process should end with when it fails with this status,
 * and that the command line does end with:
 *
@EXITS@
 *
 * 1 for a number that is no code.
 */
BW_API int bw_status_exit_code(int status);

/** Whether and when to try again, such as "yes, once room is made"; "no" for a number that is no code. */
BW_API const char *bw_status_retry_text(int status);

#ifdef __cplusplus
}
#endif

#endif
"""

MARKDOWN_TOP = """\
<!-- Made by tools/gen_status.py from tools/status.json. Do not edit. -->
# Status codes

Every function of the library that can fail returns 0 or one of these negative numbers, and fills a `struct bw_error`
with a message that names the object, what was expected and what was found. The numbers are stable for ever; a program
must be ready for numbers that it does not know. The class tells at a glance whose move it is.
"""


def main():
    parser = argparse.ArgumentParser(description="generate the lists of status codes")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="fail when a generated file is out of date")
    group.add_argument("--man", action="store_true", help="print the section STATUS of the manual page")
    options = parser.parse_args()
    codes = load()
    if options.man:
        sys.stdout.write(manual(codes))
        return 0
    made = {
        "include/breakwater/status.h": header(codes),
        "src/base/status_table.inc": table(codes),
        "doc/status.md": markdown(codes),
        "python/breakwater/errors.py": exceptions(codes),
    }
    stale = 0
    for name, text in made.items():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if options.check:
            print(f"{name} is out of date: run tools/gen_status.py", file=sys.stderr)
            stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
