// Peak of each pipeline rank by term, one bar a rank, the worst one marked, against the memory of the GPU. Pure.
import { thousands } from './format.js';
import { line, rect, svg, text, ticks } from './svg.js';

const NAMES = 178, NAME = 58, LETTER = 5.4, WORDS = 112, ROW = 26, BAR = 18;

export function scaleOf(stages, width) {
  const most = Math.max(...stages.rows.map(row => row.total)), left = Math.max(NAMES, NAME + LETTER * Math.max(...stages.rows.map(row => row.sub.length))), right = Math.max(left + 80, width - WORDS);
  // The limit is in the picture unless it would leave the bars less than a third of it.
  const top = (stages.capacity <= most * 3 ? Math.max(most, stages.capacity) : most) * 1.02;
  return { top, left, right, x: bytes => left + Math.min(bytes, top) / top * (right - left) };
}

function bar(row, y, s) {
  let marks = '', sum = 0;
  for (const [name, bytes, words] of row.parts) {
    const from = s.x(sum), wide = Math.max(1, s.x(sum + bytes) - from - 1);
    marks += rect(from + 0.5, y + 0.75, wide, BAR - 1.5, 'tint', name, { 'stroke-width': 1.2 });
    if (wide > 6.2 * words.length + 8) marks += text(from + 5, y + 13, words, 's');
    sum += bytes;
  }
  return marks;
}

export function draw(stages, width) {
  const s = scaleOf(stages, width), bottom = 4 + stages.rows.length * ROW, capacity = s.x(stages.capacity), inside = stages.capacity <= s.top;
  let marks = '';
  for (const value of ticks(s.top / 1e9, 6)) {
    const x = s.x(value * 1e9);
    marks += line(x, 2, x, bottom, 'grid');
    if (!inside || Math.abs(x - capacity) > 40) marks += text(x, bottom + 13, thousands(value), 'm s c');
  }
  stages.rows.forEach((row, i) => {
    const y = 4 + i * ROW, worst = row.rank === stages.worst;
    marks += text(0, y + 13, row.name, worst ? 'b' : '') + text(52, y + 13, row.sub, 'm s') + bar(row, y, s);
    marks += text(s.x(row.total) + 8, y + 13.5, row.words, worst ? 'b' : '') + (worst ? text(s.x(row.total) + 14 + 7.4 * row.words.length, y + 13.5, 'worst', 'b s') : '');
  });
  marks += text(width, bottom + 13, 'GB', 'm s n');
  if (inside) marks += line(capacity, 0, capacity, bottom, 'ink', { 'stroke-width': 1.5 }) + text(capacity, bottom + 13, 'the GPU', 'b s c');
  return svg(width, bottom + 18, marks);
}
