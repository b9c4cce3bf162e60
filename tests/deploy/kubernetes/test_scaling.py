"""deploy/SCALING.md against what it is computed from, and the simulated rings against what they promise."""

import re
import shlex
import subprocess

import pytest
import ring_simulation
import scaling_figures
from chart import ROOT

PAGE = ROOT / "deploy/SCALING.md"


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text()


@pytest.mark.parametrize("name", ring_simulation.TABLES)
def test_the_tables_of_rings_are_what_the_simulation_gives(name, page):
    assert ring_simulation.TABLES[name]() in page


@pytest.mark.parametrize("name", scaling_figures.TABLES)
def test_the_tables_of_servers_and_of_the_wire_are_what_the_planner_gives(name, page, attnctl):
    assert scaling_figures.TABLES[name](scaling_figures.Planner(str(attnctl))) in page


def test_the_planners_output_is_its_output(page, attnctl):
    blocks = re.findall(r"^```\n\$ attnctl (.*)\n((?:.*\n)*?)```$", page, re.M)
    assert blocks
    for arguments, shown in blocks:
        printed = subprocess.run([attnctl, *shlex.split(arguments)], text=True, capture_output=True, check=True).stdout
        assert shown.rstrip() == printed.rstrip(), arguments


def test_rows_are_as_wide_as_the_models_are():
    source = (ROOT / "core/model_config.cc").read_text()
    for model, width in scaling_figures.D_MODEL.items():
        assert re.search(rf"\b{model}\.d_model = {width};", source), model


def test_what_was_measured_is_said_with_the_figures_that_are_used(page):
    assert f"{1e6 * scaling_figures.CALL:.0f} µs" in page
    assert f"{1e3 * scaling_figures.PREFILL_MIB:.1f} ms for 1 MiB" in page
    assert f"{scaling_figures.WIRE_RATE / 1e9:.1f} GB/s" in page


def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (PAGE.parent / target).exists(), target


@pytest.mark.parametrize("servers", [1, 3, 8])
def test_a_ring_with_points_of_its_own_moves_no_key_between_old_servers(servers):
    envoy, haproxy, envoy_default, _, haproxy_default = ring_simulation.RINGS
    assert ring_simulation.moved_between_old(envoy, servers) == 0
    assert ring_simulation.moved_between_old(haproxy, servers) == 0
    # With one server before there is no other old one to go to.
    assert (ring_simulation.moved_between_old(envoy_default, servers) > 0) == (servers > 1)
    assert (ring_simulation.moved_between_old(haproxy_default, servers) > 0) == (servers > 1)


@pytest.mark.parametrize("servers", [1, 3, 8])
def test_a_server_more_takes_its_share_of_the_keys(servers):
    for ring in ring_simulation.RINGS[:2]:
        for share in ring_simulation.moved_shares(ring, servers):
            # 1,024 points a server: their share of the ring is off by some 3 %, and 20,000 keys by about as much.
            assert share == pytest.approx(1 / (servers + 1), rel=0.15)
