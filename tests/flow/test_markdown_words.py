"""Words of a config appear in Markdown as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statpress.tasks.ledger import ledger as ledgers
from statpress.tasks.pages.rendering import code_span, escaped

TITLE = "A <script>x</script> [link](http://x) | *b* `c`"


def test_marks_are_escaped_and_lines_folded() -> None:
    assert escaped("a|b_<i>[x](y)") == r"a\|b\_\<i\>\[x\]\(y\)"
    assert escaped("one\n# two\r\n\nthree") == r"one \# two three"
    assert escaped("Census 2000, 1 %") == "Census 2000, 1 %"


def test_a_code_span_holds_backticks() -> None:
    assert code_span("census") == "`census`"
    assert code_span("a`b") == "``a`b``"
    assert code_span("`a``") == "``` `a`` ```"


def test_readme_of_a_bundle_escapes_title_and_dataset(
    founded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an account with a name that an earlier version took."""
    monkeypatch.setattr(ledgers, "check_new_name", lambda _: None)
    agency = founded(tmp_path, dataset="data`set <b>")
    first = next(line for line in agency.config.read_text().splitlines() if "title:" in line)
    agency.replace(first, f"title: {json.dumps(TITLE)}")
    outcome = agency.run()
    readme = (outcome.bundle / "README.md").read_text().splitlines()
    assert readme[0] == (r"# A \<script\>x\</script\> \[link\]\(http://x\) \| \*b\* \`c\`")
    assert any("``data`set <b>``" in line for line in readme)
    manifest = json.loads((outcome.bundle / "manifest.json").read_text())
    assert (manifest["title"], manifest["dataset"]) == (TITLE, "data`set <b>")
