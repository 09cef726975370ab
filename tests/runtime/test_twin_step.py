import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

import playbook as pb
from playbook.models.transformer import Transformer
from playbook.runtime.torch_private import quiet
from playbook.runtime.trace_step import degrees
from playbook.runtime.twin_arrivals import Arrivals
from playbook.runtime.twin_build import load_build
from playbook.runtime.twin_models import hugging_face, kind_of
from playbook.runtime.twin_parts import prepare_twin
from playbook.runtime.twin_result import Twin
from playbook.runtime.twin_step import make_step, run_twin
from playbook.runtime.twin_world import free, twin_world

CPU = torch.device("cpu")
TOY = replace(pb.model("toy-15m"), name="toy", layers=2, vocabulary=1024)
BUILD = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1024, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("scale", torch.tensor(2.0))
        self.head = nn.Linear(16, 1024)

    def forward(self, tokens):
        x = self.table(tokens) * self.scale
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

def build():
    return Tiny()
"""


def scenario(framework="torch", sequence=16, recipe="fp32", model=TOY, **layout):
    degrees = {
        name: layout.pop(name) for name in ("micro_batch", "global_batch", "recompute") if name in layout
    }
    workload = pb.Workload(sequence=sequence, recipe=recipe, **degrees)
    return pb.Scenario(model, workload, pb.Layout(**layout), framework=framework)


@pytest.mark.parametrize(
    ("layout", "rank"),
    [
        ({"dp": 8}, 3),
        ({"dp": 8, "zero": 3, "recipe": "fsdp2-mixed", "global_batch": 16}, 3),
        ({"dp": 64, "zero": 3, "reshard": False, "recompute": "full"}, 63),
        ({"tp": 2, "sequence_parallel": True, "recipe": "bf16"}, 1),
        ({"dp": 4, "tp": 2, "zero": 3, "sequence_parallel": True}, 3),
        ({"dp": 4, "zero": 1, "recipe": "bf16"}, 3),
        ({"pp": 2, "global_batch": 4}, 1),
        ({"pp": 2, "schedule": "dualpipe", "global_batch": 4}, 0),
    ],
)
def test_a_rank_takes_its_step_whatever_the_world(layout, rank):
    found = run_twin(scenario(**layout), rank, network="modelled", device=CPU, repeats=1)
    assert found["seconds"] > 0
    assert [row["instant"] for row in found["instants"]] == [
        *("between steps", "forward", "after forward", "backward", "after backward", "optimizer")
    ]


def test_a_replicas_gradient_is_that_of_the_model_alone():
    s = scenario(dp=8)
    with twin_world(degrees(s), 3, CPU, free) as places, quiet():
        step = make_step(s, places, CPU, None, Arrivals())
        alone = Transformer(TOY)
        replica: Any = step.ready.part.module
        alone.load_state_dict(replica.module.state_dict())
        step.ready.part.forward_backward(step.microbatches)
        tokens, labels = step.microbatches[0]
        torch.nn.functional.cross_entropy(alone(tokens).flatten(0, 1), labels.flatten()).backward()
        theirs = dict(alone.named_parameters())
        for name, parameter in step.ready.part.parameters():
            torch.testing.assert_close(parameter.grad, theirs[name].grad)


def test_a_rank_holds_its_own_uneven_shard_and_real_values():
    model = replace(TOY, vocabulary=1000)
    s = scenario(model=model, dp=3, zero=3)
    with twin_world(degrees(s), 2, CPU, free) as places, quiet():
        weights = dict(prepare_twin(s, places, CPU).part.module.named_parameters())
        table, norm = weights["embed_tokens.weight"], weights["norm.weight"]
        assert isinstance(table, DTensor)
        assert table.to_local().shape[0] == 1000 - 2 * 334
        assert table.to_local().std().item() == pytest.approx(0.02, rel=0.02)
        assert isinstance(norm, DTensor)
        assert norm.to_local().unique().tolist() == [1.0]


def test_a_tensor_parallel_rank_holds_its_part_of_the_heads():
    s = scenario(tp=2)
    with twin_world(degrees(s), 1, CPU, free) as places, quiet():
        weights = dict(prepare_twin(s, places, CPU).part.module.named_parameters())
        query = weights["layers.0.self_attn.q_proj.weight"]
        assert isinstance(query, DTensor)
        assert query.to_local().shape == (TOY.heads * TOY.head_dim // 2, TOY.hidden)


def test_tied_weights_stay_one():
    s = scenario(model=replace(TOY, tied=True), dp=4, zero=3)
    with twin_world(degrees(s), 1, CPU, free) as places, quiet():
        module: Any = prepare_twin(s, places, CPU).part.module
        assert module.lm_head.weight is module.embed_tokens.weight


@pytest.mark.parametrize("zero", [0, 3])
def test_a_model_of_ones_own_runs_under_ddp_and_fsdp2(tmp_path, zero):
    file = tmp_path / "tiny.py"
    file.write_text(BUILD)
    found = run_twin(
        scenario(dp=8, zero=zero), 3, network="off", device=CPU, build=f"{file}:build", repeats=1
    )
    assert found["exposed_s"] == 0.0


def test_a_build_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no such file; give FILE\.py:FUNCTION"):
        load_build("nowhere.py:build")
    (tmp_path / "other.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="has no function 'build'"):
        load_build(f"{tmp_path / 'other.py'}:build")


@pytest.mark.parametrize("layout", [{"dp": 8, "zero": 3}, {"pp": 2, "global_batch": 4}])
def test_what_a_step_gives_makes_a_twin(layout):
    s = scenario(**layout)
    found = run_twin(s, 1, network="off", device=CPU, repeats=1, with_terms=True)
    kept = ("instants", "terms", "op", "context_bytes", "compute_s", "seconds")
    told = json.loads(json.dumps({name: found[name] for name in kept}))
    made = Twin(scenario=s, rank=1, network="off", repeats_s=(1.0,), machine="a CPU", **told)
    assert made.peak_bytes == 0  # a CPU has no caching allocator to ask
    assert made.op.startswith("m")
    assert made.exposed_s == 0.0


def test_a_model_that_is_built_with_other_parameters_is_refused(monkeypatch):
    s = scenario(dp=8)
    monkeypatch.setattr("playbook.runtime.twin_build.Transformer", lambda _: torch.nn.Linear(2, 2))
    with (
        twin_world(degrees(s), 3, CPU, free) as places,
        pytest.raises(ValueError, match=r"was built with 6 parameters but has [0-9]+"),
    ):
        prepare_twin(s, places, CPU)


def test_hugging_faces_code_is_chosen_by_what_a_model_has():
    names = ("llama-3.1-8b", "qwen3-8b", "qwen2.5-7b", "mistral-7b-v0.3", "mistral-7b-v0.1")
    assert [kind_of(pb.model(name))[0] for name in names] == ["Llama", "Qwen3", "Qwen2", "Llama", "Mistral"]
    for name, why in (("gpt2", "LayerNorm"), ("gemma-2-2b", "GELU"), ("deepseek-v3", "routed experts")):
        with pytest.raises(ValueError, match=f"has .*{why}.*: not of a Hugging Face kind"):
            kind_of(pb.model(name))


def test_mixtures_of_experts_are_told_apart_by_their_routers():
    kind, more = kind_of(pb.model("mixtral-8x7b"))
    assert (kind, more["num_local_experts"], more["intermediate_size"]) == ("Mixtral", 8, 14336)
    sparse = replace(pb.model("qwen3-30b-a3b"), layers=6)
    assert sparse.moe is not None
    kind, more = kind_of(replace(sparse, moe=replace(sparse.moe, dense_layers=(0, 3))))
    assert (kind, more["num_experts"], more["num_experts_per_tok"]) == ("Qwen3Moe", 128, 8)
    assert more["mlp_only_layers"] == [0, 3]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b"])
def test_hugging_faces_experts_take_a_step_each_with_as_many_tokens(name):
    pytest.importorskip("transformers")
    full = pb.model(name)
    assert full.moe is not None
    sizes: Any = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocabulary": 256}
    model = replace(full, name="small", ffn=64, moe=replace(full.moe, ffn=32), **sizes)
    assert sum(weight.numel() for weight in hugging_face(model).parameters()) == model.parameters
    s = scenario("transformers", sequence=64, recipe="fsdp2-mixed", model=model, dp=4, zero=3)
    found = run_twin(s, 1, network="modelled", device=CPU, repeats=1)
    assert found["seconds"] > 0


def test_a_twin_computes_attention_as_matrix_products_where_asked(monkeypatch):
    chosen = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def watched(*args, **kwargs):
        enabled = (torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled())
        chosen.append(enabled)
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    s = scenario(dp=2)
    for attention in ("flash", "math"):
        work = replace(s.workload, attention=attention)
        run_twin(replace(s, workload=work), 0, network="off", device=CPU, repeats=1)
    assert set(chosen[: len(chosen) // 2]) == {(True, True)}
    assert set(chosen[len(chosen) // 2 :]) == {(True, False)}


def test_without_transformers_the_message_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match="needs the package transformers"):
        hugging_face(pb.model("llama-3.1-8b"))
