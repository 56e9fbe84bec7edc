"""The transforms of composition against SciPy's, whose lengths and bits they have."""

from __future__ import annotations

import numpy as np
import pytest

from statpress.mechanisms.accounting.privacy_loss_distributions import fast_length, power, product


def test_lengths_are_those_of_scipy() -> None:
    from scipy.fft import next_fast_len

    sizes = [*range(1, 700), *np.random.default_rng(1).integers(700, 10**6, 100).tolist()]
    assert [fast_length(n) for n in sizes] == [next_fast_len(n) for n in sizes]
    assert [fast_length(n, 5) for n in sizes] == [next_fast_len(n, True) for n in sizes]


@pytest.mark.parametrize("size", [1, 2, 7, 1001, 4096, 30_001])
def test_sums_have_the_bits_of_scipys_transform(size: int) -> None:
    from scipy import fft

    rng = np.random.default_rng(size)
    one, two = (rng.dirichlet(np.full(size, 0.1)) for _ in range(2))
    found = power(one, 3)
    length = fast_length(max(len(found.masses), size))
    whole = np.real(fft.ifft(fft.fft(one, length) ** 3))
    assert np.array_equal(found.masses, np.roll(whole, -found.first)[: len(found.masses)])
    if size > 1:
        length = fast_length(2 * size - 1, 5)
        whole = fft.irfft(fft.rfft(one, length) * fft.rfft(two, length), length)
        assert np.array_equal(product(one, two), whole[: 2 * size - 1])
