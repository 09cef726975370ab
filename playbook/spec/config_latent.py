"""What the keys of families with latent attention mean: DeepSeek-V2, DeepSeek-V3 and Kimi K2.

Meanings and defaults are those of `DeepseekV2Config`, `DeepseekV3Config` of Hugging Face transformers 5 and
of their modelling classes; `moe_layer_freq` is that of DeepSeek's own modelling file, since those skip it.
"""

from typing import Any

from playbook.spec.config_dense import biases
from playbook.spec.config_experts import active_count, expert_count, others, routing
from playbook.spec.config_reader import Reader, common
from playbook.spec.moe import Mla, Moe


def read_deepseek_v2(reader: Reader) -> dict[str, Any]:
    """DeepSeek-V2: latent attention; shared experts; the first `first_k_dense_replace` layers are dense."""
    return {**deepseek(reader, first_dense=0), "mlp_bias": reader.get("mlp_bias", False)}


def read_deepseek_v3(reader: Reader) -> dict[str, Any]:
    """DeepSeek-V3 and Kimi K2: as V2, with a balancing number for each expert and multi-token modules."""
    reader.without_part("rope_interleave")
    modules = reader.same("num_nextn_predict_layers", "num_mtp_layers", default=0)
    return {**deepseek(reader, first_dense=3, balancing_bias=True), "mtp": modules}


def deepseek(reader: Reader, first_dense: int, balancing_bias: bool = False) -> dict[str, Any]:
    """Sizes that both DeepSeek families write with the same keys.

    Parameters
    ----------
    reader
        The file.
    first_dense
        Dense layers at the start where the file does not say.
    balancing_bias
        Whether the router has a number for each expert that no gradient moves.
    """
    routing(reader)
    values, mla = common(reader), latent(reader)
    if values["kv_heads"] != values["heads"]:
        reader.refuse(
            f"num_key_value_heads={values['kv_heads']}",
            f"latent attention has as many as num_attention_heads={values['heads']}; use that",
        )
    return {
        **values,
        **biases(reader),
        "head_dim": mla.head_dim,
        "mla": mla,
        "moe": deepseek_experts(reader, values["layers"], first_dense, balancing_bias),
    }


def latent(reader: Reader) -> Mla:
    """Sizes of latent attention; a `head_dim` or `qk_head_dim` that contradicts them is refused."""
    rank = reader.given("q_lora_rank", 1536)
    rope, nope = reader.size("qk_rope_head_dim", 64), reader.size("qk_nope_head_dim", 128)
    for key, right in (("head_dim", (rope, rope + nope)), ("qk_head_dim", (rope + nope,))):
        given = reader.get(key)
        if given is not None and given not in right:
            reader.refuse(
                f"{key}={given}",
                f"qk_rope_head_dim={rope} and qk_nope_head_dim={nope} make it {right[-1]}; leave it out",
            )
    return Mla(
        query_rank=rank,
        kv_rank=reader.size("kv_lora_rank", 512),
        nope_dim=nope,
        rope_dim=rope,
        value_dim=reader.size("v_head_dim", 128),
    )


def deepseek_experts(reader: Reader, layers: int, first_dense: int, balancing_bias: bool) -> Moe | None:
    """Experts from `first_k_dense_replace` on, in the layers whose number `moe_layer_freq` divides."""
    first, step = reader.get("first_k_dense_replace", first_dense), reader.size("moe_layer_freq", 1)
    shared = reader.get("n_shared_experts", 0)
    if reader.same("n_routed_experts", "num_experts", "num_local_experts") is None or first >= layers:
        reader.without_part("num_experts_per_tok", "moe_intermediate_size")
        return None
    width = reader.size("moe_intermediate_size")
    routed = range(-(-first // step) * step, layers, step)
    return Moe(
        experts=expert_count(reader, "n_routed_experts"),
        active=active_count(reader),
        ffn=width,
        shared_ffn=width * shared,
        first_dense=first,
        dense_layers=tuple(n for n in others(layers, routed) if n >= first),
        balancing_bias=balancing_bias,
    )
