// Stacked horizontal bars: what is copied is tall, what is shared is low, the capacity is a line of ink.
import { thousands } from './format.js';
import { hatched, line, rect, svg, text, ticks } from './svg.js';

const NAMES = 104, WORDS = 196, ROW = 40;
const hues = { parameters: 'parameters', gradients: 'gradients', optimizer: 'optimizer' };

export function scaleOf(bars, width, zoomed) {
  const longest = Math.max(...bars.rows.map(row => row.total), bars.capacity), top = zoomed ? bars.capacity * 1.15 : longest * 1.005;
  const left = NAMES, right = Math.max(left + 80, width - WORDS);
  return { top, left, right, x: bytes => left + Math.min(bytes, top) / top * (right - left) };
}

// Bars of a row, and where they end. A number that the capacity's line would cross stands right of it.
function parts(row, at, y, s, capacity) {
  let marks = '', x = s.left, sum = 0;
  for (const [name, bytes, words] of row.copied) {
    const from = s.x(sum), to = s.x(sum + bytes), wide = to - from;
    marks += rect(from + 0.75, y + 1.75, Math.max(0.5, wide - 1.5), 25.5, 'tint', hues[name], { 'stroke-width': 1.5 });
    const long = 7 * words.length, crossed = capacity > from + 3 && capacity < from + long + 10, spot = crossed ? capacity + 5 : from + 7;
    if (to - spot > long + 3) marks += text(spot, y + 18.5, words, 's');
    sum += bytes;
    x = to;
  }
  for (const [name, bytes] of row.shared) {
    const wide = Math.max(s.x(sum + bytes) - s.x(sum), 2.5);
    marks += rect(x + 0.5, y + 18, Math.max(1.5, wide - 1), 9.2, 'tint', hues[name], { 'stroke-width': 1.5 });
    sum += bytes;
    x = Math.min(x + wide, s.right);
  }
  if (row.total > s.top) marks += text(s.right + 2, y + 19, '›', 'b');
  return [marks, x];
}

function heads(row, s) {
  const names = { parameters: 'parameters', gradients: 'gradients', optimizer: 'optimizer' };
  let sum = 0, free = 0, marks = '';
  for (const [name, bytes] of row.copied) {
    const x = s.x(sum);
    if (x >= free && x < s.right - 20) { marks += text(x + 1, 11, names[name], 'm s'); free = x + names[name].length * 6 + 8; }
    sum += bytes;
  }
  return marks;
}

// Total, parts and whether it fits, beside a bar; the parts are left out where there is no room for all.
function words(row, other, x, y, width) {
  const after = (row.fits ? 88 : 0) + (other ? 48 : 0), gap = x + 8.2 * row.words.length + 8, long = row.parts.length * 6.1 + 8, roomy = gap + long + after <= width + 4;
  let marks = text(x, y, row.words, 'result halo') + (roomy ? text(gap, y, row.parts, 'm halo') : ''), at = gap + (roomy ? long : 0);
  if (row.fits) { marks += text(at, y, '✓ state fits', 'fits halo'); at += 88; }
  return other ? marks + text(at, y, `A ${other.words}`, 's halo') : marks;
}

export function draw(bars, width, options = {}) {
  const s = scaleOf(bars, width, options.zoomed), bottom = 18 + bars.rows.length * ROW, capacity = s.x(bars.capacity);
  let marks = '';
  for (const value of ticks(s.top / 1e9, 6)) {
    const x = s.x(value * 1e9);
    marks += line(x, 16, x, bottom - 2, 'grid');
    if (Math.abs(x - capacity) > 46) marks += text(x, bottom + 13, thousands(value), 'm s c');
  }
  marks += text(width, bottom + 13, 'GB per rank', 'm s n') + heads(bars.rows[0], s);
  let told = '';
  bars.rows.forEach((row, i) => {
    const y = 18 + i * ROW, [drawn, end] = parts(row, i, y, s, capacity), chosen = i === bars.chosen, other = options.pinned?.rows[i];
    marks += text(0, y + 15, row.name, chosen ? 'b accent' : 'b') + text(0, y + 29, row.sub, 'm s') + drawn;
    if (other) marks += rect(s.left, y + 0.5, s.x(other.total) - s.left, 28, 'ink', null, { 'stroke-width': 1.5 });
    const past = Math.abs(end - capacity) < 8 || (end < capacity && capacity - end < 150) ? Math.max(end, capacity) : Math.max(end, other ? s.x(other.total) : 0);
    const x = Math.min(past + 10, s.right + 12);
    told += words(row, other, x, y + 18.5, width);
  });
  marks += line(capacity, 15, capacity, bottom, 'ink', { 'stroke-width': 1.5 }) + text(Math.min(capacity, width - 150), bottom + 13, bars.capacity_words, 'b s c') + told;
  return svg(width, bottom + 18, marks);
}

// Peaks by term of one small scenario, as formula, trace and real ranks have them.
export function peaks(real, width) {
  const totals = real.rows.map(row => row.parts.reduce((sum, part) => sum + part[1], 0)), top = Math.max(...totals), left = NAMES, right = Math.max(left + 80, width - 190);
  const x = bytes => left + bytes / top * (right - left);
  let marks = '';
  real.rows.forEach((row, i) => {
    const y = 2 + i * 30;
    let sum = 0;
    marks += text(0, y + 16, row.source, i ? 'm' : 'm');
    for (const [name, bytes, words] of row.parts) {
      const from = x(sum), wide = Math.max(1.5, x(sum + bytes) - from - 1);
      if (row.source === 'traced') marks += hatched(from + 0.5, y + 2.5, wide, 19, name);
      else marks += rect(from + 0.5, y + 2.5, wide, 19, row.source === 'measured' ? 'full' : 'tint', name, row.source === 'measured' ? {} : { 'stroke-width': 1.2 });
      if (row.source === 'formula' && wide > 6.3 * words.length + 8) marks += text(from + 6, y + 16, words, 's');
      sum += bytes;
    }
    marks += text(x(sum) + 10, y + 17, row.words, 'b') + text(x(sum) + 16 + 7 * row.words.length, y + 17, row.difference, 'b s');
  });
  return svg(width, 6 + real.rows.length * 30, marks);
}
