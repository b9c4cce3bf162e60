"""What the status page shows of a server under load, and of one that ends."""

import os
import pathlib
import re
import time

import attnd
import figures
import numpy as np
import pytest
from load import FLAGS, Load
from soak_harness.exposition import Exposition
from support.server_process import ServerProcess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "status-page"
SECONDS = float(os.environ.get("ATTND_PAGE_SECONDS", "6"))


@pytest.fixture(scope="module")
def loaded():
    """A server under load, and the load."""
    server = ServerProcess(*FLAGS)
    load = Load(server.address)
    yield server, load
    load.stop()
    server.stop()


def picture(page, name, whole=True):
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / name).write_bytes(page.picture(whole))


def test_its_figures_are_those_of_metrics_while_there_is_load(loaded, open_page):
    server, load = loaded
    page = open_page(server)
    for more in (3, SECONDS):
        polls = page.evaluate("+main.dataset.polls") + more
        page.until(f"+main.dataset.polls >= {polls}", 60 + more)
        snapshot = page.evaluate(figures.SNAPSHOT)
        answer = page.answers("/metrics")
        kept = range(snapshot["polls"] - len(snapshot["at"]), snapshot["polls"])
        scrapes = [Exposition(answer(i)) for i in kept]
        figures.check_gauges(snapshot["figures"], scrapes[-1])
        figures.check_rates(snapshot, scrapes, len(load.model.layers))
    # It was no idle server that it showed.
    assert figures.shown(snapshot["figures"]["tokens_rate"]) > 0
    assert {"Decode", "Prefill", "Steps.Decode", "CreateSession"} <= set(snapshot["latency"])
    assert figures.shown(snapshot["refused"]["CACHE_FULL"][1]) > 0
    assert figures.shown(snapshot["figures"]["cache-chart-held"]) > 0
    # Rows of a method move on, and none is there twice.
    assert page.evaluate("document.querySelectorAll('#latency tbody tr').length") == len(snapshot["latency"])
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        picture(page, f"{scheme}.png")
    page.resize(1280, 1640)
    page.until("Math.abs(cacheChart.width - cacheChart.root.clientWidth) < 1")
    picture(page, "readme.png", whole=False)


def test_it_asks_its_server_alone_and_has_nothing_to_complain_of(loaded, open_page):
    server, _ = loaded
    page = open_page(server, polls=3)
    origin = f"http://{server.ready['http']}"
    asked = page.asked()
    assert asked[0] == f"{origin}/"
    foreign = [one for one in asked if not one.startswith("data:")]
    assert set(foreign) == {f"{origin}/", f"{origin}/metrics", f"{origin}/status.json"}
    assert page.complaints() == []


def test_nothing_but_its_own_script_runs_in_it(loaded, open_page):
    page = open_page(loaded[0])
    page.evaluate(
        """(() => {
          const script = document.createElement('script');
          script.textContent = 'window.intruder = true';
          document.body.append(script);
          document.body.insertAdjacentHTML('beforeend', '<img src="x" onerror="window.intruder = true">');
        })()"""
    )
    refused = page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    page.until("+main.dataset.polls >= 4")
    assert page.evaluate("window.intruder === undefined")
    violations = " ".join(page.complaints())
    for directive in ("script-src", "connect-src", "img-src"):
        assert directive in violations


