"""What an answer from noisy tables says of itself, on a terminal, in Python and in a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from statpress.mechanisms.domain.columns import Column, labels

MISSING = "missing"
"""How a condition names the cell of nulls."""
_FEW = 5  # pairs that are named


def named_cells(column: Column) -> list[str]:
    """How conditions and answers name the cells of a column, by code."""
    return [MISSING if label is None else label for label in labels(column)]


def standing(stated: Mapping[str, Any], sample: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What of a product's privacy statement, and of a sample, bears on answers from its tables."""
    verdict = stated.get("verdict") or {}
    chosen = stated.get("score_scale") is not None or "triple_share" in stated
    return {
        "chosen_by_noisy_scores": chosen,
        **({"sample": sample} if sample else {}),
        **({"kept_of_a_unit": stated["unit_records"]} if stated.get("absent_records") else {}),
        **({"accepted": verdict["name"]} if verdict.get("accepted") else {}),
    }


def kept_words(most: int, unit: str = "unit") -> str:
    """What a release of units that may have several records leaves out.

    Args:
        most: Records of each that are used.
        unit: What a unit is called.
    """
    used = f"{most} records were" if most > 1 else "one record was"
    return (
        f"Of each {unit} at most {used} used, chosen at random: where there are more, counts and "
        "totals are below those of all records, and who has many weighs less."
    )


def _guess(pairs: Sequence[str] | None) -> str:
    """What copies do not know of the columns of a question.

    Args:
        pairs: Those that were not measured, if it is known which columns the question is of.
    """
    towards = (
        "Copies draw relations towards none, also those that were measured: a strong one may lie "
        "far outside its interval, and where the noisy tables answer, ask these."
    )
    if pairs is None:
        return f"{towards} How columns are related that were not measured together is a guess."
    if not pairs:
        beyond = "What three or more columns have in common beyond their pairs is mostly a guess"
        return f"{towards} {beyond}, unless a table of them was measured, which answers then."
    more = f"; and {len(pairs) - _FEW} more" if len(pairs) > _FEW else ""
    return (
        f"{towards} These were not measured together, and how they are related is a guess, near to "
        f"not at all: {'; '.join(pairs[:_FEW])}{more}."
    )


def caveats(facts: Mapping[str, Any]) -> list[str]:
    """How the estimates and intervals of an answer are meant."""
    sample, counts = facts.get("sample"), facts["statistic"] == "count"
    sums = counts or facts["statistic"] == "total"
    copied = facts["statistic"] == "combined" or facts.get("on_copies", False)
    carried = "with_prior" in facts
    several = sample is not None and sample.get("unit_records", 1) > 1
    bounded = sample and not copied and "weighted_by" not in facts and (sums or several)
    whom = "persons" if "persons" in facts["of"] else "records"
    notes = [
        ("Estimates from copies of the records, by Rubin's rule." * copied)
        or ("Estimates from noisy tables and from what an earlier release said of them." * carried)
        or ("Unbiased estimates from noisy tables, which may be negative." * counts)
        or ("Estimates from noisy tables, which may be negative." * sums)
        or "Estimates from noisy tables, which may lie beyond what is possible.",
        f"One interval covers with probability {facts['confidence']:.4g}"
        f"{' or more' if bounded else ''}, not all of them together.",
    ]
    if carried:
        notes.append(
            "Intervals hold as far as columns drifted between the releases as the prior's model "
            "supposes; those without the prior hold whatever it said."
        )
    asked = {name for key in ("columns", "where", "statistic_of") for name in facts.get(key, ())}
    if copied and len(asked) != 1:
        notes.append(_guess(facts.get("guessed")))
    if "weighted_by" in facts:
        notes.append(
            f"Records count by {facts['weighted_by']} as given, of each class by its middle; "
            "within a class weights and figures are taken as unrelated."
        )
    if "scaled_to" in facts:
        notes.append(
            f"They are scaled to the public number of {facts['scaled_to']:,.10g} whom all records "
            "stand for, and not to public totals of single cells."
        )
    made = sorted({each["sampling"] for each in facts["cells"] if "sampling" in each})
    if made:
        notes.append(f"Their sampling variance is by {', '.join(made)}.")
    if sample is None:
        notes.append(f"They are of the {whom} that were counted, without any error of sampling.")
    elif sums and "weighted_by" not in facts:
        notes.append(
            "Intervals are for the expected "
            f"{f'number of {whom}' if facts['statistic'] == 'count' else 'sum'} in a random sample "
            f"of {sample['n_units']:,} units from the population."
        )
        if several:
            notes.append(f"They allow for units whose {whom} are all alike.")
    else:
        notes.append("They are for the population of which the units are a random sample.")
    if "kept_of_a_unit" in facts:
        notes.append(kept_words(facts["kept_of_a_unit"]))
    if any(math.isinf(cell[end]) for cell in facts["cells"] for end in ("lower", "upper")):
        notes.append("Where an end is infinite, the noise leaves the figure unbounded.")
    if any(
        cell["lower"] == -math.inf and cell["upper"] == math.inf
        and cell.get("p_value", 1.0) < 1 - facts["confidence"]
        for cell in facts["cells"]
    ):  # fmt: skip
        notes.append(
            "Where both ends are infinite and the p-value is small, the figure is not 0, but may "
            "lie on either side of it."
        )
    if facts["chosen_by_noisy_scores"]:
        notes.append(
            "Noisy results decided which tables were measured; errors hold given that decision."
        )
    if facts.get("accepted"):
        notes.append(
            f"Its publisher accepted that the product is {facts['accepted'].replace('_', ' ')}."
        )
    return notes
