#!/usr/bin/env python3
"""Compiles a kernel that uses all of kernels/cuda/device.cuh for every architecture, warnings being
errors, and looks for the instructions that each function stands for.

Usage: ptx.py NVCC, from the root of the repository.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "tests/cuda_emulation/every_instruction.cu"
ARCHITECTURES = ("80", "89", "90a", "100a")
# Once for each of the two kernels, of bf16 and of f16, unless it says otherwise.
INSTRUCTIONS = {
    r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32": 1,
    r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32": 1,
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16": 2,
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16": 2,
    r"cp\.async\.cg\.shared\.global \[%r\d+\], \[%rd\d+\], 16, %r\d+": 2,
    r"cp\.async\.commit_group": 4,
    r"cp\.async\.wait_group 1;": 2,
    r"cp\.async\.wait_group 0;": 2,
    r"bar\.sync": 2,
    r"bar\.warp\.sync": 2,
    r"shfl\.sync\.bfly\.b32": 2,
    r"shfl\.sync\.idx\.b32": 2,
    r"vote\.sync\.any\.pred": 2,
    r"ex2\.approx\.ftz\.f32": 2,
    r"rcp\.rn\.f32": 2,
    r"(membar\.gl|fence\.(acq_rel|sc)\.gpu)": 4,
    r"atom\.(global\.)?add\.u32": 2,
    r"ld\.global\.cg\.u32": 2,
    r"st\.shared\.(f32|b32)": 2,  # a plain store, and known to be to shared memory
    r"ld\.shared\.(f32|b32)": 2,
}


def compile_ptx(nvcc, architecture, out):
    subprocess.run([nvcc, "-std=c++20", f"-arch=compute_{architecture}", "-Werror", "all-warnings",
                    "-Xcompiler=-Wall,-Wextra", "-I.", "-Itests", "-ptx", "-o", out, SOURCE],
                   cwd=ROOT, check=True)
    return pathlib.Path(out).read_text()


def assemble(nvcc, architecture, ptx, out):
    """Assembles it and gives what ptxas says of registers and spills."""
    done = subprocess.run([nvcc, f"-arch=sm_{architecture}", "-Xptxas=-v,-warn-spills", "-cubin",
                           "-o", out, ptx], check=True, text=True, capture_output=True)
    return done.stdout + done.stderr


def main():
    nvcc = sys.argv[1]
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        for architecture in ARCHITECTURES:
            ptx = f"{directory}/{architecture}.ptx"
            text = compile_ptx(nvcc, architecture, ptx)
            for pattern, least in INSTRUCTIONS.items():
                found = len(re.findall(pattern, text))
                if found < least:
                    print(f"sm_{architecture}: {pattern} {found} times, not {least}")
                    bad += 1
            spills = re.findall(r"(\d+) bytes spill", assemble(nvcc, architecture, ptx,
                                                               f"{directory}/cubin"))
            if len(spills) != 4 or any(int(count) for count in spills):
                print(f"sm_{architecture}: spills {spills}, expected of two kernels none")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
