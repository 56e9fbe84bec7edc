"""Microdata of any width from noisy low-order marginals.

All private steps (mechanisms.marginals.measurement) are discrete Gaussian noise on a fine grid
inside one filter of mu^2, so the whole is charged as one mu-GDP mechanism although its
steps depend on each other's results. Adjacency: replace-one, or add-remove, under which the number
of records is estimated from all tables; a unit holds c records.

The rest is free: all tables are combined with exact variances (mechanisms.marginals.residuals),
the pairs denoised together (mechanisms.marginals.denoising), and records made that have the
one-way tables exactly and the others nearly (mechanisms.marginals.synthesis). They are drawn from a
generator that depends on the release only, so that the same release gives the same records.
Modules that a plan does without are imported when a release runs.

**Public exact totals** of single columns and of pairs are met by the records, and no budget is
spent on them. Integer records with given tables of pairs always exist where the pairs form no
cycle: along a tree each column is drawn given one other. With a cycle it is intractable to say
whether they do (Irving and Jerrum 1994, doi 10.1137/S0097539790191010).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.domain.contingency_table import CodedColumns, check_groups
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import (
    ConfigError,
    DomainTooLargeError,
    InfeasibleBudgetError,
    RecordsError,
)
from statpress.mechanisms.marginals.allocation import (
    MOST_TRIPLE_CELLS,
    SURVEY_WEIGHT,
    TARGET_WEIGHT,
    Emphasis,
    ExpectedMarginals,
    Shares,
    is_scored,
    towards,
    triple_cells,
)
from statpress.mechanisms.marginals.residuals import (
    MOST_RECORDS,
    KnownTotals,
    NoisyMarginals,
    Residuals,
    scale_of,
)
from statpress.mechanisms.marginals.survey_weights import SurveyWeight, class_values, raked
from statpress.mechanisms.marginals.target_tables import (
    Group,
    Integers,
    KnownTotal,
    boxes_of,
    possible_cells,
)
from statpress.mechanisms.mechanism import (
    DONG_ROTH_SU,
    OF_A_SECTION,
    PROOF,
    SMITH_THAKURTA,
    Citation,
    Kind,
    Needs,
    PlacedBy,
    Target,
    check_copies,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import EstimatedTotal
from statpress.mechanisms.sampling.randomness import Evidence, Progress, Randomness
from statpress.mechanisms.tables.count_tables import MICRODATA

if TYPE_CHECKING:
    from statpress.mechanisms.marginals.copies import Copies
    from statpress.mechanisms.marginals.denoising import Model
    from statpress.mechanisms.marginals.prior import Prior

ALL_PAIRS = "all pairs"
"""How a description names the workload of all pairs, alike."""
SCREENED_FROM = 2
"""Pairs above which they are scored unless a config says otherwise."""
MOST_COLUMNS, MOST_GROUP = 100, 6
"""Columns of a product, and of a table."""
MOST_CODES = 4096
"""Cells of a column that has pairs: its covariance is a matrix of the square of them."""
MOST_WEIGHT = 1e6
"""Largest weight of a group; the least is one over it."""


@dataclass(frozen=True, kw_only=True)
class ColumnGroup:
    """Columns whose joint table matters.

    Attributes:
        columns: Two names or more.
        weight: How much its error counts against that of other groups.
    """

    columns: tuple[str, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                "A group needs two different columns or more.",
                next_step="Name two columns at least, each once; every column has a table of its "
                "own anyway.",
            )
        if len(self.columns) > MOST_GROUP:
            raise ConfigError(f"A group has at most {MOST_GROUP} columns.")
        if not 1 / MOST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise ConfigError(
                f"A weight must be a number between {1 / MOST_WEIGHT:g} and {MOST_WEIGHT:g}."
            )


WithinCells = Literal["middle", "uniform", "slope"]


@dataclass(frozen=True, kw_only=True)
class MarginalsKnobs:
    """What a config may say about this mechanism.

    Attributes:
        pairs: ``all`` pairs of columns, or the groups whose tables matter.
        groups: Groups whose tables matter beside all pairs.
        target: A column that the others are to tell: the groups that hold it count more, for
            people who train a classifier or a regression of it on the records.
        triples: Whether triples of columns are chosen by what the noisy pairs say of them, and
            measured; ``auto`` where pairs are scored and far above their noise.
        screen: Whether noisy scores decide which pairs are measured; ``auto`` for many pairs.
        records: Number of records to publish, or ``n`` for as many as there are.
        copies: How many more sets of records to draw, for intervals of whatever is computed from
            them; 1 for none. They cost nothing.
        one_way_share: Of the budget for tables of single columns; by default from the size
            of the data and of the tables.
        screen_share: Of the budget for the scores, likewise.
        triple_share: Of the budget for triples that are chosen, likewise.
        within_cells: Where in its cell a number or a date of a record lies: in the ``middle``, or
            drawn, ``uniform`` or by the ``slope`` of the neighbouring cells.
        known: Public exact totals of single columns and pairs without a cycle, by a name or that
            of the column; the records meet them, and no budget is spent on them.
        prior: Path of the bundle of an earlier release of the same columns, from the config's
            folder. It costs nothing, helps to fit the records where it agrees with what is
            measured, and enters no interval.
        places: Name of a product of ``place_tables``: each record gets a place by its tables.
        weight: Set by the section ``weight`` of a config. All pairs of the weight's classes, and of
            the columns of a declared design, are measured; records are raked to public totals.
    """

    pairs: Literal["all"] | tuple[ColumnGroup, ...] = "all"
    groups: tuple[ColumnGroup, ...] = ()
    target: str | None = None
    triples: Literal["auto", "yes", "no"] = "auto"
    screen: Literal["auto", "yes", "no"] = "auto"
    records: Literal["n"] | int = "n"
    copies: int = 10
    one_way_share: float | None = None
    screen_share: float | None = None
    triple_share: float | None = None
    within_cells: WithinCells = "middle"
    known: Mapping[str, KnownTotal] | None = None
    prior: str | None = None
    places: PlacedBy | None = None
    weight: SurveyWeight | None = dataclasses.field(default=None, metadata=OF_A_SECTION)

    def __post_init__(self) -> None:
        if self.pairs != "all":
            object.__setattr__(self, "pairs", tuple(self.pairs))
            groups = [frozenset(group.columns) for group in self.pairs]
            if not groups or len(set(groups)) < len(groups):
                raise ConfigError("Give each group of columns once, at least one.", where="pairs")
        if self.records != "n" and self.records < 1:
            raise ConfigError("At least one record must be published.", where="records")
        check_copies(self.copies)
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.groups and self.pairs != "all":
            raise ConfigError(
                "Groups beside all pairs are given with 'pairs: all'.",
                where="groups",
                next_step="List them under 'pairs', with the pairs.",
            )
        check_groups_differ(self.groups)
        shares = {
            "one_way_share": self.one_way_share,
            "screen_share": self.screen_share,
            "triple_share": self.triple_share,
        }
        for name, share in shares.items():
            if share is not None and not 0 < share < 1:
                raise ConfigError("A share of the budget lies between 0 and 1.", where=name)
        if sum(share or 0.0 for share in shares.values()) >= 1:
            raise ConfigError(
                "The shares leave nothing for tables of several columns.", where="one_way_share"
            )
        if self.screen == "no" and self.screen_share is not None:
            raise ConfigError(
                "Pairs are not screened, so that step has no share.", where="screen_share"
            )
        if self.triples == "no" and self.triple_share is not None:
            raise ConfigError(
                "No triples are chosen, so that step has no share.", where="triple_share"
            )


def all_pairs(n_columns: int) -> tuple[tuple[Group, float], ...]:
    """The workload of all pairs of columns, alike."""
    return tuple((pair, 1.0) for pair in itertools.combinations(range(n_columns), 2))


LEAST_FOR_TRIPLES = 0.03
"""Share of the budget for triples that were asked for where pairs are little above their noise."""


def check_groups_differ(groups: Sequence[ColumnGroup]) -> None:
    """Refuse groups of the same columns.

    Raises:
        ConfigError: There are such.
    """
    listed = [frozenset(group.columns) for group in groups]
    for at, columns in enumerate(listed):
        if columns in listed[:at]:
            raise ConfigError("Give each group of columns once.", where=f"groups.{at}")


def unknown_column(name: str, names: Sequence[str], where: str) -> ConfigError:
    """The error of a column that a product does not have."""
    return ConfigError(
        f"The product has no column '{name}'.",
        where=where,
        next_step=f"Name columns of the product: {', '.join(names)}.",
    )


def _groups_of(knobs: MarginalsKnobs, domain: Domain) -> tuple[tuple[Group, float], ...]:
    """The workload by column positions."""
    names = [column.name for column in domain.columns]
    where, listed = ("groups", knobs.groups) if knobs.pairs == "all" else ("pairs", knobs.pairs)
    groups = dict(all_pairs(len(names))) if knobs.pairs == "all" else {}
    for at, group in enumerate(listed):
        for name in group.columns:
            if name not in names:
                raise unknown_column(name, names, f"{where}.{at}")
        groups[tuple(sorted(map(names.index, group.columns)))] = group.weight
    for place in _always_of(knobs.weight, domain):
        for other in range(len(names)):
            if other != place:
                groups.setdefault((min(place, other), max(place, other)), 1.0)
    return tuple(sorted(groups.items()))


def _always_of(weight: SurveyWeight | None, domain: Domain) -> tuple[int, ...]:
    """Positions of the columns whose pairs are all measured: the weight's, then the design's."""
    if weight is None:
        return ()
    weight.check(domain)
    return tuple(map(domain.names.index, (weight.column, *weight.design)))


def _target_of(knobs: MarginalsKnobs, domain: Domain) -> int | None:
    """Position of the target."""
    if knobs.target is None:
        return None
    if knobs.target not in domain.names:
        raise ConfigError(f"The product has no column '{knobs.target}'.", where="target")
    return domain.names.index(knobs.target)


def _candidates(
    knobs: MarginalsKnobs, sizes: tuple[int, ...], groups: tuple[tuple[Group, float], ...]
) -> int:
    """How many triples may be chosen; none where they were not asked for."""
    as_declared = knobs.pairs != "all" or knobs.screen == "no"
    if knobs.triples == "no" or (knobs.triples == "auto" and as_declared):
        return 0
    measured = dict(groups)  # of themselves
    triples = itertools.combinations(range(len(sizes)), 3)
    return sum(
        triple not in measured and math.prod(sizes[c] for c in triple) <= MOST_TRIPLE_CELLS
        for triple in triples
    )


def _emphasis(target: int | None, always: Sequence[int]) -> Emphasis:
    """By column how much more the groups that hold it count: the target, and the survey weight."""
    weighted = {always[0]: SURVEY_WEIGHT} if always else {}
    return weighted | ({} if target is None else {target: TARGET_WEIGHT})


def _is_screened(
    knobs: MarginalsKnobs, groups: tuple[tuple[Group, float], ...], always: Sequence[int]
) -> bool:
    """Whether pairs are scored before they are measured."""
    pairs = sum(is_scored(group, always) for group, _ in groups)
    if knobs.screen == "auto":
        return pairs > SCREENED_FROM
    return knobs.screen == "yes" and pairs > 1


def _check_sizes(domain: Domain, groups: tuple[tuple[Group, float], ...], n_records: int) -> None:
    """Refuse columns and tables that are too many, too large or hold nothing."""
    columns = domain.columns
    if len(columns) > MOST_COLUMNS:
        raise ConfigError(f"At most {MOST_COLUMNS} columns can be served.", where="columns")
    if n_records > MOST_RECORDS:
        raise RecordsError(f"At most {MOST_RECORDS:,} records can be counted on the noise's grid.")
    for column in columns:
        if column.size < 2:
            raise ConfigError(
                f"The column '{column.name}' has only one cell, and so nothing to release.",
                where=column.name,
                next_step="Leave it out; readers can add it.",
            )
    single: list[Group] = [(column,) for column in range(len(columns))]
    check_groups(domain, single)
    check_groups(domain, [group for group, _ in groups])
    # Records are fitted to the tables of all pairs, whether they are measured or not.
    check_groups(domain, list(itertools.combinations(range(len(columns)), 2)))
    for column in columns:
        if groups and column.size > MOST_CODES:
            raise DomainTooLargeError(
                f"The column '{column.name}' has {column.size:,} cells, more than the "
                f"{MOST_CODES:,} of a column that is fitted together with others.",
                where=column.name,
                next_step="Use fewer cells, or a product of this column only.",
            )


Relation = Literal[
    "known", "measured", "shrunk away", "measured elsewhere", "carried over", "assumed independent"
]
_SHRUNK = 0.5  # of the variance of the noise


@dataclass(frozen=True, eq=False)
class Microdata:
    """Synthetic records and what they were made from; all of it public.

    Attributes:
        domain: The declared columns.
        codes: For every column the codes of all records, in the smallest unsigned dtype.
        residuals: The unbiased combination of all tables, for estimates with errors.
        relations: For every pair of columns what is known of it.
        copies: More sets of records, which have no places.
        weight: The weight of the records, if they have one.
        places: Of every record the code of its place, in the smallest unsigned dtype; None if the
            records have none.
    """

    domain: Domain
    codes: tuple[NDArray[Any], ...]
    residuals: Residuals
    relations: Mapping[Group, Relation]
    copies: Copies
    weight: SurveyWeight | None = None
    places: NDArray[Any] | None = None

    def weights(self, codes: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """float64[n]: the weights of records, those of a copy too, raked to public totals.

        Args:
            codes: For every column the codes of the records.
        """
        assert self.weight is not None
        by_name = dict(zip(self.domain.names, codes, strict=True))
        values = class_values(self.domain, self.weight.column)[by_name[self.weight.column]]
        return raked(values, by_name, self.weight.totals)


@dataclass(frozen=True)
class Marginals:
    """The mechanism at fixed parameters; all of them are public.

    Attributes:
        mu: Of the whole release.
        unit_records: Most records of a unit, c.
        sizes: Number of codes of every column.
        groups: The workload; empty for a single column.
        shares: Of mu^2 for the first two steps.
        records: Number of records to publish; 0 for as many as there are.
        within_cells: Where in their cells values lie.
        known: Public exact tables, which are not measured.
        target: Position of the column whose groups count more.
        copies: More sets of records that are published; 0 for none.
        adjacency: The neighbouring relation.
        prior: What an earlier release says of the columns; the loss does not depend on it.
        always: Positions of the columns whose pairs are all measured: that of the weight's classes,
            then those of its design; empty without a weight.
        weight: What the weight is and to which totals records are raked; it is post-processing.
        placed_by: Where the places of records come from; it is post-processing too.
    """

    name: ClassVar[str] = "marginals"
    citations: ClassVar[tuple[Citation, ...]] = (
        SMITH_THAKURTA.at("Theorem 1"),
        DONG_ROTH_SU,
        PROOF.at("Theorem 11.1, Lemma 11.2"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (MICRODATA,)
    knobs: ClassVar[type] = MarginalsKnobs
    pure: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True
    needs: ClassVar[Needs] = "columns"
    counts_those_there: ClassVar[bool] = True
    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)
    drawn_records: ClassVar[None] = None
    published_as: ClassVar[str] = "microdata_by_marginals"

    mu: Fraction
    unit_records: int
    sizes: tuple[int, ...]
    groups: tuple[tuple[Group, float], ...]
    shares: Shares
    records: int = 0
    within_cells: WithinCells = "middle"
    known: KnownTotals = dataclasses.field(default_factory=dict, compare=False)
    target: int | None = None
    copies: int = 0
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    prior: Prior | None = dataclasses.field(default=None, compare=False)
    always: tuple[int, ...] = ()
    weight: SurveyWeight | None = dataclasses.field(default=None, compare=False)
    placed_by: PlacedBy | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.mu <= 0 or self.unit_records < 1 or self.records < 0 or not self.sizes:
            raise RecordsError("mu, unit_records and the sizes of columns must be positive.")
        if self.within_cells not in get_args(WithinCells):
            raise ConfigError(
                f"'within_cells' is not one of {', '.join(get_args(WithinCells))}.",
                where="within_cells",
            )

    @classmethod
    def calibrate(cls, knobs: MarginalsKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: Columns, groups or records that the mechanism cannot serve.
            InfeasibleBudgetError: The budget has no delta, or does not suit the noise's grid.
        """
        if target.domain is None:
            raise ConfigError(f"The mechanism '{cls.name}' needs the product's columns.")
        sizes = tuple(column.size for column in target.domain.columns)
        groups = _groups_of(knobs, target.domain)
        _check_sizes(target.domain, groups, target.n_records)
        mu, always = target.largest_mu(), _always_of(knobs.weight, target.domain)
        screened = _is_screened(knobs, groups, always)
        candidates = _candidates(knobs, sizes, groups)
        n, moved = target.n_there, target.adjacency.moved
        effective = _effective(mu, target.unit_records, target.adjacency)
        position, triples = _target_of(knobs, target.domain), 0.0
        emphasis = _emphasis(position, always)
        if groups:
            triples = Shares.for_triples(
                n=n,
                mu=effective,
                sizes=sizes,
                n_triples=candidates,
                targeted=position is not None,
                weighted=bool(always),
            )
        if candidates and (knobs.triple_share is not None or knobs.triples == "yes"):
            triples = knobs.triple_share or max(triples, LEAST_FOR_TRIPLES)
        elif knobs.triples == "yes" or knobs.triple_share is not None:
            raise ConfigError(
                "No triple of these columns can be chosen: they are fewer than three, have too "
                "many cells, or are measured anyway.",
                where="triples",
                next_step="Leave the key out.",
            )
        shares = Shares.best(
            n=n,
            mu=effective,
            sizes=sizes,
            groups=towards(groups, emphasis),
            screened=screened,
            one_way=knobs.one_way_share,
            screen=knobs.screen_share,
            triples=triples,
            moved=moved,
        )
        if groups and shares.rest <= 0:
            raise ConfigError(
                "The shares leave nothing for tables of several columns.", where="one_way_share"
            )
        smallest = shares.least_part(sizes, towards(groups, emphasis), always)
        if not smallest:
            raise InfeasibleBudgetError("The shares and weights leave a table without a budget.")
        try:
            for part in (Fraction(smallest), Fraction(1)):
                scale_of(moved * target.unit_records**2, mu**2 * part)
        except RecordsError:
            raise InfeasibleBudgetError("The budget does not suit the noise's grid.") from None
        records = 0 if knobs.records == "n" else knobs.records
        within = knobs.within_cells
        mechanism = cls(
            mu,
            target.unit_records,
            sizes,
            groups,
            shares,
            records,
            within,
            target=position,
            copies=knobs.copies if knobs.copies > 1 else 0,
            adjacency=target.adjacency,
            always=always,
            weight=knobs.weight,
            placed_by=knobs.places,
        )
        if not knobs.known:
            return mechanism
        totals, names = _totals_of(knobs.known, target.domain)
        return mechanism.knowing(totals, target.domain, target.n_records, names)

    def knowing(
        self,
        known: KnownTotals,
        domain: Domain,
        n_records: int,
        names: Mapping[Group, str] = MappingProxyType({}),
    ) -> Self:
        """The mechanism with public exact totals of some columns and pairs.

        Args:
            known: By positions of columns, int64 of their shape.
            domain: The columns.
            n_records: Number of records, which the totals add up to.
            names: What a config calls them, for messages.

        Raises:
            ConfigError: They cannot be met.
        """
        if known and self.adjacency is not Adjacency.REPLACE_ONE:
            raise _private_total()
        if known and self.records not in (0, n_records):
            raise ConfigError(
                "Known totals can be met only by as many records as there are.", where="records"
            )
        return dataclasses.replace(self, known=_check_known(known, domain, n_records, names))

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """mu-GDP for units of up to ``unit_records``, and in proportion for others."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        return GaussianLoss(self.mu * Fraction(unit_records, self.unit_records))

    def release(
        self, coded: CodedColumns, rng: Randomness, progress: Progress | None = None
    ) -> NoisyMarginals:
        """The private steps; what they give back is public."""
        from statpress.mechanisms.marginals.measurement import release_marginals

        return release_marginals(
            coded,
            self.groups,
            self.shares,
            self.mu**2,
            unit_records=self.unit_records,
            adjacency=self.adjacency,
            rng=rng,
            known=self.known,
            emphasis=self.emphasis,
            always=self.always,
            prior=self.prior,
            progress=progress,
        )

    @property
    def emphasis(self) -> Emphasis:
        """By column how much more the groups that hold it count."""
        return _emphasis(self.target, self.always)

    def evidence(self, one: CodedColumns, other: CodedColumns) -> Evidence:
        """For audits: by all tables and scores."""
        from statpress.mechanisms.marginals.measurement import evidence_of_marginals

        return evidence_of_marginals(one, other)

    def total(self, release: NoisyMarginals) -> EstimatedTotal | None:
        """The number of records from all tables; None where some are absent, which these omit."""
        if release.domain.absent:
            return None
        found = release.residuals()
        return EstimatedTotal(float(found.values[()]), found.variances[()])

    def postprocess(self, release: NoisyMarginals) -> Microdata:
        """Records and estimates; a function of the release only.

        Records are fitted to what stands ``beside`` the release too, and estimates are not.

        Raises:
            ConfigError: Known totals and structural zeros leave no possible records.
        """
        from statpress.mechanisms.marginals.copies import Copies
        from statpress.mechanisms.marginals.denoising import Model
        from statpress.mechanisms.marginals.presence import Presence
        from statpress.mechanisms.marginals.synthesis import synthesise

        model = Model.of(release)
        published = self.records or max(1, round(model.n))
        codes = synthesise(
            model,
            published,
            release.public_generator(),
            boxes=boxes_of(release.domain),
            known=release.known,
            presence=Presence.of(release.domain),
        )
        columns = tuple(codes[:, j] for j in range(codes.shape[1]))  # no copies of all records
        own = dataclasses.replace(release, beside=()).residuals()
        copies = Copies(release, model, codes, self.copies)
        relations = _relations(model, own)
        places = None
        if release.placing is not None and self.placed_by is not None:
            found = release.placing.codes(release.domain, columns)
            places = found.astype(np.min_scalar_type(self.placed_by.column.size - 1))
        return Microdata(release.domain, columns, own, relations, copies, self.weight, places)

    def rows(self, *, n_cells: int) -> int:
        """Noisy cells at most: those of all columns, the workload's groups and triples."""
        grouped = (math.prod(self.sizes[column] for column in group) for group, _ in self.groups)
        chosen = triple_cells(self.sizes) if self.shares.triples else 0
        return sum(self.sizes) + sum(grouped) + chosen

    @property
    def widest(self) -> int:
        """Columns that a measured table may have, at most."""
        chosen = 3 if self.shares.triples else 1
        return max([chosen, *(len(group) for group, _ in self.groups)])

    def expected_error(
        self, *, n_records: int, n_cells: int, there: int | None = None
    ) -> ExpectedMarginals:
        return ExpectedMarginals.of(
            self.sizes,
            towards(self.groups, self.emphasis),
            self.shares,
            mu=_effective(self.mu, self.unit_records, self.adjacency),
            n_records=there or n_records,
            published=self.records or n_records,
            moved=self.adjacency.moved,
            known=[group for group in self.known if len(group) == 2],
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but known totals, the prior and places."""
        pairs = dict(all_pairs(len(self.sizes)))
        beside = [each for each in self.groups if pairs.get(each[0]) != each[1]]
        whole = len(self.groups) - len(beside) == len(pairs)
        listed = [f"{'+'.join(map(str, g))}:{w!r}" for g, w in (beside if whole else self.groups)]
        return {
            "mechanism": self.name,
            "mu": str(self.mu),
            "most_unit_records": self.unit_records,
            "sizes": " ".join(map(str, self.sizes)),
            "groups": " ".join([ALL_PAIRS] * whole + listed),
            "one_way_share": repr(self.shares.one_way),
            "screen_share": repr(self.shares.screen),
            "published_records": self.records,
            "within_cells": self.within_cells,
            **({"triple_share": repr(self.shares.triples)} if self.shares.triples else {}),
            **({"target": self.target} if self.target is not None else {}),
            **({"copies": self.copies} if self.copies else {}),
            **({"always": " ".join(map(str, self.always))} if self.always else {}),
            **(
                {"adjacency": str(self.adjacency)}
                if self.adjacency is not Adjacency.REPLACE_ONE
                else {}
            ),
            **({"prior": self.prior.seal} if self.prior is not None else {}),
            **({"places": self.placed_by.product} if self.placed_by is not None else {}),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        text = {key: str(value) for key, value in description.items()}
        sizes = tuple(map(int, text["sizes"].split()))
        listed = text["groups"].removeprefix(ALL_PAIRS)
        groups = {} if listed == text["groups"] else dict(all_pairs(len(sizes)))
        for group in listed.split():
            columns, weight = group.split(":")
            groups[tuple(map(int, columns.split("+")))] = float(weight)
        shares = (text["one_way_share"], text["screen_share"], text.get("triple_share", "0"))
        return cls(
            Fraction(text["mu"]),
            int(text["most_unit_records"]),
            sizes,
            tuple(sorted(groups.items())),
            Shares(*map(float, shares)),
            int(text["published_records"]),
            cast("WithinCells", text["within_cells"]),
            target=int(text["target"]) if "target" in text else None,
            copies=int(text.get("copies", "0")),
            adjacency=Adjacency(text.get("adjacency", Adjacency.REPLACE_ONE)),
            always=tuple(map(int, text.get("always", "").split())),
        )


def _effective(mu: Fraction, unit_records: int, adjacency: Adjacency) -> float:
    """The mu at which a table's noise would have the same variance, were one record replaced."""
    return float(mu) / unit_records * math.sqrt(2 / adjacency.moved)


def _relations(model: Model, own: Residuals) -> dict[Group, Relation]:
    """For every pair of columns what is known of it."""
    relations: dict[Group, Relation] = {}
    for pair in model.pairs:
        if pair not in model.residuals.values:
            relations[pair] = "carried over" if pair in model.carried else "assumed independent"
        elif pair not in own.values:
            relations[pair] = "measured elsewhere"
        elif not model.residuals.variances[pair]:
            relations[pair] = "known"
        else:
            hidden = model.signal[pair] < _SHRUNK and pair not in model.carried
            relations[pair] = "shrunk away" if hidden else "measured"
    return relations


_KNOWN = "known"
_MOST_COUNT = 2**62


def _totals_of(
    known: Mapping[str, KnownTotal], domain: Domain
) -> tuple[KnownTotals, Mapping[Group, str]]:
    """Known totals with their counts by ascending positions of their columns, and their names."""
    totals: dict[Group, Integers] = {}
    names: dict[Group, str] = {}
    for name, total in known.items():
        columns, where = total.columns or (name,), f"{_KNOWN}.{name}"
        if not set(columns) <= set(domain.names) or len(set(columns)) < len(columns):
            raise ConfigError(
                "Known totals name columns of the product, each once.",
                where=where,
                next_step=f"Those of the product: {', '.join(domain.names)}.",
            )
        shape = [domain[column].size for column in columns]
        if any(abs(count) > _MOST_COUNT for count in total.counts or ()):
            raise ConfigError(
                f"The known totals '{name}' have a count that no table of records has.",
                where=where,
            )
        counts = np.array(total.counts or (), dtype=np.int64)
        if counts.size != math.prod(shape):
            raise ConfigError(
                f"The known totals '{name}' have {counts.size:,} counts for "
                f"{math.prod(shape):,} cells.",
                where=where,
                next_step="Give a count for every cell, those of 'other' and of missing values "
                "too, or a file that names them.",
            )
        positions = [domain.names.index(column) for column in columns]
        order = sorted(range(len(columns)), key=lambda i: positions[i])
        group = tuple(positions[i] for i in order)
        if group in totals:
            raise ConfigError(
                f"'{names[group]}' and '{name}' are known totals of the same columns.",
                where=where,
                next_step="Leave one of them out.",
            )
        totals[group] = np.ascontiguousarray(counts.reshape(shape).transpose(order))
        names[group] = name
    return totals, names


def _private_total() -> ConfigError:
    return ConfigError(
        "Totals cannot be met exactly where the number of records is private.",
        where=_KNOWN,
        next_step="Leave the known totals out.",
    )


def _check_known(
    known: KnownTotals, domain: Domain, n_records: int, keys: Mapping[Group, str]
) -> KnownTotals:
    """Known totals that agree with the domain, with each other and with the number of records."""
    if known and domain.absent:
        raise _private_total()
    margins: dict[int, Integers] = {}
    of_margins: dict[int, str] = {}
    component = list(range(len(domain.columns)))
    for group, table in sorted(known.items()):
        names = " and ".join(f"'{domain.columns[column].name}'" for column in group)
        where = f"{_KNOWN}.{keys[group]}" if group in keys else _KNOWN
        _check_table(group, table, domain, n_records, names, where)
        for axis, column in enumerate(group):
            margin = table.sum(axis=tuple(i for i in range(len(group)) if i != axis))
            before = of_margins.setdefault(column, names)
            if not np.array_equal(margins.setdefault(column, margin), margin):
                raise ConfigError(
                    f"The known totals of column '{domain.columns[column].name}' differ between "
                    f"tables: that of {before} and that of {names}.",
                    where=where,
                    next_step="Give tables that agree in the columns they share.",
                )
        if len(group) == 2:
            one, other = (component[column] for column in group)
            if one == other:
                raise ConfigError(
                    f"The known totals of {names} close a cycle of pairs.",
                    where=where,
                    next_step="Leave one pair of the cycle out.",
                )
            component = [one if part == other else part for part in component]
    _check_boxes(margins, domain, n_records)
    return dict(sorted(known.items()))


def _check_table(
    group: Group, table: Integers, domain: Domain, n_records: int, names: str, where: str
) -> None:
    sizes = [column.size for column in domain.columns]
    problem, next_step = "", "Correct the counts."
    if len(group) not in (1, 2) or tuple(sorted(set(group))) != group:
        raise ConfigError("Known totals are of one column or of two.", where=where)
    if table.shape != tuple(sizes[column] for column in group) or table.dtype != np.int64:
        problem = "do not have one whole number for each cell"
    elif table.min() < 0:
        problem = "have a negative count"
    elif (total := sum(table.ravel().tolist())) != n_records:
        problem = f"do not add up to the number of records, {n_records:,}, but to {total:,}"
        next_step = "Correct the counts, or the number in 'privacy'."
    elif table[~possible_cells(group, sizes, boxes_of(domain))].any():
        problem = "count records in cells that are declared impossible"
    if problem:
        raise ConfigError(
            f"The known totals of {names} {problem}.", where=where, next_step=next_step
        )


def _check_boxes(margins: Mapping[int, Integers], domain: Domain, n_records: int) -> None:
    """Refuse one-way totals that force a record into an impossible box, by the union bound."""
    for box in boxes_of(domain):
        if set(box.columns) <= set(margins):
            inside = sum(
                int(margins[column][mask].sum())
                for column, mask in zip(box.columns, box.inside, strict=True)
            )
            if inside > n_records * (len(box.columns) - 1):
                raise ConfigError(
                    "The known totals leave no place for some records but declared zeros.",
                    where=_KNOWN,
                    next_step="Correct the totals, or the structural zeros.",
                )
