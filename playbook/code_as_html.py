"""Python code as HTML whose lines stay whole: in a narrow output they scroll, and no word is broken."""

from html import escape

UNBROKEN = "white-space: pre; word-break: normal; overflow-wrap: normal; overflow-x: auto"
"""JupyterLab wraps every `pre` of an output, and inside words; a style on the element is stronger."""

COLOURS = {"k": "keyword", "s": "string", "c": "comment", "m": "number", "nf": "def", "nc": "def"}
"""Class of a token, or what it begins with → JupyterLab's colour for it in an editor."""


def code_as_html(text: str) -> str:
    """Return Python code as HTML, in the colours of JupyterLab's theme where Pygments is installed."""
    return f'<style>{_colours()}</style><pre class="playbook-code" style="{UNBROKEN}">{_spans(text)}</pre>'


def _colours() -> str:
    return "".join(
        f'.playbook-code span[class^="{token}"] {{color: var(--jp-mirror-editor-{name}-color)}}'
        for token, name in COLOURS.items()
    )


def _spans(text: str) -> str:
    try:  # IPython brings it; without a notebook nobody needs it
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return escape(text, quote=False)
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))
