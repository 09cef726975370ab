// Throughput over memory: one open point for each schedule, the front as a dashed line. Pure.
import { percent } from './format.js';
import { amount } from './held.js';
import { circle, line, path, points, svg, text, ticks } from './svg.js';

const LEFT = 48, TOP = 22, HEIGHT = 330, LOW = 46;

export function axes(scatter, cap, width) {
  const xs = scatter.points.map(p => p.x), ys = scatter.points.map(p => p.y), most = Math.max(...xs);
  const limit = cap && cap <= most * 1.6 ? cap : 0, top = Math.max(most, limit) * 1.12, least = Math.min(...ys);
  const bottom = Math.max(0, Math.floor((least - 0.02) * 10) / 10), right = width - 24;
  return { right, top, bottom, limit, x: v => LEFT + v / top * (right - LEFT), y: v => TOP + HEIGHT * (1 - (v - bottom) / Math.max(1e-6, 1 - bottom)) };
}

// Where names go: right of their point, else left, above or below, the first place that meets no other name or point.
export function places(scatter, a) {
  const taken = scatter.points.map(p => [a.x(p.x) - 6, a.y(p.y) - 6, 12, 12]), found = new Map();
  const free = ([x, y, w, h]) => x >= LEFT && x + w <= a.right + 20 && y > 2 && taken.every(([u, v, s, t]) => x + w < u || u + s < x || y + h < v || v + t < y);
  const order = scatter.points.map((p, i) => [p, i]).sort(([p], [q]) => Number(q.shown) - Number(p.shown) || Number(q.front) - Number(p.front) || p.y - q.y);
  for (const [p, i] of order) {
    const x = a.x(p.x), y = a.y(p.y), w = p.title.length * 6.4 + 4, spots = [];
    for (const step of [0, 15, -15, 30, -30, 45, -45, 60, -60]) spots.push([x + 10, y - 7 + step, w, 14, 'l', step], [x - 10 - w, y - 7 + step, w, 14, 'n', step]);
    const spot = spots.find(free) || spots[0];
    taken.push(spot.slice(0, 4));
    found.set(i, spot);
  }
  return found;
}

function frame(a, unit) {
  let marks = '';
  const step = 1 - a.bottom > 0.55 ? 0.2 : 1 - a.bottom > 0.25 ? 0.1 : 0.05;
  for (let v = a.bottom; v <= 1 + 1e-9; v += step) marks += line(LEFT, a.y(v), a.right, a.y(v), 'grid') + text(LEFT - 8, a.y(v) + 4, percent(v, 0).replace('+', ''), 'm s n');
  for (const v of ticks(a.top, 8)) marks += line(a.x(v), TOP + HEIGHT, a.x(v), TOP + HEIGHT + 4, 'ink2') + text(a.x(v), TOP + HEIGHT + 17, `${v}`, 'm s c');
  marks += line(LEFT, TOP + HEIGHT, a.right, TOP + HEIGHT, 'edge');
  return marks + text(a.right, TOP + HEIGHT + 34, `most memory of a rank, ${unit} →`, 'm n') + text(0, 10, '↑ throughput: work / makespan', 'm');
}

// Which point's name lies under the pointer, or which is nearest to it within 24 px; −1 if none.
export function hit(scatter, cap, width, px, py) {
  const a = axes(scatter, cap, width);
  for (const [i, [x, y, w, h]] of places(scatter, a)) if (px >= x && px <= x + w && py >= y && py <= y + h) return i;
  let best = -1, least = 24 ** 2;
  scatter.points.forEach((p, i) => { const d = (a.x(p.x) - px) ** 2 + (a.y(p.y) - py) ** 2; if (d < least) { least = d; best = i; } });
  return best;
}

export function draw(scatter, cap, unit, width, chosen, pinned = []) {
  const a = axes(scatter, cap.value, width), spots = places(scatter, a), byName = new Map(scatter.points.map(p => [p.name, p]));
  let marks = frame(a, unit);
  if (a.limit) marks += line(a.x(a.limit), TOP - 6, a.x(a.limit), TOP + HEIGHT, 'ink', { 'stroke-width': 1.5 }) + text(a.x(a.limit) + 6, TOP + 4, cap.words, 'b s halo');
  else if (cap.value) marks += text(a.right, 10, `${cap.words} line: beyond the scale →`, 'm s n');
  const front = scatter.front.map(name => byName.get(name));
  marks += path(points(front.map(p => [a.x(p.x), a.y(p.y)])), 'ink2', null, { 'stroke-width': 1.5, 'stroke-dasharray': '5 3' });
  for (const p of pinned) marks += path(`M${a.x(p.x) - 4} ${a.y(p.y) - 4}l8 8m0 -8l-8 8`, 'ink2', null, { 'stroke-width': 1 });
  scatter.points.forEach((p, i) => {
    const x = a.x(p.x), y = a.y(p.y), [sx, sy, sw, , side, step] = spots.get(i);
    if (step) marks += line(x, y, side === 'l' ? sx - 1 : sx + sw + 1, sy + 7, 'edge');
    if (p.ran !== undefined) marks += line(x, y, x, a.y(Math.max(a.bottom, p.ran)), 'ink') + circle(x, a.y(Math.max(a.bottom, p.ran)), 4, 'point');
    if (p.shown || i === chosen) marks += circle(x, y, 9, i === chosen ? 'select' : 'select thin');
    marks += circle(x, y, 5, 'ground ink', { 'stroke-width': p.front ? 2 : 1.2 });
    marks += text(side === 'l' ? sx : sx + sw, sy + 11, p.title, `${p.shown ? 'b ' : p.front ? '' : 'm '}halo${side === 'n' ? ' n' : ''}`);
  });
  return svg(width, TOP + HEIGHT + LOW, marks, 'throughput over memory');
}

// What is said of a point, and what a press does with it.
export const offer = (p, unit) => `${words(p, unit)} · ${p.shown ? 'click takes it away' : 'click shows it'}`;

export const words = (p, unit) => `${p.words || `${p.title}: ${percent(p.y)}, ${amount(p.x, unit)}`}${p.ran === undefined ? '' : `; on real ranks ${percent(p.ran).replace('+', '')}`}${p.shown ? ' · shown' : ''}`;
