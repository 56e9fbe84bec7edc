import numpy as np
import pytest

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.places.tree import Tree


def three_levels() -> Tree:
    codes = [["nation"], ["north", "south"], ["s1", "n1", "n2", "s2"]]
    states = dict.fromkeys(codes[1], "nation")
    return Tree.of(
        ("nation", "state", "county"),
        codes,
        [states, {"s1": "south", "s2": "south", "n1": "north", "n2": "north"}],
    )


def test_children_stand_beside_each_other_and_add_up_to_their_parent():
    tree = three_levels()
    assert tree.codes[2] == ("n1", "n2", "s1", "s2")
    assert tree.sizes == (1, 2, 4)
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    assert tree.sums(2, values).tolist() == [[3.0, 30.0], [7.0, 70.0]]
    assert tree.sums(1, tree.sums(2, values)).tolist() == [[10.0, 100.0]]


@pytest.mark.parametrize(
    ("codes", "within", "said"),
    [
        ([["n"], ["a", "a"]], [{"a": "n"}], "a code twice"),
        ([["n"], ["a", "b"]], [{"a": "n", "b": "m"}], "no code of the level 'nation'"),
    ],
)
def test_a_tree_that_is_none_is_refused(codes, within, said):
    with pytest.raises(ConfigError, match=said):
        Tree.of(("nation", "state"), codes, within)


def test_a_place_without_children_above_the_last_level_is_refused():
    with pytest.raises(ValueError, match="parents without"):
        Tree(("n", "s", "c"), (("n",), ("a", "b"), ("a1",)), (np.array([0, 0]), np.array([0])))
