// Marks as SVG text. Colours are classes over CSS variables, so a change of theme needs no redraw.
import { escape } from './format.js';

const n = x => (Math.round(x * 100) / 100).toString();
const attributes = given => Object.entries(given || {}).map(([key, value]) => ` ${key}="${value}"`).join('');
export const hue = name => `--c:var(--pb-${name})`;

export const rect = (x, y, w, h, kind, name, more) =>
  `<rect x="${n(x)}" y="${n(y)}" width="${n(Math.max(0, w))}" height="${n(Math.max(0, h))}" class="${kind}"${name ? ` style="${hue(name)}"` : ''}${attributes(more)}/>`;
export const line = (x1, y1, x2, y2, kind, more) => `<line x1="${n(x1)}" y1="${n(y1)}" x2="${n(x2)}" y2="${n(y2)}" class="${kind}"${attributes(more)}/>`;
export const path = (d, kind, name, more) => `<path d="${d}" class="${kind}"${name ? ` style="${hue(name)}"` : ''}${attributes(more)}/>`;
export const circle = (x, y, r, kind, more) => `<circle cx="${n(x)}" cy="${n(y)}" r="${n(r)}" class="${kind}"${attributes(more)}/>`;
export const diamond = (x, y, r) => `<path d="M${n(x)} ${n(y - r)}L${n(x + r)} ${n(y)}L${n(x)} ${n(y + r)}L${n(x - r)} ${n(y)}z" class="ground" style="stroke:var(--pb-ink);stroke-width:1.5"/>`;
export const text = (x, y, words, kind = '', more) => `<text x="${n(x)}" y="${n(y)}" class="${kind}"${attributes(more)}>${escape(words)}</text>`;
export const points = list => list.map(([x, y], i) => `${i ? 'L' : 'M'}${n(x)} ${n(y)}`).join('');
export const svg = (w, h, body, label) =>
  `<svg width="${n(w)}" height="${n(h)}" viewBox="0 0 ${n(w)} ${n(h)}"${label ? ` role="img" aria-label="${escape(label)}"` : ' aria-hidden="true"'}>${body}</svg>`;

// Marks cut off at the edges of a box, in the same coordinates; a style of its own, since the sheet shows what overflows.
export const inside = (x, y, w, h, body) => `<svg x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" viewBox="${n(x)} ${n(y)} ${n(w)} ${n(h)}" style="overflow:hidden">${body}</svg>`;

// 45 degree hatch, 1.8 of 5 px, means "traced" and nothing else. Ids must differ within a page.
let made = 0;
export function hatched(x, y, w, h, name) {
  const id = `pb-hatch-${made += 1}`;
  return `<g style="${hue(name)}"><defs><pattern id="${id}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" class="tint" stroke="none"/>`
    + `<rect width="1.8" height="5" class="full"/></pattern></defs><rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="url(#${id})" stroke="var(--c)"/></g>`;
}

// One sign for each way of knowing a number: bar or block, then line or point.
export const swatch = {
  formula: () => svg(34, 12, rect(0.75, 1.75, 12, 8.5, 'tint', 'ink2', { 'stroke-width': 1.5 }) + path('M17 6H34', 'ink', null, { 'stroke-width': 1.5, 'stroke-dasharray': '5 3' })),
  traced: () => svg(34, 12, hatched(0.5, 1.5, 12, 9, 'ink2') + diamond(25.5, 6, 4.5)),
  measured: () => svg(34, 12, rect(0, 1, 13, 10, 'full', 'ink2') + circle(25, 6, 4, 'point', { 'stroke-width': 0 })),
};

// Ticks at 1, 2, 2.5 or 5 times a power of ten, at most `most` of them, from zero.
export function ticks(top, most = 6) {
  if (!(top > 0)) return [0];
  const raw = top / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find(k => k * power >= raw * (1 - 1e-9));
  const count = Math.floor(top / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}
