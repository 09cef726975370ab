import pytest

import playbook as pb


def test_a_sequence_is_prompt_and_output():
    serving = pb.Serving(prompt=4096, output=512, concurrency=64, kv_dtype="FP8", weights="bf16")
    assert serving.sequence == 4608
    assert (serving.kv_bytes_per_value, serving.weight_bytes_per_value) == (1.0, 2.0)


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="concurrency=0 must be at least 1"):
        pb.Serving(concurrency=0)
    with pytest.raises(ValueError, match="kv_dtype='fp3' is not known; valid are fp32"):
        pb.Serving(kv_dtype="fp3")
    with pytest.raises(ValueError, match=r"utilisation=1.2 is a part of the memory; use 0.9"):
        pb.Serving(utilisation=1.2)
    with pytest.raises(ValueError, match="max_batched_tokens=0 must be at least 1"):
        pb.Serving(max_batched_tokens=0)
    with pytest.raises(TypeError, match="hybrid_allocator='no' must be True or False"):
        pb.Serving(hybrid_allocator="no")  # type: ignore[arg-type]
