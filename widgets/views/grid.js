// Chunks held by ranks: column = rank, row = chunk, small squares = whose numbers are in it.
import { line, path, rect, svg, text } from './svg.js';

const PINK = 'communication';

// Sizes for so many ranks and chunks in a width: large cells with words for few, plain cells for many.
export function layout(ranks, chunks, width) {
  const gap = ranks <= 4 ? 34 : ranks <= 8 ? 16 : ranks <= 16 ? 4 : 1, left = ranks <= 8 ? 72 : 58, right = ranks <= 8 ? 38 : 4;
  const cell = Math.max(4, Math.min(118, (width - left - right - gap * (ranks - 1)) / ranks));
  const height = chunks <= 4 ? 46 : chunks <= 8 ? 34 : Math.max(5, Math.min(22, Math.floor(340 / chunks) - 2));
  const down = chunks <= 4 ? 10 : chunks <= 8 ? 8 : chunks <= 16 ? 3 : 1;
  return { ranks, chunks, gap, left, cell, height, down, top: 26, squares: ranks <= 8, width, total: 26 + chunks * (height + down) };
}

export const x = (size, rank) => size.left + rank * (size.cell + size.gap);
export const y = (size, chunk) => size.top + chunk * (size.height + size.down);
export const members = (mask, ranks) => Array.from({ length: ranks }, (_, r) => r).filter(r => mask >= 0 && mask & (1 << r));
export const count = (value, masks) => (value < 0 ? 0 : masks ? members(value, 31).length : value);

// Rank and chunk under a point, null between cells.
export function hit(size, px, py) {
  const rank = Math.floor((px - size.left) / (size.cell + size.gap)), chunk = Math.floor((py - size.top) / (size.height + size.down));
  if (rank < 0 || rank >= size.ranks || chunk < 0 || chunk >= size.chunks) return null;
  return px <= x(size, rank) + size.cell && py <= y(size, chunk) + size.height ? { rank, chunk } : null;
}

export function words(value, grid) {
  if (value < 0) return '';
  if (!grid.masks) return `${value}`;
  const held = members(value, grid.ranks);
  if (!grid.sums) return grid.chunks === 1 || held.length ? `from ${held.join(', ')}` : '';
  if (held.length === grid.ranks) return grid.ranks > 4 ? `all ${grid.ranks}` : `sum of all ${grid.ranks}`;
  return held.length > 1 && grid.ranks > 4 ? `${held.length} of ${grid.ranks}` : held.join(' + ');
}

function squares(grid, size, rank, chunk, before, after) {
  const pad = size.cell > 60 ? 6 : 3, step = (size.cell - 2 * pad) / grid.ranks, high = size.height > 40 ? 14 : 10, left = x(size, rank) + pad, top = y(size, chunk) + (size.height > 40 ? 6 : 4);
  let marks = '';
  for (let k = 0; k < grid.ranks; k += 1) {
    const had = before >= 0 && before & (1 << k), has = after >= 0 && after & (1 << k), at = left + k * step, wide = Math.min(step - 2, 16);
    if (step < 7) {
      if (had && has) marks += rect(at, top, step - 0.8, high, 'full', PINK);
      else marks += rect(at + 0.2, top + 0.4, step - 1.2, high - 0.8, has ? 'tint' : 'empty', has ? PINK : null, has ? { 'stroke-width': 0.8 } : {});
    } else if (had && has) marks += rect(at + 1, top, wide, high, 'full', PINK);
    else if (has) marks += rect(at + 1.75, top + 0.75, wide - 1.5, high - 1.5, 'tint', PINK, { 'stroke-width': 1.5 });
    else marks += rect(at + 1.5, top + 0.5, wide - 1, high - 1, 'edge');
  }
  return marks;
}

