"""Targets: where a published bundle is uploaded to, besides its directory.

A target names a place and never a credential; those come from the environment of whoever uploads.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, LiteralString, Union

from pydantic import AfterValidator, BaseModel, Discriminator, Field, StrictStr, Tag
from pydantic_core import PydanticCustomError

from statpress.configs.declared_columns import Name, Section

_HOST = r"([A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])"
_LOOPBACK = r"(127\.0\.0\.1|localhost|\[::1\])"
_PORT = r"(:[0-9]{1,5})?"
_STEPS = r"(/[A-Za-z0-9][A-Za-z0-9_.=-]{0,199})*"
_ADDRESS = f"^(https://{_HOST}|http://{_LOOPBACK}){_PORT}{_STEPS}/?$"
_ENDPOINT = f"^https?://{_HOST}{_PORT}/?$"
_BUCKET = f"^s3://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]{_STEPS}/?$"


def _shown(pattern: str) -> Any:
    """The form of a text in the JSON Schema, for editors."""
    return Field(max_length=1000, json_schema_extra={"pattern": pattern})


def _checked(pattern: str, words: LiteralString) -> AfterValidator:
    """A check of the form; its message never repeats a text that may have a password in it."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError(
                "ConfigError",
                f"{words}, without user, password or query: credentials come from the environment",
            )
        return text.rstrip("/")

    return AfterValidator(check)


_Bucket = Annotated[
    StrictStr, _shown(_BUCKET), _checked(_BUCKET, "must be s3://bucket or s3://bucket/prefix")
]
Endpoint = Annotated[
    StrictStr,
    _shown(_ENDPOINT),
    _checked(_ENDPOINT, "must be http(s)://host or http(s)://host:port"),
]
Region = Annotated[StrictStr, Field(pattern=r"^[a-z0-9-]{1,50}$")]
_Portal = Annotated[
    StrictStr,
    _shown(_ADDRESS),
    _checked(
        _ADDRESS,
        "must be https://host, or http://localhost, since a token is sent there; with port or path "
        "where needed",
    ),
]
_CkanName = Annotated[
    StrictStr,
    Field(pattern=r"^[a-z0-9][a-z0-9_-]{1,99}$"),
]


class S3Target(Section):
    """A bucket in an S3-compatible store, or a prefix in it."""

    key: ClassVar[str] = "s3"
    s3: _Bucket = Field(description="s3://bucket or s3://bucket/prefix; bundles go below it.")
    endpoint: Endpoint | None = Field(
        default=None, description="Address of the store; by default that of AWS."
    )
    region: Region | None = Field(
        default=None, description="By default what environment or profile say."
    )
    latest: Name | None = Field(
        default=None,
        description="Name of an object under the prefix that says which release is the newest, "
        "such as latest.json; it is replaced last.",
    )


class CkanTarget(Section):
    """A CKAN portal."""

    key: ClassVar[str] = "ckan"
    ckan: _Portal = Field(description="Address of the portal.")
    organization: _CkanName = Field(description="Name of the organization that owns the datasets.")
    latest: _CkanName | None = Field(
        default=None,
        description="Name of a dataset that links to the files of the newest release; it is "
        "replaced last.",
    )


Target = S3Target | CkanTarget
TARGETS: dict[str, type[S3Target] | type[CkanTarget]] = {
    each.key: each for each in (S3Target, CkanTarget)
}
"""By its first key, which is also the name of its module in ``tasks.uploads.upload``."""


def tag_of(key: str) -> str:
    """What the validator calls a target with this key; never itself a key of the file."""
    return f"to {key}"


def _form(value: Any) -> str | None:
    """The one target that a mapping names."""
    if isinstance(value, Section):
        return next((tag_of(k) for k, model in TARGETS.items() if type(value) is model), None)
    named = [key for key in TARGETS if isinstance(value, dict) and key in value]
    return tag_of(named[0]) if len(named) == 1 else None


_UNION: Any = Union[tuple(Annotated[m, Tag(tag_of(key))] for key, m in TARGETS.items())]  # noqa: UP007
AnyTarget: Any = Annotated[
    _UNION,
    Discriminator(
        _form,
        custom_error_type="ConfigError",
        custom_error_message=f"must have exactly one of the keys {' and '.join(TARGETS)}",
    ),
]


def _apart(targets: list[Any]) -> list[Any]:
    """Refuse a place named twice, and a token that would go to two portals."""
    places = [getattr(each, each.key) for each in targets]
    if len(set(places)) < len(places):
        raise PydanticCustomError("ConfigError", "must name each place once")
    if len({each.ckan for each in targets if isinstance(each, CkanTarget)}) > 1:
        raise PydanticCustomError(
            "ConfigError", "must name one CKAN portal at most, since there is one token"
        )
    return targets


Targets = Annotated[list[AnyTarget], Field(max_length=10), AfterValidator(_apart)]


class PublishTargets(BaseModel):
    """The targets of a ``publish`` section, whatever else it says."""

    targets: Targets
