from playbook.program.ids import parse


def test_ids_are_unique_and_read_back(scenario):
    import playbook as pb

    program = pb.program(scenario(dp=2, zero=3, global_batch=6, recompute="full"))
    ids = program.ids()
    assert len(set(ids)) == len(ids) == len(program)
    assert [str(parse(text)) for text in ids] == ids


def test_one_id_is_that_of_the_list(scenario):
    import playbook as pb

    program = pb.program(scenario(dp=2, zero=3, global_batch=4))
    ids = program.ids()
    assert [program.id(row) for row in (0, 7, len(program) - 1)] == [ids[0], ids[7], ids[-1]]


def test_packed_keys_are_as_unique_as_the_texts(scenario):
    import playbook as pb

    program = pb.program(scenario(dp=2, zero=3, global_batch=6, recompute="full"))
    assert len(set(program.keys.tolist())) == len(program)


def test_occurrences_count_within_micro_batch_phase_owner_and_operation(scenario):
    import playbook as pb

    ids = pb.program(scenario()).ids()
    assert [text for text in ids if "layers.1.mlp.down_proj" in text] == [
        "m0/F/layers.1.mlp.down_proj/mm#0",
        "m0/B/layers.1.mlp.down_proj/mm#0",
        "m0/B/layers.1.mlp.down_proj/mm#1",
    ]
    assert [text for text in ids if "/F/layers.1/add" in text] == [
        "m0/F/layers.1/add#0",
        "m0/F/layers.1/add#1",
    ]


def test_gathers_carry_the_unit_that_is_gathered_and_the_axis(scenario):
    import playbook as pb

    ids = pb.program(scenario(dp=2, zero=3)).ids()
    gathers = [text for text in ids if "all_gather" in text]
    assert gathers[:2] == ["m0/F//all_gather@dp#0", "m0/F/layers.0/all_gather@dp#0"]
    assert gathers[-1] == "m0/B/layers.0/all_gather@dp#0"


def test_stages_of_a_pipeline_use_global_layer_numbers(scenario):
    import playbook as pb

    s = scenario(pp=2, global_batch=2)
    ids = pb.program(s, rank=1).ids()
    assert ids[:2] == ["m0/F/stage1/receive@pp#0", "m0/F/layers.2.input_layernorm/norm#0"]
    assert "m0/B/stage1/send@pp#0" in ids
    assert not any("layers.0" in text or "layers.1" in text for text in ids)


def test_the_optimizer_is_one_id(scenario):
    import playbook as pb

    assert pb.program(scenario(global_batch=2)).ids()[-1] == "m-1/O//optimizer#0"
