// A schedule's blocks on one clock: unpacked, laid out, found under a point. Pure; drawing is timeline.js.
export const KINDS = ['F', 'B', 'I', 'W'];
const FIRST = { F: 0, B: 1, I: 1, W: 1 };

// Buffers arrive as DataViews at any offset; a typed array needs an aligned copy.
export function typed(view, Type) {
  if (!view) return new Type(0);
  const bytes = view.buffer ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) : view.slice(0);
  return new Type(bytes);
}

// Blocks in order of rank, then of start; `offsets[r]` is where rank r begins. `pair` is 2 for the first of an
// overlapped pair, 1 for its second, 0 for a block alone.
export function unpack(schedule) {
  const offsets = [0], raw = typed(schedule.kind, Uint8Array);
  for (const count of schedule.counts) offsets.push(offsets[offsets.length - 1] + count);
  const rows = typed(schedule.waits, Uint32Array), times = typed(schedule.waits, Float32Array), count = rows.length / 4;
  return {
    ranks: schedule.counts.length, chunks: schedule.chunks, depth: schedule.depth || schedule.counts.length * schedule.chunks, makespan: schedule.makespan, offsets,
    start: typed(schedule.start, Float32Array), duration: typed(schedule.duration, Float32Array),
    kind: raw.map(code => code & 3), pair: raw.map(code => (code >> 2) & 3), sends: raw.map(code => code >> 4), stage: typed(schedule.stage, Uint16Array), microbatch: typed(schedule.microbatch, Uint16Array),
    waits: new Map(Array.from({ length: count }, (_, i) => [rows[i], { cause: rows[count + i], waited: times[2 * count + i], flight: times[3 * count + i] }])),
    curves: (schedule.curves || []).map(curve => [typed(curve.times, Float32Array), typed(curve.held, Float32Array)]),
  };
}

const kept = new WeakMap();

// What a rank holds over time as [times, levels]: given for a model, else counted in A from the start of F to the end of B,
// or of W where B is split.
export function live(lanes, rank) {
  if (lanes.curves.length) return lanes.curves[rank];
  if (!kept.has(lanes)) kept.set(lanes, []);
  const known = kept.get(lanes);
  known[rank] ??= counted(lanes, rank);
  return known[rank];
}

function counted(lanes, rank) {
  const events = [];
  for (let i = lanes.offsets[rank]; i < lanes.offsets[rank + 1]; i += 1) {
    if (lanes.kind[i] === 0) events.push([lanes.start[i], 1]);
    else if (lanes.kind[i] !== 2) events.push([lanes.start[i] + lanes.duration[i], -1]);
  }
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const times = [0], counts = [0];
  for (const [time, change] of events) {
    const last = times.length - 1;
    if (Math.abs(times[last] - time) < 1e-6) counts[last] += change;
    else { times.push(time); counts.push(counts[last] + change); }
  }
  return [times, counts.map(count => count / lanes.chunks)];
}

// What a rank holds at a time.
export function heldAt(lanes, rank, time) {
  const [times, levels] = live(lanes, rank);
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time + 1e-6) low = middle + 1; else high = middle;
  }
  return low ? levels[low - 1] : 0;
}

// Heights of a rank's row: blocks over a memory curve while there is room, thinner rows for more ranks.
export function rows(ranks, plain = false) {
  if (plain && ranks <= 12) return { row: 38, block: 32, curve: 0, top: 10, plain };
  if (ranks <= 8) return { row: 42, block: 20, curve: 16, top: 8 };
  if (ranks <= 16) return { row: 24, block: 18, curve: 0, top: 12 };
  if (ranks <= 32) return { row: 14, block: 12, curve: 0, top: 12 };
  return { row: Math.max(4, Math.floor(400 / ranks)), block: Math.max(3, Math.floor(400 / ranks) - 1), curve: 0, top: 12 };
}

// What fits in a block so many pixels wide.
export function detail(pixels, height) {
  if (pixels >= 16.5 && height >= 12) return 'words';
  if (pixels >= 8 && height >= 12) return 'digits';
  return pixels >= 2 ? 'blocks' : 'density';
}

