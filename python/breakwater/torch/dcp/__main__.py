# SPDX-License-Identifier: Apache-2.0
"""python -m breakwater.torch.dcp: between directories of torch.distributed.checkpoint and checkpoints."""

import argparse
import sys
import warnings

from ... import ALLOW_NODE_LOCAL, ALLOW_SAME_DEVICE, errors
from . import export_folder, import_folder


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m breakwater.torch.dcp", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    into = verbs.add_parser("import", help="make a checkpoint of a directory")
    into.add_argument("folder", metavar="DIR", help="what FileSystemWriter has written")
    into.add_argument("url", metavar="URL", help="the remote tier, made if it is missing")
    into.add_argument("--job", help="the job that makes the checkpoint, where the run has a history")
    into.add_argument("--scratch", metavar="DIR", help="where tensors of several chunks are put together")
    into.add_argument("--unchecked", action="store_true", help="do not compare the CRC-32 of tensors")
    into.add_argument("--allow-node-local", action="store_true", help="the remote tier is a disk of this machine")
    out = verbs.add_parser("export", help="make a directory of a checkpoint")
    out.add_argument("url", metavar="URL", help="the remote tier")
    out.add_argument("folder", metavar="DIR", help="to be made")
    for verb in (into, out):
        verb.add_argument("--run", required=True)
        verb.add_argument("--step", type=int, help="import: by default the number that DIR ends in; export: the newest")
        verb.add_argument("--local", metavar="URL", help="a local tier")
    return parser.parse_args()


def main():
    """0; 1 and a line on what went wrong."""
    a = _arguments()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # there is one process here
    try:
        if a.verb == "import":
            flags = ALLOW_NODE_LOCAL | ALLOW_SAME_DEVICE if a.allow_node_local else 0
            step = import_folder(a.folder, a.url, run=a.run, step=a.step, local=a.local, job=a.job, scratch=a.scratch,
                                 checked=not a.unchecked, flags=flags)
        else:
            step = export_folder(a.url, a.folder, run=a.run, step=a.step, local=a.local)
    except (errors.Error, OSError, ValueError) as e:
        print(f"{a.verb}: {e}", file=sys.stderr)
        return 1
    print(f"{a.verb}ed step {step} of run {a.run}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
