"""JSON Schema of the release config, for editors; shipped as ``release.schema.json``."""

from __future__ import annotations

import json

from configs.models.release import ReleaseConfig


def schema_text() -> str:
    """The schema as it is shipped; ``python -m configs.schema`` prints it."""
    schema = ReleaseConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "statpress release config"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(schema_text())