// First block of the rank that ends after the time; -1 if none.
export function after(lanes, rank, time) {
  let low = lanes.offsets[rank], high = lanes.offsets[rank + 1];
  const end = high;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lanes.start[middle] + lanes.duration[middle] > time) high = middle; else low = middle + 1;
  }
  return low < end ? low : -1;
}

export const scale = (view, box) => time => box.left + (time - view.from) / (view.to - view.from) * (box.right - box.left);
export const unscale = (view, box) => x => view.from + (x - box.left) / (box.right - box.left) * (view.to - view.from);

// Block under a point, or { rank } alone where the rank is idle; null outside the rows.
export function hit(lanes, size, box, view, x, y) {
  const rank = Math.floor((y - size.top) / size.row);
  if (rank < 0 || rank >= lanes.ranks || x < box.left || x > box.right) return null;
  const time = unscale(view, box)(x), found = after(lanes, rank, time);
  if (found < 0 || lanes.start[found] > time) return { rank, index: -1, time, next: found };
  const below = lanes.pair[found] === 2 && y - size.top - rank * size.row > size.block / 2;
  return { rank, index: below ? found + 1 : found, time };
}

// Part of each of `columns` pixel columns that each kind fills, for blocks too thin to draw.
export function density(lanes, rank, view, columns) {
  const filled = KINDS.map(() => new Float32Array(columns)), width = (view.to - view.from) / columns;
  for (let i = lanes.offsets[rank]; i < lanes.offsets[rank + 1]; i += 1) {
    const from = (lanes.start[i] - view.from) / width, to = from + lanes.duration[i] / width;
    if (to <= 0 || from >= columns) continue;
    const into = filled[lanes.kind[i]], part = lanes.pair[i] ? 0.5 : 1;
    for (let c = Math.max(0, Math.floor(from)); c < Math.min(columns, Math.ceil(to)); c += 1) {
      into[c] += part * (Math.min(to, c + 1) - Math.max(from, c));
    }
  }
  return filled;
}

// The block a step left or right, or the one nearest in time a rank up or down.
export function neighbour(lanes, index, key) {
  if (index < 0) return lanes.start.length ? 0 : -1;
  const rank = rankOf(lanes, index);
  if (key === 'ArrowLeft') return Math.max(lanes.offsets[rank], index - 1);
  if (key === 'ArrowRight') return Math.min(lanes.offsets[rank + 1] - 1, index + 1);
  if (key === 'Home') return lanes.offsets[rank];
  if (key === 'End') return lanes.offsets[rank + 1] - 1;
  const other = rank + (key === 'ArrowUp' ? -1 : 1);
  if (other < 0 || other >= lanes.ranks) return index;
  const found = after(lanes, other, lanes.start[index] + 1e-6);
  return found >= 0 ? found : lanes.offsets[other + 1] - 1;
}

export function rankOf(lanes, index) {
  let rank = 0;
  while (rank + 1 < lanes.ranks && lanes.offsets[rank + 1] <= index) rank += 1;
  return rank;
}

// Same action in another schedule: same micro-batch, direction and rank; -1 if it has none.
export function twin(lanes, other, index) {
  const rank = rankOf(lanes, index);
  for (let i = other.offsets[rank] || 0; i < (other.offsets[rank + 1] || 0); i += 1) {
    if (other.microbatch[i] === lanes.microbatch[index] && FIRST[KINDS[other.kind[i]]] === FIRST[KINDS[lanes.kind[index]]]) return i;
  }
  return -1;
}

// Zoom about a time, kept inside [0, end].
export function zoomed(view, factor, about, end) {
  const width = Math.min(end, (view.to - view.from) / factor);
  const part = (about - view.from) / (view.to - view.from), from = Math.min(Math.max(0, about - part * width), end - width);
  return { from, to: from + width };
}

// Height and place of a block in its row: halves for an overlapped pair, W a little lower than the others.
export function face(lanes, i, block) {
  if (lanes.pair[i]) return lanes.pair[i] === 2 ? [0, block / 2] : [block / 2, block / 2];
  const short = lanes.kind[i] === 3 && block >= 12 ? 4 : 0;
  return [short, block - short];
}
