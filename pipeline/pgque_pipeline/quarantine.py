"""Folders of the table `quarantine`: whether they tell of a file, and what is left of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pgque_pipeline.schemas import QUARANTINE


def tells_of(folder: Path, files: Collection[str]) -> bool:
    """Whether anything of one of these files was refused."""
    if not files:
        return False
    mine = pc.field("file").isin(pa.array([*files], pa.string()))
    return bool(_rows([folder]).head(1, columns=["file"], filter=mine).num_rows)


def copy(folders: Sequence[Path], target: Path, dropped: Collection[str], renamed: Mapping[str, str]) -> int:
    """Write what these folders tell into one file in a new folder; how many rows that is, none if 0.

    Files have their new names, by the old ones in `renamed`, before those that are `dropped` are left out.
    """
    names = pa.array([*renamed], pa.string()), pa.array([*renamed.values()], pa.string())
    left_out = pa.array([*dropped], pa.string())
    writer: pq.ParquetWriter | None = None
    count = 0
    for batch in _rows(folders).to_batches():
        places = pc.index_in(batch.column("file"), names[0])
        file = pc.coalesce(names[1].take(places), batch.column("file"))
        rows = batch.set_column(0, "file", file).filter(pc.invert(pc.is_in(file, left_out)))
        if not len(rows):
            continue
        if writer is None:
            target.mkdir(parents=True)
            writer = pq.ParquetWriter(target / "part-00000.parquet", QUARANTINE.stored)
        writer.write_batch(rows)
        count += len(rows)
    if writer is not None:
        writer.close()
    return count


def _rows(folders: Sequence[Path]) -> ds.Dataset:
    files = [str(file) for folder in folders for file in sorted(folder.glob("*.parquet"))]
    return ds.dataset(files, schema=QUARANTINE.stored, format="parquet")
