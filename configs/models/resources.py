"""The ``resources`` section: how much memory and how many threads a run may take."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from configs.models.domain import Section

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_PATTERN = rf"^[0-9]{{1,9}}(\.[0-9]{{1,6}})? ?({'|'.join(_UNITS)})$"


def _amount(text: str) -> str:
    if not re.fullmatch(_PATTERN.strip("^$"), text):
        raise PydanticCustomError(
            "ConfigError", f"must be a number with one of {', '.join(_UNITS)}, such as 4GB"
        )
    return text


Memory = Annotated[
    StrictStr, AfterValidator(_amount), Field(json_schema_extra={"pattern": _PATTERN})
]


class ResourcesConfig(Section):
    """What a run may take of its machine; it is planned for, and kept by every step."""

    memory: Memory | None = Field(
        default=None,
        description="Of the run and its quality process together, such as 4GB. A plan that may "
        "need more is refused before the charge. By default the engine counts in 300 MB and only "
        "records that do not fit into the machine are refused.",
    )
    threads: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="That work at once; by default as many as the process may use processors.",
    )

    @property
    def memory_bytes(self) -> int | None:
        """The memory in bytes, if it is declared."""
        if self.memory is None:
            return None
        unit = self.memory.lstrip("0123456789. ")
        return int(Decimal(self.memory.removesuffix(unit)) * _UNITS[unit])
