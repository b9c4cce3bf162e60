"""The steps of tests/gpu/check and the time that each may take."""

from typing import NamedTuple

TOTAL_SECONDS = 8 * 60


class Step(NamedTuple):
    name: str
    seconds: int  # its limit; a step that runs into it is stopped, and the next begins
    what: str
    needed: bool = False  # nothing can follow without it


STEPS = (
    Step("golden", 10, "the golden cases as plain files (flatten.py)"),
    Step("configure", 30, "CMake, for the card's own architecture", True),
    Step("build", 150, "nvcc and the C++ compiler, all cores", True),
    Step("memcheck", 45, "a small set of checks under compute-sanitizer's memcheck"),
    Step("racecheck", 40, "a tiny set under its racecheck"),
    Step("kernels", 60, "every kernel against float64, all shapes"),
    Step("layers", 40, "the golden cases through whole layers"),
    Step("bench", 75, "the benchmark against the card's own ceilings"),
    Step("peers", 25, "PyTorch's attention beside, where Python has torch"),
)


def text(build, arch):
    """The plan, a line for each step."""
    lines = [f"in {build}, for {arch}:"]
    lines += [f"  {step.name:10} {step.seconds:4} s  {step.what}" for step in STEPS]
    lines.append(f"  {'together':10} {sum(step.seconds for step in STEPS):4} s  "
                 f"of {TOTAL_SECONDS} s at most")
    return "\n".join(lines)
