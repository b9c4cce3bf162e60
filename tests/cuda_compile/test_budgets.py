"""The parsers and judgements of check.py, on texts as the tools print them."""

from collections import Counter

import budgets
import check
import ptxas
import pytest
import sass

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1aP' for 'sm_80'
ptxas info    : Function properties for _Z1aP
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 254 registers, used 1 barriers, 16 bytes cumulative stack size, 568 bytes cmem[0]
ptxas info    : Compile time = 375.951 ms
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1bP' for 'sm_100a'
ptxas info    : Function properties for _Z1bP
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compile time = 2 ms
keep_ptxas: 5.130 + 0.747 s
"""

SASS = """\
arch = sm_80
\tcode for sm_80
\t\tFunction : _Z1aP
        /*0000*/                   MOV R1, c[0x0][0x28] ;    /* 0x00000a0000017a02 */
                                                             /* 0x000fe40000000f00 */
        /*0010*/              @!P0 LDL.64 R42, [R32+0x8] ;   /* 0x00000800202a7983 */
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;   /* 0x00000800202a7983 */
        /*b270*/               @P2 STL.64 [R1], R36 ;
        /*b280*/                   HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
arch = sm_90a
\t\tFunction : _Z1aP
        /*0000*/                   HMMA.16816.F32 R4, R8, R2, R4 ;
