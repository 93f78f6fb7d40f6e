"""The tree over the log is that of RFC 6962."""

import hashlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain import merkle
from holdlog.domain.merkle import EMPTY_ROOT, Frontier

# The leaves and roots of the test of Certificate Transparency: https://github.com/google/certificate-transparency
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
SIZES = st.integers(1, 200)


def leaves_of(size: int) -> list[bytes]:
    return [merkle.leaf(hashlib.sha256(str(number).encode()).digest()) for number in range(size)]


def defined_root(leaves: Sequence[bytes]) -> bytes:
    """As RFC 6962 defines it: the first part has the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return merkle.node(defined_root(leaves[:split]), defined_root(leaves[split:]))


def test_roots_are_those_of_the_published_test_vectors() -> None:
    frontier = Frontier()
    for text, root in zip(INPUTS, ROOTS, strict=True):
        frontier.add(merkle.leaf(bytes.fromhex(text)))
        assert frontier.root().hex() == root


def test_empty_tree_has_the_hash_of_nothing() -> None:
    assert Frontier().root() == EMPTY_ROOT == merkle.log_root([], [])


@given(SIZES)
def test_frontier_gives_the_defined_root(size: int) -> None:
    leaves = leaves_of(size)
    frontier = Frontier()
    for one in leaves:
        frontier.add(one)
    assert frontier.root() == defined_root(leaves)


@given(st.integers(0, 12), st.integers(0, 15))
def test_frontier_accepts_complete_subtrees(subtrees: int, rest: int) -> None:
    leaves = leaves_of(subtrees * 16 + rest)
    frontier = Frontier()
    for number in range(subtrees):
        frontier.add(defined_root(leaves[number * 16 : number * 16 + 16]), 16)
    for one in leaves[subtrees * 16 :]:
        frontier.add(one)
    assert frontier.size == len(leaves)
    assert frontier.root() == (defined_root(leaves) if leaves else EMPTY_ROOT)


@given(st.integers(0, 300), st.integers(0, 300))
def test_subtrees_around_a_range_and_its_leaves_have_the_root_of_the_tree(one: int, other: int) -> None:
    first, last, size = min(one, other), max(one, other), 300
    leaves = leaves_of(size)
    tree = Frontier()
    for bounds in merkle.subtrees(0, first):
        tree.add(defined_root(leaves[slice(*bounds)]), bounds[1] - bounds[0])
    for hashed in leaves[first:last]:
        tree.add(hashed)
    for bounds in merkle.subtrees(last, size):
        tree.add(defined_root(leaves[slice(*bounds)]), bounds[1] - bounds[0])
    assert (tree.size, tree.root()) == (size, defined_root(leaves))
