// What more micro-batches buy: the idle share against m on a logarithmic axis, with p, 2p, 4p and 8p marked. Pure.
import { plain } from './format.js';
import { circle, line, path, points, svg, text, ticks } from './svg.js';

const LEFT = 34, TOP = 12, HEIGHT = 92, NAMES = 112;

export function axes(gain, width) {
  const all = gain.lines.flatMap(l => l.points), from = Math.min(...all.map(p => p[0])), to = Math.max(...all.map(p => p[0]), from + 1), right = Math.max(LEFT + 80, width - NAMES);
  const marks = ticks(Math.max(...all.map(p => p[1])) * 1.05, 3), top = Math.max(marks[marks.length - 1], Math.max(...all.map(p => p[1])) * 1.05, 1e-6);
  return { from, to, right, top, marks, x: m => LEFT + 8 + Math.log(m / from) / Math.log(to / from) * (right - LEFT - 16), y: share => TOP + HEIGHT * (1 - share / top) };
}

// Names at the right end, pushed apart where lines end together.
function names(gain, a) {
  const ends = gain.lines.map((l, i) => ({ i, title: l.title, y: a.y(l.points[l.points.length - 1][1]) })).sort((p, q) => p.y - q.y);
  for (let k = 1; k < ends.length; k += 1) ends[k].y = Math.max(ends[k].y, ends[k - 1].y + 12);
  const over = Math.max(0, (ends.at(-1)?.y ?? 0) - (TOP + HEIGHT));
  return ends.map(({ i, title, y }) => text(a.right + 4, y - over + 4, title.length > 19 ? `${title.slice(0, 18)}…` : title, i ? 's m' : 's b')).join('');
}

export function draw(gain, width) {
  const a = axes(gain, width), low = TOP + HEIGHT;
  let marks = '';
  for (const share of a.marks) marks += line(LEFT, a.y(share), a.right, a.y(share), 'grid') + text(LEFT - 6, a.y(share) + 4, `${plain(share)}${share === a.marks.at(-1) ? ' %' : ''}`, 'm s n');
  for (const [m, words] of gain.marks.filter(([m]) => m >= a.from && m <= a.to)) {
    marks += line(a.x(m), TOP, a.x(m), low + 4, 'grid') + text(a.x(m), low + 15, words, words === '4p' ? 'b s c' : 'm s c') + text(a.x(m), low + 27, `${m}`, 'm s c');
  }
  gain.lines.forEach((l, i) => { marks += path(points(l.points.map(([m, share]) => [a.x(m), a.y(share)])), i ? 'ink2' : 'ink', null, { 'stroke-width': i ? 1.2 : 1.6, 'stroke-dasharray': '5 3' }); });
  if (gain.now >= a.from && gain.now <= a.to) {
    for (const l of gain.lines) { const here = l.points.find(p => p[0] === gain.now); if (here) marks += circle(a.x(here[0]), a.y(here[1]), 4, 'ground ink', { 'stroke-width': 1.5 }); }
  }
  return svg(width, low + 32, marks + names(gain, a), 'idle share against micro-batches');
}
