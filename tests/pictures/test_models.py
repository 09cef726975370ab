from itertools import groupby

from playbook.pictures.models import model_choices
from playbook.spec import presets


def words(group):
    return [text for _, text, at in model_choices() if at == group]


def test_every_preset_is_offered_once_in_one_run_a_group():
    assert sorted(name for name, _, _ in model_choices()) == sorted(presets.names("models"))
    assert len({text for _, text, _ in model_choices()}) == len(presets.names("models"))
    runs = [group for group, _ in groupby(model_choices(), key=lambda one: one[2])]
    assert runs == sorted(set(runs), key=str.casefold)
    assert 5 < len(runs) < 15


def test_a_newcomer_finds_llama_under_its_name_the_older_and_the_smaller_first():
    # sizes that are no part of a name are those counted: 107 769 861 120 and 400 711 848 960 parameters
    assert words("Llama, Meta") == [
        *("Llama 2 7B", "Llama 2 70B", "Llama 3.1 8B", "Llama 3.1 70B", "Llama 3.1 405B"),
        *("Llama 3.2 1B", "Llama 3.2 3B", "Llama 4 Scout, 108B", "Llama 4 Maverick, 401B"),
    ]


def test_a_title_without_the_size_of_the_whole_model_is_given_it():
    assert words("GPT, OpenAI") == ["GPT-2, 124M", "GPT-2 medium, 355M", "gpt-oss 120B"]
    assert words("Kimi, Moonshot AI") == ["Kimi K2, 1.03T"]
    assert "Mixtral 8x7B, 46.7B" in words("Mistral AI")
    assert words("Qwen, Alibaba")[0] == "Qwen 1.5 MoE, 14.3B"
