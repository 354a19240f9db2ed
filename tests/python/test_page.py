"""The pages: that they need nothing but themselves, escape what they show, and fit any screen."""

import html
import html.parser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_cli import MATRIX

from cai_bridge._cli.command import main

pytest.importorskip("jinja2", reason="the pages need the extra cli")

HERE = Path(__file__).parent
HOSTILE = "<script>alert('&\"')</script>"
VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind, as text, and where it is."""
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.html" for name in ("matrix", "check", "hostile")}
    assert main(["matrix", "--from", str(MATRIX), "--html", str(paths["matrix"])]) == 0
    subjects = ["cli_subjects:Producer", "cli_subjects:Poor"]
    assert main(["check", *subjects, "--simulated", "--html", str(paths["check"])]) == 1
    data = json.loads(MATRIX.read_text("utf-8"))
    data["place"] = data["versions"]["torch"] = data["versions"][HOSTILE] = HOSTILE
    data["consumers"].append(HOSTILE)
    for cell in data["cells"]:
        cell["consumer"] = HOSTILE
        for aspect in cell["aspects"].values():
            aspect["detail"] = HOSTILE + "long" * 60
    (folder / "hostile.json").write_text(json.dumps(data))
    source = str(folder / "hostile.json")
    assert main(["matrix", "--from", source, "--html", str(paths["hostile"])]) == 0
    return {name: (path.read_text("utf-8"), path) for name, path in paths.items()}


KINDS = pytest.mark.parametrize("kind", ["matrix", "check", "hostile"])


class Outline(html.parser.HTMLParser):
    """What is open where, and every start tag."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@KINDS
def test_the_page_is_whole_fetches_nothing_and_its_tables_say_what_they_are(kind, pages):
    text, _ = pages[kind]
    outline = Outline(text)
    assert outline.open == []
    assert text.startswith("<!doctype html>")
    assert outline.all("html") == [{"lang": "en"}]
    assert len(outline.all("h1")) == 1
    names = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = [a["href"][1:] for a in outline.all("a") if a["href"].startswith("#")]
    assert set(links) <= set(names)
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in outline.tags}
    assert [a["href"] for a in outline.all("link")] == ["data:,"]
    assert not [a for _, a in outline.tags if "src" in a or "style" in a]
    style = text[text.index("<style>") : text.index("</style>")]
    assert not re.search(r"url\(|@import|//", style)
    assert len(outline.all("caption")) == len(outline.all("table")) > 0
    assert all("scope" in attributes for attributes in outline.all("th"))


def test_all_that_was_seen_is_on_the_page(pages):
    text, _ = pages["matrix"]
    data = json.loads(MATRIX.read_text("utf-8"))
    for cell in data["cells"]:
        for aspect in cell["aspects"].values():
            assert aspect["detail"] in html.unescape(text)
        assert f"<h3>{cell['producer']} → {cell['consumer']}</h3>" in text
    for said in (data["place"], "torch 2.11.0", "2026-11-20 12:00:00 UTC"):
        assert said in text


def test_convert_has_a_mark_of_its_own(tmp_path):
    data = json.loads(MATRIX.read_text("utf-8"))
    pairs = dict.fromkeys((one["producer"], one["consumer"]) for one in data["cells"])
    crashed = {"values": {"outcome": "crashed", "detail": "by convert"}}
    at = {"route": "convert(x, library)", "door": "convert", "bridged": True, "aspects": crashed}
    data["cells"] += [{"producer": one, "consumer": other, **at} for one, other in pairs]
    (tmp_path / "data.json").write_text(json.dumps(data))
    path = tmp_path / "page.html"
    assert main(["matrix", "--from", str(tmp_path / "data.json"), "--html", str(path)]) == 0
    text = path.read_text("utf-8")
    assert "<dt>By convert()</dt><dd><b>0</b>" in text
    cells = re.findall(r'<a class="three".*?</a>', text, flags=re.S)
    letters = [re.findall(r'aria-hidden="true">(.)<', one) for one in cells]
    assert len(letters) == len(pairs)
    assert {len(one) for one in letters} == {4}
    assert {one[3] for one in letters} == {"!"}
    assert text.count("<code>convert(x, library)</code>") == len(pairs)


def test_a_failure_is_shown_with_its_section_and_program(pages):
    text, _ = pages["check"]
    assert "cai-typestr" in text
    assert 'href="https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"' in text
    assert "producer_named(&#39;cli_subjects:Poor&#39;)" in text
    assert "1 of 2 meet what the specifications demand of them." in text


