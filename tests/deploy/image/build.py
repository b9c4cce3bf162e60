"""Makes the base with mmdebstrap and the images with buildah, all in one directory."""

import collections
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

from .failure import Failure

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE = "localhost/attnd-base"
TOOLKIT = "localhost/attnd-cuda"
IMAGE = "localhost/attnd"

# What debian:bookworm-slim leaves out of every package, now and later.
SLIM = [
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
]


def command(args, what, stdin=None):
    """Runs `args`, showing nothing; what it says when it fails."""
    done = subprocess.run(
        [str(arg) for arg in args],
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise Failure(f"{what} failed; the end of its output:\n" + done.stdout[-3000:].rstrip())
    return done.stdout


def watched(args, what):
    """Runs `args` for minutes: on a terminal its last line is shown, and is gone at the end."""
    lines = collections.deque(maxlen=40)
    process = subprocess.Popen(
        [str(arg) for arg in args],
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    for line in process.stdout:
        lines.append(line)
        if sys.stdout.isatty():
            print(f"\r\033[K{line.rstrip()[:100]}", end="", flush=True)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if process.wait() != 0:
        raise Failure(f"{what} failed; the end of its output:\n" + "".join(lines).rstrip())


def listed(path):
    """The packages that a list file names."""
    words = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return {word for word in words if word}


def install_tools():
    install = ROOT / "deploy" / "install-packages"
    command(
        [install, "/dev/stdin"], "installing buildah and mmdebstrap", stdin="buildah\nmmdebstrap\n"
    )


class Store:
    """buildah's images and working containers, under one directory."""

    def __init__(self, directory):
        self.directory = directory
        # vfs copies whole layers, and needs nothing of the kernel.
        places = ["--root", directory / "store", "--runroot", directory / "run"]
        self.buildah = ["buildah", *places, "--storage-driver", "vfs"]

    def run(self, *args):
        return command([*self.buildah, *args], f"buildah {args[0]}")

    def has(self, image):
        names = json.loads(self.run("images", "--json"))
        return any(f"{image}:latest" in (row["names"] or []) for row in names)

    def bud(self, image, context, *args):
        # Of the formats only docker's has health checks.
        how = [
            "--isolation=chroot",
            "--network=host",
            "--format=docker",
            "--layers",
            "--pull-never",
        ]
        watched([*self.buildah, "bud", *how, "--tag", image, *args, context], "buildah bud")

    def config(self, image):
        return json.loads(self.run("inspect", "--type", "image", image))["Docker"]["config"]

    @contextlib.contextmanager
    def mounted(self, image):
        """The image's root file system, in a container that is removed at the end."""
        container = self.run("from", "--pull-never", image).strip().splitlines()[-1]
        try:
            yield pathlib.Path(self.run("mount", container).strip())
        finally:
            self.run("rm", container)

    def bytes_above_base(self, image):
        """The size of the uncompressed layers that the image does not share with the base."""
        layers = []
        for name in (BASE, image):
            out = self.directory / "layers"
            shutil.rmtree(out, ignore_errors=True)
            self.run("push", "--disable-compression", name, f"dir:{out}")
            manifest = json.loads((out / "manifest.json").read_text())
            layers.append([(layer["digest"], layer["size"]) for layer in manifest["layers"]])
            shutil.rmtree(out)
        base, mine = layers
        if mine[: len(base)] != base:
            raise Failure("the image's first layers are not those of the base")
        return sum(size for _, size in mine[len(base) :])


def package_sources():
    """This machine's own, whatever they are."""
    folder = pathlib.Path("/etc/apt")
    files = [
        folder / "sources.list",
        *sorted(folder.glob("sources.list.d/*.list")),
        *sorted(folder.glob("sources.list.d/*.sources")),
    ]
    return "\n".join(path.read_text() for path in files if path.exists())


def make_base(store):
    if store.has(BASE):
        return
    context = store.directory / "base"
    context.mkdir(exist_ok=True)
    how = ["--quiet", "--variant=minbase", *SLIM]
    make = ["mmdebstrap", *how, "bookworm", context / "base.tar", "-"]
    command(make, "mmdebstrap", stdin=package_sources())
    # How apt reaches those sources from inside.
    proxies = [
        path
        for path in pathlib.Path("/etc/apt").glob("**/*")
        if path.is_file() and ("proxy" in path.name or path.name == "apt.conf")
    ]
    for path in proxies:
        shutil.copy(path, context)
    copies = "".join(f"COPY {path.name} /etc/apt/apt.conf.d/\n" for path in proxies)
    (context / "Dockerfile").write_text(f'FROM scratch\nADD base.tar /\n{copies}CMD ["bash"]\n')
    store.bud(BASE, context)
    shutil.rmtree(context)


def make_toolkit(store):
    if store.has(TOOLKIT):
        return
    toolkit = pathlib.Path("/usr/local/cuda").resolve()
    if not (toolkit / "bin" / "nvcc").exists():
        raise Failure("--target cuda needs nvcc in /usr/local/cuda")
    dockerfile = store.directory / "toolkit.Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY . /usr/local/cuda\n")
    store.bud(TOOLKIT, toolkit, "--file", dockerfile)


def build_image(store, target, architectures):
    version = re.search(r"project\(attnd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    values = {
        "BASE_IMAGE": BASE,
        "CUDA_DEVEL_IMAGE": TOOLKIT,
        "CUDA_BASE_IMAGE": TOOLKIT,
        "CUDA_ARCHITECTURES": architectures,
        "VERSION": version[1],
        "REVISION": command(["git", "-C", ROOT, "rev-parse", "HEAD"], "git rev-parse").strip(),
    }
    options = [
        word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")
    ]
    store.bud(IMAGE, ROOT, "--target", target, *options)
