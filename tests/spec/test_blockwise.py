import pytest

from playbook.spec.blockwise import NF4, Blockwise, adam_states


def test_nf4_with_double_quantisation_is_a_little_over_half_a_byte():
    # 4 bits, one byte of scale for 64 values, 4 bytes of scale for 256 of those: 0.5 + 1/64 + 4/(64 · 256).
    assert float(NF4.bytes_each) == 0.515869140625
    assert NF4.bytes_of(64 * 256) == 8192 + 256 + 4


def test_a_block_that_is_begun_has_a_scale():
    assert adam_states(256).bytes_of(257) == 257 + 2 * 4
    assert adam_states(2048).bytes_of(2048) == 2048 + 4


def test_small_tensors_keep_32_bits():
    assert adam_states().least == 4096


def test_a_block_of_nothing_is_refused():
    with pytest.raises(ValueError, match="quantisation block=0 must be at least 1"):
        Blockwise(bits=8, block=0)
