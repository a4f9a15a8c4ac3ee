"""How much time, memory and other resources a submission may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one submission."""

    cell_s: float = 60.0
    """Time of one cell, seconds, in all three without that in which others had the cores."""
    answer_s: float = 10.0
    """Time of one call by the referee, seconds."""
    notebook_s: float = 300.0
    """Time of the whole notebook, seconds."""
    cores: float = 1.0
    """Cores' worth of processor time that its processes get together."""
    memory_bytes: int = 4 * 2**30
    """Data memory of its processes, without what they share with the warm parent."""
    file_bytes: int = 256 * 2**20
    """Largest file it may write."""
    disk_bytes: int = 512 * 2**20
    """Room in each place where it may write: its folder, /tmp, /dev/shm."""
    processes: int = 64
    """Processes and threads at a time."""
    output_bytes: int = 20 * 2**20
    """All outputs of the notebook that are kept."""
