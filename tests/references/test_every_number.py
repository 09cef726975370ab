"""Published numbers about memory, and where each is held; what stays open says which input is missing."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
HELD = {
    "ZeRO paper, 7.5 B on 64 ranks": ("references/test_zero_paper.py", "31.40625"),
    "Megatron-LM, distributed optimizer": ("frameworks/test_megatron.py", "6.1875"),
    "Ultra-Scale Playbook, states of 1 B to 405 B": ("references/test_ultrascale_states.py", "6480"),
    "Korthikanti et al., layers of 175 B and 530 B": ("references/test_korthikanti.py", "70.2"),
    "Korthikanti et al., shares of the baseline": ("references/test_korthikanti.py", "Figure 7"),
    "DeepSpeed documentation, T5-3B": ("references/test_deepspeed_estimates.py", "15.93"),
    "DeepSpeed issue 4527, 6.8 B": ("references/test_deepspeed_estimates.py", "29.01"),
    "Accelerate documentation, BERT": ("references/test_accelerate.py", "413.18"),
    "Hugging Face, caches of Llama 3.1": ("predict/test_kv_cache.py", "39.06"),
    "DeepSeek-V3 report, cache of a token": ("predict/test_kv_cache.py", "70_272"),
    "PagedAttention paper, OPT-13B": ("predict/test_kv_cache.py", "819_200"),
    "flash-attention issue 922, logits": ("predict/test_explain.py", "19.57"),
    "vLLM pull request 21489, gemma-3": ("predict/test_kv_pool.py", "141"),
    "torchtitan, 8 and 128 GPUs": ("predict/test_published_memory.py", "14.02"),
    "torchtitan, 405 B with two schedules": ("predict/test_published_memory.py", "interleaving"),
    "torchtitan, context parallel sweep": ("predict/test_published_memory.py", "262 144"),
    "Megatron-LM pull request 482": ("frameworks/test_megatron.py", "49.8"),
    "DualPipe README, activations and parameters": (
        "references/test_stage_shares.py",
        "deepseek-ai/DualPipe",
    ),
    "Megatron-Bridge 5077 and llm.c 309": ("references/test_stage_shares.py", "9952"),
    "parameter counts of Llama 3.1": ("data/parameters.csv", "8030261248"),
}
OPEN = {
    "pith-train pull request 18, Qwen3-30B-A3B on 32 GPUs": "recipe, sequence and micro-batches of the run",
    "ART issue 915, a 27 B model at four lengths": "the model's configuration, which is not public",
    "NCCL groups of A100, H100 and B300": "channels and buffer sizes on those machines, to be calibrated",
}


def test_twenty_three_numbers_are_held_or_open():
    assert len(HELD) + len(OPEN) == 23
    assert len(OPEN) <= 4
    assert all(OPEN.values())


@pytest.mark.parametrize("number", HELD)
def test_a_number_stands_in_its_test(number):
    file, text = HELD[number]
    assert text in (HERE / file).read_text("utf-8")