def test_its_sessions_are_those_of_the_server(start, open_page):
    server = start()
    with attnd.Client(server.address, affinity_key="</td><script>alert(1)</script>") as client:
        model = client.model()
        for i in range(53):
            client.create_session(session_id=f"s-{i}")
        used = [client.get_session(f"s-{i}") for i in (7, 20, 3)]
        hidden = np.full((700, model.d_model), 0.5, np.float32)
        for n, session in enumerate(used):
            for layer in range(len(model.layers) - n):
                session.prefill(layer, hidden[: 700 - 100 * n], output_rows="none")
        page = open_page(server)
        page.until("table.sessions.length > 0")
        names = page.evaluate("[...document.querySelectorAll('.name')].map((one) => one.textContent)")
        assert len(names) == 50
        assert names[:3] == ["s-3", "s-20", "s-7"], "the one used last is first"
        assert page.evaluate("document.getElementById('sessions-note').textContent").startswith(
            "The 50 used last of 53."
        )
        page.evaluate("document.querySelector('th.length button').click()")
        assert page.evaluate("document.querySelector('th.length').getAttribute('aria-sort')") == "descending"
        names = page.evaluate("[...document.querySelectorAll('.name')].map((one) => one.textContent)")
        assert names[:3] == ["s-7", "s-20", "s-3"]
        page.evaluate("document.querySelectorAll('.name')[1].click()")
        lengths = page.evaluate(
            "[...document.querySelectorAll('.more:not([hidden]) .lengths li')].map((one) => one.textContent)"
        )
        info = client.get_session("s-20").info()
        assert [int(text.split()[-1].replace(",", "")) for text in lengths] == list(info.layer_lengths)
        assert [text.split()[1] for text in lengths] == list("LLLLLGLLLLLG")
        key = page.evaluate("document.querySelector('tbody .key').textContent")
        assert key == "</td><script>alert(1)</script>"
        assert page.evaluate("document.querySelectorAll('td script').length") == 0
        # A bar a layer, and on a local layer the part that the next token sees is the window.
        seen = page.evaluate(
            "[...document.querySelectorAll('tbody')].find((one) => one.textContent.startsWith('s-7'))"
            ".querySelectorAll('.seen').length"
        )
        assert seen == len(model.layers)
        assert page.complaints() == []


def test_the_strip_has_every_layer_with_its_window(loaded, open_page):
    server, load = loaded
    page = open_page(server)
    strip = page.evaluate(
        "[...document.querySelectorAll('#layers li')]"
        ".map((one) => [...one.children].map((part) => part.textContent.trim()))"
    )
    expected = []
    for layer, kind in enumerate(load.model.layers):
        local = "LOCAL" in str(kind).upper()
        window = f"{load.model.local_window:,}" if local else "all"
        expected.append([str(layer), "", "L" if local else "G", window])
    assert strip == expected
    titles = page.evaluate("[...document.querySelectorAll('#layers li')].map((one) => one.title)")
    assert titles[0] == "Layer 0: a token sees a window of 512 tokens"
    assert titles[5] == "Layer 5: a token sees all tokens before"


def test_flags_and_build_are_shown(start, open_page, tmp_path):
    tokens = tmp_path / "the-tokens"
    tokens.write_text("acme very-secret-token\n")
    server = start(f"--auth_tokens_file={tokens}", "--max_rewind=77")
    metadata = [("authorization", "Bearer very-secret-token")]
    with attnd.Client(server.address, metadata=metadata, affinity_key="worker-1") as client:
        client.create_session(session_id="a-secret-session")
        page = open_page(server, polls=3)
        page.until("table.sessions.length > 0")
        flags = page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('#flags > div')].map((one) =>"
            " [one.children[0].textContent, [one.children[1].textContent, one.className]]))"
        )
        assert flags["--max_rewind"] == ["77", "given"]
        assert flags["--idle_ttl"] == ["10m", ""]
        assert flags["--auth_tokens_file"] == ["set", "given"]
        build = page.evaluate("document.getElementById('build').textContent")
        assert client.model().fingerprint in build and client.model().device in build
        text = page.evaluate("document.documentElement.outerHTML")
        for secret in ("very-secret-token", "the-tokens", "a-secret-session", "acme", "worker-1"):
            assert secret not in text
        assert page.evaluate("document.querySelector('.name').textContent") == "not named here"


