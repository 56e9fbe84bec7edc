"""What the guarantee of a release does not cover, in sentences for its privacy statement."""

from __future__ import annotations

from configs.loading import Release
from mechanisms.domain.privacy_unit import Unit
from mechanisms.planning.plan import Plan

_CHECKS = (
    "Quality checks on the source may stop a run before it is charged; that a release exists shows "
    "that they passed."
)
_IMPOSSIBLE = (
    "One of them is that no record lies in a structural zero which the config declares: the "
    "guarantee is between sources of which this is true."
)
_TIME = (
    "How long the steps of a run take depends on the source, and is seen by whoever watches the "
    "orchestrator."
)
_GROUPS = (
    "What the statistics say of a group can be held against each of its members. That is not "
    "prevented: it would be learned nearly as well if the data of any one of them were different."
)
_OTHERS = (
    "Other publications from the same data that this ledger did not charge, with noise or without, "
    "are not counted here; what they give away adds to what this release does."
)
_ACCESS = (
    "Whoever can read the source, the private folder of a run or the curator log sees confidential "
    "data without protection, and so does whoever steals them."
)
_RECORD = (
    "What is protected is one record. A person, household or firm with k records is protected "
    "less: by up to k times the epsilon, at a larger delta."
)
_CURATOR = (
    "A report of the exact errors of this release was made for the curator, in a private folder. "
    "What is done because of what it says, such as publishing or repeating the release, is not "
    "covered, and neither is how long it took to make."
)
_SEEDED = (
    "The randomness came from a known seed: no guarantee holds, and whoever knows the seed can "
    "take the noise away."
)


def not_covered(release: Release, plan: Plan, *, publishable: bool) -> list[str]:
    """The sentences, from the config only.

    Args:
        release: The config.
        plan: Of that.
        publishable: Whether the randomness was secret.
    """
    privacy = plan.privacy
    size = f"the number of records, {privacy.n_records:,}"
    if privacy.unit == Unit.RECORD:
        unit = _RECORD
    else:
        column = privacy.unit.removeprefix("column ")
        unit = (
            f"What is protected is one value of `{column}` with all its records. Whoever has "
            "several of them, and what the members of a household or a firm have in common, is "
            "protected less."
        )
        size = f"the number of units, {privacy.n_units:,}, and that at most {privacy.unit_records}"
        size += " records of each are used"
    public = (
        f"Taken as public, and not protected: {size}, and everything that config.yaml says, such "
        "as columns, categories, bounds and known totals."
    )
    impossible = [_IMPOSSIBLE] if release.domain.zeros else []
    seeded = [] if publishable else [_SEEDED]
    curator = [_CURATOR] if release.config.curator.report else []
    known = [_CHECKS, *impossible, _TIME, *curator, _GROUPS, unit, _OTHERS, public, _ACCESS]
    return [*seeded, *known]
