"""The JavaScript files of ``views/`` as one string that a browser loads as real ES modules.

A widget's ``_esm`` is a Blob without a base address, so ``import './x.js'`` cannot work in it. Each file
becomes a Blob of its own, its imports rewritten to the Blobs made before it; ``sourceURL`` keeps file and
line in stack traces.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

VIEWS = Path(__file__).parent / "views"
IMPORT = re.compile(r"""(\bfrom\s+)(['"])\./([\w-]+\.js)\2""")

_LOADER = r"""const bytes=Uint8Array.from(atob('%(packed)s'),c=>c.charCodeAt(0));
const plain=new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
const text=await new Response(plain).text();
const S=JSON.parse(text),U={};
const link=s=>s.replace(/(\bfrom\s+)(['"])\.\/([\w-]+\.js)\2/g,(m,a,q,f)=>a+q+U[f]+q);
for(const n in S){
const source=link(S[n])+'\n//# sourceURL=playbook/views/'+n;
U[n]=URL.createObjectURL(new Blob([source],{type:'text/javascript'}));
}
const m=await import(U['%(entry)s']);
for(const n in U)URL.revokeObjectURL(U[n]);
export default m.default;
"""


def order(entry: str, folder: Path = VIEWS) -> dict[str, str]:
    """Sources by file name, each after the files it imports.

    Parameters
    ----------
    entry
        File that the others are reached from, ``index.js``.
    folder
        Where the files lie.

    Raises
    ------
    ValueError
        If two files import each other, or a file re-exports (``export ... from``), which a Blob cannot.
    """
    done: dict[str, str] = {}
    _visit(entry, folder, done, ())
    return done


def _visit(name: str, folder: Path, done: dict[str, str], path: tuple[str, ...]) -> None:
    if name in path:
        raise ValueError(f"import cycle {' -> '.join((*path, name))}: move what both need into a third file")
    if name in done:
        return
    source = (folder / name).read_text(encoding="utf-8")
    if re.search(r"^export\s[^;{(=]*\bfrom\b|^export\s*\{[^}]*\}\s*from", source, re.MULTILINE):
        raise ValueError(f"{name} re-exports from another file; import it and export the name instead")
    for match in IMPORT.finditer(source):
        _visit(match[3], folder, done, (*path, name))
    done[name] = _without_indent(source)


def _without_indent(source: str) -> str:
    """Same lines without indentation and whole-line comments: saved notebooks carry this text."""
    lines = (line.strip() for line in source.splitlines())
    return "\n".join("" if line.startswith("//") else line for line in lines)


def stylesheet(folder: Path = VIEWS) -> str:
    """``style.css`` without comments and the spaces that a browser does not need."""
    source = re.sub(r"/\*.*?\*/", "", (folder / "style.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = "\n".join(line.strip() for line in source.splitlines() if line.strip())
    return re.sub(r"(?<=[,:;{}]) | (?=[{}])|;(?= ?\})", "", lines)


def blobs(entry: str = "index.js", folder: Path = VIEWS) -> str:
    """ES module that loads `entry` and all it imports, and exports its default.

    The sources travel deflated: a saved notebook keeps a third of the bytes.
    """
    sources = json.dumps(order(entry, folder), ensure_ascii=False).encode()
    packed = base64.b64encode(zlib.compress(sources, 9)).decode("ascii")
    return _LOADER % {"packed": packed, "entry": entry}
