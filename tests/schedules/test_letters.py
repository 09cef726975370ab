from playbook.schedules.letters import spell
from playbook.schedules.packed import actions_of


def texts(*arguments):
    return " ".join(f"{'+' if action.beside else ''}{action}" for action in actions_of(spell(*arguments)))


def test_each_chunk_counts_its_own_micro_batches():
    assert texts("FFfF", (1, 6), (3, 3)) == "1F0 1F1 6F0 1F2"


def test_fused_and_split_backwards_count_together_and_weights_follow_the_split_ones():
    assert texts("FFFBIIWW", (0, 1), (3, 3)) == "0F0 0F1 0F2 0B0 0I1 0I2 0W1 0W2"


def test_a_plus_joins_two_letters_to_a_pair():
    assert texts("Ff+BF+b", (0, 3), (2, 2)) == "0F0 3F0 +0B0 0F1 +3B0"


def test_what_is_spelled_beyond_the_micro_batches_is_left_out_and_its_partner_runs_alone():
    assert texts("fF+bF+b", (0, 3), (1, 2)) == "3F0 0F0 +3B0 3B1"


def test_a_chunk_may_start_at_another_micro_batch():
    assert texts("FfFf", (0, 3), (2, 2), (0, 2)) == "0F0 3F2 0F1 3F3"
