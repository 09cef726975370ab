// Native inputs drawn from the descriptors that Python sends; each writes one synced trait.
import { AUTO, escape, noNumber, parse, show } from './format.js';

let made = 0;

// What a typed text asks for: a number to set, words that refuse it, or neither, which brings the last value back.
export function typed(text, d, value) {
  if (!text.trim()) return {};
  const number = d.show === 'auto' && text.trim().toLowerCase() === AUTO ? 0 : parse(text);
  return number === null ? { refused: noNumber(text, show[d.show || 'count'](value)) } : { number };
}

// Where a value lies on a slider whose positions are `values`: the nearest one.
export function nearest(values, value) {
  let best = 0;
  values.forEach((v, i) => { if (Math.abs(v - value) < Math.abs(values[best] - value)) best = i; });
  return best;
}

const labelled = (d, id, field = '') =>
  `<div class="label" title="${escape(d.help || '')}"><label for="${id}">${escape(d.label)}</label>${field}</div>`;

const choice = ([value, text]) => `<option value="${escape(value)}">${escape(text)}</option>`;

// Options of a drop-down; those in a row with the same third entry stand under it as their heading.
export function grouped(options) {
  const runs = [];
  for (const option of options) {
    const group = option[2] || '';
    if (!runs.length || runs.at(-1).group !== group) runs.push({ group, html: '' });
    runs.at(-1).html += choice(option);
  }
  return runs.map(({ group, html }) => (group ? `<optgroup label="${escape(group)}">${html}</optgroup>` : html)).join('');
}

const build = {
  range(d, id) {
    const field = `<input class="field" type="text" inputmode="decimal" autocomplete="off" spellcheck="false" data-pb="field-${d.name}" aria-label="${escape(d.label)}, typed">`;
    return `<div class="label" title="${escape(d.help || '')}"><label for="${id}">${escape(d.label)}</label>${field}</div>`
      + `<input id="${id}" type="range" min="0" max="${d.values.length - 1}" step="1" data-pb="control-${d.name}" aria-label="${escape(d.label)}">`;
  },
  select: (d, id) => `${labelled(d, id)}<select id="${id}" data-pb="control-${d.name}" aria-label="${escape(d.label)}">`
    + `${grouped(d.options)}</select>`,
  segments: (d, id) => `<div class="label" title="${escape(d.help || '')}"><span id="${id}">${escape(d.label)}</span></div>`
    + `<div class="segments" role="radiogroup" aria-labelledby="${id}" data-pb="control-${d.name}">`
    + `${d.options.map(([value, text]) => `<label><input type="radio" name="${id}" value="${escape(value)}" aria-label="${escape(text)}">${escape(text)}</label>`).join('')}</div>`,
  checks: (d, id) => `<div class="label" title="${escape(d.help || '')}"><span id="${id}">${escape(d.label)}</span><span data-pb="count-${d.name}"></span></div>`
    + `<div class="checks" role="group" aria-labelledby="${id}" data-pb="control-${d.name}">`
    + `${d.options.map(([value, text]) => `<label><input type="checkbox" value="${escape(value)}">${escape(text)}</label>`).join('')}</div>`,
  picks: (d, id) => `<div class="label" title="${escape(d.help || '')}"><span id="${id}">${escape(d.label)}</span><span data-pb="count-${d.name}"></span></div>`
    + `<details class="picks" data-pb="control-${d.name}"><summary aria-labelledby="${id}" data-pb="picked-${d.name}"></summary><div class="checks" role="group" aria-labelledby="${id}">`
    + `${d.options.map(([value, text]) => `<label><input type="checkbox" value="${escape(value)}">${escape(text)}</label>`).join('')}</div></details>`,
  paste: (d, id) => `${labelled(d, id)}<textarea id="${id}" class="field wide" rows="4" autocomplete="off" spellcheck="false" placeholder="paste it here" data-pb="control-${d.name}" aria-label="${escape(d.label)}"></textarea>`,
  text: (d, id) => `${labelled(d, id)}<input id="${id}" class="field wide" type="text" autocomplete="off" spellcheck="false" data-pb="control-${d.name}" aria-label="${escape(d.label)}">`,
};

// A browser fires `change` only for a text that it holds to be edited by hand since the field was made: Enter
// commits by itself, and so does leaving a field whose text was carried over from the one before.
function committed(field, commit, enter = true) {
  field.addEventListener('change', commit);
  field.addEventListener('blur', () => { if (field.dataset.dirty) commit(); });
  if (enter) field.addEventListener('keydown', e => { if (e.key === 'Enter') commit(); });
}

