"""Instructions of compiled kernels, as cuobjdump -sass prints them."""

import re
from collections import Counter

_ARCH = re.compile(r"^arch = (sm_\w+)")
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
# /*0060*/ [@!P0] LDG.E.64 R234, ... ;
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


def parse(text):
    """{(function, arch): Counter of opcodes with their modifiers}."""
    kernels = {}
    arch = current = None
    for line in text.splitlines():
        if match := _ARCH.match(line):
            arch, current = match[1], None
        elif match := _FUNCTION.match(line):
            current = kernels.setdefault((match[1], arch), Counter())
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current[match[1]] += 1
    return kernels


def count(opcodes, pattern):
    """How many instructions begin with `pattern`, a regular expression."""
    return sum(n for opcode, n in opcodes.items() if re.match(pattern, opcode))
