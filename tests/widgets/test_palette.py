"""Contrast (WCAG 2), and distance under colour-vision deficiency.

Deficiencies by Machado et al. 2009, severity 1; distances in OKLab × 100.
"""

import itertools

import pytest

from widgets.palette import GROUPS, THEMES, css, mix, palette, rgb

FULL, TINT, EDGE, TEXT = 10.0, 3.0, 3.0, 4.5
SURFACES = ("background", "wash", "idle", "accent_wash", "bad_wash")
DEFICIENCIES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_LMS = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def linear(colour):
    parts = (value / 255 for value in rgb(colour))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def contrast(a, b):
    weights = (0.2126, 0.7152, 0.0722)
    light = [sum(w * c for w, c in zip(weights, linear(colour), strict=True)) for colour in (a, b)]
    return (max(light) + 0.05) / (min(light) + 0.05)


def oklab(vector):
    cones = times(TO_LMS, [min(1, max(0, c)) for c in vector])
    return times(TO_LAB, [c ** (1 / 3) for c in cones])


def distance(a, b, deficiency):
    one, two = (oklab(times(DEFICIENCIES[deficiency], linear(colour))) for colour in (a, b))
    return 100 * sum((p - q) ** 2 for p, q in zip(one, two, strict=True)) ** 0.5


def test_black_on_white_has_the_contrast_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["ink", "ink2", "accent", "bad", "good"])
def test_text_can_be_read_on_every_surface(theme, name):
    colours = palette()[theme]["ui"]
    assert min(contrast(colours[name], colours[surface]) for surface in SURFACES) >= TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("group", GROUPS)
def test_edges_stand_out_and_ink_can_be_read_on_tints(theme, group):
    colours = palette()[theme]
    ground, ink = colours["ui"]["background"], colours["ui"]["ink"]
    for name, colour in colours[group].items():
        assert contrast(colour, ground) >= EDGE, name
        assert contrast(ink, mix(colour, ground, colours["tint"])) >= TEXT, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_of_a_group_can_be_told_apart(theme, group, deficiency):
    colours = palette()[theme]
    ground = colours["ui"]["background"]
    for part, least in ((1, FULL), (colours["tint"], TINT)):
        shown = [mix(colour, ground, part) for colour in colours[group].values()]
        assert min(distance(a, b, deficiency) for a, b in itertools.combinations(shown, 2)) >= least


def test_css_names_every_colour_once_a_theme():
    text = css()
    assert text.count("--pb-parameters: #1d2285;") == 1
    assert text.count("--pb-parameters: #5f6cd9;") == 1
    assert text.count("--jp-layout-color0") == 2
