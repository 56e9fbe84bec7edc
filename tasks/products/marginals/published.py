"""The noisy tables of a published release, read back with neither data nor ledger at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from configs.models import formats
from mechanisms.domain.domain import Domain
from mechanisms.marginals.measurement import GRID, NoisyTable
from mechanisms.marginals.released import NoisyMarginals
from tasks.formats.registry import written_file
from tasks.products.counts.fields import column_from
from tasks.products.counts.published import zero_from
from tasks.products.marginals.tables_file import read_tables
from tasks.products.understanding import understood


def published_marginals(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
) -> NoisyMarginals:
    """All noisy tables of a product, without the scores of pairs.

    Args:
        folder: A verified bundle.
        name: Of the product.
        stated: What ``privacy.json`` says of it.
        resources: The bundle's files by path, as the data package describes them.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
    """
    with understood(folder):
        if stated["grid"] != GRID:
            raise ValueError(f"the tables of the product '{name}' are on another grid")
        described = next(
            r for s in formats.FORMATS if (r := resources.get(f"data/{name}.{s}")) is not None
        )
        columns = tuple(column_from(field["declared"]) for field in described["schema"]["fields"])
        zeros = tuple(zero_from(sets) for sets in stated["structural_zeros"])
        domain = Domain(columns, zeros, stated["absent_records"])
        if list(domain.names) != stated["columns"]:
            raise ValueError(f"the columns of the product '{name}' are described in two ways")
        sizes = [column.size for column in columns]

        def group_of(names: Sequence[str]) -> tuple[int, ...]:
            return tuple(domain.names.index(each) for each in names)

        groups = [group_of(each["columns"]) for each in stated["tables"]]
        path = written_file(folder, f"{name}_tables")
        if path is None:
            raise ValueError(f"there is no file data/{name}_tables")
        values = read_tables(path, groups, sizes)
        tables = [
            NoisyTable(group, Fraction(each["scale"]), noisy)
            for group, each, noisy in zip(groups, stated["tables"], values, strict=True)
        ]
        known = {}
        for each in stated["known"]:
            group = group_of(each["columns"])
            counts = np.array(each["counts"], dtype=np.int64)
            known[group] = counts.reshape([sizes[column] for column in group])
        return NoisyMarginals(
            domain,
            stated["n_records"],
            tuple(table for table in tables if len(table.group) == 1),
            None,
            tuple(table for table in tables if len(table.group) > 1),
            known,
        )
