"""What is computed on each copy of the records, and combined by Rubin's rule.

Any function of a frame will do. Least squares by a formula are here: on copies a term may be any
function of a record, also of columns that were not measured together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.weighted_sums import SampleDesign
from statpress.tasks.products.answer_words import MISSING
from statpress.tasks.release.formulas import columns_in, understood_formula

if TYPE_CHECKING:
    import pandas as pd


def combine_copies(
    fit: Callable[..., Any],
    frames: Sequence[pd.DataFrame],
    *,
    size: float,
    population: bool,
    confidence: float,
    freedom: float,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The cells of an answer, one for each figure, and what an analyst has to know of them.

    Args:
        fit: As ``Release.combine`` takes it.
        frames: Of all copies, the number of each in the last column; of linked records one of
            households and one of persons.
        size: Records that the release is of, which a copy may have fewer of.
        population: Whether figures are of a population and not of the confidential records.
        confidence: Of each interval.
        freedom: Degrees of freedom of a variance of one copy; infinite unless they are few.

    Raises:
        QueryError: ``fit`` gives something else than figures, or no finite number.
    """
    from statpress.mechanisms.marginals.copies import combined

    fits = [
        _figures(fit(*own), sampled=population)
        for own in zip(*map(_copy_by_copy, frames), strict=True)
    ]
    few = math.isfinite(freedom)  # a copy has all clusters, however few its records
    share = 1.0 if few else len(frames[0]) / len(fits) / size
    cells: list[dict[str, Any]] = []
    for term in fits[0]:
        if not all(term in each for each in fits):
            raise QueryError(
                f"Not every copy gives '{term}', as where a group has few records.",
                where="fit",
                next_step="Take larger groups, or leave this figure out.",
            )
        figures, variances = zip(*(each[term] for each in fits), strict=True)
        for number, pair in enumerate(zip(figures, variances, strict=True), start=1):
            if not all(map(math.isfinite, pair)):
                raise QueryError(
                    f"Copy {number} has no finite figure and variance of '{term}', as where a "
                    "group has one record or none.",
                    where="fit",
                    next_step="Take larger groups, or leave this figure out.",
                )
        given = variances if population else None
        found = combined(figures, given, share=share, freedom=freedom)
        lower, upper = found.interval(confidence)
        cells.append(
            {
                "values": {"term": term},
                "estimate": found.estimate,
                "standard_error": found.standard_error,
                "lower": lower,
                "upper": upper,
                "p_value": found.p_value,
                "method": "Rubin",
            }
        )
    notes = []
    if agreed := [cell["values"]["term"] for cell in cells if not cell["standard_error"]]:
        notes.append(
            f"All copies agree on {', '.join(agreed)}, since numbers are the middles of cells: "
            "that is no certainty."
        )
    return cells, notes


def of_linked(
    fit: Callable[[pd.DataFrame], Any],
    key: str,
    of_persons: bool,
    households: pd.DataFrame,
    persons: pd.DataFrame,
) -> Any:
    """A fit to households, or to persons with the columns of their households."""
    if not of_persons:
        return fit(households)
    also = [name for name in households if name in persons and name != key]
    return fit(persons.merge(households.drop(columns=also), on=key, validate="many_to_one"))


