"""The process that runs Great Expectations, one suite per line of standard input.

It lives apart from the run because importing the library takes several seconds
and a quarter of a gigabyte: the import overlaps with the rest of the run, and the
memory is not the counting's. It sees small tables of aggregates, never rows, and
answers with one boolean. Its analytics are off. What the library imports for drawing and for
tests of distributions, and no expectation of ours needs, is loaded when something is asked of it:
a third of the import.

It ends when its run ends, also when that is killed and in the middle of an import
(``tasks.private_zone.workers.tasks_of_parent``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, TextIO

from statpress.tasks.private_zone.workers import tasks_of_parent

LOADED_LATE = ("altair", "scipy.stats")
"""Modules that Great Expectations imports and checks of figures do without."""
ABSENT = ("pyspark", "sqlalchemy")
"""Engines that Great Expectations looks for and does without where they are not installed."""


def main() -> None:
    """Serve requests until standard input ends."""
    requests, answers = tasks_of_parent()
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    sys.meta_path.insert(0, _Late())
    for name in ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
    import great_expectations as gx

    serve(gx, requests, answers)


class _Late:
    """Finds modules whose code runs when one of their names is first asked for."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        if name not in LOADED_LATE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def serve(gx: Any, requests: Iterable[str], answers: TextIO) -> None:
    """Answer each request with whether all its figures are within their limits.

    One suite judges the whole table of figures: an expectation for each would take 5 ms, and a wide
    release has hundreds.
    """
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("profiles").add_dataframe_asset("profile")
    definition = asset.add_batch_definition_whole_dataframe("whole")
    for line in requests:
        request = json.loads(line)
        batch = definition.get_batch({"dataframe": pd.DataFrame(request["rows"])})
        suite = gx.ExpectationSuite(
            name=request["gate"],
            expectations=[
                gx.expectations.ExpectColumnPairValuesAToBeGreaterThanB(
                    column_A=larger, column_B=smaller, or_equal=True
                )
                for larger, smaller in (("observed", "least"), ("most", "observed"))
            ],
        )
        result = batch.validate(suite, result_format="BOOLEAN_ONLY")
        broken = any(r.exception_info.get("raised_exception", True) for r in result.results)
        answer = {"success": bool(result.success), "judged": 0 if broken else len(request["rows"])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
