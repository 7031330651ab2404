"""Every link from one Markdown file to another file, or to a heading, arrives."""

import re
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#+\s+(.+?)\s*#*$", re.MULTILINE)


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(markdown: str) -> set[str]:
    """The anchors that headings get: lower case, no punctuation, dashes for spaces."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(markdown)}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            broken.append(f"{page.name}: {link} (no such file)")
        elif anchor and target.suffix == ".md" and anchor not in anchors(prose(target)):
            broken.append(f"{page.name}: {link} (no such heading)")
    return broken


def test_every_link_arrives():
    pages = [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "benchmarks", "examples") for page in (ROOT / folder).rglob("*.md")),
    ]
    assert [link for page in pages for link in broken_links(page)] == []


def test_every_page_is_in_the_index():
    """docs/README.md; decisions have an index of their own."""
    docs = ROOT / "docs"
    linked = {(docs / link.partition("#")[0]).resolve() for link in LINK.findall(prose(docs / "README.md"))}
    pages = {page for page in docs.rglob("*.md") if page.parent.name != "decisions"} - {docs / "README.md"}
    assert sorted(str(page.relative_to(docs)) for page in pages - linked) == []


def test_canary_broken_links_are_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One place\n[a](#one-place) [b](page.md#two) [c](gone.md) [d](https://example.org/x)\n```\n[e](code)\n```\n"
    )
    assert broken_links(page) == ["page.md: page.md#two (no such heading)", "page.md: gone.md (no such file)"]
