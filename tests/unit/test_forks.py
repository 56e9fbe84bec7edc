"""Values computed in forks are those computed here, whatever happens to a fork."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable

import pytest

from statpress.tasks.release import plan_page

in_forks = functools.partial(plan_page.in_forks, processes=3)


def test_they_come_in_order_from_several_processes() -> None:
    found = in_forks(lambda item: (item, os.getpid()), range(7))
    assert [item for item, _ in found] == list(range(7))
    assert len({process for _, process in found}) == 3
    for process in {process for _, process in found} - {os.getpid()}:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)  # it is gone
    assert in_forks(abs, [-1]) == [1] and in_forks(abs, []) == []


@pytest.mark.parametrize(
    "fault", [lambda: os._exit(1), lambda: [][0], lambda: os.kill(os.getpid(), 9)]
)
def test_what_a_fork_does_not_give_is_computed_here(fault: Callable[[], None]) -> None:
    here = os.getpid()

    def work(item: int) -> int:
        if os.getpid() != here and item == 1:
            fault()
        return item * item

    assert in_forks(work, range(6)) == [0, 1, 4, 9, 16, 25]


def test_a_fork_that_hangs_is_not_waited_for() -> None:
    """As one does whose lock was held by a thread that no fork has."""
    here = os.getpid()

    def work(item: int) -> int:
        if os.getpid() != here and item == 1:
            signal.pause()
        return item * item

    assert in_forks(work, range(6), patience=0.1) == [0, 1, 4, 9, 16, 25]


def test_an_error_is_raised_here() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise ValueError("of the second fork")
        return item

    with pytest.raises(ValueError, match="of the second fork"):
        in_forks(work, range(4))


def test_elsewhere_all_is_computed_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert {*in_forks(lambda _: os.getpid(), range(4))} == {os.getpid()}
