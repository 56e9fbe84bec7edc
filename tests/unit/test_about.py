"""The section ``about``: what it takes, and what is refused at which place."""

import ast
from pathlib import Path
from typing import Any

import pytest
from packaging import licenses

from statpress.configs import about
from statpress.configs.about import AboutConfig, Contact, Publisher
from statpress.configs.loading import Release, load
from statpress.configs.release_config import ReleaseConfig
from statpress.mechanisms.errors import ConfigError

CONFIG = """\
title: About
about:
  {about}
dataset: about
source: {{path: x.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: 100}}
budget: {{epsilon: 1, delta: 0}}
domain:
  sex: {{type: categorical, categories: [f, m]}}
products:
  sexes: {{kind: table, columns: [sex]}}
publish: {{directory: releases}}
"""


def loaded(folder: Path, about: str) -> Release:
    path = folder / "release.yaml"
    path.write_text(CONFIG.format(about=about))
    return load(path)


@pytest.mark.parametrize(
    ("about", "key", "value"),
    [
        ("licence: cc-by-4.0", "licence", "CC-BY-4.0"),
        ("temporal: {start: 2000}", "temporal", {"start": "2000", "end": None}),
        (
            "temporal: {start: 2000-02-29, end: 2000-02}",
            "temporal",
            {"start": "2000-02-29", "end": "2000-02"},
        ),
        ("identifier: doi:10.1234/a.b", "identifier", "https://doi.org/10.1234/a.b"),
        ("identifier: http://dx.doi.org/10.1234/a", "identifier", "https://doi.org/10.1234/a"),
        ("identifier: 'https://example.org/a'", "identifier", "https://example.org/a"),
        ("description: >\n    One\n    line.\n\n    Two.", "description", "One line.\nTwo."),
    ],
)
def test_words_are_taken_in_one_form(tmp_path: Path, about: str, key: str, value: Any) -> None:
    assert loaded(tmp_path, about).config.about.model_dump()[key] == value


@pytest.mark.parametrize(
    ("about", "place", "said"),
    [
        ("licence: CC BY 4.0", "3:3: about.licence", "near: CC-BY-4.0, .*{name: ..., url: ...}"),
        ("licence: cc_by-4", "3:3: about.licence", "near: CC-BY-"),
        ("licence: Artistic 2.0", "3:3: about.licence", "near: Artistic-2.0[,)]"),
        ("licence: zzzz", "3:3: about.licence", "CC-BY-4.0; of any other"),
        ("licence: LicenseRef-ours", "3:3: about.licence", "SPDX"),
        ("licence: MIT OR Apache-2.0", "3:3: about.licence", "SPDX"),
        ("licence: {name: Ours}", "3:3: about.licence.url", "'url' is missing"),
        ("licence: {nmae: Ours, url: 'https://a.example'}", "about.licence.nmae", "'name' meant"),
        ("contact: {name: Desk}", "3:3: about.contact", "an email or a url"),
        ("contact: {email: desk at a.example}", "3:13: about.contact.email", "name@example.org"),
        ("contact: {email: a@b}", "3:13: about.contact.email", "name@example.org"),
        ("contact: {mail: a@b.example}", "3:13: about.contact.mail", "Is 'email' meant"),
        ("publisher: {url: 'https://a.example'}", "about.publisher.name", "missing"),
        ("landing_page: a.example", "3:3: about.landing_page", "address"),
        ("landing_page: 'https://me:pw@a.example/'", "3:3: about.landing_page", "password"),
        ("landing_page: 'javascript:alert(1)'", "3:3: about.landing_page", "address"),
        ("identifier: abc", "3:3: about.identifier", "DOI"),
        ("keywords: [a, a]", "3:3: about.keywords", "twice"),
        ("keywords: a", "3:3: about.keywords", "list"),
        ("temporal: {start: 2000-13}", "3:14: about.temporal.start", "a year, a month or a day"),
        ("temporal: {end: true}", "3:14: about.temporal.end", "a year, a month or a day"),
        ("temporal: {start: 2001, end: 2000-12-31}", "3:3: about.temporal", "not be after"),
        ("temporal: {}", "3:3: about.temporal", "start or end"),
        ("licences: MIT", "3:3: about.licences", "Is 'licence' meant"),
    ],
)
def test_what_is_refused_names_line_and_field(
    tmp_path: Path, about: str, place: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        loaded(tmp_path, about)
    assert caught.value.where.startswith("release.yaml:3:")
    assert caught.value.where.endswith(place)


def test_licences_are_checked_by_what_the_library_offers() -> None:
    """Its list of them may move without notice; ours is of identifiers that it knows."""
    tree = ast.parse(Path(about.__file__).read_text())
    taken = [
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "packaging.licenses"
        for name in node.names
    ]
    assert taken and set(taken) <= set(licenses.__all__)
    for name in about._OF_DATA:
        assert licenses.canonicalize_license_expression(name) == name


def test_every_fault_is_named_at_once_with_those_of_other_sections(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    text = CONFIG.format(about="licence: x\n  landing_page: y")
    path.write_text(text.replace("columns: [sex]", "columns: [gender]"))
    with pytest.raises(ConfigError) as caught:
        load(path)
    words = str(caught.value) + "".join(map(str, getattr(caught.value, "others", ())))
    for said in ("about.licence", "about.landing_page", "gender"):
        assert said in words


def test_nothing_is_asked_for() -> None:
    assert AboutConfig() == AboutConfig.model_validate({})
    assert ReleaseConfig.model_fields["about"].annotation is AboutConfig
    assert Publisher(name="A").url is None
    assert Contact(email="a@b.example").name is None
