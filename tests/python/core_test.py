#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package over the real library: memory of all forms, every exception, interrupts, threads, forks, the end.

    tests/python/core_test.py [CASE ...]     PYTHONPATH names the build's python/
"""

import ast
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter()

import breakwater as bw  # noqa: E402
import numpy as np  # noqa: E402
from breakwater import _core, errors  # noqa: E402

FLAGS = bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL
DTYPES = {"BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16,
          "I32": np.int32, "U32": np.uint32, "F32": np.float32, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
          "C64": np.complex64, "C128": np.complex128}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-python-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name
        self.launches = 0

    def open(self, **options):
        self.launches += 1
        given = dict(run="r", job="j", launch=f"l{self.launches}", rank=0, world=1, local_url=f"{self.dir}/local",
                     remote_url=f"{self.dir}/remote", flags=FLAGS, memory_budget_bytes=64 << 20) | options
        ck = bw.Checkpointer(**given)
        self.addCleanup(lambda: None if ck.closed else ck.close(5))
        return ck

    def commit(self, tensors, **what):
        with self.open() as ck:
            ck.save(ck.resumed["step"] + 1, tensors, **what).wait(timeout_s=60)

    def read(self, tensors, **options):
        with bw.Reader(f"{self.dir}/remote", "r", **options) as r:
            r.check(tensors, subset=True)
            r.read(tensors)


class Memory(Case):
    def test_every_dtype_of_numpy_comes_back_bit_by_bit(self):
        rng = np.random.default_rng(1)
        made = {name: rng.integers(0, 2 if kind is np.bool_ else 256, 40 * np.dtype(kind).itemsize, np.uint8).view(kind)
                for name, kind in DTYPES.items()}
        tensors = [bw.Tensor(name, array) for name, array in made.items()]
        self.assertEqual([t.dtype for t in tensors], list(DTYPES))
        self.commit(tensors)
        back = {name: np.zeros_like(array) for name, array in made.items()}
        self.read([bw.Tensor(name, array) for name, array in back.items()])
        for name, array in made.items():
            self.assertEqual(back[name].tobytes(), array.tobytes(), name)

    def test_strided_memory_is_its_elements_in_order(self):
        base = np.arange(240, dtype=np.int32).reshape(4, 5, 12)
        views = {"columns": base[:, :, ::3], "turned": base.transpose(2, 0, 1), "backwards": base[::-1, ::-2],
                 "fortran": np.asfortranarray(base), "scalar": base[1, 2, 3:4].reshape(()), "none": base[:0]}
        self.commit([bw.Tensor(name, view) for name, view in views.items()])
        for name, view in views.items():
            back = np.zeros(view.shape, view.dtype)
            self.read([bw.Tensor(name, back)])
            np.testing.assert_array_equal(back, view)
            into = np.full((*view.shape, 2), 7, view.dtype)[..., 0]
            self.read([bw.Tensor(name, into)])
            np.testing.assert_array_equal(into, view)

    def test_a_part_is_read_without_the_rest(self):
        whole = np.arange(60, dtype=np.float32).reshape(6, 10)
        self.commit([bw.Tensor("w", whole)])
        part = np.zeros((2, 3), np.float32)
        tensor = bw.Tensor("w", part, shape=(6, 10), offset=(3, 4))
        self.assertEqual((tensor.shape, tensor.offset, tensor.extent), ((6, 10), (3, 4), (2, 3)))
        self.read([tensor])
        np.testing.assert_array_equal(part, whole[3:5, 4:7])

    def test_memory_by_address_is_the_same(self):
        a = np.arange(12, dtype=np.uint16).reshape(3, 4)
        self.commit([bw.Tensor("a", a.ctypes.data, dtype="BF16", shape=a.shape, owner=a),
                     bw.Tensor("t", a.ctypes.data, dtype="BF16", extent=(4, 3), stride_bytes=(2, 8), owner=a)])
        a2, t2 = np.zeros_like(a), np.zeros((4, 3), np.uint16)
        self.read([bw.Tensor("a", a2, dtype="BF16"), bw.Tensor("t", t2, dtype="BF16")])
        np.testing.assert_array_equal(a2, a)
        np.testing.assert_array_equal(t2, a.T)

    def test_memory_lives_as_long_as_it_is_read(self):
        with self.open() as ck:
            save = ck.begin(1)
            expected = []
            for i in range(50):
                array = np.full(1 << 14, i, np.int32)
                expected.append(array.copy())
                save.add([bw.Tensor(f"t{i:02}", array)])
                del array
            save.blob("b", bytearray(b"x" * 100000))
            gc.collect()
            save.start()
            save.wait(timeout_s=60)
        with bw.Reader(f"{self.dir}/remote", "r") as r:
            for i, want in enumerate(expected):
                into = np.zeros_like(want)
                r.read([bw.Tensor(f"t{i:02}", into)])
                np.testing.assert_array_equal(into, want)
            self.assertEqual(r.blob(0, "b"), b"x" * 100000)

    def test_a_save_in_a_cycle_that_is_collected_is_of_its_start(self):
        with self.open(capture=bw.Capture.COW, drain_bytes_per_s=32 << 20) as ck:
            for step in range(1, 6):
                class Trainer:
                    pass

                trainer = Trainer()
                array = np.full(8 << 20, step, np.uint8)
                trainer.itself, trainer.save = trainer, ck.begin(step)
                trainer.save.keep(array)
                trainer.save.add([bw.Tensor("w", array.ctypes.data, dtype="U8", shape=array.shape)])
                trainer.save.start()
                trainer.save.wait_writable()
                del trainer, array
                gc.collect()
                junk = [np.full(8 << 20, 99, np.uint8) for _ in range(3)]
                del junk
        for step in range(1, 6):
            into = np.zeros(8 << 20, np.uint8)
            self.read([bw.Tensor("w", into)], step=step)
            self.assertEqual((into.min(), into.max()), (step, step))

    def test_what_is_no_memory_of_a_tensor_is_told(self):
        a = np.zeros((2, 3), np.float32)
        for make, error, says in [
                (lambda: bw.Tensor("a", object()), TypeError, "bytes-like"),
                (lambda: bw.Tensor("a", a, dtype="F64"), ValueError, "4 bytes are not of that dtype"),
                (lambda: bw.Tensor("a", a, dtype="f32"), ValueError, "found \"f32\""),
                (lambda: bw.Tensor("a", np.zeros(2, "M8[s]")), ValueError, "buffer"),
                (lambda: bw.Tensor("a", np.zeros(2, ">f4")), ValueError, "give dtype"),
                (lambda: bw.Tensor("a\0b", a), ValueError, "name: expected no NUL"),
                (lambda: bw.Tensor("a", a, offset=(0, 0)), TypeError, "shape of the whole"),
                (lambda: bw.Tensor("a", a, shape=(4, 3), offset=(0,)), ValueError, "expected 2 numbers"),
                (lambda: bw.Tensor("a", a, shape=(-4, 3)), ValueError, "no negative"),
                (lambda: bw.Tensor("a", 4096), TypeError, "expected dtype"),
                (lambda: bw.Tensor("a", a, extent=(2, 3)), TypeError, "only with an address"),
                (lambda: bw.Tensor("a", 4096, dtype="U8", shape=(1,) * 17), ValueError, "at most 16"),
        ]:
            with self.assertRaisesRegex(error, says):
                make()
        self.commit([bw.Tensor("a", a)])
        a.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            self.read([bw.Tensor("a", a)])
        with bw.Reader(f"{self.dir}/remote", "r") as r, self.assertRaisesRegex(TypeError, "expected Tensor, found"):
            r.read([a])


class Jobs(Case):
    def test_a_launch_goes_on_where_the_last_one_was(self):
        w = np.arange(1000, dtype=np.float64)
        with self.open() as ck:
            self.assertFalse(ck.resumed["from_checkpoint"])
            with self.assertRaises(errors.NotFoundError):
                ck.restore()
            save = ck.save(7, [bw.Tensor("w", w)], blobs={"rng": b"seed", "empty": b""}, metadata='{"lr": 0.5}')
            w *= 2
            for level in ("captured", 2, "remote", "committed"):
                save.wait(level, timeout_s=60)
            self.assertEqual((save.level, save.error), ("committed", None))
            stats = save.stats()
            self.assertGreater(stats["committed_ns"], stats["stall_ns"])
            self.assertEqual(stats["described_bytes"], 8004)  # the blob as well
        with self.open() as ck:
            self.assertEqual((ck.resumed["step"], ck.resumed["committed"], ck.resumed["world"]), (7, True, 1))
            with ck.restore() as r:
                r.read([bw.Tensor("w", w)])
                self.assertEqual((r.blob(0, "rng"), r.blob(0, "empty")), (b"seed", b""))
                self.assertEqual(r.metadata(0), '{"lr":0.5}')
                self.assertEqual([b["name"] for b in r.blobs()], ["empty", "rng"])
                self.assertEqual(r.tensor("w")["shape"], (1000,))
                self.assertEqual(r.info()["step"], 7)
                self.assertGreater(r.stats()["verified_bytes"], 8000)
            np.testing.assert_array_equal(w, np.arange(1000))
            self.assertEqual(ck.stats()["saves_begun"], 0)

    def test_events_come_by_a_descriptor(self):
        with self.open() as ck:
            ck.save(1, [bw.Tensor("w", np.zeros(4))]).wait(timeout_s=60)
            self.assertGreaterEqual(ck.fileno(), 0)
            seen = [e for e in iter(ck.poll, None)]
        levels = [e["level"] for e in seen if e["type"] == "level"]
        self.assertEqual(levels, ["captured", "local", "remote", "committed"])

    def test_runs_and_checkpoints_are_listed_and_verified(self):
        for _ in range(2):
            self.commit([bw.Tensor("w", np.zeros(4))])
        remote = f"{self.dir}/remote"
        self.assertEqual([(r["run"], r["newest_step"]) for r in bw.runs(remote)], [("r", 2)])
        rows = bw.checkpoints(remote, "r", local_url=f"{self.dir}/local")
        self.assertEqual([(c["step"], c["state"], c["level"]) for c in rows],
                         [(step, "live", "committed") for step in (1, 2)])
        self.assertEqual({f["severity"] for f in bw.verify(remote, "r")}, {"fact"})
        pack = next(pathlib.Path(remote).rglob("*.safetensors"))
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:-1] + b"\xff")
        self.assertIn("damage", {f["severity"] for f in bw.verify(remote, "r")})

    def test_a_reader_takes_a_step_or_an_id(self):
        for value in (1, 2):
            self.commit([bw.Tensor("w", np.full(4, value))])
        into = np.zeros(4, np.int64)
        self.read([bw.Tensor("w", into)], step=1)
        self.assertEqual(into[0], 1)
        newest = bw.checkpoints(f"{self.dir}/remote", "r")[-1]["id"]
        self.read([bw.Tensor("w", into)], id=newest, local_url=f"{self.dir}/local")
        self.assertEqual(into[0], 2)


class Errors(Case):
    def test_each_status_is_an_exception_of_its_own(self):
        made = [errors.make(-n, "text") for n in range(1, len(errors._BY_STATUS) + 1)]
        self.assertEqual(len({type(e) for e in made}), len(errors._BY_STATUS))
        for n, e in enumerate(made, 1):
            self.assertIsInstance(e, bw.Error)
            self.assertEqual((e.status, str(e)), (-n, "text"))
            self.assertTrue(type(e).__doc__)
        self.assertIsInstance(errors.make(-9999, "text"), errors.InternalError)
        self.assertEqual(errors.make(-5, "full", os_errno=28).errno, 28)
        self.assertIsInstance(errors.make(-12, "late"), TimeoutError)

    def test_an_error_of_the_library_says_what_and_where(self):
        with self.assertRaisesRegex(errors.InvalidError, "launch") as caught:
            self.open(launch="not a name")
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(LookupError):
            bw.Reader(f"{self.dir}/remote", "r")
        self.commit([bw.Tensor("w", np.zeros(4, np.float32))])
        with self.assertRaisesRegex(errors.MismatchError, "F32.*F64|F64.*F32"):
            self.read([bw.Tensor("w", np.zeros(4))])
        with self.open() as ck, self.assertRaisesRegex(errors.RefusedError, "step 1"):
            ck.begin(1)

    def test_options_that_are_none_are_told(self):
        for options, error in [(dict(budget=1), TypeError), (dict(rank=-1), ValueError), (dict(rank="0"), TypeError),
                               (dict(world=1 << 40), ValueError), (dict(run="a\0b"), ValueError),
                               (dict(run=5), TypeError)]:
            with self.assertRaises(error):
                self.open(**options)
        with self.assertRaisesRegex(TypeError, "by name"):
            _core.Checkpointer("r")

    def test_numbers_that_are_too_large_are_not_taken_for_small_ones(self):
        self.commit([bw.Tensor("w", np.zeros(4))], blobs={"b": b"x"})
        for call in (lambda r: r.blob(1 << 32, "b"), lambda r: r.metadata(1 << 32), lambda r: r.blob(-1, "b"),
                     lambda _: bw.Tensor("w", np.zeros(4), replica_count=(1 << 32) + 1),
                     lambda _: bw.Reader(f"{self.dir}/remote", "r", io_timeout_ms=-1),
                     lambda _: bw.Reader(f"{self.dir}/remote", "r", step=1 << 64)):
            with bw.Reader(f"{self.dir}/remote", "r") as r, self.assertRaises(ValueError):
                call(r)

    def test_a_text_does_not_end_at_a_nul(self):
        with self.open() as ck:
            save = ck.begin(1)
            with self.assertRaisesRegex(ValueError, "metadata: expected no NUL"):
                save.metadata('{"a":1}\0, and more')
            save.add([bw.Tensor("w", np.zeros(4))])
            save.start()
            save.wait(timeout_s=60)
        with bw.Reader(f"{self.dir}/remote", "r") as r, self.assertRaisesRegex(ValueError, "name: expected no NUL"):
            r.tensor("w\0x")

    def test_a_class_that_looks_at_itself_while_opening_fails_is_safe(self):
        class Curious(bw.Checkpointer):
            def __del__(self):
                self.close()

        with self.assertRaises(errors.InvalidError):
            Curious(run="not a name", job="j", launch="l", rank=0, world=1, remote_url=f"{self.dir}/remote")
        gc.collect()

    def test_what_is_closed_says_so(self):
        ck = self.open()
        save = ck.save(1, [bw.Tensor("w", np.zeros(4))])
        save.wait(timeout_s=60)
        ck.close()
        ck.close()
        with self.assertRaisesRegex(ValueError, "this Checkpointer is closed"):
            ck.begin(2)
        with self.assertRaisesRegex(ValueError, "this Save is closed"):
            save.wait()
        save.release()
        with self.open() as again:
            r = again.restore()
        with self.assertRaisesRegex(ValueError, "this Reader is closed"):
            r.info()

    def test_deadlines_and_levels_are_checked(self):
        with self.open(drain_bytes_per_s=1 << 20) as ck:
            save = ck.save(1, [bw.Tensor("w", np.zeros(12 << 20, np.uint8))])
            with self.assertRaises(TimeoutError):
                save.wait("committed", timeout_s=0.05)
            for wrong in ("safe", 0, 9, (1 << 32) + 1, -1, None):
                with self.assertRaises((ValueError, TypeError)):
                    save.wait(wrong)
            for wrong in (-1, float("nan"), "soon"):
                with self.assertRaises((ValueError, TypeError)):
                    save.wait(timeout_s=wrong)
            save.cancel()
            with self.assertRaises(errors.CancelledError):
                save.wait(timeout_s=30)
            self.assertIsInstance(save.error, errors.CancelledError)


def interrupt_after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


class Interrupts(Case):
    def interrupted(self, call):
        interrupt_after(0.3)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            call()
        self.assertLess(time.monotonic() - begin, 5)

    def test_opening_is_left_while_another_rank_is_waited_for(self):
        self.interrupted(lambda: self.open(world=2))

    def test_a_wait_is_left_and_the_save_goes_on(self):
        ck = self.open(drain_bytes_per_s=8 << 20)
        save = ck.save(1, [bw.Tensor("w", np.zeros(24 << 20, np.uint8))])
        self.interrupted(save.wait)
        save.wait(timeout_s=60)
        self.assertEqual(save.level, "committed")

    def test_a_begin_is_left_that_waits_for_its_turn(self):
        ck = self.open(drain_bytes_per_s=1 << 20, saves_in_flight_max=1)
        save = ck.save(1, [bw.Tensor("w", np.zeros(20 << 20, np.uint8))])
        self.interrupted(lambda: ck.begin(2))
        save.cancel()  # else closing waits until the begin that was left has its turn
        ck.close(30)

    def test_another_thread_goes_on_meanwhile(self):
        ck = self.open(drain_bytes_per_s=8 << 20)
        save = ck.save(1, [bw.Tensor("w", np.zeros(16 << 20, np.uint8))])
        waiter = threading.Thread(target=save.wait)
        waiter.start()
        turns = 0
        while waiter.is_alive():
            turns += 1
        self.assertGreater(turns, 1000)
        waiter.join()

    def test_closing_while_others_let_go_is_orderly(self):
        for step in range(1, 9):
            ck = self.open()
            saves = [ck.save(100 * step + i, [bw.Tensor("w", np.zeros(1 << 16))]) for i in range(2)]
            readers = [ck.restore() for _ in range(2)] if step > 1 else []
            threads = [threading.Thread(target=s.release) for s in saves]
            threads += [threading.Thread(target=r.close) for r in readers]
            for t in threads:
                t.start()
            saves.clear()
            readers.clear()
            ck.close(60)
            for t in threads:
                t.join(30)
                self.assertFalse(t.is_alive())

    def test_closing_waits_for_a_read_until_its_deadline(self):
        self.commit([bw.Tensor("w", np.arange(32 << 20, dtype=np.uint8))])
        ck = self.open()
        reader, into, failed = ck.restore(), np.zeros(32 << 20, np.uint8), []
        begun, ended = threading.Event(), threading.Event()

        def read():
            begun.set()
            try:
                while not ended.is_set():
                    reader.read([bw.Tensor("w", into)])
            except ValueError as e:
                failed.append(str(e))

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait()
        time.sleep(0.005)
        told = 0
        for _ in range(100):
            try:
                ck.close(0)
                break
            except errors.DeadlineError as e:
                told += "is still running" in str(e)
                self.assertFalse(ck.closed)
                time.sleep(0.002)
        self.assertGreater(told, 0)
        if not ck.closed:
            ck.close(30)
        ended.set()
        thread.join(30)
        self.assertLessEqual(set(failed), {"this Reader is closed"})

    def test_closing_waits_for_a_begin_until_its_deadline(self):
        ck = self.open(drain_bytes_per_s=1 << 20, saves_in_flight_max=1)
        save = ck.save(1, [bw.Tensor("w", np.zeros(20 << 20, np.uint8))])
        thread = threading.Thread(target=ck.begin, args=(2,))
        thread.start()
        time.sleep(0.1)
        with self.assertRaisesRegex(errors.DeadlineError, "a call of this Checkpointer is still running"):
            ck.close(0.1)
        self.assertFalse(ck.closed)
        save.cancel()
        thread.join(30)
        ck.close(30)

    def test_closing_ends_the_waits_of_other_threads(self):
        ck = self.open(drain_bytes_per_s=1 << 20)
        save = ck.save(1, [bw.Tensor("w", np.zeros(20 << 20, np.uint8))])
        said = []

        def wait():
            try:
                save.wait()
            except ValueError as e:
                said.append(str(e))

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.2)
        with self.assertRaises(errors.DeadlineError):
            ck.close(0)
        waiter.join(20)
        self.assertEqual(said, ["this Save is closed"])


class Processes(Case):
    def script(self, text, **more):
        head = f"""
            import os, sys, signal
            import breakwater as bw, numpy as np
            ck_flags, ck_dir = {FLAGS}, {self.dir!r}
            ck = bw.Checkpointer(run="r", job="j", launch=sys.argv[1], rank=0, world=1, flags={FLAGS},
                                 local_url={self.dir + '/local'!r}, remote_url={self.dir + '/remote'!r},
                                 memory_budget_bytes=64 << 20)
        """
        self.launches += 1
        whole = textwrap.dedent(head) + textwrap.dedent(text)
        return subprocess.run([sys.executable, "-c", whole, f"s{self.launches}"], capture_output=True,
                              text=True, timeout=120, check=False, **more)

    def test_warnings_that_are_errors_are_in_nobodys_way(self):
        tail = """
            save = ck.save(3, [bw.Tensor('w', np.zeros(1 << 20))])
            two = bw.Checkpointer(run="two", job="j", launch="l", rank=0, world=1, flags=ck_flags,
                                  local_url=ck_dir + "/local", remote_url=ck_dir + "/two",
                                  memory_budget_bytes=64 << 20, drain_bytes_per_s=1 << 20)
            two.save(1, [bw.Tensor('w', np.zeros(40 << 20, np.uint8))])
            two.exit_timeout_s = 0
            try:
                with two:
                    raise KeyError("of the trainer")
            except KeyError:
                print("as raised")
            ck.close = lambda *_: 1 / 0
            import gc; gc.disable()
        """
        done = self.script('import warnings; warnings.simplefilter("error")\n' + textwrap.dedent(tail))
        self.assertEqual((done.returncode, done.stdout), (0, "as raised\n"), done.stderr)
        self.assertIn("breakwater: closing after KeyError: ", done.stderr)
        self.assertIn("breakwater: closing at the interpreter's end: division by zero", done.stderr)

    def test_what_is_open_at_the_end_is_closed_and_committed(self):
        done = self.script("ck.save(3, [bw.Tensor('w', np.zeros(1 << 20))])")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(bw.runs(f"{self.dir}/remote")[0]["newest_step"], 3)

    def test_an_exception_leaves_the_block_at_once(self):
        done = self.script("""
            with ck:
                ck.save(3, [bw.Tensor('w', np.zeros(1 << 20))])
                raise RuntimeError("of the trainer")
        """)
        self.assertEqual(done.returncode, 1)
        self.assertIn("RuntimeError: of the trainer", done.stderr)

    def test_a_close_is_left(self):
        done = self.script("""
            import threading
            ck = bw.Checkpointer(run="slow", job="j", launch="l", rank=0, world=1, flags=ck_flags,
                                 drain_bytes_per_s=1 << 20, memory_budget_bytes=64 << 20,
                                 local_url=ck_dir + "/local", remote_url=ck_dir + "/slow")
            ck.save(1, [bw.Tensor('w', np.zeros(40 << 20, np.uint8))])
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                ck.close()
            except KeyboardInterrupt:
                sys.exit(5)
        """)
        self.assertEqual((done.returncode, done.stderr), (5, ""))

    def test_a_forked_child_can_do_nothing_and_harm_nothing(self):
        done = self.script("""
            save = ck.save(1, [bw.Tensor('w', np.zeros(1 << 20))])
            child = os.fork()
            if child == 0:
                try:
                    ck.begin(2)
                except bw.errors.StateError:
                    del save, ck
                    sys.exit(7)
                sys.exit(8)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            save.wait(timeout_s=60)
        """)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_one_that_is_forgotten_is_warned_of(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            launch = dict(run="f", job="j", launch="l", rank=0, world=1, remote_url=f"{self.dir}/remote", flags=FLAGS)
            _core.Checkpointer(**launch)
            gc.collect()
        self.assertEqual([w.category for w in caught], [ResourceWarning])


class Stubs(unittest.TestCase):
    def test_they_name_what_there_is(self):
        stub = ast.parse((pathlib.Path(bw.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
        for node in stub.body:
            if isinstance(node, ast.FunctionDef):
                self.assertTrue(getattr(_core, node.name).__doc__, node.name)
            if not isinstance(node, ast.ClassDef):
                continue
            there = {n for n in vars(getattr(_core, node.name)) if not n.startswith("__")}
            told = {n.name for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("__")}
            self.assertEqual(there, told, node.name)
            for name in there:
                self.assertTrue(getattr(getattr(_core, node.name), name).__doc__, f"{node.name}.{name}")

    def test_enumerations_are_those_of_the_headers(self):
        headers = pathlib.Path(__file__).resolve().parents[2] / "include/breakwater"
        text = (headers / "checkpointer.h").read_text() + (headers / "io.h").read_text()
        for prefix, enum in (("BW_RESUME", bw.Resume), ("BW_BUSY", bw.OnBusy), ("BW_DAMAGE", bw.OnDamage),
                             ("BW_CAPTURE", bw.Capture), ("BW_IO", bw.IoBackend)):
            for member in enum:
                self.assertRegex(text, rf"{prefix}_{member.name} = {member.value},")
        for name in ("ALLOW_SAME_DEVICE", "ALLOW_NODE_LOCAL", "NO_RECYCLING"):
            self.assertRegex(text, rf"#define BW_{name} UINT32_C\({getattr(bw, name)}\)")


if __name__ == "__main__":
    unittest.main()
