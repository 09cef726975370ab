"""Numbers of `accelerate estimate-memory` for bert-base-cased (documentation of Accelerate, "Model size
estimator"), from BERT's sizes."""

from playbook.spec import recipe
from tests.shapes import gpt

MIB = 2**20

BERT = gpt(
    name="bert-base-cased",
    layers=12,
    hidden=768,
    heads=12,
    head_dim=64,
    ffn=3072,
    vocabulary=28996,
    tied=True,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    positions=512,
    max_sequence=512,
)
"""An encoder that counts as a GPT does: the norm behind its tables stands for the last norm."""
SEGMENTS, POOLER = 2 * 768, 768 * 768 + 768
"""Table of two kinds of segments and the dense layer on the first token, which a GPT has not."""
BUFFERS = 2 * 512 * 8
"""Positions and kinds of segments, as whole numbers of 8 bytes."""


def test_the_size_of_the_model_in_two_dtypes():
    parameters = BERT.parameters + SEGMENTS + POOLER
    assert parameters == 108_310_272
    assert round((4 * parameters + BUFFERS) / MIB, 2) == 413.18
    assert round((4 * parameters + BUFFERS) / 2 / MIB, 2) == 206.59


def test_training_with_adam_in_fp32_is_four_times_the_model():
    parameters = BERT.parameters + SEGMENTS + POOLER
    assert recipe("fp32").state_bytes == 4 * 4
    assert round(recipe("fp32").state_bytes * parameters / 2**30, 2) == 1.61
