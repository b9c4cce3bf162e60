"""What is asked of the compiled kernels."""

import re
from typing import NamedTuple

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100a")
# Dynamic and static shared memory that a block may have: CUDA C++ programming guide, compute
# capabilities. A multiprocessor has 1 KiB more, of which each block's system part takes 1 KiB.
BLOCK_SHARED = {"sm_80": 163 << 10, "sm_89": 99 << 10, "sm_90a": 227 << 10, "sm_100a": 227 << 10}
REGISTERS = 64 << 10  # of a multiprocessor, on all of them
BUILD_SECONDS = 12 * 60  # of all kernels on two cores


class Budget(NamedTuple):
    """Kernels whose short name (without arguments and namespaces) matches `kernel`."""

    kernel: str
    instances: int
    # Nothing in local memory, neither spilled nor an array that could not be kept in registers.
    tuned: bool = False
    sass: tuple = ()  # patterns of instructions that must be there
    threads: int = 128  # where tests/cuda_compile/facts.cc does not say


_BF16 = r"HMMA\.16816\.F32\.BF16$"
_F16 = r"HMMA\.16816\.F32$"
_TILES = (r"LDSM\.16\.M88\.4", r"LDSM\.16\.MT88\.4", r"LDGSTS\.E\.BYPASS\.128", r"MUFU\.EX2")

BUDGETS = (
    Budget(r"GqaKernel<BF16", 6, tuned=True, sass=(_BF16, *_TILES)),
    Budget(r"GqaKernel<F16", 6, tuned=True, sass=(_F16, *_TILES)),
    Budget(r"LatentKernel<LatentConfig<BF16", 3, tuned=True, sass=(_BF16, *_TILES)),
    Budget(r"LatentKernel<LatentConfig<E4M3", 3, tuned=True, sass=(_BF16, *_TILES)),
    Budget(r"LatentKernel<LatentConfig<F16", 3, tuned=True, sass=(_F16, *_TILES)),
    Budget(r"PlainAttentionKernel", 1, threads=64, sass=(r"MUFU\.EX2",)),
    Budget(r"ScheduleKernel", 1, threads=256),
    Budget(r"(Append\w+|GatherLatents|WriteExpanded|PackRows|UnpackRows)Kernel", 6),
    Budget(r"RopeKernel", 1, threads=64),
)


def budget_of(name):
    """The budget of a kernel by its short name; None when none says anything of it."""
    for budget in BUDGETS:
        if re.match(budget.kernel, name):
            return budget
    return None


def short_name(demangled):
    """`void a::b::GqaKernel<a::b::BF16, 64>(a::b::GqaParams)` as `GqaKernel<BF16, 64>`."""
    name = re.sub(r"^void ", "", demangled)
    name = re.sub(r"\(anonymous namespace\)::|attnd::kernels::cuda::", "", name)
    name = name.replace("(GqaVariant)0", "decode").replace("(GqaVariant)1", "prefill")
    name = name.replace("> >", ">>")
    return re.sub(r"\([^()]*\)$", "", name)
