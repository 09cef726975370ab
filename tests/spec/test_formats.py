import pytest

from playbook.spec.formats import CACHE_FORMATS, WEIGHT_FORMATS, cache_format, weight_format


def test_block_formats_count_the_share_of_their_scale():
    bits = {
        "bfp8": 8 + 8 / 16,
        "q8_0": 8 + 16 / 32,
        "mxfp8": 8 + 8 / 32,
        "mxfp4": 4 + 8 / 32,
        "nvfp4": 4 + 8 / 16,
    }
    assert {name: CACHE_FORMATS[name].bits for name in bits} == bits


def test_quantised_weights_take_the_bits_of_their_papers():
    assert round(weight_format("int4-g128").bits, 2) == 4.16
    assert weight_format("INT4").bits == weight_format("int4-g128").bits
    assert weight_format("nf4").bits == 4.5
    assert round(weight_format("nf4-double").bits, 3) == 4.127  # QLoRA, section 3: 0.5 down to 0.127
    assert weight_format("mxfp4").bits == 4.25


def test_every_format_names_its_source_and_itself():
    for formats in (CACHE_FORMATS, WEIGHT_FORMATS):
        assert all(made.source and made.name == name for name, made in formats.items())


def test_an_unknown_format_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="kv_dtype='fp7' is not known; valid are fp32, fp16, bf16, fp8"):
        cache_format("fp7")
    with pytest.raises(ValueError, match="weights='gguf' is not known; valid are"):
        weight_format("gguf")
