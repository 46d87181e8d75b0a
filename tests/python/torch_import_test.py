#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save as checkpoints, and checkpoints as folders of safetensors that others load."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import breakwater as bw  # noqa: E402
import breakwater.torch as bt  # noqa: E402
import torch  # noqa: E402
from breakwater import errors  # noqa: E402

COMMAND = sys.argv.pop(1)
ONE = dict(flags=bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL, memory_budget_bytes=64 << 20)


class Code:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path(Code.witness),))


def model():
    torch.manual_seed(7)
    last = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3), last)


class Import(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-import-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.url = str(self.dir / "remote")
        self.file = self.dir / "it.pt"

    def refused(self, kind, part, **more):
        with self.assertRaisesRegex(kind, part):
            bt.import_pt(self.file, self.url, "r", 1, **ONE, **more)
        self.assertFalse(any(r["run"] == "r" for r in bw.runs(self.url)) if pathlib.Path(self.url).exists() else False)

    def test_a_model_that_was_saved_alone_is_loaded_under_its_key(self):
        torch.save(model().state_dict(), self.file)
        made = bt.import_pt(self.file, self.url, "r", 40, under="model", **ONE)
        self.assertEqual([c["id"] for c in bw.checkpoints(self.url, "r")], [made])
        with torch.no_grad():
            other = torch.nn.Sequential(*[m.requires_grad_(True) for m in model()])
            for p in other.parameters():
                p.zero_()
        bt.load_from(self.url, "r", 40, state={"model": other})
        for (name, a), (_, b) in zip(model().state_dict().items(), other.state_dict().items(), strict=True):
            self.assertTrue(torch.equal(a, b), name)

    def test_a_training_state_keeps_its_structure_ties_and_types(self):
        weight = torch.randn(8, 3)
        state = {"net": {"a": weight, "b": weight}, "lr": 0.5, "seen": (1, 2), 3: None, "view": weight[2:5, 1:]}
        for zipped in (True, False):
            torch.save(state, self.file, _use_new_zipfile_serialization=zipped)
            job = {} if zipped else {"job": "again"}
            bt.import_pt(self.file, self.url, "r", 1 if zipped else 2, **ONE, **job)
            back = bt.load_from(self.url, "r")
            self.assertEqual(list(back), list(state))
            self.assertEqual((back["lr"], back["seen"], back[3]), (0.5, (1, 2), None))
            self.assertIs(back["net"]["a"], back["net"]["b"])
            self.assertTrue(torch.equal(back["net"]["a"], weight) and torch.equal(back["view"], weight[2:5, 1:]))

    def test_nothing_in_a_file_is_run(self):
        Code.witness = str(self.dir / "witness")
        torch.save({"w": torch.ones(1), "x": Code()}, self.file)
        self.refused(errors.FormatError, "it.pt: expected a file of torch.save with weights and plain values only")
        self.assertFalse(pathlib.Path(Code.witness).exists())

    def test_what_is_no_such_file_is_told(self):
        self.refused(FileNotFoundError, "it.pt")
        for data in (b"", b"hello", b"PK\x03\x04" + bytes(100)):
            self.file.write_bytes(data)
            self.refused(errors.FormatError, "it.pt: expected a file of torch.save")
        torch.save(torch.ones(3), self.file)
        self.refused(errors.InvalidError, "single tensor")
        torch.save({"w": torch.ones(3).to_sparse()}, self.file)
        self.refused(errors.InvalidError, "w")

    def test_a_run_that_is_there_is_not_taken_from_its_job(self):
        torch.save({"w": torch.ones(3)}, self.file)
        bt.import_pt(self.file, self.url, "r", 5, **ONE)
        with self.assertRaisesRegex(errors.InvalidError, "has a history: expected job"):
            bt.import_pt(self.file, self.url, "r", 6, **ONE)
        with self.assertRaises(errors.RefusedError):
            bt.import_pt(self.file, self.url, "r", 5, job="import", **ONE)
        bt.import_pt(self.file, self.url, "r", 6, job="import", **ONE)
        self.assertEqual([c["step"] for c in bw.checkpoints(self.url, "r")], [5, 6])

    def test_the_command_exports_what_safetensors_loads_into_the_model(self):
        torch.save(model().state_dict(), self.file)
        bt.import_pt(self.file, self.url, "r", 1, under="model", **ONE)
        subprocess.run([COMMAND, "export", "r", "--remote", self.url, "--to", self.dir / "hf", "--tensors", "model.*",
                        "--strip-prefix", "model.", "--shard-bytes", "40"], check=True, capture_output=True)
        done = subprocess.run([venv_python.TREE / ".venv/bin/python3", "-c", READ, self.dir / "hf"], check=True,
                              capture_output=True, text=True)
        self.assertEqual(sorted(done.stdout.split()), sorted(model().state_dict()))


#: As transformers does: the index says which file holds a name. By another reader, in another Python.
READ = """
import json, pathlib, sys
from safetensors import safe_open
home = pathlib.Path(sys.argv[1])
for name, file in json.loads((home / "model.safetensors.index.json").read_text())["weight_map"].items():
    with safe_open(home / file, "np") as f:
        assert f.metadata()["format"] == "pt"
        f.get_slice(name).get_shape()
        print(name)
"""

if __name__ == "__main__":
    unittest.main()
