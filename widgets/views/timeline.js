// Timelines of ranks on a canvas: pale blocks are predicted, solid strips in them were measured.
import { DPR, packed } from './canvas.js';
import { memory, peaks } from './held.js';
import { KINDS, density, detail, face, scale } from './lanes.js';

function rowLabels(ctx, lanes, size, c, { bad, over = [] }) {
  const every = size.row >= 12 ? 1 : Math.ceil(12 / size.row);
  ctx.textBaseline = 'middle';
  for (let r = 0; r < lanes.ranks; r += every) {
    const wrong = r === bad || over.includes(r);
    ctx.font = `${wrong ? '600 11px' : '10.5px'} ${c.font}`;
    ctx.fillStyle = wrong ? c.bad : c.ink2;
    ctx.fillText(`rank ${r}`, 0, size.top + r * size.row + size.block / 2 + 0.5);
  }
}

const faint = (lanes, i, o) => (o.chosen !== null && lanes.microbatch[i] !== o.chosen) || (o.play !== null && lanes.start[i] >= o.play);

// Blocks of one row, by kind so that the fill changes four times and not once a block.
function blocks(ctx, lanes, r, y, size, X, view, c, o) {
  for (let k = 0; k < KINDS.length; k += 1) {
    const faces = [new Path2D(), new Path2D()], edges = [new Path2D(), new Path2D()];
    let any = [false, false];
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
      if (lanes.kind[i] !== k || lanes.start[i] > view.to || lanes.start[i] + lanes.duration[i] < view.from) continue;
      const x = X(lanes.start[i]), w = X(lanes.start[i] + lanes.duration[i]) - x, dim = faint(lanes, i, o) ? 1 : 0, [top, high] = face(lanes, i, size.block);
      any[dim] = true;
      const inset = w > 4 ? 0.6 : 0.2;
      faces[dim].rect(x + inset, y + inset + top, w - 2 * inset, high - 2 * inset);
      if (k === 1 || k === 2) edges[dim].rect(x + 0.1, y + 0.1 + top, w - 0.2, Math.min(2.4, size.block / 4));
    }
    for (const dim of [0, 1]) {
      if (!any[dim]) continue;
      ctx.globalAlpha = dim ? 0.35 : 1;
      ctx.fillStyle = c.tints[k];
      ctx.fill(faces[dim]);
      ctx.strokeStyle = c.kinds[k];
      ctx.lineWidth = 1;
      ctx.stroke(faces[dim]);
      ctx.fillStyle = c.kinds[k];
      ctx.fill(edges[dim]);
    }
  }
  ctx.globalAlpha = 1;
}

// Numbers stand in the blocks of a kind if the longest of them fits.
function words(ctx, lanes, r, y, size, X, view, c, o) {
  const digits = String(Math.max(...lanes.microbatch.subarray(lanes.offsets[r], lanes.offsets[r + 1]))).length, big = size.plain ? 12 : 9, wide = big * 0.58;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'alphabetic';
  ctx.fillStyle = c.ink;
  for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
    if (lanes.start[i] > view.to || lanes.start[i] + lanes.duration[i] < view.from) continue;
    const x = X(lanes.start[i]), w = X(lanes.start[i] + lanes.duration[i]) - x, level = detail(w, size.block), half = lanes.pair[i] > 0;
    if ((level !== 'words' && level !== 'digits') || w < wide * digits + 0.8) continue;
    const [top, high] = face(lanes, i, size.block), plain = (lanes.depth === lanes.ranks || half) && level === 'words' && w >= wide * (digits + 1) + 2;
    ctx.font = `500 ${half ? 8 : big}px ${c.font}`;
    ctx.globalAlpha = faint(lanes, i, o) ? 0.35 : 1;
    if (half && o.measured) {
      // The strips lie in the lower half: both names stand above them.
      if (lanes.pair[i] === 2) ctx.fillText(w >= 44 ? `F${lanes.microbatch[i]} & B${lanes.microbatch[i + 1]}` : `${lanes.microbatch[i]}`, x + w / 2, y + 8);
      continue;
    }
    const middle = o.measured ? 11.4 : top + high / 2 + big * 0.36 - (half ? 0.4 : lanes.kind[i] === 3 ? 0.8 : 0);
    ctx.fillText((plain ? KINDS[lanes.kind[i]] : '') + lanes.microbatch[i], x + w / 2, y + middle);
  }
  ctx.globalAlpha = 1;
  ctx.textAlign = 'left';
}

