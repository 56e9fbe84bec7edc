"""A mechanism and a kind of product from outside the package, as a contributor would write them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from statpress.mechanisms import registry
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteLaplaceLoss
from statpress.mechanisms.domain.contingency_table import CodedColumns, ContingencyTable
from statpress.mechanisms.mechanism import (
    DWORK,
    Citation,
    Kind,
    Needs,
    Target,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import Covariance, IndependentErrors
from statpress.mechanisms.tables.count_tables import TABLE
from statpress.mechanisms.tables.perturbed import LaplaceTable
from statpress.tasks.bundle.file_formats import read_rows
from statpress.tasks.bundle.rows import value_rows
from statpress.tasks.pages.blocks import Prose, Section
from statpress.tasks.products import product_kind as products
from statpress.tasks.products.product_kind import ProductKind, ReaderWords, ReportPart
from statpress.tasks.products.publication import DataTable, Publication


@dataclass(frozen=True)
class CoarseLaplace(LaplaceTable):
    """A table mechanism: discrete Laplace noise whose scale is a whole number."""

    name: ClassVar[str] = "coarse_laplace"
    kinds: ClassVar[tuple[Kind, ...]] = (TABLE,)

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        return cls(Fraction(math.ceil(super().calibrate(knobs, target).scale)))

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        return IndependentErrors()


@dataclass(frozen=True, kw_only=True)
class HalfKnobs:
    """What a config may say."""

    share_above: Fraction = Fraction(1, 2)


@dataclass(frozen=True)
class ExpectedHalf:
    sd: float

    def deciding(self, criterion: str) -> float:
        return self.sd

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "expected sd of the upper half", f"{self.sd:.2f} records"

    def summary(self) -> str:
        return f"sd {self.sd:.2f} records"


class HalfKind(Kind):
    """How many records lie in the upper cells of a domain."""

    name = "half"
    left_open = HalfKnobs
    may_omit = True
    criteria: ClassVar[Mapping[str, str]] = {"sd": "sd of the count"}
    compared: ClassVar[Mapping[str, str]] = {"sd": "expected sd of the upper half"}

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return 1


HALF = HalfKind()


@dataclass(frozen=True)
class NoisyHalf:
    """Discrete Laplace noise on one count, which one unit moves by as many as its records."""

    name: ClassVar[str] = "noisy_half"
    citations: ClassVar[tuple[Citation, ...]] = (DWORK,)
    kinds: ClassVar[tuple[Kind, ...]] = (HALF,)
    needs: ClassVar[Needs] = "joint"
    knobs: ClassVar[type] = HalfKnobs
    pure: ClassVar[bool] = True

    scale: Fraction
    first: int

    @classmethod
    def calibrate(cls, knobs: HalfKnobs, target: Target) -> Self:
        epsilon = Fraction(target.pure_epsilon())
        return cls(Fraction(float(1 / epsilon) * 1.001), int(knobs.share_above * target.n_cells))

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        return DiscreteLaplaceLoss(self.scale, unit_records, 1)

    def release(self, table: ContingencyTable, rng: Any, progress: Any = None) -> int:
        above = int(table.counts[table.cells >= self.first].sum())
        return above + int(rng.discrete_laplace(self.scale, 1)[0])

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedHalf:
        return ExpectedHalf(math.sqrt(2) * float(self.scale))

    def describe(self) -> dict[str, str | int]:
        return {"mechanism": self.name, "scale": str(self.scale), "first": self.first}

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        return cls(Fraction(str(description["scale"])), int(str(description["first"])))


class HalfProduct(ProductKind[NoisyHalf, int, float]):
    """The file of a half: one row."""

    core = HALF

    def postprocess(self, product: Any, raw: int, n_records: int) -> float:
        return min(max(raw, 0), n_records) / n_records

    def publication(self, product: Any, derived: float | None = None) -> Publication:
        fields = [{"name": "share", "type": "number"}]
        table = DataTable(stem=product.name, fields=fields, most_rows=1)
        if derived is not None:
            rows = value_rows({"share": [derived]})
            table = replace(table, expected=1, rows=rows, check=partial(_not_as_derived, derived))
        return Publication((table,))

    def words(self, product: Any, plan: Any) -> ReaderWords:
        item = f"- `{product.name}`: the share of records in the upper cells."
        return ReaderWords(item, {"halves": "**Halves** are a toy."})

    def part(self, folder: Path, name: str, stated: Any, resources: Any) -> ReportPart:
        said = Prose(["see the file"])
        return ReportPart("half of a column", Section(f"product-{name}", name, [said]))


def _not_as_derived(derived: float, path: Path) -> dict[str, int]:
    (row,) = read_rows(path)
    return {"not as derived": int(not np.isclose(row["share"], derived))}


class WideHalfKind(HalfKind):
    """The same of the first column of a product with any number of columns."""

    name = "wide_half"


WIDE_HALF = WideHalfKind()


@dataclass(frozen=True)
class NoisyFirst(NoisyHalf):
    """It sees the records' codes, of which it takes one table."""

    name: ClassVar[str] = "noisy_first"
    kinds: ClassVar[tuple[Kind, ...]] = (WIDE_HALF,)
    needs: ClassVar[Needs] = "columns"

    @classmethod
    def calibrate(cls, knobs: HalfKnobs, target: Target) -> Self:
        assert target.domain is not None
        epsilon = Fraction(target.pure_epsilon())
        size = target.domain.columns[0].size
        return cls(Fraction(float(1 / epsilon) * 1.001), int(knobs.share_above * size))

    def release(self, table: CodedColumns, rng: Any, progress: Any = None) -> int:
        (counts,) = table.tables([(0,)])
        return int(counts[self.first :].sum()) + int(rng.discrete_laplace(self.scale, 1)[0])


class WideHalfProduct(HalfProduct):
    """Its file is the same."""

    core = WIDE_HALF


registry.register(CoarseLaplace)
registry.register(NoisyHalf)
registry.register(NoisyFirst)
products.register(HalfProduct())
products.register(WideHalfProduct())
