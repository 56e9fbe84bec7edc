"""What is listed without being imported is what the imported thing says of itself."""

from __future__ import annotations

import inspect

import pytest

from statpress.flows.cli import COMMANDS, app
from statpress.mechanisms.registry import KINDS, REGISTRY, served_by
from statpress.tasks.products import product_kind as products


@pytest.mark.parametrize("name", REGISTRY)
def test_the_registry_says_of_a_mechanism_what_it_says_itself(name: str) -> None:
    mechanism = REGISTRY[name]
    assert mechanism.name == name
    assert tuple(kind.name for kind in mechanism.kinds) == served_by(name)
    assert all(KINDS[kind.name] is kind for kind in mechanism.kinds)


@pytest.mark.parametrize("key", products.KINDS)
def test_the_kinds_of_files_are_named_as_they_say(key: str) -> None:
    assert type(products.KINDS[key]).core is KINDS[products.KINDS[key].core.name]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_that_of_its_docstring(name: str) -> None:
    _, text = COMMANDS[name]
    function = app[name].default_command
    if function is None:  # a group of commands
        assert app[name].help == text
        return
    said, *_ = (inspect.getdoc(function) or "").partition("\n\nArgs:")
    assert said == text
