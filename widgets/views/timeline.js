// Timelines of ranks on a canvas: pale blocks are predicted, solid strips in them were measured.
import { KINDS, density, detail, live, scale } from './lanes.js';

const DPR = () => Math.min(3, window.devicePixelRatio || 1);

export function prepare(canvas, width, height) {
  const ratio = DPR();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

function mixed(colour, ground, part) {
  const read = text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
  const [a, b] = [read(colour), read(ground)];
  return `rgb(${a.map((v, i) => Math.round(v * part + b[i] * (1 - part))).join(',')})`;
}

function hex(words, fallback) {
  const text = words.trim();
  if (/^#[0-9a-f]{6}$/i.test(text)) return text;
  if (/^#[0-9a-f]{3}$/i.test(text)) return `#${[...text.slice(1)].map(c => c + c).join('')}`;
  const numbers = /rgba?\((\d+)[, ]+(\d+)[, ]+(\d+)/.exec(text);
  return numbers ? `#${numbers.slice(1).map(v => Number(v).toString(16).padStart(2, '0')).join('')}` : text === 'white' ? '#ffffff' : fallback;
}

// Colours as they are now: a canvas cannot follow CSS variables.
export function colours(root) {
  const style = getComputedStyle(root), dark = root.dataset.theme === 'dark';
  const value = name => hex(style.getPropertyValue(`--pb-${name}`), '#888888');
  const ground = hex(style.getPropertyValue('--pb-background'), dark ? '#111111' : '#ffffff'), tint = parseFloat(style.getPropertyValue('--pb-tint')) / 100;
  const kinds = KINDS.map(value);
  return {
    kinds, tints: kinds.map(colour => mixed(colour, ground, tint)), dense: kinds.map(colour => mixed(colour, ground, 0.6)), ground, ink: value('ink'), ink2: value('ink2'), idle: value('idle'), accent: value('accent'), bad: value('bad'), line: value('line'), grid: value('grid'),
    memory: value('activations'), memoryTint: mixed(value('activations'), ground, tint), font: style.fontFamily,
  };
}

function rowLabels(ctx, lanes, size, c, bad) {
  const every = size.row >= 12 ? 1 : Math.ceil(12 / size.row);
  ctx.textBaseline = 'middle';
  for (let r = 0; r < lanes.ranks; r += every) {
    ctx.font = `${r === bad ? '600 11px' : '10.5px'} ${c.font}`;
    ctx.fillStyle = r === bad ? c.bad : c.ink2;
    ctx.fillText(`rank ${r}`, 0, size.top + r * size.row + size.block / 2 + 0.5);
  }
}

// Blocks of one row, by kind so that the fill changes four times and not once a block.
function blocks(ctx, lanes, r, y, size, X, view, c, chosen) {
  for (let k = 0; k < KINDS.length; k += 1) {
    const short = k === 3 && size.block >= 12 ? 4 : 0, faces = [new Path2D(), new Path2D()], edges = [new Path2D(), new Path2D()];
    let any = [false, false];
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
      if (lanes.kind[i] !== k || lanes.start[i] > view.to || lanes.start[i] + lanes.duration[i] < view.from) continue;
      const x = X(lanes.start[i]), w = X(lanes.start[i] + lanes.duration[i]) - x, dim = chosen !== null && lanes.microbatch[i] !== chosen ? 1 : 0;
      any[dim] = true;
      const inset = w > 4 ? 0.6 : 0.2;
      faces[dim].rect(x + inset, y + inset + short, w - 2 * inset, size.block - 2 * inset - short);
      if (k === 1 || k === 2) edges[dim].rect(x + 0.1, y + 0.1, w - 0.2, Math.min(2.4, size.block / 4));
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
function words(ctx, lanes, r, y, size, X, view, c, chosen, solid) {
  const digits = String(Math.max(...lanes.microbatch.subarray(lanes.offsets[r], lanes.offsets[r + 1]))).length;
  ctx.font = `500 9px ${c.font}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'alphabetic';
  ctx.fillStyle = c.ink;
  for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
    if (lanes.start[i] > view.to || lanes.start[i] + lanes.duration[i] < view.from) continue;
    const x = X(lanes.start[i]), w = X(lanes.start[i] + lanes.duration[i]) - x, level = detail(w, size.block);
    if ((level !== 'words' && level !== 'digits') || w < 5.2 * digits + 0.8) continue;
    const letter = level === 'words' && lanes.chunks < 2 && w >= 5.2 * (digits + 1) + 2 ? KINDS[lanes.kind[i]] : '';
    ctx.globalAlpha = chosen !== null && lanes.microbatch[i] !== chosen ? 0.35 : 1;
    ctx.fillText(letter + lanes.microbatch[i], x + w / 2, y + (solid ? 11.4 : size.block / 2 + 3.2) + (lanes.kind[i] === 3 ? 1.2 : 0));
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

// A colour as one number in the byte order of ImageData.
function packed(colour) {
  const [r, g, b] = colour.startsWith('#') ? [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)) : colour.match(/\d+/g).map(Number);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function strips(ctx, lanes, measured, r, y, size, X, view, c) {
  const high = size.block >= 16 ? 5 : Math.max(2, size.block * 0.4);
  for (let k = 0; k < KINDS.length; k += 1) {
    const face = new Path2D();
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1]; i += 1) {
      const start = measured.start[i];
      if (lanes.kind[i] !== k || Number.isNaN(start) || start > view.to) continue;
      const x = X(start), w = X(start + measured.duration[i]) - x;
      face.rect(x + 0.6, y + size.block - high - 1, Math.max(1, w - 1.2), high);
    }
    ctx.fillStyle = c.kinds[k];
    ctx.fill(face);
  }
}

function memory(ctx, lanes, r, y, size, X, top, c) {
  const base = y + size.block + size.curve + 3, [times, counts] = live(lanes, r), high = count => base - count / lanes.chunks / top * size.curve;
  ctx.beginPath();
  ctx.moveTo(X(0), base);
  times.forEach((time, i) => { ctx.lineTo(X(time), high(i ? counts[i - 1] : 0)); ctx.lineTo(X(time), high(counts[i])); });
  ctx.strokeStyle = c.memory;
  ctx.lineWidth = 1.2;
  ctx.stroke();
  ctx.lineTo(X(lanes.makespan), base);
  ctx.closePath();
  ctx.fillStyle = c.memoryTint;
  ctx.fill();
}

// One schedule. `options`: measured {start, duration}, chosen (a block), top (largest memory drawn), now, bad (a rank), peaks.
export function draw(ctx, lanes, size, box, view, c, options) {
  const X = scale(view, box), chosen = options.index >= 0 ? lanes.microbatch[options.index] : null;
  const narrow = lanes.start.length ? X(lanes.duration.reduce((a, b) => Math.min(a, b), Infinity)) - X(0) : 0, level = detail(narrow, size.block);
  rowLabels(ctx, lanes, size, c, options.bad);
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left - 1, 0, box.right - box.left + 6, size.top + lanes.ranks * size.row + 8);
  ctx.clip();
  for (let r = 0; r < lanes.ranks; r += 1) {
    const y = size.top + r * size.row;
    ctx.fillStyle = c.idle;
    ctx.fillRect(X(0), y, X(lanes.makespan) - X(0), size.block);
    if (size.curve) memory(ctx, lanes, r, y, size, X, options.top, c);
    if (level === 'density') dense(ctx, lanes, r, y, size, box, view, c);
    else {
      blocks(ctx, lanes, r, y, size, X, view, c, chosen);
      words(ctx, lanes, r, y, size, X, view, c, chosen, Boolean(options.measured));
    }
    if (options.measured) strips(ctx, lanes, options.measured, r, y, size, X, view, c);
  }
  if (options.gap && size.block >= 18 && !options.measured) waits(ctx, options.gap, size, X, c);
  const foot = size.top + (lanes.ranks - 1) * size.row + size.block + (size.curve ? 16 : 4);
  if (options.pinned) outline(ctx, X(options.pinned), size, foot, c);
  rule(ctx, X(lanes.makespan), size.top - 8, foot, c.ink, 1.5);
  if (options.now !== null && options.now !== undefined) rule(ctx, X(options.now), size.top - 6, foot, c.accent, 1.5);
  if (options.index >= 0) ring(ctx, lanes, options.index, options.rank, size, X, c);
  ctx.restore();
  if (options.bad !== undefined && options.measured) cross(ctx, lanes, options, size, X, c);
  peaks(ctx, size, box, c, options);
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

// Most memory of each rank: a number under its row, or a bar beside it where rows are thin.
function peaks(ctx, size, box, c, { peaks: values, top }) {
  ctx.font = `600 10.5px ${c.font}`;
  ctx.fillStyle = c.ink;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'alphabetic';
  const said = value => `${Math.round(value * 100) / 100} A`;
  if (size.curve) values.forEach((value, r) => ctx.fillText(said(value), box.right + 36, size.top + r * size.row + size.block + size.curve + 1));
  else {
    values.forEach((value, r) => {
      const wide = Math.max(1, value / top * 28), y = size.top + r * size.row;
      ctx.fillStyle = c.memoryTint;
      ctx.fillRect(box.right + 8, y, wide, size.block);
      ctx.fillStyle = c.memory;
      ctx.fillRect(box.right + 7 + wide, y, 1.2, size.block);
    });
    ctx.fillStyle = c.ink;
    ctx.fillText(said(Math.max(...values)), box.right + 37, size.top - 2 > 8 ? size.top - 2 : 9);
  }
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
  ctx.strokeRect(x, size.top + rank * size.row, Math.max(2, w), size.block);
}
