# SPDX-License-Identifier: Apache-2.0
"""Pairs of measurements, their ratio with its spread, and what is printed of them."""

import json
import os
import platform
import random
import statistics

DRAWS = 2000


class Pairs:
    """Ours and theirs, measured in turn."""

    def __init__(self, ours, theirs):
        self.ours, self.theirs = list(ours), list(theirs)

    def ratio(self):
        return _ratio(self.ours, self.theirs)

    def interval(self):
        """The middle 95 % of what as many pairs give that are drawn with repetition, again and again."""
        draw, n = random.Random(1), len(self.ours)
        found = []
        for _ in range(DRAWS):
            at = [draw.randrange(n) for _ in range(n)]
            found.append(_ratio([self.ours[i] for i in at], [self.theirs[i] for i in at]))
        found.sort()
        return found[DRAWS // 40], found[DRAWS - 1 - DRAWS // 40]


def _ratio(ours, theirs):
    return statistics.median(ours) / max(statistics.median(theirs), 1e-9)


def spread(values):
    """Median, least and greatest, as text of milliseconds."""
    return f"{statistics.median(values) * 1e3:,.0f} ({min(values) * 1e3:,.0f} to {max(values) * 1e3:,.0f})"


class Report:
    """Prints figures, and writes them as lines of JSON if there is a file for it."""

    def __init__(self, path):
        self._file = open(path, "w", encoding="utf-8") if path else None

    def line(self, **values):
        if self._file:
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    def machine(self, **more):
        facts = {"name": "machine", "cpu": _cpu(), "kernel": platform.release(), "cpus": os.cpu_count(),
                 "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
                 "load": os.getloadavg()[0], **more}  # fmt: skip
        print(f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['memory_gib']} GiB, Linux {facts['kernel']}, load "
              f"{facts['load']:.1f}; " + ", ".join(f"{k} {v}" for k, v in more.items()), flush=True)  # fmt: skip
        self.line(**facts)

    def table(self, title, columns, rows):
        print(f"\n{title}")
        width = max(len(r[0]) for r in rows)
        print("  " + " " * width + "".join(f"  {c:>26}" for c in columns))
        for name, *cells in rows:
            print(f"  {name:<{width}}" + "".join(f"  {c:>26}" for c in cells), flush=True)

    def heading(self):
        print(f"\n{'figure':<62}  {'ratio':>7}  {'95 % interval':<18} {'target':>7}  met")

    def figure(self, name, against, pairs, nbytes, target=None):
        """Lower is better in all of them."""
        ratio, (low, high) = pairs.ratio(), pairs.interval()
        met = None if target is None else low <= target
        print(f"{name + ' / ' + against:<62}  {ratio:7.3f}  {low:7.3f} .. {high:<7.3f} {target if target else '':>7}  "
              f"{'' if met is None else 'yes' if met else 'no'}", flush=True)  # fmt: skip
        self.line(name=name, ratio=round(ratio, 5), low=round(low, 5), high=round(high, 5), target=target,
                  at_least=False, met=met, against=against, bytes=nbytes, pairs=len(pairs.ours),
                  seconds=statistics.median(pairs.ours), against_seconds=statistics.median(pairs.theirs))  # fmt: skip

    def close(self):
        if self._file:
            self._file.close()


def _cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())
