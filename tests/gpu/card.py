"""The first card that the driver sees, through libcuda: no toolkit is needed for that."""

import ctypes
from typing import NamedTuple

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76


class Card(NamedTuple):
    name: str
    architecture: int  # 80, 89, 90 ...


class NoCard(Exception):
    """Why there is none, in a line."""


def find(load=ctypes.CDLL):
    """The card, or NoCard."""
    try:
        cuda = load("libcuda.so.1")
    except OSError as error:
        raise NoCard(f"no CUDA driver: {error}") from None

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            raise NoCard(f"no CUDA device: {name} returns {status}")

    call("cuInit", 0)
    count = ctypes.c_int(0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise NoCard("no CUDA device: the driver sees none")
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, len(name), 0)
    version = []
    for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR):
        value = ctypes.c_int(0)
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, 0)
        version.append(value.value)
    card = Card(name.value.decode(), 10 * version[0] + version[1])
    if card.architecture < 80:
        raise NoCard(f"{card.name} is sm_{card.architecture}; the kernels need sm_80 or later")
    return card


def arch_option(architecture):
    """As CMAKE_CUDA_ARCHITECTURES has it: sm_90 and sm_100 with their own instructions."""
    return f"{architecture}{'a' if architecture in (90, 100) else ''}-real"
