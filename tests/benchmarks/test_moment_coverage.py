"""Coverage of what noisy tables say of means, shares, quantiles and least squares: a quick form."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import pytest

from tests.benchmarks.moment_coverage import (
    ASKED,
    EPSILONS,
    Setting,
    main,
    rows,
    simulated,
    survey,
)

N = 17_137


def covered(setting: Setting, runs: int) -> dict[str, float]:
    """Coverage by kind, of all figures together."""
    hits: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (kind, _, _), (held, of) in simulated(setting, 0, runs).items():
        hits[kind][0] += held
        hits[kind][1] += of
    return {kind: held / of for kind, (held, of) in hits.items()}


@pytest.mark.nightly
def test_sets_cover() -> None:
    """Figures of one replicate depend on each other: a mean of 8 is .95 by .03 or so."""
    shares = covered(Setting(3.0, N), 8)
    assert set(shares) == set(ASKED) - {"Anderson-Rubin"}
    assert all(0.88 < share < 0.99 for share in shares.values()), shares


def test_sets_of_a_weak_matrix_cover() -> None:
    assert covered(Setting(1.0, 2000), 1)["Anderson-Rubin"] > 0.9


def test_blocks_that_are_there_are_not_simulated_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.moment_coverage.BLOCK", 1)
    asked: list[tuple[Setting, int]] = []

    def instead(setting: Setting, block: int, runs: int) -> dict[tuple[str, str, str], list[int]]:
        asked.append((setting, block))
        return {("mean", "x", "records"): [runs, runs]}

    monkeypatch.setattr("tests.benchmarks.moment_coverage.simulated", instead)
    output = ["--output", str(tmp_path / "rows.jsonl")]
    main(["--replicates", "1", *output])
    main(["--replicates", "2", *output])
    settings = [*(Setting(epsilon, len(survey()[1])) for epsilon in EPSILONS), Setting(1.0, 2000)]
    assert asked == [(setting, block) for block in range(2) for setting in settings]
    assert "| mean | records | 1 | 1.000 | 1.000 | 1.000 | 2 |" in capsys.readouterr().out


@pytest.mark.study
@pytest.mark.parametrize(
    "setting",
    [*itertools.starmap(Setting, ((e, N) for e in EPSILONS)), Setting(1.0, 2000)],
    ids=str,
)
def test_every_kind_covers_as_it_is_asked(setting: Setting) -> None:
    for kind, of, _, mean, *_ in rows(simulated(setting, 0, 400)):
        low, high = ASKED[kind]
        assert low <= mean <= max(high, 1.0 if setting.epsilon < 1 else high), (kind, of)