"""


def kernel(name="GqaKernel<BF16, 64, 64, decode>", arch="sm_80", registers=128, stack=0, spills=0,
           shared=0, fact=check.Fact(128, 64 << 10, 2), opcodes=None):
    return check.Kernel(name, ptxas.Usage("_Z1", arch, registers, stack, spills, spills, shared),
                        fact, opcodes)


def problems(k):
    return list(check.problems_of(k, budgets.budget_of(k.name)))


def test_ptxas_log():
    first, second = ptxas.parse(LOG)
    assert first == ptxas.Usage("_Z1aP", "sm_80", 254, 16, 8, 12, 0)
    assert second == ptxas.Usage("_Z1bP", "sm_100a", 40, 0, 0, 0, 2048)
    assert ptxas.seconds(LOG) == pytest.approx(5.877)


def test_ptxas_log_that_is_cut_off_is_an_error():
    with pytest.raises(ValueError, match="not understood"):
        ptxas.parse(LOG[: LOG.index("ptxas info    : Used 254")])
    with pytest.raises(ValueError, match="keep_ptxas"):
        ptxas.seconds(LOG[: LOG.index("keep_ptxas")])


def test_sass():
    kernels = sass.parse(SASS)
    assert kernels["_Z1aP", "sm_80"] == Counter(
        {"MOV": 1, "LDL.64": 1, "UIADD3": 1, "STL.64": 1, "HMMA.16816.F32.BF16": 1})
    assert kernels["_Z1aP", "sm_90a"] == Counter({"HMMA.16816.F32": 1})
    assert sass.count(kernels["_Z1aP", "sm_80"], r"(LDL|STL)\b") == 2


def test_f16_and_bf16_tensor_instructions_are_told_apart():
    bf16 = Counter({"HMMA.16816.F32.BF16": 1})
    f16 = Counter({"HMMA.16816.F32": 1})
    assert sass.count(bf16, budgets._BF16) == 1 and sass.count(bf16, budgets._F16) == 0
    assert sass.count(f16, budgets._F16) == 1 and sass.count(f16, budgets._BF16) == 0


def test_short_names():
    name = ("void attnd::kernels::cuda::GqaKernel<attnd::kernels::cuda::BF16, 128, 128, "
            "(attnd::kernels::cuda::GqaVariant)0>(attnd::kernels::cuda::GqaParams)")
    assert budgets.short_name(name) == "GqaKernel<BF16, 128, 128, decode>"
    name = ("attnd::kernels::cuda::(anonymous namespace)::RopeKernel(attnd::kernels::RopeParams)")
    assert budgets.short_name(name) == "RopeKernel"
    name = "void attnd::kernels::cuda::LatentKernel<attnd::kernels::cuda::LatentConfig<E, 4> >(P)"
    assert budgets.short_name(name) == "LatentKernel<LatentConfig<E, 4>>"


def test_a_good_kernel_has_no_problems():
    good = Counter({"HMMA.16816.F32.BF16": 8, "LDSM.16.M88.4": 4, "LDSM.16.MT88.4": 4,
                    "LDGSTS.E.BYPASS.128": 4, "MUFU.EX2": 4})
    assert problems(kernel(opcodes=good)) == []


def test_local_memory_of_tuned_kernels():
    assert problems(kernel(stack=16)) == ["16 bytes of stack, 0 spilled"]
    assert problems(kernel(spills=8)) == ["0 bytes of stack, 8 spilled"]
    assert "2 loads and stores of local memory" in problems(kernel(opcodes=Counter({"LDL.64": 2})))
    assert problems(kernel("PlainAttentionKernel", stack=16)) == []
    assert problems(kernel("PlainAttentionKernel", spills=4)) == ["spills 4 bytes"]


def test_what_a_launcher_does_not_use_is_not_judged():
    assert problems(kernel(stack=16, spills=8, fact=check.Fact(128, 0, 0))) == []


def test_missing_instructions():
    wrong = Counter({"HMMA.16816.F32": 8, "LDSM.16.M88.4": 4, "LDSM.16.MT88.4": 4, "MUFU.EX2": 4})
    assert problems(kernel(opcodes=wrong)) == [r"no HMMA\.16816\.F32\.BF16$",
                                               r"no LDGSTS\.E\.BYPASS\.128"]


def test_registers_fit_the_multiprocessor():
    assert problems(kernel(registers=255)) == []
    fact = check.Fact(256, 1024, 2)
    assert problems(kernel(registers=129, fact=fact)) == ["2 x 256 threads need 69632 registers"]
    assert problems(kernel(registers=128, fact=fact)) == []


@pytest.mark.parametrize("arch, limit", [("sm_80", 166912), ("sm_89", 101376), ("sm_90a", 232448)])
def test_shared_memory_fits_the_architecture(arch, limit):
    assert problems(kernel(arch=arch, fact=check.Fact(128, limit - 128, 1), shared=128)) == []
    over = problems(kernel(arch=arch, fact=check.Fact(128, limit, 1), shared=128))
    assert over[0] == f"{limit + 128} bytes of shared memory, more than a block's {limit}"
    two = problems(kernel(arch=arch, fact=check.Fact(128, limit // 2 + 1024, 2)))
    assert two == ["2 blocks do not fit the shared memory of a multiprocessor"]


def test_kernels_are_counted():
    found = list(check.check([kernel("RopeKernel", arch=a, fact=check.Fact(64, 0, 1))
                              for a in budgets.ARCHITECTURES[1:]]))
    assert "RopeKernel sm_80: 0 kernels, expected 1" in found
    assert not any("RopeKernel sm_89" in problem for problem in found)
    assert list(check.check([kernel("NewKernel")]))[0] == (
        "NewKernel: budgets.py knows no such kernel")


def test_every_architecture_has_limits():
    assert set(budgets.BLOCK_SHARED) == set(budgets.ARCHITECTURES)


def test_facts():
    assert check.parse_facts("A<B, 1>\tsm_80\t128\t99\t2\n") == {
        ("A<B, 1>", "sm_80"): check.Fact(128, 99, 2)}


@pytest.mark.parametrize("markdown", [False, True])
def test_table(markdown):
    opcodes = Counter({"HMMA.16816.F32.BF16": 8})
    kernels = [kernel(arch=a, registers=r, opcodes=opcodes)
               for a, r in zip(budgets.ARCHITECTURES, (250, 251, 252, 253))]
    line = check.table(kernels, markdown)[-1]
    cells = [c.strip() for c in (line.strip("| ").split("|") if markdown else line.split("  ")) if c]
    assert cells == [("`GqaKernel<BF16, 64, 64, decode>`" if markdown
                      else "GqaKernel<BF16, 64, 64, decode>"),
                     "128", "250/251/252/253", "0", "0", "64.0", "8"]
