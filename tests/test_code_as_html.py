import re
from html import unescape

import playbook as pb
from playbook.code_as_html import code_as_html


def test_lines_stay_whole_and_nothing_of_the_code_is_lost():
    text = 'def f(x: int) -> str:\n    return "a < b & c"  # a long line\n'
    html = code_as_html(text)
    # On the element itself: JupyterLab's own rule for outputs wraps every `pre`, and inside words.
    assert re.search(r'<pre class="playbook-code" style="white-space: pre; word-break: normal;', html)
    shown = html.partition("<pre")[2].partition(">")[2].removesuffix("</pre>")
    assert unescape(re.sub(r"<[^>]+>", "", shown)).strip() == text.strip()


def test_the_code_by_hand_is_shown_so():
    shown = pb.source("pp")
    assert "white-space: pre;" in shown._repr_html_()
    assert f"{shown.lines} lines of code" in shown._repr_html_()
