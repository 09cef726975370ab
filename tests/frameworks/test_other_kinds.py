import pytest

import playbook as pb

KINDS = {
    "qwen1.5-moe-a2.7b": "routed experts",
    "deepseek-v2-lite": "routed experts, latent attention",
    "gemma-2-2b": "GELU, norms before and behind each part",
    "olmo-2-7b": "norms behind each part only, norms over all heads together",
    "gpt-oss-120b": "routed experts, attention sinks",
}


@pytest.mark.parametrize("framework", ["torch", "transformers"])
@pytest.mark.parametrize("name", KINDS)
def test_a_kind_that_a_framework_does_not_know_is_refused_by_what_it_has(framework, name):
    layout = pb.Layout(dp=2, zero=3)
    s = pb.Scenario(pb.model(name), pb.Workload(sequence=128), layout, framework=framework)
    with pytest.raises(ValueError, match=rf"model '?{name}'? has {KINDS[name]}.*use a dense kind of Llama"):
        pb.program(s)
