"""The structure of a table in SDMX-ML 3.0: dataflow, data structure, concepts and code lists."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

from tasks.metadata.sdmx import (
    ERROR,
    FREEDOM,
    FREEDOMS,
    PROJECTED,
    STATUS,
    STATUSES,
    TIME,
    VALUE,
    VERSION,
    Dimension,
    Table,
)

if TYPE_CHECKING:
    from pysdmx.model import Codelist, DataType, ItemReference
    from pysdmx.model.dataflow import Component

_MEASURE = "Unbiased estimate of the number of records; may be negative"
_BIASED = "Estimate of the number of records; biased, by an amount that depends on the data"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTES = {
    ERROR: ("Standard error of the estimate", "DOUBLE"),
    PROJECTED: ("The nearest counts to the estimates that are not negative and add up", "DOUBLE"),
    STATUS: ("Observation status", "STRING"),
    FREEDOM: ("Confidentiality status", "STRING"),
}


def structure(table: Table) -> bytes:
    """The message with all that is needed to read the table's observations."""
    from pysdmx.io import write_sdmx
    from pysdmx.io.format import Format
    from pysdmx.model import Concept, ConceptScheme, DataType, Organisation
    from pysdmx.model.dataflow import Components, Dataflow, DataStructureDefinition
    from pysdmx.model.message import Header

    lists = {each.id: _code_list(table, each) for each in table.dimensions if each.coded}
    lists |= {
        STATUS: _listed(table, "CL_OBS_STATUS", "Observation status", STATUSES),
        FREEDOM: _listed(table, "CL_CONF_STATUS", "Confidentiality status", FREEDOMS),
    }
    concepts = {each.id: (each.name, _type_of(each)) for each in table.dimensions}
    concepts |= {VALUE: (measure_in_words(table), DataType.DOUBLE)}
    concepts |= {id: (words, DataType[kind]) for id, (words, kind) in _ATTRIBUTES.items()}
    named: dict[str, Any] = {"agency": table.agency, "version": VERSION}
    scheme = ConceptScheme(
        id=f"CS_{table.id}",
        name=f"Concepts of: {table.title}",
        items=[Concept(id=id, name=words, dtype=kind) for id, (words, kind) in concepts.items()],
        **named,
    )
    components = [_component(table, id, kind, lists.get(id)) for id, (_, kind) in concepts.items()]
    definition = DataStructureDefinition(
        id=f"DSD_{table.id}", name=table.title, components=Components(components), **named
    )
    flow = Dataflow(id=table.id, name=table.title, structure=definition, **named)
    created = table.publication.created or "1970-01-01T00:00:00Z"
    header = Header(
        id=f"{table.id}_{created.translate(str.maketrans('', '', ':-'))}",
        prepared=datetime.datetime.fromisoformat(created.replace("Z", "+00:00")),
        sender=Organisation(id=table.agency),
    )
    text = write_sdmx(
        [*lists.values(), scheme, definition, flow],
        Format.STRUCTURE_SDMX_ML_3_0,
        header=header,
        prettyprint=True,
    )
    assert text is not None
    return text.encode("utf-8")


def measure_in_words(table: Table) -> str:
    """What an observation's value is, and that of a cell without one, which sums need."""
    words = _MEASURE if table.unbiased else _BIASED
    if not table.undrawn:
        return words
    return f"{words}; a cell without an observation was not drawn: {table.undrawn:.6g} records"


def _component(table: Table, id: str, kind: DataType, codes: Codelist | None) -> Component:
    """A dimension, the measure, or an attribute of each observation."""
    from pysdmx.model.dataflow import Component, Role

    urn = "urn:sdmx:org.sdmx.infomodel.codelist.Codelist={}:{}({})"
    role = Role.MEASURE if id == VALUE else Role.ATTRIBUTE if id in _ATTRIBUTES else Role.DIMENSION
    return Component(
        id=id,
        required=True,
        role=role,
        concept=_reference(table, id),
        local_dtype=kind,
        local_codes=codes,
        local_enum_ref=None if codes is None else urn.format(table.agency, codes.id, VERSION),
        attachment_level="O" if role == Role.ATTRIBUTE else None,
    )


def _reference(table: Table, id: str) -> ItemReference:
    from pysdmx.model import ItemReference

    return ItemReference(
        sdmx_type="Concept",
        agency=table.agency,
        id=f"CS_{table.id}",
        version=VERSION,
        item_id=id,
    )


def _type_of(dimension: Dimension) -> DataType:
    from pysdmx.model import DataType

    return DataType.PERIOD if dimension.id == TIME else DataType.STRING


def _code_list(table: Table, dimension: Dimension) -> Codelist:
    codes = dict(dimension.codes.values())
    return _listed(table, f"CL_{table.id}_{dimension.id}", dimension.name, codes)


def _listed(table: Table, id: str, name: str, codes: dict[str, str]) -> Codelist:
    from pysdmx.model import Code, Codelist

    items = [Code(id=code, name=_xml_text(words)) for code, words in codes.items()]
    return Codelist(id=id, name=name, items=items, agency=table.agency, version=VERSION)


def _xml_text(words: str) -> str:
    """A name that an XML document can hold, which is never empty."""
    return _NOT_XML.sub("\ufffd", words).strip() or "(empty)"
