// Tables as text: the comparison under a picture, and the numbers behind it.
import { escape } from './format.js';
import { swatch } from './svg.js';

const DASH = '<span class="soft">—</span>';
// The first measured cell of a scenario that never ran offers the run.
const OFFER = '<button class="quiet" data-pb="run-from-table">Run</button>';
const SOFT = new Set(['no clock', 'not reached', 'not run', 'not traced', 'next', 'never asked', 'no bytes']);

function cell(value) {
  if (value === null || value === undefined || value === '') return DASH;
  return SOFT.has(value) || String(value).startsWith('…') ? `<span class="soft">${escape(value)}</span>` : escape(value);
}

function difference(words) {
  if (!words) return DASH;
  if (words.includes('✓')) return `<span class="good">${escape(words)}</span>`;
  if (!/\d|✕/.test(words)) return `<span class="soft">${escape(words)}</span>`;
  return words.includes('✕') ? `<span class="bad">${escape(words)}</span>` : `<b>${escape(words)}</b>`;
}

// One row for each quantity, one column for each way of knowing it; the difference has a column of its own.
export function comparison({ head, rows, sources = {} }, busy = false) {
  const offered = busy ? -1 : rows.findIndex(row => row.measured === 'not run');
  const column = (name, words) => `<th title="${escape(sources[name] || '')}">${swatch[name]()}${words}</th>`;
  const body = rows.map((row, i) => `<tr><td>${row.mark ? `<b>${escape(row.mark)}</b> ` : ''}${escape(row.label)}${row.note ? ` <span class="soft">${escape(row.note)}</span>` : ''}</td>`
    + `<td>${cell(row.formula)}</td><td>${cell(row.traced)}</td><td${row.source ? ` title="${escape(row.source)}"` : ''}>${i === offered ? OFFER : `${row.by ? `<span class="soft">${escape(row.by)}</span> ` : ''}${cell(row.measured)}`}</td><td>${difference(row.difference)}</td></tr>`).join('');
  return `<div class="table" data-pb="comparison"><table><thead><tr><th>${escape(head)}</th>${column('formula', 'formula')}${column('traced', 'traced')}${column('measured', 'measured')}`
    + `<th>difference</th></tr></thead><tbody>${body}</tbody></table></div>`;
}

// The numbers behind a picture. Rows beyond `most` are counted in words: the whole table is the explorer's .table.
export function data({ caption, head, rows }, most = 400) {
  const shown = rows.slice(0, most).map(row => `<tr>${row.map(value => `<td>${escape(value)}</td>`).join('')}</tr>`).join('');
  const rest = rows.length > most ? `<p class="note">${most} of ${rows.length} rows; .table in Python has them all.</p>` : '';
  return `<div class="data" tabindex="0"><table><caption>${escape(caption)}</caption><thead><tr>${head.map(name => `<th>${escape(name)}</th>`).join('')}</tr></thead><tbody>${shown}</tbody></table>${rest}</div>`;
}
