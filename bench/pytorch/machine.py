# SPDX-License-Identifier: Apache-2.0
"""What the machine is asked and told: processor time and memory of this process and its children, and what of a file
lies in the page cache."""

import ctypes
import mmap
import os
import pathlib
import resource
import threading
import time

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
COLD_AT_MOST, WARM_AT_LEAST = 0.01, 0.97


def _children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            below = [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in below:
            found += [child, *_children(child)] if os.path.exists(f"/proc/{child}/task") else []
    return found


def cpu_s():
    """Of this process, its children that live, and those that have ended."""
    total = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    for pid in _children(os.getpid()):
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) * _TICK_S
    return total


def memory_bytes():
    """Anonymous and shared memory of this process and its children; what several share counts once."""
    total = 0
    for pid in [os.getpid(), *_children(os.getpid())]:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:", "Private_Hugetlb:", "Shared_Hugetlb:")):
                total += int(line.split()[1]) * 1024
    return total


class Peak:
    """The most memory in use while it is entered, above what was in use before; looked at every few milliseconds."""

    def __enter__(self):
        self._before = self._most = memory_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.02):
            self._most = max(self._most, memory_bytes())

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()
        self.extra_bytes = max(self._most, memory_bytes()) - self._before


def _resident(path):
    """Pages of a file in the page cache, and all of them."""
    size = os.path.getsize(path)
    pages = -(-size // mmap.PAGESIZE)
    if size == 0:
        return 0, 0
    fd = os.open(path, os.O_RDONLY)
    try:
        at = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if at == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap", str(path))
    seen = (ctypes.c_ubyte * pages)()
    done = _LIBC.mincore(at, size, seen)
    _LIBC.munmap(at, size)
    if done != 0:
        raise OSError(ctypes.get_errno(), "mincore", str(path))
    return sum(page & 1 for page in bytes(seen)), pages


def _share(files):
    counts = [_resident(path) for path in files]
    return sum(c[0] for c in counts) / max(sum(c[1] for c in counts), 1)


def make_cold(files):
    """No page of them is in the page cache afterwards, or the benchmark ends."""
    for _ in range(50):
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        if _share(files) <= COLD_AT_MOST:
            return
        time.sleep(0.02)
    raise RuntimeError(f"{_share(files):.0%} of the files stay in the page cache")


def make_warm(files):
    """All of them are in the page cache afterwards, or the benchmark ends."""
    for path in files:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 22):
                pass
    if _share(files) < WARM_AT_LEAST:
        raise RuntimeError(f"only {_share(files):.0%} of the files are in the page cache")
