"""The Dockerfile, and the packages that its images have."""

import os
import pathlib
import re
import subprocess


def test_hadolint_finds_nothing(root):
    done = subprocess.run(
        [os.environ["HADOLINT"], root / "Dockerfile"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_image_has_the_packages_of_the_libraries_that_the_programs_name(root, attnd):
    names = set()
    for program in (pathlib.Path(attnd), pathlib.Path(attnd).with_name("attnctl")):
        dynamic = subprocess.run(
            ["readelf", "--dynamic", program], capture_output=True, text=True, check=True
        )
        names |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic.stdout))
    loader = subprocess.run(
        ["/sbin/ldconfig", "--print-cache"], capture_output=True, text=True, check=True
    )
    paths = dict(reversed(re.findall(r"^\t(\S+) .*x86-64.* => (\S+)$", loader.stdout, re.M)))
    listed = {
        line
        for line in (root / "deploy/runtime-packages.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    assert {owner(paths[name]) for name in names - {"ld-linux-x86-64.so.2"}} == listed


def owner(path):
    """The Debian package of a file; dpkg may know it with or without /usr."""
    real = os.path.realpath(path)
    for name in (real, real.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "--search", name], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.partition(":")[0]
    raise AssertionError(f"{real} is of no package")
