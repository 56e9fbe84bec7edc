"""Formulas of least squares, as R and formulaic write them, over the cells of declared columns.

formulaic parses a formula and evaluates it, and every term is evaluated on the cells of its own
columns: a term of two columns is a function of their cells, and needs the tables that hold both
together with every other. Terms that learn something from all rows (``center``, ``poly``, splines)
have no meaning on cells, and are refused.

**Missing values.** Records are not left out, since that would take tables of all columns together.

- A predictor's missing number counts as the mean of the others, and has a coefficient of its own,
  ``NAME[missing]``. Missing categories and ``other`` are categories.
- A category with too few records for the noise (fewer than ``CLEAR`` standard errors) counts with
  the reference, the first category that has more; so few missing numbers have no coefficient.
- Outcomes that are there are weighted up to all: y counts as m + (y - m)/p, with the mean m and the
  share p of those that are there, and as m where it is missing. This is right where outcomes are
  missing at random, whatever the predictors.

The means and shares are estimates from the noisy tables; they are taken as they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from statpress.mechanisms.domain.column import Column
from statpress.mechanisms.domain.columns import labels
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, numbers_of
from statpress.mechanisms.marginals.linear_moments import ONE, CellFunction
from statpress.mechanisms.marginals.target_tables import Floats
from statpress.tasks.products.answer_words import MISSING

CLEAR = 5.0
"""Standard errors of its count that a category needs for a coefficient."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_AS_CATEGORY = re.compile(r"\bC\(\s*`?(\w+)")


@dataclass(frozen=True, eq=False)
class Terms:
    """A formula over cells.

    Attributes:
        columns: Names of the columns in it.
        outcome: What is explained.
        regressors: By the names of their coefficients.
        notes: What an analyst has to know of missing values and rare categories.
    """

    columns: tuple[str, ...]
    outcome: CellFunction
    regressors: Mapping[str, CellFunction]
    notes: tuple[str, ...]


def regressors_of(formula: str, analyses: Analyses, known: Callable[[str], Column]) -> Terms:
    """The outcome and the regressors of a formula.

    Args:
        formula: With an outcome, a tilde, and terms.
        analyses: The tables, for means and for the numbers of records of categories.
        known: The column of a name, or an error.

    Raises:
        QueryError: The formula is not understood, an outcome has no numbers, or a column is
            missing.
    """
    from formulaic import Formula

    with understood_formula(formula):
        parsed = Formula(formula)
        left, right = getattr(parsed, "lhs", ()), getattr(parsed, "rhs", parsed)
        words = columns_in(formula, analyses.domain.names)
        variables = {str(v) for v in parsed.required_variables} | {*words}
    if len(left) != 1:
        raise QueryError(f"'{formula}' needs one outcome, before a tilde.", where="formula")
    (outcome,) = (str(term) for term in left)
    names = sorted(variables)
    columns = {name: known(name) for name in [outcome, *names]}
    notes: list[str] = []
    names = [name for name in names if name != outcome]
    categories = set(_AS_CATEGORY.findall(formula))
    cells: dict[str, Any] = {}
    further: dict[str, CellFunction] = {}
    for name in names:
        column = columns[name]
        if name not in categories and np.isfinite(numbers_of(column)).any():
            cells[name], extra = _numbers(name, column, analyses, notes)
            further |= extra
        else:
            cells[name] = _categories(name, column, analyses, notes)
    regressors = dict(_evaluated(formula, right, cells, analyses)) | further
    return Terms((outcome, *names), _outcome(outcome, analyses, notes), regressors, tuple(notes))


def columns_in(formula: str, known: Iterable[str]) -> list[str]:
    """Those of the known columns that a formula names."""
    named = {*re.findall(r"\w+", formula), *re.findall(r"`([^`]+)`", formula)}
    return [name for name in known if name in named]


@contextmanager
def understood_formula(formula: str) -> Iterator[None]:
    """Whatever formulaic raises of a formula is an error of the question."""
    try:
        yield
    except QueryError:
        raise
    except Exception as error:
        raise QueryError(
            f"The formula '{formula}' is not understood: {_COLOURS.sub('', str(error))}",
            where="formula",
            next_step="Write it as 'y ~ a + C(b) + c', of the names of columns.",
        ) from error


def _evaluated(
    formula: str, terms: Any, cells: Mapping[str, Sequence[Any]], analyses: Analyses
) -> Iterator[tuple[str, CellFunction]]:
    """Per coefficient its name and its function of cells."""
    import pandas as pd

    names = list(cells)
    longest = max((len(each) for each in cells.values()), default=1)

    def frame(rows: Sequence[Sequence[int]]) -> Any:
        """Rows of codes, one for each column, as values."""
        columns = {}
        for name, codes in zip(names, zip(*rows, strict=True), strict=True):
            values = pd.Series(cells[name])
            columns[name] = values.take(list(codes)).reset_index(drop=True)
        return pd.DataFrame(columns, index=range(len(rows)))

    with understood_formula(formula):
        every = [[i % len(cells[name]) for name in names] for i in range(longest)]
        spec = terms.get_model_matrix(frame(every), na_action="ignore").model_spec
        if spec.transform_state:
            raise QueryError(
                f"'{next(iter(spec.transform_state))}' depends on all records together.",
                where="formula",
                next_step="Write terms that follow from a record's own values.",
            )
        for term, variables in spec.term_variables.items():
            own = sorted(
                (str(v) for v in variables if str(v) in cells), key=analyses.domain.names.index
            )
            sizes = [len(cells[name]) for name in own]
            grid = [
                [dict(zip(own, codes, strict=True)).get(name, 0) for name in names]
                for codes in itertools.product(*map(range, sizes))
            ]
            matrix = spec.get_model_matrix(frame(grid), na_action="ignore")
            values = np.asarray(matrix, dtype=np.float64)
            group = tuple(analyses.domain.names.index(name) for name in own)
            place = spec.term_slices[term]
            for column in range(place.start, place.stop):
                function = values[:, column].reshape(sizes)
                if not np.isfinite(function).all():
                    raise QueryError(
                        f"'{spec.column_names[column]}' is not a number for every cell.",
                        where="formula",
                    )
                yield spec.column_names[column], CellFunction(group, function)


def _numbers(
    name: str, column: Column, analyses: Analyses, notes: list[str]
) -> tuple[list[float], dict[str, CellFunction]]:
    """The numbers of a predictor's cells, and the regressor for those without one."""
    numbers = numbers_of(column)
    without = np.isnan(numbers)
    if not without.any():
        return numbers.tolist(), {}
    filled = np.where(without, analyses.mean(name, {}).value, numbers)
    n_clear = np.isin(np.flatnonzero(without), analyses.clear(name, CLEAR)).any()
    notes.append(
        f"Records without a number of {name} count with its mean"
        + (f"; {name}[missing] is how they differ from it." if n_clear else ".")
    )
    extra = {f"{name}[missing]": analyses.function(name, without.astype(np.float64))}
    return filled.tolist(), extra if n_clear else {}


def _categories(name: str, column: Column, analyses: Analyses, notes: list[str]) -> Any:
    """The categories of a predictor's cells, in the declared order."""
    import pandas as pd

    own = [MISSING if label is None else label for label in labels(column)]
    clear = [own[code] for code in analyses.clear(name, CLEAR)] or own[:1]
    rare = [label for label in own if label not in clear]
    if rare:
        notes.append(
            f"Too few records for the noise have {name} = {', '.join(rare)}; they count with the "
            f"reference, {clear[0]}."
        )
    return pd.Categorical([x if x in clear else clear[0] for x in own], categories=clear)


def _outcome(name: str, analyses: Analyses, notes: list[str]) -> CellFunction:
    """The outcome, with those that are there weighted up to all records."""
    values, there = analyses.amounts(name)
    if there.values.all():
        return values
    some, everyone = analyses.sums([there, ONE]).values
    share = min(max(some / everyone, 0.01), 1.0)
    mean = analyses.mean(name, {}).value
    notes.append(
        f"{1 - share:.1%} of the records have no number of {name}; the others are weighted up, "
        "which is right if outcomes are missing at random."
    )
    weighted: Floats = mean + (values.values - mean) / share
    return analyses.function(name, np.where(there.values > 0, weighted, mean))
