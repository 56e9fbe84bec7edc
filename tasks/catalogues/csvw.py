"""CSV on the Web: what the columns of a bundle's CSV files hold.

Source: Metadata Vocabulary for Tabular Data, W3C Recommendation 2015,
https://www.w3.org/TR/tabular-metadata/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from statpress.tasks.catalogues.linked_data import File, Publication, without_blanks

CSVW_NAME = "csvw.json"
_TYPES = {"integer": "integer", "number": "double", "boolean": "boolean", "date": "date"}


def csvw_tables(publication: Publication) -> dict[str, Any] | None:
    """The group of tables, as a JSON document; None if no table is a CSV file."""
    files = [each for each in publication.tables() if each.suffix == "csv"]
    if not files:
        return None
    package = publication.package
    paths = {each.resource["name"]: each.path for each in files}
    publisher = publication.contributor("publisher")
    return without_blanks(
        {
            "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
            "@id": publication.uri,
            "dc:title": publication.title,
            "dc:description": publication.description,
            "dc:license": publication.licence and {"@id": publication.licence},
            "dc:publisher": publisher and publisher["title"],
            "dcat:keyword": package.get("keywords"),
            "dc:issued": publication.created,
            "tables": [_table(each, paths) for each in files],
        }
    )


def _table(file: File, paths: Mapping[str, str]) -> dict[str, Any]:
    """One file; of others that it refers to, the paths by their names."""
    schema = file.resource["schema"]
    keys = [(each["fields"], each["reference"]) for each in schema.get("foreignKeys", ())]
    found = {
        "columns": [_column(each) for each in schema["fields"]],
        "primaryKey": schema.get("primaryKey"),
        "foreignKeys": [
            {
                "columnReference": columns,
                "reference": {"resource": paths[to["resource"]], "columnReference": to["fields"]},
            }
            for columns, to in keys
        ],
    }
    return without_blanks(
        {
            "url": file.path,
            "dc:title": file.title,
            "dc:description": file.resource.get("description"),
            "tableSchema": without_blanks(found),
        }
    )


def _column(field: Mapping[str, Any]) -> dict[str, Any]:
    """A column: its datatype with its bounds or listed values, and what labelled values mean."""
    limits = field.get("constraints", {})
    base = _TYPES.get(field["type"], "string")
    listed = "|".join(re.escape(str(each)) for each in limits.get("enum", ()))
    rules = {
        "base": base,
        "minimum": limits.get("minimum"),
        "maximum": limits.get("maximum"),
        "format": f"^({listed})$" if listed and base == "string" else None,
    }
    return without_blanks(
        {
            "name": field["name"],
            "titles": field.get("title"),
            "dc:description": field.get("description"),
            "schema:unitText": field.get("unit"),
            "datatype": without_blanks(rules),
            "required": True if limits.get("required") else None,
            "skos:member": [
                {
                    "@type": "skos:Concept",
                    "skos:notation": str(each["value"]),
                    "skos:prefLabel": each["label"],
                }
                for each in (*field.get("categories", ()), *field.get("special", ()))
            ],
        }
    )
