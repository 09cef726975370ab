// Time against buffer size on two logarithmic axes: formula lines, traced and measured points.
import { binary, percent, seconds } from './format.js';
import { circle, line, path, points, rect, svg, text } from './svg.js';

const LEFT = 44, TOP = 10;

// Axes that hold every line and point, in whole powers of two and ten.
export function axes(chart, measured, width, height) {
  const sizes = chart.sizes, times = chart.lines.flatMap(l => l.seconds).concat(measured.map(p => p[1])).filter(v => v > 0);
  const low = Math.log10(Math.min(...times)), high = Math.log10(Math.max(...times));
  const bottom = Math.floor(low * 4) / 4, top = Math.max(bottom + 1, Math.ceil(high * 4) / 4);
  const from = Math.log2(sizes[0]), to = Math.log2(sizes[sizes.length - 1]), right = width - 12;
  return {
    right, bottom, top, from, to, height,
    x: bytes => LEFT + (Math.log2(bytes) - from) / (to - from) * (right - LEFT),
    y: value => TOP + height - (Math.log10(value) - bottom) / (top - bottom) * height,
  };
}

const decade = power => `${10 ** (((power % 3) + 3) % 3)} ${{ '-9': 'ns', '-6': 'µs', '-3': 'ms', 0: 's', 3: 'ks' }[Math.floor(power / 3) * 3]}`;

function frame(a) {
  let marks = '';
  for (let power = Math.ceil(a.bottom - 1e-9); power <= a.top + 1e-9; power += 1) {
    marks += line(LEFT, a.y(10 ** power), a.right, a.y(10 ** power), 'grid') + text(LEFT - 6, a.y(10 ** power) + 4, decade(power), 'm s n');
  }
  const step = a.to - a.from > 12 ? 4 : 2;
  for (let power = Math.ceil(a.from); power <= a.to; power += step) {
    marks += line(a.x(2 ** power), TOP, a.x(2 ** power), TOP + a.height, 'grid') + text(a.x(2 ** power), TOP + a.height + 16, binary(2 ** power), 'm s c');
  }
  return marks;
}

function formula(l, chart, a) {
  const d = points(chart.sizes.map((bytes, i) => [a.x(bytes), a.y(l.seconds[i])]));
  return l.chosen ? path(d, 'line', 'communication', { 'stroke-width': 2, 'stroke-dasharray': '6 3' }) : path(d, 'ink2', null, { 'stroke-width': 1.5, 'stroke-dasharray': '2 3' });
}

// The upper line is named above it, the others below, near the right end where they part.
function names(chart, a) {
  const at = chart.sizes.length - 4, x = a.x(chart.sizes[at]), order = [...chart.lines].sort((p, q) => q.seconds[at] - p.seconds[at]);
  return order.map((l, i) => {
    const y = a.y(l.seconds[at]), kind = l.chosen ? 'b s' : 'm s';
    return i === 0 && order.length > 1 ? text(x - 8, y - 4, l.words, `n ${kind}`) : text(x + 10, y + 12 + 13 * Math.max(0, i - 1), l.words, kind);
  }).join('');
}

function crossing(cross, a) {
  if (!cross) return '';
  const at = a.x(cross.bytes);
  return line(at, TOP + 10, at, TOP + a.height, 'ink2') + text(Math.min(at, a.right - 74), TOP + 4, cross.words, 's b c halo') + text(at - 6, TOP + a.height - 8, cross.below, 'm s n') + text(at + 6, TOP + a.height - 8, cross.above, 'm s');
}

// The chosen size: ring around the measured point, or an open one on the formula's line.
function chosen(chart, measured, a) {
  const at = chart.chosen, point = measured.find(p => p[0] === at.bytes);
  if (!point) {
    const place = chart.sizes.reduce((best, bytes, i) => (Math.abs(Math.log(bytes / at.bytes)) < Math.abs(Math.log(chart.sizes[best] / at.bytes)) ? i : best), 0);
    const above = chart.lines.every(l => l.chosen || l.seconds[place] <= at.seconds * 1.2), right = a.x(at.bytes) < LEFT + 110;
    const words = above ? text(a.x(at.bytes) + (right ? 4 : -6), a.y(at.seconds) - 12, at.words, `s accent b halo${right ? '' : ' n'}`) : text(a.x(at.bytes) + 8, a.y(at.seconds) + 20, at.words, 's accent b halo');
    return circle(a.x(at.bytes), a.y(at.seconds), 4.5, 'ground ink', { 'stroke-width': 1.5 }) + words;
  }
  const left = a.x(at.bytes) > a.right - 112;
  return circle(a.x(at.bytes), a.y(point[1]), 9, 'select') + text(a.x(at.bytes) + (left ? -13 : 13), a.y(point[1]) + 20, point[2] === null ? seconds(point[1]) : `${seconds(point[1])}, ${percent(point[2])}`, `s accent b halo${left ? ' n' : ''}`);
}

function residuals(measured, chart, a, base) {
  const worst = Math.max(0.2, ...measured.map(p => Math.abs(p[2]))), k = 26 / worst;
  return text(0, base - 36, 'measured − predicted, %', 's b') + line(LEFT, base, a.right, base, 'edge') + measured.map(([bytes, , part]) => {
    const high = Math.abs(part) * k, here = bytes === chart.chosen.bytes;
    return rect(a.x(bytes) - 6, part > 0 ? base - high : base, 12, high, 'full', here ? 'accent' : 'ink2')
      + text(a.x(bytes), part > 0 ? base + 12 : base - 4, percent(part, 0).replace(' %', ''), `c s ${here ? 'b' : 'm'}`);
  }).join('');
}

export function draw(chart, measured, pinned, width, height = 222) {
  const a = axes({ ...chart, lines: [...chart.lines, ...(pinned ? [pinned] : [])] }, measured, width, height);
  let marks = frame(a) + crossing(chart.crossing, a);
  if (pinned) marks += path(points(chart.sizes.map((bytes, i) => [a.x(bytes), a.y(pinned.seconds[i])])), 'ink', null, { 'stroke-width': 1.5 }) + text(a.x(chart.sizes[2]), a.y(pinned.seconds[2]) - 6, 'A', 's b');
  marks += chart.lines.map(l => formula(l, chart, a)).join('') + names(chart, a);
  marks += measured.map(([bytes, time]) => circle(a.x(bytes), a.y(time), 4, 'point')).join('') + chosen(chart, measured, a);
  measured = measured.filter(p => p[2] !== null);
  if (!measured.length) return svg(width, TOP + height + 22, marks);
  const base = TOP + height + 74;
  return svg(width, base + 18, marks + residuals(measured, chart, a, base));
}