def test_everything_is_reached_and_worked_by_keys(loaded, open_page):
    page = open_page(loaded[0])
    page.until("table.sessions.length > 0")
    reached = []
    while len(reached) < 100:
        page.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # through the whole page
        reached.append(
            page.evaluate(
                "(() => { const one = document.activeElement;"
                " const name = one.id || one.className.baseVal || one.className || one.getAttribute('href');"
                " return [name, getComputedStyle(one).outlineStyle, one.textContent]; })()"
            )
        )
    names = [name for name, _, _ in reached]
    assert names[0] == "skip"
    for name in ("pause", "theme", "metrics", "chart", "scroll", "sort", "name"):
        assert name in names, f"{name} is not reached: {names}"
    assert [one for one in reached if one[1] == "none"] == [], "what has the focus shows it"
    page.evaluate("document.querySelector('th.cache button').focus()")
    page.press("Enter")
    assert page.evaluate("document.querySelector('th.cache').getAttribute('aria-sort')") == "descending"
    page.evaluate("document.querySelector('.name').focus()")
    session = page.evaluate("document.activeElement.textContent")
    page.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    # The focus stays where it is while figures come in.
    page.until(f"+main.dataset.polls >= {page.evaluate('+main.dataset.polls') + 2}")
    assert page.evaluate("document.activeElement.textContent") == session
    page.evaluate("document.querySelector('#cache-chart svg').focus()")
    page.press("ArrowLeft")
    assert "ago" in page.evaluate("document.querySelector('#cache-chart .when').textContent")
    label = page.evaluate("document.querySelector('#cache-chart svg').getAttribute('aria-label')")
    assert re.match(r"Cache by kind, \d+ seconds ago: global .* reserved", label)
    page.press("Escape")
    assert page.evaluate("document.querySelector('#cache-chart .when').textContent") == ""