// Blocks thinner than a pixel: each column is filled by kind, as pixels, since a path of so many slivers is slow.
function dense(ctx, lanes, r, y, size, box, view, c) {
  const ratio = DPR(), wide = Math.max(1, Math.round((box.right - box.left) * ratio)), high = Math.max(1, Math.round(size.block * ratio));
  const filled = density(lanes, r, view, wide), image = ctx.createImageData(wide, high), pixels = new Uint32Array(image.data.buffer), idle = packed(c.idle), hues = c.dense.map(packed);
  const end = (lanes.makespan - view.from) / (view.to - view.from) * wide;
  for (let x = 0; x < wide; x += 1) {
    let level = high;
    for (let k = 0; k < KINDS.length; k += 1) {
      const part = filled[k][x];
      if (part <= 0) continue;
      const top = Math.max(0, Math.round(level - Math.min(1, part) * high));
      for (let line = top; line < level; line += 1) pixels[line * wide + x] = hues[k];
      level = top;
    }
    if (x < end) for (let line = 0; line < level; line += 1) pixels[line * wide + x] = idle;
  }
  ctx.putImageData(image, Math.round(box.left * ratio), Math.round(y * ratio));
}

function strips(ctx, lanes, measured, r, y, size, X, view, c) {
  const high = size.block >= 16 ? 5 : Math.max(2, size.block * 0.4), low = y + size.block - high - 1, waits = new Path2D();
  for (let k = 0; k < KINDS.length; k += 1) {
    const strip = new Path2D();
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
      const start = measured.start[i];
      if (lanes.kind[i] !== k || Number.isNaN(start) || start > view.to) continue;
      const x = X(start), w = X(start + measured.duration[i]) - x, half = lanes.pair[i] ? high / 2 : high;
      strip.rect(x + 0.6, low + (lanes.pair[i] === 1 ? half : 0), Math.max(1, w - 1.2), half);
      const waited = measured.waited.length ? X(start) - X(start - measured.waited[i]) : 0;
      if (waited > 3) { waits.moveTo(x - waited + 1, low + high / 2); waits.lineTo(x - 1, low + high / 2); }
    }
    ctx.fillStyle = c.kinds[k];
    ctx.fill(strip);
  }
  ctx.strokeStyle = c.ink2;
  ctx.lineWidth = 1;
  ctx.stroke(waits);
}

// Slots in which a rank has nothing to do, one a unit, where they are few enough to be counted.
function slots(ctx, lanes, r, y, size, X, c) {
  if (X(1) - X(0) < 12) return;
  ctx.strokeStyle = c.ink2;
  ctx.lineWidth = 1;
  ctx.setLineDash([3, 3]);
  for (let t = 0; t < lanes.makespan - 1e-6; t += 1) {
    let busy = false;
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) if (lanes.start[i] < t + 1 - 1e-6 && lanes.start[i] + lanes.duration[i] > t + 1e-6) busy = true;
    if (!busy) ctx.strokeRect(X(t) + 1.5, y + 1.5, X(t + 1) - X(t) - 3, size.block - 3);
  }
  ctx.setLineDash([]);
}

