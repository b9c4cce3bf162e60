#!/usr/bin/env python3
"""Checks what the compiler made of the kernels, also for instruction sets that this machine lacks.

Usage: disassembly.py ARCHIVE [OBJDUMP]: libattnd_kernels.a of a Release build, and the objdump
that reads it.
"""

import re
import subprocess
import sys
from typing import NamedTuple


class Isa(NamedTuple):
    fma: str  # a fused multiply-add of the full width
    tile: int  # accumulators of the largest register tile (simd-inl.h): so many in one loop
    spills: int  # vectors that a loop may store to the stack


class Machine(NamedTuple):
    vector_fma: str
    other_fma: str  # scalar or double: the kernels ask for none
    branch: str
    spill: str
    multiply: str
    wide: dict  # namespace: Isa
    banned: dict  # namespace: what must not be in it; None is code that runs on any machine


VEX = r"^v|%[yz]mm"  # mnemonics of AVX and later begin with v
X86 = Machine(
    vector_fma=r"^vfn?m(add|sub)\d+ps ",
    other_fma=r"^vfn?m(add|sub)\d+(ss|sd|pd) ",
    branch=r"^j",
    spill=r"^v?mov\w+ %[xyz]mm\d+,[^%]*\(%r[sb]p",
    multiply=r"^v?mulps ",
    wide={
        # Small tiles, 1 to 4 rows, keep four vectors on the stack between their steps of 8; with
        # 16 registers, also for 12 accumulators and as many as 8 widened columns.
        "AVX3": Isa(r"^vf.*%zmm", 24, 4),
        "AVX2": Isa(r"^vf.*%ymm", 12, 4),
    },
    # In AVX2: zmm, registers from 16 on and masks are AVX-512.
    banned={"AVX3": r"%tmm", "AVX2": r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", "SSE4": VEX,
            "SCALAR": VEX, None: VEX},
)
AARCH64 = Machine(
    vector_fma=r"^fml[as] v",
    other_fma=r"^fn?m(add|sub) |^fml[as] [sd]",
    branch=r"^(b|b\.\w+|cbn?z|tbn?z) ",
    spill=r"^st[rp] q\d+.*\[(sp|x29)",
    multiply=r"^fmul ",
    # 24 accumulators, the columns and a scalar for each row are more than 32 registers.
    wide={"NEON": Isa(r"^fml[as] v\d+\.4s", 24, 7)},
    banned={"NEON": r" [zp]\d+\.", "SCALAR": r"^fml[as] ", None: r"^fml[as] "},
)


class Function(NamedTuple):
    name: str
    code: list  # (address, "mnemonic operands")

    def isa(self):
        found = re.search(r"\bN_([A-Z0-9]+)::", self.name)
        return found[1] if found else None

    def count(self, pattern):
        return sum(bool(re.search(pattern, text)) for _, text in self.code)


def disassemble(archive, objdump):
    """The machine and the functions of an archive."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", archive], text=True,
                          capture_output=True, check=True).stdout
    functions = []
    for line in text.splitlines():
        if found := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            functions.append(Function(found[1], []))
        elif found := re.match(r"\s+([0-9a-f]+):\s+(\S.*)$", line):
            functions[-1].code.append((int(found[1], 16), re.sub(r"\s+", " ", found[2]) + " "))
    return AARCH64 if "file format elf64-littleaarch64" in text else X86, functions


def inner_loops(function, branch):
    """The code between a branch back and its target, where no other such range lies within."""
    first = function.code[0][0]
    ranges = set()
    for address, text in function.code:
        target = re.search(r"[ ,]([0-9a-f]+) <", text) if re.search(branch, text) else None
        if target and first <= int(target[1], 16) < address:
            ranges.add((int(target[1], 16), address))
    for begin, end in ranges:
        if not any(begin <= b and e <= end for b, e in ranges - {(begin, end)}):
            yield Function(function.name, [(a, t) for a, t in function.code if begin <= a <= end])


def check_loops(machine, isa, functions):
    """Loops of fused multiply-adds use the full width and keep the accumulators in registers:
    what they are, and what is wrong with them."""
    # ExpArray is for tests; it takes lanes one by one.
    loops = [loop for f in functions if "ExpArray" not in f.name
             for loop in inner_loops(f, machine.branch) if loop.count(machine.vector_fma)]
    largest = max((loop.count(machine.vector_fma) for loop in loops), default=0)
    spills = max((loop.count(machine.spill) for loop in loops), default=0)
    problems = [f"a fused multiply-add is not of the full width: {loop.name}" for loop in loops
                if loop.count(machine.vector_fma) != loop.count(isa.fma)]
    problems += [f"{loop.count(machine.spill)} vectors stored to the stack: {loop.name}"
                 for loop in loops if loop.count(machine.spill) > isa.spills]
    if largest < isa.tile:
        problems.append(f"no loop has the {isa.tile} fused multiply-adds of a register tile")
    return (f", {len(loops)} loops of up to {largest} fused multiply-adds and {spills} (at most "
            f"{isa.spills}) vectors stored to the stack"), problems


def without(pattern, functions):
    for function in functions:
        for _, text in function.code:
            if re.search(pattern, text):
                yield f"{text.strip()} in {function.name}"
                break


def contraction(machine, functions):
    """Products and sums that the source keeps apart stay apart (-ffp-contract=off)."""
    yield from without(machine.other_fma, functions)
    ropes = [f for f in functions if re.search(r"::Rope\(", f.name)]
    for name in [*machine.wide, "SCALAR"]:
        if not any(f.isa() == name and f.count(machine.multiply) for f in ropes):
            yield f"no products in Rope of {name}"
    yield from without(machine.vector_fma, ropes)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    machine, functions = disassemble(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "objdump")
    bad = 0
    for name, pattern in machine.banned.items():
        mine = [f for f in functions if f.isa() == name]
        loops, problems = "", [] if mine else ["there is none"]
        if name in machine.wide:
            loops, problems = check_loops(machine, machine.wide[name], mine)
        problems += without(pattern, mine)
        bad += report(f"{name or 'code for any machine'}: {len(mine)} functions{loops}", problems)
    bad += report("nothing is contracted", list(contraction(machine, functions)))
    return 1 if bad else 0


def report(what, problems):
    print(f"{what}: {'ok' if not problems else ''}")
    for problem in problems:
        print(f"  {problem}")
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