# The least contrast of texts with what is behind them, by WCAG's formula.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (data) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => {
    const c = data[i] / 255; return sum + part * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); }, 0);
  const behind = (node) => {
    let colours = [];
    for (; node; node = node.parentElement) colours.unshift(getComputedStyle(node).backgroundColor);
    return colours.reduce((under, colour) => { const d = rgb(colour, under); return `rgb(${d[0]},${d[1]},${d[2]})`; }, 'white');
  };
  let least = [99, ''];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || ['SCRIPT', 'STYLE'].includes(node.tagName) || node.matches('.skip, svg *')) continue;
    const under = behind(node);
    const a = light(rgb(getComputedStyle(node).color, under)), b = light(rgb(under, under));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < least[0]) least = [contrast, `${node.tagName}.${node.className} ${node.textContent.slice(0, 40)}`];
  }
  return [...least, light(rgb(getComputedStyle(document.body).backgroundColor, 'white'))];
})()"""


def test_it_is_dark_or_light_as_the_reader_has_it(loaded, open_page):
    page = open_page(loaded[0])
    page.until("table.sessions.length > 0")
    for scheme, dark in (("light", False), ("dark", True)):
        page.prefer(scheme)
        for state in ("starting", "draining", "refusing", "unreachable", "ready"):
            contrast, where, ground = page.evaluate(f"showState('{state}', 0), {CONTRAST}")
            assert contrast >= 4.5, f"{scheme}, {state}: {where}"
            assert (ground < 0.05) is dark
    press = "document.getElementById('theme').click()"
    themes = []
    for _ in range(3):
        page.evaluate(press)
        label = page.evaluate("document.getElementById('theme').textContent")
        themes.append([label, page.evaluate(CONTRAST)[2] < 0.05])
    assert themes == [["Theme: dark", True], ["Theme: light", False], ["Theme: system", True]]
    page.evaluate(f"{press}, {press}")
    page.call("Page.reload")
    page.until("document.getElementById('theme').textContent === 'Theme: light'")
    page.evaluate(press)


def test_it_fits_narrow_and_wide_windows(loaded, open_page):
    page = open_page(loaded[0])
    page.until("table.sessions.length > 0")
    for width in (400, 620, 861, 1080, 1440, 2000):
        page.resize(width, 900)
        page.until(f"innerWidth === {width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width in (400, 2000):
            page.until("Math.abs(cacheChart.width - cacheChart.root.clientWidth) < 1")
            picture(page, f"width-{width}.png")


def test_nobody_is_asked_while_nobody_looks(loaded, open_page):
    page = open_page(loaded[0])
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s})"
    page.evaluate(hide % "true")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.until("timer === null")
    time.sleep(0.3)  # what was under way
    before = len(page.asked())
    time.sleep(2.2)
    assert len(page.asked()) == before
    page.evaluate(hide % "false")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.until(f"+main.dataset.polls >= {page.evaluate('+main.dataset.polls') + 2}")
    page.evaluate("document.getElementById('pause').click()")
    time.sleep(0.3)
    before = len(page.asked())
    time.sleep(1.5)
    assert len(page.asked()) == before
    assert page.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"


def test_it_asks_once_a_second_however_often_it_is_paused(loaded, open_page):
    page = open_page(loaded[0])
    # A request is under way for half a second, and is met there by every toggle.
    page.evaluate(
        """(() => {
          const real = window.fetch;
          window.under_way = 0;
          window.fetch = async (...all) => {
            window.under_way++;
            await new Promise((done) => setTimeout(done, 500));
            return real(...all).finally(() => window.under_way--);
          };
        })()"""
    )
    for toggle in (
        "document.dispatchEvent(new Event('visibilitychange'))",
        "document.getElementById('pause').click(), document.getElementById('pause').click()",
    ):
        for _ in range(3):
            page.until("window.under_way > 0")
            page.evaluate(toggle)
            page.until("window.under_way === 0")
    before = page.evaluate("+main.dataset.polls")
    time.sleep(4)
    assert 2 <= page.evaluate("+main.dataset.polls") - before <= 5


def test_draining_and_the_servers_end_are_shown(start, open_page):
    server = start("--model=builtin:apex1-tiny", "--drain_seconds=0")
    page = open_page(server)
    state = "document.getElementById('state-name').textContent"
    assert page.evaluate(state) == "Ready"
    assert page.evaluate("document.title") == "attnd"
    with attnd.Client(server.address) as client:
        client.drain()
    page.until(f"{state} === 'Draining'", 10)
    assert page.evaluate("document.getElementById('lost').hidden")
    assert page.complaints() == []
    http, grpc = server.ready["http"], server.ready["grpc"]
    assert server.finish(20) == 0
    page.until(f"{state} === 'Unreachable'", 10)
    lost = page.evaluate("document.getElementById('lost').textContent")
    assert re.match(r"The server does not answer since .*; the figures below are of then", lost)
    assert page.evaluate("document.title") == "Unreachable – attnd"
    assert page.evaluate("getComputedStyle(main).opacity") < "1"
    picture(page, "unreachable.png")
    # Another server in its place is shown from its own beginning.
    again = start("--model=builtin:apex1-tiny", f"--http={http}", f"--listen={grpc}")
    page.until(f"{state} === 'Ready'", 20)
    assert page.evaluate("document.getElementById('lost').hidden")
    assert page.evaluate("recent.samples.length") <= 3
    figures.check_gauges(page.evaluate(figures.SNAPSHOT)["figures"], figures.scrape(again.ready["http"]))


def test_at_rest_its_figures_are_those_that_anybody_scrapes(start, open_page):
    server = start()
    load = Load(server.address, sessions=4)
    page = open_page(server, polls=3)
    load.stop()
    page.until(f"+main.dataset.polls >= {page.evaluate('+main.dataset.polls') + 2}")
    figures.check_gauges(page.evaluate(figures.SNAPSHOT)["figures"], figures.scrape(server.ready["http"]))


def test_the_picture_in_the_readme_is_small():
    picture = (ROOT / "deploy" / "status-page.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) <= 300 << 10
    assert "deploy/status-page.png" in (ROOT / "README.md").read_text()
