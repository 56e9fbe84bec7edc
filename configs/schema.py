"""JSON Schemas of the release config, for editors, and of a bundle's privacy statement.

Shipped as ``release.schema.json`` and ``privacy.schema.json``.
"""

from __future__ import annotations

import json

from pydantic import BaseModel

from statpress.configs.privacy_statement import FORMAT, PrivacyStatement
from statpress.configs.release_config import ReleaseConfig


def schema_text() -> str:
    """The config's schema as it is shipped; ``python -m statpress.configs.schema`` prints it."""
    return _text(ReleaseConfig, "statpress release config")


def privacy_schema_text() -> str:
    """Schema of ``privacy.json``; ``python -m statpress.configs.schema privacy`` prints it."""
    return _text(PrivacyStatement, f"statpress privacy statement ({FORMAT})")


def _text(model: type[BaseModel], title: str) -> str:
    schema = model.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = title
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(privacy_schema_text() if sys.argv[1:] == ["privacy"] else schema_text())
