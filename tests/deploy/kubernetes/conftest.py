"""Every test named `rendered` runs for each set of values."""

import functools
import os
import pathlib

import pytest
from chart import render
from values import CASES

BUILD = pathlib.Path(os.environ.get("ATTND_BUILD", "build"))


@functools.cache
def of_case(name):
    return render(CASES[name])


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "_"))
def rendered(request):
    return of_case(request.param)


@pytest.fixture(scope="session")
def attnd():
    return BUILD / "bin/attnd"


@pytest.fixture(scope="session")
def attnctl():
    return BUILD / "bin/attnctl"
