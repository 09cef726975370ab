"""What every explorer is made of: the library that carries all JavaScript, and a stub that asks for a view.

The way of one change: a control writes a synced trait, `put` calls the explorer's pure picture function in
playbook, and one message carries picture, words and `version`, on which alone the front end redraws.
"""

from __future__ import annotations

import base64
import difflib
import threading
import traceback
from typing import TYPE_CHECKING, Any, ClassVar

import anywidget
import ipywidgets
import traitlets as T

from widgets import esm, palette
from widgets.controls import descriptors

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_STUB = """export default {
async render(given) {
const library = await given.host.getWidget(given.model.get('library'));
return library.exports.render(given.model.get('view'), given);
} };
"""


class Library(anywidget.AnyWidget):
    """Carries the JavaScript and CSS of all views once a kernel; shows nothing itself."""

    _esm = esm.blobs()
    _css = palette.css() + esm.stylesheet()


_libraries: list[Library] = []


def library() -> Library:
    """The kernel's one library widget; made again after ``Widget.close_all()`` closed it."""
    if not _libraries or _libraries[-1].comm is None:
        _libraries[:] = [Library()]
    return _libraries[-1]


class Explorer(anywidget.AnyWidget):
    """Controls at the left, a picture at the right, one sentence that says what the picture shows.

    Every control is a trait: set it from Python, observe it, link it. A subclass names its controls in
    `CONTROLS` and gives `draw`, which returns the traits of a new picture; what it computes comes from
    playbook.
    """

    CONTROLS: ClassVar[tuple[str, ...]] = ()
    VIEW: ClassVar[str] = ""
    ANSWERS: ClassVar[tuple[str, ...]] = ("pin", "copy")
    """Messages of the front end that `on_...` methods answer, beside those of the buttons."""

    _esm = _STUB
    library = anywidget.WidgetTrait().tag(sync=True)
    view = T.Unicode(help="Name of the view in views/index.js.").tag(sync=True)
    controls = T.List(help="Descriptors of the controls shown.").tag(sync=True)
    picture = T.Dict(help="Numbers and words of the prediction, compact.").tag(sync=True)
    measured = T.Dict(help="What real ranks did, in the picture's units; empty before a run.").tag(sync=True)
    pinned = T.Dict(help="Picture pinned as A; empty if none.").tag(sync=True)
    refusal = T.Dict(help="Control whose value was refused, and why.").tag(sync=True)
    status = T.Dict(
        help="State of the run: idle, queued, running, cancelling, done, failed or cancelled."
    ).tag(sync=True)
    actions = T.List(help="Buttons under the controls; the first is the primary one.").tag(sync=True)
    note = T.Unicode(help="Line under the buttons.").tag(sync=True)
    error = T.Unicode(help="Fault of this program, in words; empty if none.").tag(sync=True)
    version = T.Int(0, help="Bumped last in every change; the front end redraws on it.").tag(sync=True)

    def __init__(self, **given: Any) -> None:
        self._check_names(given)
        self._lock = threading.RLock()
        self.last_error = ""
        super().__init__(library=library(), view=self.VIEW, **given)
        self._show(self.draw())
        self.observe(self.put, names=list(self.CONTROLS))
        self.on_msg(self._on_message)

    def draw(self) -> dict[str, Any]:
        """Return `picture`, and any of `measured`, `actions` and `note`, for the controls as they stand.

        Raises
        ------
        ValueError, TypeError
            For values that have no picture; the words are shown under the control.
        """
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Options or values of controls that depend on other controls, by name; None leaves a control out."""
        return {}

    def put(self, change: Any = None) -> None:
        """Draw the controls as they stand.

        Refused values and faults are shown in words, the last picture stays.
        """
        with self._lock, self.hold_sync():
            try:
                self._show(self.draw())
            except (ValueError, TypeError) as refused:
                self._refuse(change.name if change else "", str(refused))
            except Exception as fault:
                self.last_error = traceback.format_exc()
                self.error = f"internal error: {type(fault).__name__}: {fault} (see .last_error)"
                self.version += 1

    def _show(self, traits: dict[str, Any]) -> None:
        traits.setdefault("controls", descriptors(self.traits(), self.CONTROLS, self.options()))
        with self._lock, self.hold_sync():
            for name, value in traits.items():
                setattr(self, name, value)
            self.refusal, self.error = {}, ""
            self.version += 1

    def _refuse(self, control: str, words: str) -> None:
        with self._lock, self.hold_sync():
            same = self.refusal.get("text") == words  # another control's change, which does not mend it
            known = "" if same else control
            known = known or self.refusal.get("control") or self.CONTROLS[0]
            self.refusal = {"control": known, "text": words}
            self.version += 1

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take values from the front end; one that its trait cannot hold is refused in words."""
        with self._lock:
            try:
                super().set_state(sync_data)
            except T.TraitError as refused:
                name = next(iter(sync_data))
                self.send_state(list(sync_data))  # the front end holds what is refused here
                self._refuse(name, f"{name}={sync_data[name]!r}: {_reason(refused, self.traits()[name])}")
            else:
                if self.refusal.get("control") in sync_data:
                    self.put()  # the old value again: no trait changed, but the refusal is over

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        kind = str(message.get("kind"))
        if kind not in (*self.ANSWERS, *(action["name"] for action in self.actions)):
            return
        try:
            getattr(self, f"on_{kind}")(message)
        except Exception as fault:
            self.last_error = traceback.format_exc()
            with self._lock, self.hold_sync():
                self.error = str(fault) or type(fault).__name__
                self.version += 1

    def on_pin(self, _: Any = None) -> None:
        """Pin the picture as A, or let go of the pinned one."""
        with self._lock, self.hold_sync():
            self.pinned = {} if self.pinned else self.pin()
            self.put()

    def on_copy(self, message: dict[str, Any]) -> None:
        """Send the scenario in the form asked for; the front end puts it on the clipboard."""
        form = str(message["form"])
        self.send({"kind": "copied", "form": form, "text": self.copies()[form]})

    def copies(self) -> dict[str, str]:
        """The scenario as `python`, `command` and `json`."""
        raise NotImplementedError

    def pin(self) -> dict[str, Any]:
        """What of the picture is kept as A."""
        return dict(self.picture)

    @property
    def headline(self) -> str:
        """The sentence above the picture."""
        return " ".join(part for part in self.picture["headline"] if part)

    @property
    def figure(self) -> Figure:
        """The picture as a plotly figure, to take away."""
        raise NotImplementedError

    def png(self) -> bytes:
        """The picture as PNG, for viewers without a kernel."""
        raise NotImplementedError

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.CONTROLS)
        return f"{type(self).__name__}({values})"

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        data["text/plain"] = f"{self.headline}\n{self!r}"
        data["image/png"] = base64.b64encode(self.png()).decode("ascii")
        return data, metadata

    @classmethod
    def _check_names(cls, given: dict[str, Any]) -> None:
        own = [name for name, trait in vars(cls).items() if isinstance(trait, T.TraitType)]
        for name in given:
            if name not in own and name not in ipywidgets.DOMWidget.class_trait_names():
                near = difflib.get_close_matches(name, own, 1)
                meant = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(own)}"
                raise TypeError(f"{cls.__name__} has no argument {name!r}; {meant}")


def _reason(refused: T.TraitError, trait: T.TraitType) -> str:
    return {"Int": "use a whole number", "Float": "use a number"}.get(type(trait).__name__, str(refused))
