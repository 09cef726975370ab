import csv
import io
import json

from playbook.pictures.pipeline_files import chrome_trace, pipeline_copies, times_csv
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Cut, Setting


def test_copied_python_runs_and_gives_the_pictures_makespan():
    setting = Setting(costs=Costs(latency=0.5), cut=Cut(head=0.5), straggler=(1, 1.5))
    orders = timed_orders(["interleaved-1f1b", "dualpipe"], setting)
    text = pipeline_copies(orders, setting)["python"]
    assert 'pb.schedule("interleaved-1f1b", stages=4, microbatches=8, chunks=2)' in text
    scope: dict = {}
    lines = text.strip().splitlines()
    exec("\n".join([*lines[:2], f"first = {lines[2]}", f"second = {lines[3]}"]), scope)
    assert scope["first"].makespan == orders[0].timed.makespan
    assert scope["second"].makespan == orders[1].timed.makespan


def test_the_json_holds_names_and_setting():
    setting = Setting()
    told = json.loads(pipeline_copies(timed_orders(["gpipe", "1f1b"], setting), setting)["json"])
    assert told["schedules"] == ["gpipe", "1f1b"]
    assert told["stages"] == 4


def test_the_table_of_times_has_every_action_of_every_schedule():
    orders = timed_orders(["gpipe", "zbv"], Setting())
    rows = list(csv.DictReader(io.StringIO(times_csv(orders))))
    assert len(rows) == 4 * 8 * 2 + 4 * 2 * 8 * 3
    assert {row["scenario"] for row in rows} == {"gpipe", "zbv"}


def test_the_trace_keeps_schedules_apart():
    trace = json.loads(chrome_trace(timed_orders(["gpipe", "1f1b"], Setting())))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(spans) >= 2 * 4 * 8 * 2
    names = [event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "process_name"]
    assert any(name.startswith("GPipe") for name in names)
    assert any(name.startswith("1F1B") for name in names)