// A text from outside into a field. Who has selected all of the old one is about to type over it, and still can.
export function put(field, words) {
  if (field.value === words) return;
  const all = field === field.ownerDocument.activeElement && field.selectionStart === 0 && field.selectionEnd === field.value.length;
  field.value = words;
  if (all) field.select();
}

// Words of the page's own under a control, until its text or its value changes.
function refuse(root, words) {
  const line = root.querySelector('.refusal');
  root.refused = words;
  if (line.textContent !== words) line.textContent = words;
  line.hidden = !words;
}

export const wire = {
  range(d, root, set, get) {
    const slider = root.querySelector('[type=range]'), field = root.querySelector('.field');
    slider.addEventListener('input', () => { refuse(root, ''); set(d.name, d.values[Number(slider.value)]); });
    committed(field, () => {
      const { number, refused = '' } = typed(field.value, d, get(d.name));
      delete field.dataset.dirty;
      refuse(root, refused);
      if (number !== undefined) set(d.name, number);
      else if (!refused) put(field, show[d.show || 'count'](get(d.name)));
    });
    field.addEventListener('keydown', e => {
      const step = { ArrowUp: 1, ArrowDown: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      slider.value = Number(slider.value) + step;
      slider.dispatchEvent(new Event('input'));
    });
  },
  select(d, root, set) { const input = root.querySelector('select'); input.addEventListener('change', () => set(d.name, input.value)); },
  // The page knows only text; what is sent is the option as Python gave it, a number if it was one.
  segments(d, root, set) { root.addEventListener('change', e => set(d.name, d.options.find(([value]) => String(value) === e.target.value)[0])); },
  checks(d, root, set) {
    root.addEventListener('change', () => set(d.name, [...root.querySelectorAll('input:checked')].map(input => input.value)));
  },
  picks(d, root, set) { wire.checks(d, root, set); },
  // What is pasted is taken at once; Enter is a line of it.
  paste(d, root, set) {
    const area = root.querySelector('textarea'), commit = () => set(d.name, area.value);
    committed(area, commit, false);
    area.addEventListener('paste', () => setTimeout(commit));
  },
  text(d, root, set) { const input = root.querySelector('input'); committed(input, () => set(d.name, input.value)); },
};

export const sync = {
  range(d, root, value) {
    const slider = root.querySelector('[type=range]'), field = root.querySelector('.field'), at = nearest(d.values, value);
    const words = show[d.show || 'count'](value);
    slider.value = at;
    slider.style.setProperty('--fill', `${100 * at / Math.max(1, d.values.length - 1)}%`);
    slider.setAttribute('aria-valuetext', words);
    if (root.held !== value) { root.held = value; refuse(root, ''); }
    if (!root.refused && (field !== root.ownerDocument.activeElement || !field.dataset.dirty)) put(field, words);
  },
  select(d, root, value) { root.querySelector('select').value = value; },
  segments(d, root, value) {
    root.querySelectorAll('input').forEach(input => { input.checked = input.value === String(value); input.parentElement.classList.toggle('on', input.checked); });
  },
  checks(d, root, value) {
    root.querySelectorAll('input').forEach(input => { input.checked = value.includes(input.value); });
    root.querySelector(`[data-pb=count-${d.name}]`).textContent = `${value.length} of ${d.options.length}`;
  },
  picks(d, root, value) {
    sync.checks(d, root, value);
    const names = d.options.filter(([name]) => value.includes(name)).map(([, text]) => text);
    root.querySelector('summary').textContent = names.join(', ') || 'none';
  },
  paste(d, root, value) { const area = root.querySelector('textarea'); if (area !== root.ownerDocument.activeElement || !area.dataset.dirty) put(area, value); },
  text(d, root, value) { const input = root.querySelector('input'); if (input !== root.ownerDocument.activeElement) input.value = value; },
};

// A control made from its descriptor; `set` gets what a reader commits.
export function mount(d, set, get) {
  const root = document.createElement('div'), id = `pb-control-${made += 1}`;
  root.className = 'control';
  root.innerHTML = build[d.kind](d, id) + '<div class="refusal" role="alert" hidden></div>';
  wire[d.kind](d, root, set, get);
  const field = root.querySelector('.field');
  field?.addEventListener('input', () => { field.dataset.dirty = '1'; });
  field?.addEventListener('blur', () => { delete field.dataset.dirty; });
  field?.addEventListener('change', () => { delete field.dataset.dirty; });
  return root;
}
