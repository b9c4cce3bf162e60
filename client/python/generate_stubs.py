#!/usr/bin/env python3
"""Generates the Python stubs of attnd.proto into attnd/_proto, for use from the source tree.

`pip install` does the same while it builds. Takes grpc_tools when that is installed, else the
system's protoc with grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc).

The stubs are moved from attnd/v1 to attnd/_proto, because a Python package that is itself
called attnd hides the generated one; the descriptor keeps its wire name.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = "attnd/v1/attnd.proto"
OUTPUTS = ("__init__.py", "attnd_pb2.py", "attnd_pb2.pyi", "attnd_pb2_grpc.py")


def find_proto_root():
    """The folder that PROTO is relative to: in a source archive, or else in the repository."""
    roots = (HERE / "proto", HERE.parent.parent / "proto")
    for root in roots:
        if (root / PROTO).is_file():
            return root
    raise FileNotFoundError(f"{PROTO} is neither under {roots[0]} nor under {roots[1]}")


def _compiler(tool):
    if tool in ("auto", "grpc_tools") and importlib.util.find_spec("grpc_tools"):
        import grpc_tools

        well_known = Path(grpc_tools.__file__).parent / "_proto"
        return [sys.executable, "-m", "grpc_tools.protoc", f"-I{well_known}"]
    protoc, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
    if tool in ("auto", "protoc") and protoc and plugin:
        return [protoc, f"--plugin=protoc-gen-grpc_python={plugin}"]
    raise RuntimeError(
        f"no compiler for {PROTO} (tool: {tool}): install grpcio-tools with pip, or protoc and "
        "grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc)"
    )


def generate(out, tool="auto"):
    """Writes OUTPUTS into the folder `out`; `tool` is auto, grpc_tools or protoc."""
    root = find_proto_root()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"--{kind}_out={scratch}" for kind in ("python", "pyi", "grpc_python")]
        subprocess.run([*_compiler(tool), f"-I{root}", *outputs, PROTO], check=True)
        made = Path(scratch) / "attnd" / "v1"
        for name in OUTPUTS[1:]:
            text = (made / name).read_text()
            text = text.replace("from attnd.v1 import", "from attnd._proto import")
            (out / name).write_text(text)
    (out / OUTPUTS[0]).write_text('"""Generated from attnd.proto; not to be edited."""\n')


def is_stale(out):
    """Whether a file of `out` is missing or older than the .proto or this script."""
    newest = max((find_proto_root() / PROTO).stat().st_mtime, Path(__file__).stat().st_mtime)
    made = [Path(out) / name for name in OUTPUTS]
    return not all(path.is_file() and path.stat().st_mtime >= newest for path in made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE / "attnd" / "_proto", help="folder for the stubs")
    parser.add_argument("--tool", default="auto", choices=("auto", "grpc_tools", "protoc"))
    arguments = parser.parse_args()
    generate(arguments.out, arguments.tool)


if __name__ == "__main__":
    main()
