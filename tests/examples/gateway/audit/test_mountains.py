"""The Merkle mountain range: a head, and proofs that need it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gateway.audit.mountains import Mountains, head_of, leaf_hash, prove, proves
from hypothesis import given
from hypothesis import strategies as st

counts = st.integers(1, 70)


def leaves_of(count: int) -> list[bytes]:
    return [leaf_hash(b"%d" % number) for number in range(count)]


def range_of(count: int) -> Mountains:
    mountains = Mountains()
    for leaf in leaves_of(count):
        mountains.add(leaf)
    return mountains


@given(counts, st.data())
def test_every_record_is_proved_by_the_head_alone(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, count - 1))
    leaves = leaves_of(count)
    assert proves(prove(leaves, index), leaves[index], range_of(count).head)


@given(counts, st.data())
def test_no_proof_shows_another_record_another_place_or_another_head(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, count - 1))
    leaves, head = leaves_of(count), range_of(count).head
    proof = prove(leaves, index)
    assert not proves(proof, leaf_hash(b"another"), head)
    assert not proves(proof, leaves[index], range_of(count + 1).head)
    assert not proves(replace(proof, count=count + 1), leaves[index], head)
    if count > 1:
        other = (index + 1) % count
        assert not proves(replace(proof, index=other), leaves[index], head)
    if proof.path:
        changed = (bytes(32), *proof.path[1:])
        assert not proves(replace(proof, path=changed), leaves[index], head)


def test_an_inner_node_cannot_pass_for_a_record() -> None:
    leaves, mountains = leaves_of(4), range_of(4)
    proof = prove(leaves, 0)
    inner = prove(leaves_of(4)[2:], 0).peaks[0]
    shorter = replace(proof, index=1, path=proof.path[1:])
    assert not proves(shorter, inner, mountains.head)


def test_peaks_are_as_many_as_the_bits_of_the_count() -> None:
    for count in range(1, 40):
        assert len(range_of(count).peaks) == count.bit_count()
        assert range_of(count).head == head_of(count, range_of(count).peaks)


def test_peaks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 leaves have 2 peaks, got 1"):
        Mountains(3, (bytes(32),))


def test_a_record_that_is_not_there_has_no_proof() -> None:
    with pytest.raises(ValueError, match="records 0 to 1, got 2"):
        prove(leaves_of(2), 2)
