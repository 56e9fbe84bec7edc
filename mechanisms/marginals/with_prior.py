"""Figures of a release that use the earlier release it has as its prior.

Ordinary intervals are of this release alone, and hold whatever the earlier one said. These are
narrower and conditional: they hold as far as columns and pairs drifted as the model of
``mechanisms.marginals.prior`` supposes, with the size of the drift learnt from what was measured.
Each figure is computed on tables drawn from what the measurements and the prior leave open, and the
interval ends at their quantiles. Everything here is a function of the release, and costs nothing.

The posterior is that of ``mechanisms.marginals.copies``, about the earlier tables of the pairs that
are likelier to deviate from these than from independence.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, Kept
from statpress.mechanisms.marginals.column_shares import one_way
from statpress.mechanisms.marginals.copies import Posterior
from statpress.mechanisms.marginals.denoising import Model
from statpress.mechanisms.marginals.linear_moments import CellFunction, Interval, wald
from statpress.mechanisms.marginals.residuals import NoisyMarginals, Residuals, centred
from statpress.mechanisms.marginals.target_tables import Floats, Group, boxes_of

DRAWS = 200


class _Drawn(Mapping[Group, Floats]):
    """Residuals of one draw, each of which is drawn when it is first asked for."""

    def __init__(self, posterior: Posterior, seed: tuple[int, int]) -> None:
        self._posterior, self._seed = posterior, seed
        self._tables: dict[Group, Floats] = {}
        model = posterior.model
        spread = model.residuals.variances[()] ** 0.5
        drawn = model.n + spread * float(self._generator(()).standard_normal())
        self._n = max(drawn, 1.0)

    def __contains__(self, group: object) -> bool:
        model = self._posterior.model
        return group in model.residuals.values or group in model.carried

    def __getitem__(self, group: Group) -> Floats:
        if group not in self:
            raise KeyError(group)
        return centred(self._n * self._shares(group))

    def __iter__(self) -> Iterator[Group]:
        model = self._posterior.model
        return iter({**dict.fromkeys(model.residuals.values), **dict.fromkeys(model.carried)})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _generator(self, group: Group) -> np.random.Generator:
        """Public, and the same whatever was asked for before."""
        # With its length, since to NumPy a seed that ends in 0 is the one without it.
        return np.random.default_rng((*self._seed, len(group), *group))

    def _shares(self, group: Group) -> Floats:
        if group not in self._tables:
            self._tables[group] = self._draw(group, self._generator(group))
        return self._tables[group]

    def _draw(self, group: Group, rng: np.random.Generator) -> Floats:
        """Shares of the cells of a group, with the margins of its parts."""
        released, model = self._posterior.released, self._posterior.model
        boxes = boxes_of(released.domain)
        if not group:
            return np.ones(())
        if len(group) == 1:
            return one_way(
                released, model.residuals, model.n, boxes, *group,
                smoothed=True, rng=rng, prior=released.prior,
            )[1]  # fmt: skip
        shares = list(model.one_way)
        for column in group:
            shares[column] = self._shares((column,))
        if len(group) == 2:
            return self._posterior.pair(group, shares, rng)
        pairs: dict[Group, Floats] = {
            pair: self._shares(pair) for pair in itertools.combinations(group, 2)
        }
        drawn = replace(model, one_way=tuple(shares), pairs=pairs)
        return drawn.measured(group, boxes, rng)


@dataclass(frozen=True, eq=False, kw_only=True)
class PriorAnalyses(Analyses):
    """Questions to the combined tables of a release and its prior, by the names of its columns.

    Attributes:
        released: The release, which has a prior.
        draws: How many of the combined tables the intervals are read from.

    Raises:
        QueryError: By its methods: a population or weights are asked for, or a column has no
            numbers.
    """

    released: NoisyMarginals
    draws: int = DRAWS

    @functools.cached_property
    def _draws(self) -> Sequence[Analyses]:
        if self.sample is not None or self.weights is not None:
            raise QueryError(
                "With the prior there are unweighted figures of the records only.",
                where="of" if self.weights is None else "weight",
                next_step="Ask without the prior, or about the records that were counted.",
            )
        posterior = Posterior.of(self.released, Model.of(self.released))
        seed = int(self.released.public_generator().integers(2**63))
        exact = defaultdict[Group, float](float)
        return [
            Analyses(
                domain=self.domain,
                residuals=Residuals(self.residuals.sizes, _Drawn(posterior, (seed, number)), exact),
                confidence=self.confidence,
            )
            for number in range(self.draws)
        ]

    def mean(self, name: str, where: Kept) -> Interval:
        return self._quantiles(lambda own: own.mean(name, where))

    def total(self, name: str, where: Kept) -> Interval:
        return self._quantiles(lambda own: own.total(name, where))

    def count(self, where: Kept) -> Interval:
        return self._quantiles(lambda own: own.count(where))

    def share(self, name: str, codes: Collection[int], where: Kept) -> Interval:
        return self._quantiles(lambda own: own.share(name, codes, where))

    def quantile(self, name: str, share: float, where: Kept) -> Interval:
        return self._quantiles(lambda own: own.quantile(name, share, where))

    def difference(
        self, name: str, one: Kept, other: Kept, codes: Collection[int] | None = None
    ) -> Interval:
        return self._quantiles(lambda own: own.difference(name, one, other, codes))

    def correlation(self, one: str, other: str, where: Kept) -> Interval:
        return self._quantiles(lambda own: own.correlation(one, other, where))

    def regression(self, outcome: CellFunction, regressors: list[CellFunction]) -> list[Interval]:
        found = [own.regression(outcome, regressors) for own in self._draws]
        return [self._of([each.value for each in figures]) for figures in zip(*found, strict=True)]

    def _quantiles(self, figure: Callable[[Analyses], Interval]) -> Interval:
        return self._of([figure(own).value for own in self._draws])

    def _of(self, values: Sequence[float]) -> Interval:
        """The mean of a figure over the draws, and the quantiles that the confidence names."""
        found = wald(float(np.mean(values)), float(np.std(values, ddof=1)), self.confidence)
        ends = np.quantile(values, [(1 - self.confidence) / 2, (1 + self.confidence) / 2])
        return found._replace(lower=float(ends[0]), upper=float(ends[1]), by="draws")
