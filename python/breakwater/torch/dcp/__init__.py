# SPDX-License-Identifier: Apache-2.0
"""Breakwater behind torch.distributed.checkpoint (DCP)::

    writer = breakwater.torch.dcp.StorageWriter("/lustre/bw", local="/nvme/bw", run="gpt")  # once, on all ranks
    if writer.resumed_step is not None:
        dcp.load(state, storage_reader=writer.reader())
    ...
    future = dcp.async_save(state, checkpoint_id=step, storage_writer=writer)
    ...
    writer.close()

What DCP saves is an ordinary checkpoint: tensors with names, global shapes, and a box per rank. Nothing is cloned, also
not by async_save, and no pickle is written or read. `python -m breakwater.torch.dcp` makes checkpoints of directories
of DCP's own, and back. doc/flows/dcp.md says how the two fit together.
"""

from ._convert import export_folder, import_folder
from ._reader import StorageReader
from ._writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter", "export_folder", "import_folder"]
