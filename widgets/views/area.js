// One step over time: levels stacked by term, the peak's instant named, the limit in words where it lies off the scale.
import { bare, plain } from './format.js';
import { circle, diamond, line, path, rect, svg, text, ticks } from './svg.js';

const LEFT = 34, TOP = 26, HEIGHT = 210, KEY = 156, LETTER = 5.4;
const NAMES = { parameters: 'parameters', optimizer: 'optimizer', gradients: 'gradients', activations: 'activations', unsharded: 'unsharded layers', temporary: 'temporary', communication: 'comm. buffers', logits: 'logits' };

// Levels in bytes, points × terms, from parts of the highest one.
export function unpack(step, typed) {
  const parts = typed(step.levels, Uint16Array), terms = step.terms.length, count = parts.length / terms, scale = step.highest / 65535;
  const at = (point, term) => parts[point * terms + term] * scale;
  const totals = Array.from({ length: count }, (_, i) => step.terms.reduce((sum, _t, t) => sum + at(i, t), 0));
  return { count, at, totals, owners: typed(step.owners, Int16Array) };
}

export function scaleOf(step, data, width, limit) {
  const high = Math.max(...data.totals, step.trace ? step.trace.peak : 0, step.twin ? step.twin.peak : 0) * 1.14, top = limit && limit < high * 1.35 ? Math.max(high, limit * 1.05) : high;
  const marks = ticks(top / 1e9, 5), last = marks[marks.length - 1] * 1e9;
  const right = Math.max(LEFT + 120, width - KEY), end = Math.max(last, top);
  return { right, end, marks, x: point => LEFT + point / Math.max(1, data.count) * (right - LEFT), y: bytes => TOP + HEIGHT * (1 - bytes / end) };
}

export const pointAt = (s, data, px) => Math.max(0, Math.min(data.count - 1, Math.floor((px - LEFT) / (s.right - LEFT) * data.count)));

function stack(step, data, s) {
  const base = new Float64Array(data.count), places = [];
  let marks = '';
  step.terms.forEach((term, t) => {
    let up = '', down = '', any = false;
    for (let i = 0; i < data.count; i += 1) {
      const level = base[i] + data.at(i, t);
      if (level > base[i]) any = true;
      up += `${i ? 'L' : 'M'}${s.x(i).toFixed(1)} ${s.y(level).toFixed(1)}L${s.x(i + 1).toFixed(1)} ${s.y(level).toFixed(1)}`;
      down = `L${s.x(i + 1).toFixed(1)} ${s.y(base[i]).toFixed(1)}L${s.x(i).toFixed(1)} ${s.y(base[i]).toFixed(1)}${down}`;
      places.push([t, i, base[i], level]);
      base[i] = level;
    }
    if (any) marks += path(`${up}${down}z`, 'tint', term, { 'stroke-width': 1, 'data-term': term });
  });
  return [marks, places];
}

// A name goes where its band is highest over the name's whole width, off the peak's line.
function labels(step, data, s, places) {
  const unit = (s.right - LEFT) / Math.max(1, data.count);
  return step.terms.map((term, t) => {
    const points = Math.ceil((NAMES[term].length * 6 + 14) / unit);
    let best = [12, 0, 0];
    for (let from = 0; from + points <= data.count; from += 1) {
      if (from <= step.peak && step.peak < from + points) continue;
      let top = -Infinity, bottom = Infinity;
      for (let i = from; i < from + points; i += 1) { const p = places[t * data.count + i]; top = Math.max(top, s.y(p[3])); bottom = Math.min(bottom, s.y(p[2])); }
      if (bottom - top > best[0] + 1) best = [bottom - top, s.x(from) + 8, (top + bottom) / 2 + 4];
    }
    return best[1] ? text(best[1], best[2], NAMES[term], 's') : '';
  }).join('');
}

function frame(step, s) {
  let marks = text(LEFT - 6, TOP - 14, 'GB', 'm s n');
  for (const value of s.marks) marks += line(LEFT, s.y(value * 1e9), s.right, s.y(value * 1e9), 'grid') + text(LEFT - 6, s.y(value * 1e9) + 4, plain(value), 'm s n');
  return marks;
}

// Each stretch has its name; where one is too short for it, one line says what they are.
function spans(step, s) {
  const low = TOP + HEIGHT, fit = (words, a, b) => (b - a > 6 * words.length + 4 ? words : '');
  const named = step.spans.map(([words, first, last]) => { const a = s.x(first), b = s.x(last + 1); return [a, b, fit(words, a, b) || fit(words.split(',')[0], a, b)]; });
  const together = step.turns && (!named.length || named.some(([, , said]) => !said));
  const marks = named.map(([a, b, said]) => line(a, low, a, low + 6, 'ink2') + (said && !together ? text((a + b) / 2, low + 16, said, 'm s c') : '')).join('');
  // In the middle, or so far to the right that the words begin inside.
  return together ? marks + text(Math.max((LEFT + s.right) / 2, LETTER / 2 * step.turns.length), low + 17, step.turns, 'm s c') : marks;
}

