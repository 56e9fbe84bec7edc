"""The ``about`` section: who publishes, on what terms, and what the release is about.

Its keys are those of a Frictionless data package and of DCAT under the names that people use.
Nothing in it is inferred from data, and nothing of it changes what is drawn or charged.
"""

from __future__ import annotations

import datetime
import difflib
import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictStr,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from statpress.configs.declared_columns import Line, Paragraphs, Section

_EMAIL = re.compile(r"[^\s@<>(),:;\"\\]{1,64}@(?=.{4,253}$)[^\s@.<>,;]+(\.[^\s@.<>,;]+)+")
_NOT_OF_A_URL = re.compile(r"[\s<>\"\\^`{|}\x00-\x1f\x7f]")  # RFC 3986, 2
_PERIOD = re.compile(r"[12][0-9]{3}(-[0-9]{2}(-[0-9]{2})?)?")
_DOI = re.compile(r"(?:doi:|https?://(?:dx\.)?doi\.org/)?(10\.[0-9]{4,9}/\S+)", re.IGNORECASE)

_OF_DATA = (
    "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-ND-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0",
    "CC-BY-NC-ND-4.0", "CC-BY-3.0", "CC-BY-SA-3.0", "PDDL-1.0", "ODC-By-1.0", "ODbL-1.0",
    "CDLA-Permissive-2.0", "CDLA-Sharing-1.0", "O-UDA-1.0", "OGL-UK-3.0", "OGL-Canada-2.0",
    "DL-DE-BY-2.0", "DL-DE-ZERO-2.0", "etalab-2.0", "NLOD-2.0", "MIT", "Apache-2.0",
)  # fmt: skip
"""Licences that data are often under, to name the nearest of where an identifier is wrong."""


def _url(text: str) -> str:
    """An address on the web, as it is written, without a password."""
    from pydantic import HttpUrl

    try:
        HttpUrl(text)
        usable = _NOT_OF_A_URL.search(text) is None and urlsplit(text).username is None
    except (ValidationError, ValueError):
        usable = False
    if not usable:
        raise PydanticCustomError(
            "ConfigError", "must be an address such as https://example.org/page, without a password"
        )
    return text


def _email(text: str) -> str:
    if _EMAIL.fullmatch(text) is None:
        raise PydanticCustomError("ConfigError", "must be an e-mail address: name@example.org")
    return text


def _period(value: Any) -> str:
    """A year, a month or a day, as ISO 8601 text; YAML reads the first as a number."""
    text = value
    if isinstance(value, int) and not isinstance(value, bool):
        text = str(value)
    elif type(value) is datetime.date:
        text = value.isoformat()
    if isinstance(text, str) and _PERIOD.fullmatch(text):
        try:
            datetime.date.fromisoformat(f"{text}-01-01"[:10])
            return text
        except ValueError:
            pass
    raise PydanticCustomError(
        "ConfigError", "must be a year, a month or a day: 2000, 2000-12 or 2000-12-31"
    )


def _licence(text: str) -> str:
    """The identifier of a licence in the SPDX list, as that spells it.

    Source: SPDX License List (https://spdx.org/licenses/), as the package ``packaging`` has it.
    """
    found = _listed(text)
    if found is not None:
        return found
    written = "-".join(text.split())
    as_listed = _listed(written)
    by_small = {name.lower(): name for name in _OF_DATA}
    near = [by_small[key] for key in difflib.get_close_matches(written.lower(), by_small, n=3)]
    near = list(dict.fromkeys([as_listed, *near] if as_listed else near))
    hint = f" (near: {', '.join(near)})" if near else ""
    raise PydanticCustomError(
        "ConfigError",
        "must be an identifier of the SPDX list such as CC-BY-4.0{hint}; of any other licence give "
        "{form}",
        {"hint": hint, "form": "{name: ..., url: ...}"},
    )


def _listed(text: str) -> str | None:
    """The identifier of one licence as the SPDX list spells it; None if it has none such."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        found = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None
    return None if " " in found or found.startswith("LicenseRef-") else found


def _identifier(text: str) -> str:
    doi = _DOI.fullmatch(text)
    if doi is not None:
        text = f"https://doi.org/{doi[1]}"
    try:
        return _url(text)
    except PydanticCustomError:
        pass
    raise PydanticCustomError("ConfigError", "must be a DOI such as 10.1234/abc, or an address")


def _licence_form(value: Any) -> str:
    return "by name" if isinstance(value, (dict, OtherLicence)) else "by identifier"


def _different(words: list[str]) -> list[str]:
    if len(set(words)) < len(words):
        raise PydanticCustomError("ConfigError", "must be different words; one is listed twice")
    return words


Url = Annotated[StrictStr, Field(max_length=2000), AfterValidator(_url)]
Email = Annotated[StrictStr, Field(max_length=320), AfterValidator(_email)]
Licence = Annotated[StrictStr, Field(min_length=1, max_length=100), AfterValidator(_licence)]
Identifier = Annotated[StrictStr, Field(max_length=2000), AfterValidator(_identifier)]
Keywords = Annotated[
    list[Annotated[Line, Field(max_length=100)]], Field(max_length=100), AfterValidator(_different)
]
Period = Annotated[
    StrictStr,
    BeforeValidator(_period),
    WithJsonSchema({"type": ["string", "integer"], "description": "A year, a month or a day."}),
]


class OtherLicence(Section):
    """A licence that the SPDX list does not have."""

    name: Line
    url: Url


class Publisher(Section):
    """Who publishes: an office, not a person."""

    name: Line
    url: Url | None = None


class Contact(Section):
    """Whom to ask."""

    name: Line | None = None
    email: Email | None = None
    url: Url | None = None

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.email is None and self.url is None:
            raise PydanticCustomError("ConfigError", "give an email or a url, or both")
        return self


class Temporal(Section):
    """What time the records are of; both ends are included, and one may be left open."""

    start: Period | None = None
    end: Period | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start is None and self.end is None:
            raise PydanticCustomError("ConfigError", "give start or end, or both")
        if self.start is not None and self.end is not None:
            shared = min(len(self.start), len(self.end))
            if self.start[:shared] > self.end[:shared]:
                raise PydanticCustomError("ConfigError", "start must not be after end")
        return self


class Spatial(Section):
    """What area the records are of."""

    name: Line
    url: Url | None = Field(default=None, description="Such as an address in GeoNames.")


class AboutConfig(Section):
    """Who publishes, on what terms, and what the release is about, for people and catalogues."""

    description: Paragraphs | None = Field(
        default=None, description="What the release is, of what records, and for what use."
    )
    publisher: Publisher | None = None
    contact: Contact | None = None
    licence: (
        Annotated[
            Annotated[Licence, Tag("by identifier")] | Annotated[OtherLicence, Tag("by name")],
            Discriminator(_licence_form),
        ]
        | None
    ) = Field(
        default=None,
        description="An identifier of the SPDX list such as CC-BY-4.0, or {name: ..., url: ...}.",
    )
    keywords: Keywords = Field(default_factory=list)
    temporal: Temporal | None = None
    spatial: Spatial | None = None
    landing_page: Url | None = Field(
        default=None, description="The page that people come to the release by."
    )
    identifier: Identifier | None = Field(
        default=None, description="A DOI or an address that stands for the release for ever."
    )
