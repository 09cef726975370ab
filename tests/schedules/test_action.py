import pytest

from playbook.schedules import Action


@pytest.mark.parametrize("text", ["0F0", "2F0", "13B7", "3I12", "1W5"])
def test_the_text_form_of_an_action_parses_back(text):
    assert str(Action.parse(text)) == text


def test_parsing_ignores_case_and_space_around():
    assert Action.parse(" 2f0 ") == Action(2, "F", 0)


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F0 3B1", "-1F0"])
def test_other_text_is_refused_with_the_form_that_works(text):
    with pytest.raises(ValueError, match="as in 2F0"):
        Action.parse(text)


def test_an_action_renders_the_id_that_the_tables_use():
    assert Action(3, "W", 5).id == "m5/W/stage3"
