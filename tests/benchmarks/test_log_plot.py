from xml.etree import ElementTree

from benchmarks.log_plot import HEIGHT, WIDTH, Axis, Curve, log_plot

CURVES = [
    Curve(label="ours", x=(10.0, 100.0, 1000.0), y=(0.01, 0.1, 1.0)),
    Curve(label="a < b", x=(10.0, 100.0), y=(0.02, 2.0), dashed=True),
]


def test_an_axis_spans_the_powers_of_ten_around_its_values():
    axis = Axis.over([20.0, 900.0], start=0, end=200)
    assert axis.ticks == [10, 100, 1000]
    assert (axis.at(10), axis.at(100), axis.at(1000)) == (0, 100, 200)


def test_the_plot_is_a_picture_with_every_point_and_name_inside_it():
    svg = ElementTree.fromstring(log_plot(CURVES, "a title", "actions", "seconds"))
    space = "{http://www.w3.org/2000/svg}"
    dots = svg.findall(f"{space}circle")
    assert len(dots) == 5
    assert all(0 < float(dot.get("cx")) < WIDTH and 0 < float(dot.get("cy")) < HEIGHT for dot in dots)
    texts = [text.text for text in svg.findall(f"{space}text")]
    assert {"a title", "actions", "seconds", "ours", "a < b"} <= set(texts)
