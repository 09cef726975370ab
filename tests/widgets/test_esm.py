import re
import shutil
import subprocess

import pytest

from widgets import esm

FILES = sorted(esm.VIEWS.glob("*.js"))
ADDRESS = re.compile(r"https?:|//cdn|data:text|\bfetch\(|XMLHttpRequest|WebSocket|\beval\(")


def test_a_file_comes_after_what_it_imports():
    names = list(esm.order("index.js"))
    assert names.index("svg.js") < names.index("bars.js") < names.index("memory.js") < names.index("index.js")
    assert set(names) == {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_shipped_file_names_no_address_and_reaches_for_nothing_outside(file):
    assert ADDRESS.search(file.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_shipped_file_parses(file):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    done = subprocess.run(["node", "--check", file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_pure_javascript_passes_its_own_tests():
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    tests = sorted(str(file) for file in (esm.VIEWS.parents[1] / "tests" / "js").glob("*.test.mjs"))
    assert tests
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:]


def test_an_import_cycle_is_named(tmp_path):
    (tmp_path / "a.js").write_text("import { b } from './b.js';\n")
    (tmp_path / "b.js").write_text("import { a } from './a.js';\n")
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        esm.order("a.js", tmp_path)


def test_a_re_export_is_refused(tmp_path):
    (tmp_path / "a.js").write_text("export { b } from './b.js';\n")
    with pytest.raises(ValueError, match="re-exports"):
        esm.order("a.js", tmp_path)


def test_lines_keep_their_numbers_when_indentation_is_left_out(tmp_path):
    (tmp_path / "a.js").write_text("// what it is\nexport const a = () => {\n  return 1;\n};\n")
    assert esm.order("a.js", tmp_path)["a.js"].split("\n") == [
        "",
        "export const a = () => {",
        "return 1;",
        "};",
    ]


def test_the_module_is_more_than_one_line_so_that_nobody_takes_it_for_a_path():
    assert esm.blobs().endswith("export default m.default;\n")


def test_every_rule_of_the_stylesheet_is_scoped():
    sheet = re.sub(r"@keyframes[^{]*\{(?:[^{}]*\{[^}]*\})*[^}]*\}", "", esm.stylesheet())
    sheet = re.sub(r"@(container|media)[^{]*\{", "", sheet)
    for selectors in re.findall(r"(?:^|\})\s*([^{}@]+)\{", sheet):
        for selector in re.split(r",(?![^(]*\))", selectors):
            assert selector.strip().startswith(".pb"), selector
