"""What an image must have, must not have, and must do."""

import re
import subprocess
import time

from .build import ROOT, listed
from .failure import Failure

LABELS = ("title", "description", "licenses", "version", "revision", "base.name")
BUILD_TOOLS = re.compile(
    r"(.*-)?(as|c\+\+|cc|clang|cmake|cpp|g\+\+|gcc|git|ld|make|ninja|nvcc|protoc)(-\d+)?"
)


def expect(condition, complaint):
    if not condition:
        raise Failure(complaint)


def config(image):
    """User, labels, ports, entry point."""
    expect(
        re.fullmatch(r"[1-9]\d*:[1-9]\d*", image["User"]),
        f"the user is {image['User']!r}, not two numbers above 0",
    )
    expect(image["Entrypoint"][0] == "/usr/bin/attnd", f"the entry point is {image['Entrypoint']}")
    expect(
        set(image["ExposedPorts"]) == {"8470/tcp", "9470/tcp"}, f"ports: {image['ExposedPorts']}"
    )
    expect(image["StopSignal"] in ("SIGTERM", "15"), f"the stop signal is {image['StopSignal']}")
    expect(
        image["Healthcheck"]["Test"][:1] == ["CMD"], f"the health check is {image['Healthcheck']}"
    )
    for name in LABELS:
        value = image["Labels"].get(f"org.opencontainers.image.{name}")
        expect(value and value != "unknown", f"the label {name} is {value!r}")
    print(
        f"user {image['User']}, {len(LABELS)} labels, ports {', '.join(sorted(image['ExposedPorts']))}"
    )


def contents(root, image):
    """No build tools, no package lists, nothing of the user's own, stripped binaries."""
    installed = set(
        re.findall(r"^Package: (\S+)$", (root / "var/lib/dpkg/status").read_text(), re.M)
    )
    wanted = listed(ROOT / "deploy" / "runtime-packages.txt")
    left = installed & (listed(ROOT / "deploy" / "packages.txt") - wanted)
    expect(not left, f"packages for building are in the image: {', '.join(sorted(left))}")
    expect(wanted <= installed, f"not installed: {', '.join(sorted(wanted - installed))}")
    tools = [
        path
        for folder in ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/cuda/bin")
        for path in (root / folder).glob("*")
        if BUILD_TOOLS.fullmatch(path.name)
    ]
    expect(not tools, f"build tools are in the image: {tools}")
    for folder in ("var/lib/apt/lists", "var/cache/apt"):
        rest = [
            path for path in (root / folder).rglob("*") if path.is_file() and path.name != "lock"
        ]
        expect(not rest, f"apt's files are in the image: {rest[:3]}")
    uid = int(image["User"].split(":")[0])
    own = [path for path in (root / "usr").rglob("*") if path.lstat().st_uid == uid]
    expect(not own, f"the user owns files: {own[:3]}")
    for name in ("attnd", "attnctl"):
        sections = subprocess.run(
            ["readelf", "--section-headers", root / "usr/bin" / name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        expect(".text" in sections and ".symtab" not in sections, f"{name} is not stripped")
    print(f"no build tools, no package lists; {len(installed)} packages")


def serving(container, image):
    """As whom the server runs, its health check, and steps with their answers compared."""
    user, group = image["User"].split(":")
    expect(
        container.status("Uid") == [user] * 4 and container.status("Gid") == [group] * 4,
        f"the server runs as {container.status('Uid')}, {container.status('Gid')}",
    )
    expect(container.status("NSpid")[-1] == "1", "the server is not process 1")
    expect(int(container.status("CapEff")[0], 16) == 0, "the server has capabilities")
    wrote = container.run("touch", "/tmp/file")
    expect(
        wrote.returncode != 0 and "Read-only file system" in wrote.stdout,
        f"the root can be written: {wrote.stdout}",
    )
    health = container.run(*image["Healthcheck"]["Test"][1:])
    expect(health.returncode == 0, f"the health check failed: {health.stdout.strip()}")
    print(
        f"{container.ready}\nas {user}, process 1, root read-only; health check: {health.stdout.strip()}"
    )
    demo = container.run("attnctl", "demo")
    expect(demo.returncode == 0, f"attnctl demo failed:\n{demo.stdout}")
    print(demo.stdout.rstrip())


def stopping(container, image):
    """SIGTERM: unhealthy while it still serves, then exit code 0."""
    start = time.monotonic()
    container.terminate()

    def unhealthy():
        return container.run(*image["Healthcheck"]["Test"][1:]).returncode != 0

    container.wait_until("unhealthy after SIGTERM", unhealthy, 10)
    late = container.run("attnctl", "info")
    expect(container.alive() and late.returncode == 0, f"not served while draining:\n{late.stdout}")
    code = container.exit_code(60)
    expect(code == 0, f"exit code {code} after SIGTERM")
    print(
        f"SIGTERM: unhealthy at once, served on, exit code 0 after {time.monotonic() - start:.1f} s"
    )