function limitLine(step, s, limit, words) {
  if (limit <= s.end) return line(LEFT, s.y(limit), s.right, s.y(limit), 'ink', { 'stroke-width': 1.5 }) + text(s.right, s.y(limit) - 5, words, 'b s n');
  const times = limit / Math.max(1, step.highest_total);
  return text(s.right, TOP - 14, `${words} line: ${plain(Number(times.toPrecision(2)))} × the peak ↑`, 'm s n');
}

function key(step, data, s, width, point) {
  const x = s.right + 18;
  let marks = text(width, TOP - 14, point === step.peak ? 'GB at peak' : 'GB here', 'm s n');
  step.terms.forEach((term, t) => {
    const y = TOP + HEIGHT - 6 - t * 25.5, value = point === step.peak ? step.at_peak[t] : bare(data.at(point, t));
    marks += rect(x, y - 8, 9, 9, 'tint', term, { 'stroke-width': 1.5 }) + text(x + 15, y, NAMES[term].replace(' layers', ''), 's') + text(width, y, value === '0.00' ? '0' : value, 's n');
  });
  return marks;
}

export function draw(step, data, width, options) {
  const s = scaleOf({ ...step }, data, width, options.limit), [areas, places] = stack(step, data, s), total = data.totals[step.peak];
  const outline = Array.from({ length: data.count }, (_, i) => `${i ? 'L' : 'M'}${s.x(i).toFixed(1)} ${s.y(data.totals[i]).toFixed(1)}L${s.x(i + 1).toFixed(1)} ${s.y(data.totals[i]).toFixed(1)}`).join('');
  let marks = frame(step, s) + areas + labels(step, data, s, places) + path(outline, 'ink', null, { 'stroke-width': step.spans.length ? 1.5 : 0.75, 'stroke-dasharray': '5 3' }) + spans(step, s);
  if (options.pinned) marks += path(options.pinned(s), 'ink', null, { 'stroke-width': 1.5 });
  const px = (s.x(step.peak) + s.x(step.peak + 1)) / 2, right = px < (LEFT + s.right) / 2;
  marks += limitLine({ ...step, highest_total: total }, s, options.limit, options.limitWords);
  marks += line(px, s.y(total) - 10, px, s.y(0), 'ink') + text(px + (right ? 10 : -10), s.y(total) - 12, step.peak_words, right ? 'b halo' : 'b n halo') + circle(px, s.y(total), 4, 'ground ink', { 'stroke-width': 1.5 });
  if (step.trace) marks += traced(step.trace, s, px, right);
  if (step.twin) marks += twinned(step, s, px, s.y(total) - 12, right);
  if (options.point !== null && options.point !== step.peak) marks += line((s.x(options.point) + s.x(options.point + 1)) / 2, TOP, (s.x(options.point) + s.x(options.point + 1)) / 2, TOP + HEIGHT, 'select');
  marks += key(step, data, s, width, options.point ?? step.peak);
  return svg(width, TOP + HEIGHT + 22, marks);
}

// A twin recorded on a GPU: a solid point on the formula's, its words behind those of the peak.
function twinned({ twin, peak_words: words }, s, px, y, right) {
  const past = 10 + 6.4 * words.length + 10, at = right ? px + past : px - past;
  return circle(px, s.y(twin.peak), 4, 'point') + text(at, y, twin.words, right ? 'm halo' : 'm n halo');
}

// The trace of the same step: dotted, with a diamond at its own peak.
function traced(trace, s, px, right) {
  const count = trace.parts.length, x = i => LEFT + i / count * (s.right - LEFT), y = part => s.y(part / 65535 * trace.highest).toFixed(1);
  const d = Array.from(trace.parts, (part, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(part)}L${x(i + 1).toFixed(1)} ${y(part)}`).join('');
  const top = trace.parts.indexOf(65535), at = x(Math.max(0, top) + 0.5);
  return path(d, 'ink2', null, { 'stroke-width': 1.5, 'stroke-dasharray': '1 3' }) + diamond(at, s.y(trace.peak), 5) + text(px + (right ? 10 : -10), s.y(trace.peak) + 30, trace.words, right ? 's halo' : 's n halo');
}

// Outline of another step on this one's axes, for the pinned A.
export const outlineOf = data => s => Array.from({ length: data.count }, (_, i) => {
  const a = LEFT + i / data.count * (s.right - LEFT), b = LEFT + (i + 1) / data.count * (s.right - LEFT), y = Math.max(TOP, s.y(data.totals[i])).toFixed(1);
  return `${i ? 'L' : 'M'}${a.toFixed(1)} ${y}L${b.toFixed(1)} ${y}`;
}).join('');

