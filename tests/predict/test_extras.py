import pytest

import playbook as pb
from playbook.spec import Lora


def ask(framework="torch", **work):
    return pb.training_memory(
        pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64, **work), framework=framework)
    )


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (
            {"recipe": "adam8bit-2048"},
            "recipe='adam8bit-2048' is not modelled for framework='torch'; use recipe=",
        ),
        ({"recipe": "muon"}, "recipe='muon' .* or framework=.*'textbook'"),
        ({"recipe": "qlora"}, "recipe='qlora' is not modelled"),
        ({"recipe": "bf16", "lora": Lora(rank=8)}, "lora=.* is not modelled .* use lora=None"),
        ({"loss": "chunked"}, "loss='chunked' is not modelled .* use loss='eager'"),
        ({"loss": "parallel"}, "loss='parallel' is not modelled .* use loss='eager'"),
        ({"offload": "cpu"}, "offload='cpu' is not modelled .* use offload='none'"),
    ],
)
def test_a_framework_refuses_by_name_what_it_does_not_have(work, words):
    with pytest.raises(ValueError, match=words):
        ask(**work)
    assert ask("textbook", **work).peak_bytes > 0


def test_a_disk_is_refused_with_what_comes_nearest():
    with pytest.raises(ValueError, match="offload='nvme': .* use offload='cpu'"):
        ask("textbook", offload="nvme")


def test_the_command_line_tells_what_is_on_the_host(answer, command):
    line = "memory --model toy-15m --sequence 64 --offload cpu --offload-parts gradients"
    found = answer(line)
    assert found["host_bytes"] == 14 * pb.model("toy-15m").parameters
    assert "on the host" in command(line)[1]
    assert answer("memory --model toy-15m --sequence 64")["host_bytes"] == 0


def test_adapters_are_read_from_the_command_line(answer):
    found = answer("memory --model toy-15m --sequence 64 --recipe qlora --lora 4:q_proj,o_proj:fp32")
    plain = answer("memory --model toy-15m --sequence 64 --recipe qlora --lora 4:q_proj,o_proj")
    assert found["peak_bytes"] > plain["peak_bytes"]
