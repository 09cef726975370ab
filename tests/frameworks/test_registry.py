import pytest

from playbook.frameworks import policies, policy


def test_the_folder_is_the_registry():
    assert set(policies()) >= {"textbook", "torch", "transformers"}
    assert all(name == entry.name for name, entry in policies().items())


def test_names_ignore_case_and_unknown_ones_list_the_valid():
    assert policy("TextBook").name == "textbook"
    with pytest.raises(ValueError, match="framework='jax' is not known; valid are .*textbook"):
        policy("jax")
