// The memory of one rank over the step, large: its own curve, those of the other schedules, the limit, a scale. Pure.
import { plain } from './format.js';
import { amount } from './held.js';
import { live } from './lanes.js';
import { inside, line, path, svg, text, ticks } from './svg.js';

const TOP = 20, HEIGHT = 110;

// A model's memory goes on through the optimizer step, after the last action.
const endOf = (lanes, rank) => Math.max(lanes.makespan, live(lanes, rank)[0].at(-1));

function outline(lanes, rank, X, y) {
  const [times, levels] = live(lanes, rank);
  let d = `M${X(0).toFixed(1)} ${y(0).toFixed(1)}`;
  times.forEach((time, i) => { d += `L${X(time).toFixed(1)} ${y(i ? levels[i - 1] : 0).toFixed(1)}L${X(time).toFixed(1)} ${y(levels[i]).toFixed(1)}`; });
  return `${d}L${X(endOf(lanes, rank)).toFixed(1)} ${y(levels.at(-1) ?? 0).toFixed(1)}`;
}

// `all`: [{ lanes, title, peaks }], `own`: which of them is in focus, X: time to pixels.
export function draw(all, own, rank, box, X, unit, cap, width, now) {
  const there = all.filter(one => rank < one.lanes.ranks), most = Math.max(...there.map(one => one.peaks[rank])), near = cap.value && cap.value < most * 2;
  const marks = ticks(Math.max(most, near ? cap.value : 0) * 1.1, 4), top = Math.max(most * 1.1, near ? cap.value * 1.1 : 0, marks.at(-1)), y = value => TOP + HEIGHT * (1 - value / top);
  let body = '', curves = '';
  for (const value of marks) body += line(box.left, y(value), box.right, y(value), 'grid') + text(box.left - 6, y(value) + 4, plain(value), 'm s n');
  const mine = all[own];
  if (rank < mine.lanes.ranks) curves += path(`${outline(mine.lanes, rank, X, y)}L${X(endOf(mine.lanes, rank)).toFixed(1)} ${y(0).toFixed(1)}z`, 'tint', 'activations', { 'stroke-width': 1.4 });
  there.filter(one => one !== mine).forEach(one => { curves += path(outline(one.lanes, rank, X, y), 'ink2', null, { 'stroke-width': 1.2, 'stroke-dasharray': '5 3' }); });
  const said = there.map(one => ({ words: `${one.title} ${amount(one.peaks[rank], unit)}`, y: y(one.peaks[rank]), own: one === mine, over: cap.value && one.peaks[rank] > cap.value })).sort((p, q) => p.y - q.y);
  for (let k = 1; k < said.length; k += 1) said[k].y = Math.max(said[k].y, said[k - 1].y + 13);
  for (const one of said) body += text(box.right + 8, one.y + 4, `${one.over ? '✕ ' : ''}${one.words}`, `s ${one.own ? 'b' : 'm'}${one.over ? ' misses' : ''}`);
  if (near) body += line(box.left, y(cap.value), box.right, y(cap.value), 'ink', { 'stroke-width': 1.5 }) + text(box.left + 4, y(cap.value) - 5, cap.words, 'b s halo');
  if (now !== null && now !== undefined) curves += line(X(now), TOP - 4, X(now), TOP + HEIGHT, 'select');
  const off = cap.value && !near ? ` · ${cap.words} line: ${plain(Number((cap.value / most).toPrecision(2)))} × the peak ↑` : '';
  return svg(width, TOP + HEIGHT + 8, text(0, 11, `rank ${rank} holds`, 'b') + text(78, 11, `${unit === 'A' ? 'activations of so many micro-batches (A)' : unit}; dashed: the other schedules${off}`, 'm s') + inside(box.left, 0, box.right - box.left, TOP + HEIGHT + 2, curves) + body, `memory of rank ${rank}`);
}