function cell(grid, size, rank, chunk, moving) {
  const i = rank * grid.chunks + chunk, before = grid.before[i], after = grid.after[i], left = x(size, rank), top = y(size, chunk);
  const takes = moving.into.has(i), gives = moving.from.has(i), full = grid.sums && count(after, grid.masks) === grid.ranks;
  let marks = rect(left, top, size.cell, size.height, takes || gives ? 'ground line' : size.squares ? 'ground edge' : 'ground grid', takes || gives ? PINK : null, { 'stroke-width': takes ? 2.5 : gives ? 1.5 : 1 });
  if (!size.squares) {
    const part = count(after, grid.masks) / (grid.sums ? grid.ranks : 1);
    if (part > 0) marks += rect(left + 1, top + size.height * (1 - part) + 0.5, size.cell - 2, Math.max(1, size.height * part - 1), takes ? 'full' : 'tint', PINK, { 'stroke-width': 0 });
    return marks;
  }
  marks += squares(grid, size, rank, chunk, before, after);
  const fits = said => size.cell >= 5.1 * said.length + 3, long = grid.values?.[i] ?? words(after, grid), said = fits(long) || !full ? long : `all ${grid.ranks}`;
  if (size.height >= 34 && fits(said)) {
    marks += text(left + size.cell / 2, top + size.height - (size.height > 40 ? 10 : 6), said, `c s${full ? ' b' : takes || gives || grid.values ? '' : ' m'}`);
  }
  return marks;
}

const head = (px, py, dx) => `M${px} ${py}l${-7 * dx} -4v8z`;

// A neighbour's arrow lies in the gap; a farther one bends over the cells between.
function arrow(size, [from, to, chunk], ranks, motion) {
  const middle = y(size, chunk) + Math.min(13, size.height / 2), start = x(size, from), end = x(size, to), more = motion ? ' arrive' : '';
  if (to === from + 1) return line(start + size.cell + 2, middle, end - 8, middle, `line${more}`, { style: `--c:var(--pb-${PINK})`, 'stroke-width': 2.5 }) + path(head(end - 2, middle, 1), 'full', PINK);
  if (from === ranks - 1 && to === 0 && ranks > 2) {
    return line(start + size.cell + 2, middle, start + size.cell + 10, middle, `line${more}`, { style: `--c:var(--pb-${PINK})`, 'stroke-width': 2.5 }) + path(head(start + size.cell + 16, middle, 1), 'full', PINK)
      + text(start + size.cell + 19, middle + 4, 'to 0', 's m') + line(end - 22, middle, end - 8, middle, `line${more}`, { style: `--c:var(--pb-${PINK})`, 'stroke-width': 2.5 }) + path(head(end - 2, middle, 1), 'full', PINK);
  }
  const way = to > from ? 1 : -1, a = start + (way > 0 ? size.cell - 8 : 8), b = end + (way > 0 ? 8 : size.cell - 8), top = y(size, chunk), high = Math.min(size.down + 4, 9);
  return path(`M${a} ${top}C${a + 10 * way} ${top - high} ${b - 10 * way} ${top - high} ${b} ${top - 1}`, `line${more}`, PINK, { 'stroke-width': 1.5, fill: 'none' }) + path(`M${b} ${top + 1}l-3.5 -6h7z`, 'full', PINK);
}

export function draw(grid, width, chosen, motion) {
  const size = layout(grid.ranks, grid.chunks, width), moving = { into: new Set(), from: new Set() };
  for (const [from, to, chunk] of grid.moves) { moving.from.add(from * grid.chunks + chunk); moving.into.add(to * grid.chunks + chunk); }
  let marks = '';
  const every = size.cell + size.gap >= 40 ? 1 : Math.ceil(40 / (size.cell + size.gap)), rows = size.height + size.down >= 13 ? 1 : Math.ceil(13 / (size.height + size.down));
  if (size.cell <= 40) marks += text(0, 14, 'rank', 'm');
  for (let r = 0; r < grid.ranks; r += every) marks += text(x(size, r) + size.cell / 2, 14, size.cell > 40 ? `rank ${r}` : r, 'b c');
  for (let k = 0; k < grid.chunks; k += rows) marks += text(0, y(size, k) + Math.min(19, size.height / 2 + 4), size.height >= 12 ? grid.names?.[k] ?? `chunk ${k}` : k, 'm');
  for (let r = 0; r < grid.ranks; r += 1) for (let k = 0; k < grid.chunks; k += 1) marks += cell(grid, size, r, k, moving);
  // Where every cell sends to all others, arrows are drawn for the chosen cell alone.
  const crowded = grid.moves.length > 1.5 * grid.ranks * grid.chunks, own = ([from, to, chunk]) => chosen && chunk === chosen.chunk && (from === chosen.rank || to === chosen.rank);
  if (size.squares) marks += grid.moves.filter(move => !crowded || own(move)).map(move => arrow(size, move, grid.ranks, motion)).join('');
  if (chosen) marks += rect(x(size, chosen.rank) - 3, y(size, chosen.chunk) - 3, size.cell + 6, size.height + 6, 'select');
  return svg(width, size.total, marks);
}
