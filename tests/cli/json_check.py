#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks JSON from standard input against a schema of doc/schema/.

    breakwater ls --json | json_check.py ls

Knows the words of JSON Schema that those schemas use, and refuses others. Stricter than the schema: a member that it
does not name is an error, so that what is printed is documented. Prints "ls: valid", or each violation.
"""
import json
import os
import pathlib
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
WORDS = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "properties", "required", "items", "enum",
         "const", "pattern", "minimum", "anyOf", "oneOf"}


def has_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Checker:
    def __init__(self, root):
        self.root = root

    def check(self, schema, value, path):
        """Violations as texts."""
        unknown = set(schema) - WORDS
        if unknown:
            sys.exit(f"schema at {path} uses {sorted(unknown)}, which this checker does not know")
        if "$ref" in schema:
            return self.check(self.root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], value, path)
        found = list(self.scalars(schema, value, path))
        if isinstance(value, dict):
            found += self.members(schema, value, path)
        if isinstance(value, list) and "items" in schema:
            for i, item in enumerate(value):
                found += self.check(schema["items"], item, f"{path}[{i}]")
        return found

    def scalars(self, schema, value, path):
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(has_type(value, name) for name in types):
            yield f"{path}: {json.dumps(value)} is not of type {' or '.join(types)}"
        if "const" in schema and value != schema["const"]:
            yield f"{path}: {json.dumps(value)} is not {json.dumps(schema['const'])}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{path}: {json.dumps(value)} is not one of {schema['enum']}"
        if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
            yield f"{path}: {json.dumps(value)} does not match {schema['pattern']}"
        if "minimum" in schema and has_type(value, "number") and value < schema["minimum"]:
            yield f"{path}: {value} is below {schema['minimum']}"
        for word, most in (("anyOf", len(schema.get("anyOf", []))), ("oneOf", 1)):
            if word in schema:
                fit = sum(not self.branch(s, value, path) for s in schema[word])
                if not 1 <= fit <= most:
                    yield f"{path}: fits {fit} branches of {word}"

    def branch(self, schema, value, path):
        """Violations of one branch; a branch that only requires members says nothing about others."""
        if set(schema) == {"required"}:
            return [name for name in schema["required"] if name not in value]
        return self.check(schema, value, path)

    def members(self, schema, value, path):
        known = schema.get("properties", {})
        found = [f"{path}: member \"{name}\" is missing" for name in schema.get("required", []) if name not in value]
        for name, member in value.items():
            if name in known:
                found += self.check(known[name], member, f"{path}.{name}")
            else:
                found.append(f"{path}: member \"{name}\" is not documented")
        return found


def no_duplicates(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        sys.exit(f"a member comes twice: {names}")
    return dict(pairs)


def main():
    verb = sys.argv[1]
    folder = os.environ.get("SCHEMA") or pathlib.Path(__file__).resolve().parent.parent.parent / "doc/schema"
    schema = json.loads((pathlib.Path(folder) / f"{verb}.json").read_text(encoding="utf-8"))
    value = json.loads(sys.stdin.read(), object_pairs_hook=no_duplicates)
    found = Checker(schema).check(schema, value, "$")
    print("\n".join(found) if found else f"{verb}: valid")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
