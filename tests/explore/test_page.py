"""The page in a browser: it fills in, moves, is usable by keyboard and stays on this machine."""

import json
import re

import pytest

SMALL = "?heads=2&tokens=3&depth=2&norm=none&activation=none&width=8"
IDLE = "state.theory?.done && state.twin?.done && !panels.some((p) => p.running)"


@pytest.fixture
def page(chromium, explorer):
    """A freshly opened page, whose answers are in."""
    chromium.events.clear()
    chromium.call("Emulation.setDeviceMetricsOverride", width=1200, height=900,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
    chromium.call("Page.navigate", url=explorer.address + SMALL)
    chromium.wait("typeof state !== 'undefined' && document.readyState === 'complete'")
    chromium.wait(IDLE)
    yield chromium
    assert chromium.troubles == []
    assert chromium.requests and all(
        url.startswith((explorer.address, "data:")) for url in chromium.requests
    )


def text(page, name):
    return page.evaluate(f"document.getElementById({name!r}).textContent")


def test_it_fills_in(page, explorer):
    assert re.match(r"2 heads: the difference .* excess kurtosis \d.* ± ", text(page, "summary"))
    assert "finite networks of width 8: variance" in text(page, "summary")
    assert "draws of all heads’ scores · answered in" in text(page, "status")
    assert "refining" not in text(page, "status")
    page.wait("$('python').textContent.includes('lf.Repeat(block, 2)')")
    assert 'type = "Repeat"' in text(page, "toml")
    page.wait("document.getElementById('live').textContent.startsWith('2 heads')")
    for plot, least in (("density", 3), ("depth-plot", 4), ("cloud", 3)):
        assert page.evaluate(f"document.querySelectorAll('#{plot} path').length") >= least
        assert "NaN" not in page.evaluate(f"document.getElementById('{plot}').innerHTML")
    assert page.evaluate("document.getElementById('kernel').width") == 3
    assert page.evaluate("document.querySelectorAll('#through li').length") == 3
    label = page.evaluate("document.getElementById('kernel').getAttribute('aria-label')")
    assert label.startswith("Token kernel of 3 tokens; first row: ")


def test_the_heat_map_shows_the_kernel(page):
    """A pixel of a larger entry is further from the colour of zero."""
    page.evaluate("drawHeat($('bar'), [[0, 0.5, 1, -1]], palette())")
    data = page.evaluate("[...$('bar').getContext('2d').getImageData(0, 0, 4, 1).data]")
    pixels = [data[i : i + 3] for i in range(0, 16, 4)]
    far = [sum(abs(a - b) for a, b in zip(p, pixels[0], strict=True)) for p in pixels]
    assert 0 == far[0] < far[1] < far[2]
    assert pixels[3] != pixels[2]


@pytest.mark.parametrize(
    ("low", "high", "found"), [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (-3, 3, [-2, 0, 2])]
)
def test_ticks_are_round(page, low, high, found):
    shown = page.evaluate(
        f"ticks({low}, {high}, {5 if high == 1 else 3}).map((v) => +v.toFixed(9))"
    )
    assert shown == found


def test_keys_move_a_slider_and_everything_follows(page, explorer):
    before = text(page, "summary")
    page.evaluate("document.getElementById('depth').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    page.wait(f"state.query.includes('depth=5') && {IDLE}")
    page.wait("location.search.includes('depth=5')")
    assert text(page, "depth-value") == "5"
    assert "in 5 blocks" in text(page, "summary") != before
    page.wait("$('python').textContent.includes('lf.Repeat(block, 5)')")
    link = page.evaluate("document.getElementById('permalink').value")
    assert link.startswith(explorer.address + "?") and "depth=5" in link
    page.evaluate("document.getElementById('heads').focus()")
    page.press("End")
    page.wait(f"state.query.includes('heads=inf') && {IDLE}")
    assert text(page, "heads-value") == "∞"
    assert page.evaluate("$('heads').getAttribute('aria-valuetext')") == "infinitely many"
    assert "is Gaussian" in text(page, "summary")


def test_quick_moves_end_at_the_last(page):
    page.evaluate(
        "for (let i = 2; i < 40; i++) { $('tokens').value = i; "
        "form.dispatchEvent(new Event('input')); }"
    )
    page.wait("state.theory.kernel.tokens === 39 && $('kernel').width === 39")
    page.wait("!panels.some((p) => p.running)")
    page.evaluate("$('tokens').value = 4; form.dispatchEvent(new Event('input'))")
    page.wait(f"state.theory.kernel.tokens === 4 && {IDLE}")
    stages = [url for url in page.requests if "stage=0" in url and "api/theory" in url]
    assert len(stages) < 20  # one at a time, not one per event


def test_every_input_has_a_name_and_a_description(page):
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"slider", "radio", "combobox", "checkbox", "button", "textbox", "image", "radiogroup"}
    nameless = [
        n for n in tree
        if n.get("role", {}).get("value") in roles and not n.get("name", {}).get("value")
    ]  # fmt: skip
    assert nameless == []
    names = {n["name"]["value"] for n in tree if n.get("role", {}).get("value") == "slider"}
    assert {"heads", "tokens", "depth", "skip", "score size"} <= names
    missing = page.evaluate(
        "[...document.querySelectorAll('[aria-describedby], [aria-labelledby]')].filter((n) => "
        "!document.getElementById(n.getAttribute('aria-describedby') || "
        "n.getAttribute('aria-labelledby'))).length"
    )
    assert missing == 0


def test_focus_can_be_seen(page):
    page.press("Tab")
    page.press("Tab")
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert page.evaluate("document.activeElement.id") == "heads"
    assert style == "solid"


def test_a_phone_and_the_dark(page):
    page.call("Emulation.setDeviceMetricsOverride", width=375, height=700,
              deviceScaleFactor=2, mobile=True)  # fmt: skip
    media = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=media)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        sheet = page.evaluate("form.getBoundingClientRect().height")
        assert sheet < 300  # the plots can be seen beside the sliders
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground))) < 60
    finally:
        page.call("Emulation.setEmulatedMedia", features=[])


def test_a_server_that_is_gone_is_said(chromium, explorer):
    chromium.events.clear()
    chromium.call("Page.navigate", url=explorer.address + SMALL)
    chromium.wait(f"typeof state !== 'undefined' && {IDLE}")
    chromium.call("Network.emulateNetworkConditions", offline=True, latency=0,
                  downloadThroughput=0, uploadThroughput=0)  # fmt: skip
    try:
        chromium.evaluate("$('depth').value = 4; form.dispatchEvent(new Event('input'))")
        chromium.wait("document.body.classList.contains('problem')")
        assert "is `limitformer explore` still running?" in text(chromium, "status")
    finally:
        chromium.call("Network.emulateNetworkConditions", offline=False, latency=0,
                      downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
    chromium.evaluate("$('depth').value = 3; form.dispatchEvent(new Event('input'))")
    chromium.wait(f"state.query.includes('depth=3') && {IDLE}")
    assert not chromium.evaluate("document.body.classList.contains('problem')")


def test_a_bad_permalink_is_a_page_with_a_way_back(chromium, explorer):
    chromium.call("Page.navigate", url=explorer.address + "?tokens=1000000000")
    chromium.wait("document.querySelector('h1') !== null")
    shown = chromium.evaluate("document.body.innerText")
    assert "expected a whole number from 2 to 64" in shown
    assert json.loads(chromium.evaluate("JSON.stringify(document.links[0].pathname)")) == "/"