// One schedule. `options`: measured, index and rank of the chosen block, top (largest memory drawn), cap, over, now, play,
// bad (a rank), peaks, unit.
export function draw(ctx, lanes, size, box, view, c, options) {
  const X = scale(view, box), o = { chosen: options.index >= 0 ? lanes.microbatch[options.index] : null, play: options.play ?? null, measured: options.measured };
  const narrow = lanes.start.length ? X(lanes.duration.reduce((a, b) => Math.min(a, b), Infinity)) - X(0) : 0, level = detail(narrow, size.block);
  rowLabels(ctx, lanes, size, c, options);
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left - 1, 0, box.right - box.left + 6, size.top + lanes.ranks * size.row + 8);
  ctx.clip();
  for (let r = 0; r < lanes.ranks; r += 1) {
    const y = size.top + r * size.row;
    ctx.fillStyle = c.idle;
    ctx.fillRect(X(0), y, X(lanes.makespan) - X(0), size.block);
    if (size.plain) slots(ctx, lanes, r, y, size, X, c);
    if (size.curve) memory(ctx, lanes, r, y, size, X, c, options);
    if (level === 'density') dense(ctx, lanes, r, y, size, box, view, c);
    else {
      blocks(ctx, lanes, r, y, size, X, view, c, o);
      words(ctx, lanes, r, y, size, X, view, c, o);
    }
    if (options.measured) strips(ctx, lanes, options.measured, r, y, size, X, view, c);
  }
  if (options.gap && size.block >= 18 && !options.measured) waits(ctx, options.gap, size, X, c);
  const foot = size.top + (lanes.ranks - 1) * size.row + size.block + (size.curve ? 16 : 4);
  if (options.pinned) outline(ctx, X(options.pinned), size, foot, c);
  rule(ctx, X(lanes.makespan), size.top - 8, foot, c.ink, 1.5);
  const now = options.play ?? options.now;
  if (now !== null && now !== undefined) rule(ctx, X(now), size.top - 6, foot, c.accent, 1.5);
  if (options.index >= 0) ring(ctx, lanes, options.index, options.rank, size, X, c);
  ctx.restore();
  if (options.bad !== undefined && options.measured) cross(ctx, lanes, options, size, X, c);
  if (!size.plain) peaks(ctx, size, box, c, options);
}

// What a long wait waits for stands in the empty slot itself.
function waits(ctx, gap, size, X, c) {
  const width = X(gap.to) - X(gap.from);
  ctx.font = `10.5px ${c.font}`;
  if (ctx.measureText(gap.words).width > width - 8) return;
  ctx.fillStyle = c.ink2;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillText(gap.words, X(gap.from) + width / 2, size.top + size.block / 2 + 0.5);
  ctx.textAlign = 'left';
}

// Where the rank died, and of what.
function cross(ctx, lanes, options, size, X, c) {
  let last = 0;
  for (let i = lanes.offsets[options.bad]; i < lanes.offsets[options.bad + 1]; i += 1) {
    const end = options.measured.start[i] + options.measured.duration[i];
    if (end > last) last = end;
  }
  const x = X(last) + 4, y = size.top + options.bad * size.row + size.block / 2;
  ctx.strokeStyle = c.bad;
  ctx.lineWidth = 3;
  ctx.beginPath();
  ctx.moveTo(x - 6, y - 6);
  ctx.lineTo(x + 6, y + 6);
  ctx.moveTo(x + 6, y - 6);
  ctx.lineTo(x - 6, y + 6);
  ctx.stroke();
  const words = options.cause || 'failed';
  ctx.font = `600 10.5px ${c.font}`;
  const wide = ctx.measureText(words).width;
  ctx.fillStyle = c.ground;
  ctx.fillRect(x + 10, y - 8, wide + 8, 16);
  ctx.fillStyle = c.bad;
  ctx.textBaseline = 'middle';
  ctx.fillText(words, x + 14, y);
}

// The end of the pinned order, A.
function outline(ctx, x, size, foot, c) {
  ctx.setLineDash([4, 3]);
  rule(ctx, x, size.top - 8, foot, c.ink, 1.5);
  ctx.setLineDash([]);
  ctx.font = `600 10.5px ${c.font}`;
  ctx.fillStyle = c.ink;
  ctx.textBaseline = 'top';
  ctx.fillText('A', x - 10, 0);
}

function rule(ctx, x, y0, y1, colour, width) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  ctx.moveTo(x, y0);
  ctx.lineTo(x, y1);
  ctx.stroke();
}

function ring(ctx, lanes, index, rank, size, X, c) {
  const x = X(lanes.start[index]), w = X(lanes.start[index] + lanes.duration[index]) - x;
  ctx.strokeStyle = c.accent;
  ctx.lineWidth = 2;
  const [top, high] = face(lanes, index, size.block);
  ctx.strokeRect(x, size.top + rank * size.row + top, Math.max(2, w), high);
}
