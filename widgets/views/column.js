// The column of controls: what is kept, made anew or folded when descriptors change.
import { mount, sync } from './controls.js';

// A line under a control that is no mistake: why it is not in use, or what of it is drawn. It comes and goes
// without the control being made anew, which would end a drag.
function remark(root, words) {
  let line = root.querySelector('.note.idle');
  if (!words) { line?.remove(); return; }
  if (!line) {
    line = root.ownerDocument.createElement('div');
    line.className = 'note idle';
    root.querySelector('.refusal').before(line);
  }
  if (line.textContent !== words) line.textContent = words;
}

const lasting = (name, value) => (name === 'idle' || name === 'remark' ? undefined : value);

// A fold names what lies in it.
export const folded = list => `${list[0].more}: ${list.map(d => d.brief || d.label).join(', ')}`;

// Nodes at the start of a parent, in order. One that is there already is not moved, which would take the focus from it.
function place(parent, nodes) {
  let next = parent.firstChild;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}

// What a reader is about in a control that is to be made anew: an open list, the focus, a text and what is selected
// of it. Gives what brings it back.
function hold(old) {
  const open = old.querySelector('.picks[open]'), at = old.contains(document.activeElement) ? document.activeElement : null;
  const { value, selectionStart, selectionEnd } = at || {}, dirty = at?.dataset.dirty, name = at?.dataset.pb;
  return fresh => {
    if (open) fresh.querySelector('.picks').open = true;
    const field = name && fresh.querySelector(`[data-pb="${name}"]`);
    field?.focus();
    if (!field || !Number.isInteger(selectionStart)) return;
    field.value = value;
    if (dirty) field.dataset.dirty = dirty;
    field.setSelectionRange(selectionStart, selectionEnd);
  };
}

// Controls of the same `more` lie together under one fold, which stays as it was opened or shut.
function arrange(element, parts, folds) {
  const rows = [...new Set(parts.map(([d, root]) => (d.more ? foldOf(d.more, folds) : root)))];
  for (const [name, fold] of folds) {
    const within = parts.filter(([d]) => d.more === name);
    if (!within.length) { fold.remove(); continue; }
    fold.firstChild.textContent = folded(within.map(([d]) => d));
    place(fold, [fold.firstChild, ...within.map(([, root]) => root)]);
  }
  place(element, rows);
}

function foldOf(name, folds) {
  if (!folds.has(name)) {
    const fold = document.createElement('details');
    fold.className = 'more';
    fold.innerHTML = '<summary data-pb="more"></summary>';
    folds.set(name, fold);
  }
  return folds.get(name);
}

// The column of controls: `draw()` after any change of descriptors, values, refusal or run.
export function column(element, get, set) {
  let drawn = '', parts = [], leaving = false;
  const folds = new Map(), said = d => JSON.stringify(d, lasting);
  // A field with a typed text commits it when it is taken off the page, in the middle of a drawing.
  const tell = (name, value) => { if (!leaving) set(name, value); };
  // Only what has changed is made anew: a reader may be typing into any other.
  const rebuild = list => {
    const before = new Map(parts.map(([d, root]) => [d.name, { root, words: said(d) }])), back = [];
    parts = list.map(d => {
      const was = before.get(d.name), kept = was?.words === said(d);
      if (kept) before.delete(d.name);
      const root = kept ? was.root : mount(d, tell, get);
      if (was && !kept) { const bring = hold(was.root); back.push(() => bring(root)); }
      return [d, root];
    });
    leaving = true;
    for (const { root } of before.values()) root.remove();
    leaving = false;
    arrange(element, parts, folds);
    back.forEach(bring => bring());
  };
  return function draw() {
    if (leaving) return;
    const list = get('controls'), key = JSON.stringify(list, lasting), refusal = get('refusal') || {}, busy = get('busy');
    if (key !== drawn) { drawn = key; rebuild(list); }
    element.classList.toggle('inert', busy);
    list.forEach((d, i) => {
      const root = parts[i][1];
      remark(root, d.idle || d.remark || '');
      sync[d.kind](d, root, get(d.name));
      root.querySelectorAll('input, select, textarea').forEach(input => { input.disabled = busy || Boolean(d.idle); });
      const line = root.querySelector('.refusal'), words = refusal.control === d.name ? refusal.text : root.refused || '';
      if (line.textContent !== words) line.textContent = words;
      line.hidden = !words;
      if (words) root.closest('.more')?.setAttribute('open', '');
    });
  };
}
