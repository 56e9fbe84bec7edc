"""YAML made to cost time or memory is refused in little of either."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from statpress.configs.loading import load
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import ConfigError, YamlError


def aliases(depth: int, width: int = 9) -> str:
    lines = ["a0: &a0 [" + ",".join("1" * width) + "]"]
    for i in range(1, depth):
        lines.append(f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * width) + "]")
    return "\n".join(lines)


HOSTILE = {
    "brackets": "a: " + "[" * 200_000 + "]" * 200_000,
    "brackets without an end": "a: " + "[" * 5_000,
    "braces": "{a: " * 3_000 + "1" + "}" * 3_000,
    "indentation": "".join(" " * i + "a:\n" for i in range(2_000)),
    "dashes": "- " * 20_000 + "x",
    "aliases": aliases(10),
    "an alias of itself": "a: &x [*x]",
}


def cost(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and megabytes at the peak, of a call that is refused."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(ConfigError):
            call()
        return time.process_time() - began, tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", HOSTILE)
def test_deep_and_repeating_yaml_is_refused(kind: str) -> None:
    began = time.process_time()
    with pytest.raises(YamlError, match=r"nested too deeply|repeat more than") as caught:
        parse(HOSTILE[kind], "release.yaml")
    assert time.process_time() - began < 1
    assert "release.yaml" in caught.value.where


def test_hundreds_of_megabytes_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    with path.open("wb") as file:
        file.write(b"title: x\n")
        file.truncate(300_000_000)  # takes no room on the disk
    seconds, megabytes = cost(lambda: load(path))
    assert seconds < 1 and megabytes < 40
    with pytest.raises(ConfigError, match="longer than 64 MB") as caught:
        load(path)
    assert str(path) in caught.value.where


def test_repeated_aliases_cost_little_memory() -> None:
    """At a tenth of the values that may be repeated, in a tenth of the room."""
    _, megabytes = cost(lambda: parse(HOSTILE["aliases"], "release.yaml", 10_000))
    assert megabytes < 6


def test_what_configs_use_is_still_read() -> None:
    deep = "[" * 48 + "1" + "]" * 48
    value = parse(f"a: {deep}", "release.yaml").value["a"]
    for _ in range(48):
        (value,) = value
    assert value == 1
    shared = parse(aliases(4), "release.yaml").value
    assert shared["a3"] == [[[[1] * 9] * 9] * 9] * 9
    assert parse("a: '" + "[" * 300 + "'", "release.yaml").value == {"a": "[" * 300}