def _copy_by_copy(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The records of each copy, whose number is in the last column."""
    for _, own in frame.groupby(frame.columns[-1], sort=True):
        yield own.drop(columns=own.columns[-1]).reset_index(drop=True)


def _figures(given: Any, *, sampled: bool) -> dict[str, tuple[float, float]]:
    """By term a figure and its variance, of what a fit gave."""
    import pandas as pd

    if hasattr(given, "params") and hasattr(given, "bse"):
        given = given.params, pd.Series(given.bse) ** 2
    if not isinstance(given, tuple):
        given = given, None
    if len(given) != 2 or (sampled and given[1] is None):
        raise QueryError(
            "The function gives neither a fitted model nor figures with their variances.",
            where="fit",
            next_step="Return (figures, variances), or ask for of='records'.",
        )
    figures, variances = (
        each if isinstance(each, pd.Series) else pd.Series(each, dtype=float) for each in given
    )
    if given[1] is None:
        variances = pd.Series(0.0, index=figures.index)
    if list(figures.index) != list(variances.index):
        raise QueryError("Figures and variances are not of the same terms.", where="fit")
    pairs = zip(figures, variances, strict=True)
    return {str(term): pair for term, pair in zip(figures.index, pairs, strict=True)}


def complete(formula: str, copies: Any) -> tuple[Any, list[str]]:
    """Copies of records for a formula, in which a missing category is a category.

    It is one as in the noisy tables, if every copy has some; ``fitted`` leaves other nulls out.

    Args:
        formula: What is to be fitted.
        copies: The frame of all copies, the number of each in the last column.

    Returns:
        The frame, and what an analyst has to know of the records that are left out.
    """
    notes, number = [], copies[copies.columns[-1]]
    for name in columns_in(formula, copies.columns[:-1]):
        column = copies[name]
        there = column.isna()
        if hasattr(column, "cat") and there.groupby(number).any().all():
            filled = column.cat.add_categories({MISSING} - {*column.cat.categories})
            copies = copies.assign(**{name: filled.fillna(MISSING)})
        elif there.any():
            share = f"{there.mean():.1%}" if there.mean() >= 0.001 else "Fewer than 0.1%"
            notes.append(f"{share} of the records of the copies have no {name} and are left out.")
    return copies, notes


def fitted(
    formula: str,
    records: Any,
    weight: str | None = None,
    strata: str | None = None,
    cluster: str | None = None,
) -> tuple[Any, Any]:
    """Least squares on a frame of records, as if they were real; rows with nulls are left out.

    Args:
        formula: With an outcome, a tilde, and terms.
        records: Their frame.
        weight: The column of their weights, if they count by them.
        strata: That of the strata that weighted records were drawn in, if they are declared.
        cluster: That of the clusters that were drawn, likewise; of persons their households.

    Returns:
        Coefficients and their variances, each a Series by name: for errors of one variance, of
        weighted or clustered records by linearisation (Binder 1983, doi 10.2307/1402588) and by the
        design.

    Raises:
        QueryError: The formula is not understood, or its terms cannot be told apart.
    """
    import pandas as pd
    from formulaic import Formula

    own = records.select_dtypes("category").columns
    frame = records.assign(**{name: records[name].cat.remove_unused_categories() for name in own})
    with understood_formula(formula):
        matrices: Any = Formula(formula).get_model_matrix(frame)
        left, right = getattr(matrices, "lhs", None), getattr(matrices, "rhs", matrices)
        if left is None or left.shape[1] != 1:
            raise QueryError(f"'{formula}' needs one outcome, before a tilde.", where="formula")
        y, x = np.asarray(left, dtype=np.float64)[:, 0], np.asarray(right, dtype=np.float64)
    freedom = len(y) - x.shape[1]
    w = np.ones(len(y))
    if weight is not None:
        w = frame.loc[right.index, weight].to_numpy(dtype=np.float64)
    if freedom < 1 or np.linalg.matrix_rank(x) < x.shape[1]:
        raise QueryError(
            f"The terms of '{formula}' cannot be told apart in a copy.",
            where="formula",
            next_step="Leave out terms that follow from others, or that few records have.",
        )
    inverse = np.linalg.inv((w[:, None] * x).T @ x)
    coefficients = inverse @ (x.T @ (w * y))
    left_over = y - x @ coefficients
    names = list(right.columns)
    if weight is None and cluster is None:
        variance = float((left_over**2).sum()) / freedom
        return pd.Series(coefficients, names), pd.Series(variance * np.diag(inverse), names)
    parts = (w * left_over)[:, None] * x @ inverse
    spread = (parts**2).sum(axis=0) * len(y) / freedom
    design = SampleDesign(
        *(
            None if name is None else pd.factorize(records[name], use_na_sentinel=False)[0]
            for name in (strata, cluster)
        )
    )
    if design.is_declared:
        whole = np.zeros((len(records), parts.shape[1]))
        whole[records.index.get_indexer(right.index)] = parts
        spread = design.variance(whole)
    return pd.Series(coefficients, names), pd.Series(spread, names)
