#!/usr/bin/env python3
"""Holds the compiled CUDA kernels against their budgets (budgets.py) and prints one table.

Usage: check.py [--cuobjdump FILE] [--markdown] BUILD, a build tree with target attnd_cuda_kernels.

Registers, spills, stack and static shared memory are what ptxas said when nvcc ran
(kernels/cuda/keep_ptxas); threads and dynamic shared memory are the launchers' (facts.cc); the
instructions are what cuobjdump reads from the objects.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import budgets
import ptxas
import sass

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Fact(NamedTuple):
    threads: int
    shared: int  # dynamic, bytes
    blocks: int  # meant to share a multiprocessor; 0: not launched there


class Kernel(NamedTuple):
    """A kernel on one architecture."""

    name: str
    usage: ptxas.Usage
    fact: Fact
    opcodes: object  # Counter, or None when cuobjdump is not there


def parse_facts(text):
    facts = {}
    for line in text.splitlines():
        name, arch, *numbers = line.split("\t")
        facts[name, arch] = Fact(*map(int, numbers))
    return facts


def problems_of(kernel, budget):
    """What is wrong with a kernel, a line each."""
    usage, fact = kernel.usage, kernel.fact
    if fact.blocks == 0:
        return  # compiled there for nothing
    shared = usage.shared + fact.shared
    limit = budgets.BLOCK_SHARED[usage.arch]
    if shared > limit:
        yield f"{shared} bytes of shared memory, more than a block's {limit}"
    # All blocks' system part included; registers come in units of 8 a thread.
    if fact.blocks * (shared + 1024) > limit + 1024:
        yield f"{fact.blocks} blocks do not fit the shared memory of a multiprocessor"
    registers = -(-usage.registers // 8) * 8 * fact.threads * fact.blocks
    if registers > budgets.REGISTERS:
        yield f"{fact.blocks} x {fact.threads} threads need {registers} registers"
    if not budget.tuned and usage.spill_stores + usage.spill_loads > 0:
        yield f"spills {usage.spill_stores} bytes"
    if budget.tuned:
        if usage.spill_stores + usage.spill_loads + usage.stack > 0:
            yield f"{usage.stack} bytes of stack, {usage.spill_stores} spilled"
        if kernel.opcodes is not None:
            local = sass.count(kernel.opcodes, r"(LDL|STL)\b")
            if local:
                yield f"{local} loads and stores of local memory"
    if kernel.opcodes is not None:
        for pattern in budget.sass:
            if not sass.count(kernel.opcodes, pattern):
                yield f"no {pattern}"


def check(kernels):
    """All problems of a set of kernels, a line each; also kernels that are too many or too few."""
    for kernel in kernels:
        budget = budgets.budget_of(kernel.name)
        if budget is None:
            yield f"{kernel.name}: budgets.py knows no such kernel"
            continue
        for problem in problems_of(kernel, budget):
            yield f"{kernel.name} {kernel.usage.arch}: {problem}"
    for budget in budgets.BUDGETS:
        for arch in budgets.ARCHITECTURES:
            found = sum(k.usage.arch == arch and budgets.budget_of(k.name) is budget
                        for k in kernels)
            if found != budget.instances:
                yield f"{budget.kernel} {arch}: {found} kernels, expected {budget.instances}"


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"check.py: {command[0]} ended with {done.returncode}: {last}")
    return done.stdout


def listed_sources(build):
    """(object, source relative to kernels/cuda) of every kernel file."""
    for obj in sorted((build / "kernels/cuda").rglob("*.cu.o")):
        yield obj, str(obj).split(".dir/", 1)[1][:-2]


def opcodes_of(obj, cuobjdump):
    """{(function, arch): Counter}; kept beside the object, for reading it takes a second or two."""
    digest = hashlib.sha256(obj.read_bytes() + pathlib.Path(sass.__file__).read_bytes()).hexdigest()
    kept = obj.with_name(obj.name + ".sass.json")
    if kept.exists():
        known = json.loads(kept.read_text())
        if known["sha256"] == digest:
            return {(f, a): Counter(opcodes) for f, a, opcodes in known["kernels"]}
    kernels = sass.parse(run(cuobjdump, "-sass", obj))
    kept.write_text(json.dumps({"sha256": digest,
                                "kernels": [[f, a, o] for (f, a), o in kernels.items()]}))
    return kernels


def read_kernels(build, cuobjdump):
    """(kernels, seconds of nvcc) from objects and logs."""
    facts = parse_facts(run(build / "bin/cuda_kernel_facts"))
    kernels, total = [], 0.0
    for obj, _ in listed_sources(build):
        log = obj.with_name(obj.name + ".ptxas").read_text()
        total += ptxas.seconds(log)
        usages = ptxas.parse(log)
        names = run("c++filt", *[u.function for u in usages]).splitlines()
        opcodes = opcodes_of(obj, cuobjdump) if cuobjdump else {}
        for usage, name in zip(usages, names):
            name = budgets.short_name(name)
            budget = budgets.budget_of(name)
            default = Fact(budget.threads if budget else 128, 0, 1)
            kernels.append(Kernel(name, usage, facts.get((name, usage.arch), default),
                                  opcodes.get((usage.function, usage.arch)) if cuobjdump else None))
    missing = {name for name, _ in facts} - {kernel.name for kernel in kernels}
    if missing:
        raise SystemExit(f"facts.cc names kernels that were not compiled: {sorted(missing)}")
    if cuobjdump and any(kernel.opcodes is None for kernel in kernels):
        raise SystemExit("cuobjdump did not find all kernels in the objects")
    return kernels, total


def row(name, kernels):
    """A line of the table: registers by architecture, the rest at its worst."""
    by_arch = {k.usage.arch: k for k in kernels}
    registers = "/".join(str(by_arch[a].usage.registers) if a in by_arch else "-"
                         for a in budgets.ARCHITECTURES)
    shared = [by_arch[a].usage.shared + by_arch[a].fact.shared
              for a in budgets.ARCHITECTURES if a in by_arch and by_arch[a].fact.blocks]
    texts = sorted({f"{s / 1024:.1f}" for s in shared}, key=float)
    fact = kernels[0].fact
    stack = max(k.usage.stack for k in kernels)
    spilled = max(k.usage.spill_stores for k in kernels)
    hmma = "-"
    if all(k.opcodes is not None for k in kernels):
        hmma = str(sass.count(by_arch[kernels[0].usage.arch].opcodes, "HMMA"))
    return [name, str(fact.threads), registers, str(spilled), str(stack), "/".join(texts), hmma]


HEADINGS = ["kernel", "threads", "registers 80/89/90a/100a", "spilled", "stack", "shared, KiB",
            "HMMA"]


def table(kernels, markdown):
    names = sorted({kernel.name for kernel in kernels})
    rows = [HEADINGS] + [row(n, [k for k in kernels if k.name == n]) for n in names]
    if markdown:
        rows[1:1] = [["---"] * len(HEADINGS)]
        rows[2:] = [[f"`{r[0]}`", *r[1:]] for r in rows[2:]]
        return ["| " + " | ".join(r) + " |" for r in rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--cuobjdump", help="without it no instruction is looked at")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()

    kernels, seconds = read_kernels(args.build, args.cuobjdump)
    print("\n".join(table(kernels, args.markdown)))
    problems = list(check(kernels))
    sources = {str(p.relative_to(ROOT / "kernels/cuda"))
               for p in (ROOT / "kernels/cuda").rglob("*.cu")}
    for name in sorted(sources ^ {source for _, source in listed_sources(args.build)}):
        problems.append(f"kernels/cuda/{name} is not in both kernels.cmake and the tree")
    if seconds / 2 > budgets.BUILD_SECONDS:
        problems.append(f"nvcc took {seconds / 2:.0f} s of two cores, more than "
                        f"{budgets.BUILD_SECONDS}")
    for problem in problems:
        print(f"FAILED {problem}")
    read = "instructions read" if args.cuobjdump else "no cuobjdump: instructions not read"
    print(f"{len(kernels)} kernels of {len(sources)} files for {len(budgets.ARCHITECTURES)} "
          f"architectures, {read}; nvcc took {seconds:.0f} CPU seconds, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