@pytest.mark.parametrize(
    ("subject", "only", "said"),
    [
        ("make", "cai-shape", "make meets what the specifications demand of a producer."),
        ("Poor", "cai-typestr", "poor does not meet what the specifications demand of a producer."),
        ("make", "cai-readonly", "Nothing that the specifications demand of a producer was judged"),
    ],
)
def test_the_page_of_one_library_says_whether_it_meets_what_is_demanded(subject, only, said):
    from cai_bridge._cli import page, subjects
    from cai_bridge.conformance import check_producer

    adapter = subjects.adapters_named(f"cli_subjects:{subject}", "")["producer"]
    assert said in page.of_reports([check_producer(adapter, only=only)])


def test_a_member_that_is_missing_and_an_authors_own_error_are_on_the_page(pages, tmp_path):
    text, _ = pages["check"]
    line = (HERE / "cli_subjects.py").read_text().splitlines().index("class Poor(ProducerAdapter):")
    assert "<code>def readonly(array)</code> in Poor, " in text
    assert f"cli_subjects.py:{line + 1}: cai-readonly" in text
    page = tmp_path / "page.html"
    arguments = ["check", "cli_subjects:Failing", "--simulated", "--only", "cai-readonly"]
    assert main([*arguments, "--html", str(page)]) == 1
    shown = html.unescape(page.read_text("utf-8"))
    assert "Traceback (most recent call last):" in shown
    assert ", in locked" in shown


@pytest.mark.parametrize("kind", ["check", "hostile"])
def test_what_is_hostile_is_escaped(kind, pages):
    text, _ = pages[kind]
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_stands_out_from_its_ground(pages):
    schemes = re.findall(r":root \{(.*?)\}", pages["matrix"][0], flags=re.S)
    assert len(schemes) == 3  # light, dark and paper
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        pairs = [(name, name.removesuffix("-ink")) for name in colours if name.endswith("-ink")]
        assert len(pairs) == 7
        pairs += [(name, ground) for name in ("ink", "soft", "link") for ground in ("page", "box")]
        for ink, ground in pairs:
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCREENS = ((390, 844), (1280, 900))

# Windows are never as narrow as a phone; frames are.
PROBE = """<!doctype html><body>%s<pre id="seen"></pre><script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map((frame) => {
    const view = frame.contentWindow, root = frame.contentDocument.documentElement;
    for (const details of frame.contentDocument.querySelectorAll("details")) details.open = true;
    const wide = [...frame.contentDocument.querySelectorAll("body *")].filter((one) =>
      one.getBoundingClientRect().right > view.innerWidth + 1 &&
      !one.closest(".scroll, pre, .spoken"));
    return {
      width: view.innerWidth, content: root.scrollWidth, height: root.scrollHeight,
      wide: wide.map((one) => one.outerHTML.slice(0, 80)),
      fetched: view.performance.getEntriesByType("resource").map((one) => one.name),
      text: frame.contentDocument.body.innerText,
    };
  });
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>"""


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser is installed: {', '.join(NAMES)}")
    profile = tmp_path_factory.mktemp("profile")

    def browse(*arguments):
        command = [
            *(found, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *(f"--user-data-dir={profile}", "--allow-file-access-from-files"),
            *("--enable-logging=stderr", "--virtual-time-budget=4000"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        for _ in range(3):
            done = subprocess.run(
                [*command, *map(str, arguments)], capture_output=True, timeout=90, check=False
            )
            # A browser that a signal ends, as it does now and then, says nothing of the page.
            if done.returncode >= 0:
                break
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        said = done.stderr.decode(errors="replace")
        return done.stdout.decode(), [line for line in said.splitlines() if "CONSOLE" in line]

    return browse


@KINDS
def test_the_page_fits_a_phone_and_a_desk(kind, pages, browse, tmp_path):
    _, path = pages[kind]
    frames = [
        f'<iframe src="{path.as_uri()}" style="border:0;width:{width}px;height:{height}px">'
        "</iframe>"
        for width, height in SCREENS
    ]
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE % "".join(frames))
    shown, console = browse("--dump-dom", probe.as_uri())
    seen = json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', shown, re.S).group(1)))
    assert console == []
    assert [one["width"] for one in seen] == [width for width, _ in SCREENS]
    for one in seen:
        assert one["wide"] == []
        assert one["content"] <= one["width"]
        assert one["fetched"] == []
        said = "Conformance of" if kind == "check" else "GPU arrays between libraries"
        assert said in one["text"]
    if kind == "matrix":
        for cell in json.loads(MATRIX.read_text("utf-8"))["cells"]:
            for aspect in cell["aspects"].values():
                assert all(aspect["detail"] in one["text"] for one in seen)


@pytest.mark.parametrize("kind", ["matrix", "check"])
def test_the_page_prints(kind, pages, browse, tmp_path):
    path = tmp_path / "page.pdf"
    browse("--no-pdf-header-footer", f"--print-to-pdf={path}", pages[kind][1].as_uri())
    data = path.read_bytes()
    assert data.startswith(b"%PDF")
    count = len(re.findall(rb"/Type\s*/Page\b", data))
    # Details are printed without being opened; without them it would be half as many.
    assert 4 <= count <= 25
