"""What ptxas -v says of kernels: registers, spills, stack, shared memory."""

import re
from typing import NamedTuple

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(sm_\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_TIME = re.compile(r"^keep_ptxas: ([\d.]+) \+ ([\d.]+) s", re.M)


class Usage(NamedTuple):
    """One kernel on one architecture."""

    function: str  # mangled
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int  # static; the dynamic part is the launcher's


def parse(text):
    """The kernels of a log, in its order. Raises ValueError when a kernel is not complete."""
    usages = []
    sections = re.split(r"(?=ptxas info\s*: Compiling entry function)", text)
    for section in sections[1:]:
        entry, frame, used = (p.search(section) for p in (_ENTRY, _FRAME, _USED))
        if not (entry and frame and used):
            raise ValueError(f"not understood: {section[:300]!r}")
        shared = _SHARED.search(section)
        usages.append(
            Usage(*entry.groups(), int(used[1]), *map(int, frame.groups()),
                  int(shared[1]) if shared else 0))
    return usages


def seconds(text):
    """The CPU time of nvcc, as kernels/cuda/keep_ptxas wrote it."""
    found = _TIME.search(text)
    if not found:
        raise ValueError("the log does not end with keep_ptxas's time")
    return float(found[1]) + float(found[2])
