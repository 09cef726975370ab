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
