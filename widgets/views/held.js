// What ranks hold: the curve under each row of blocks, the limit across it, and the most as a number beside it.
import { plain } from './format.js';
import { live } from './lanes.js';

export const amount = (value, unit) => `${plain(Number(value.toPrecision(value >= 100 ? 4 : 3)))} ${unit}`;

function outlineOf(lanes, r, X, high, base) {
  const shape = new Path2D(), [times, levels] = live(lanes, r);
  shape.moveTo(X(0), base);
  for (let i = 0; i < times.length; i += 1) { shape.lineTo(X(times[i]), high(i ? levels[i - 1] : 0)); shape.lineTo(X(times[i]), high(levels[i])); }
  return shape;
}

// The curve of one rank; what lies above the limit is filled in the colour of failure.
export function memory(ctx, lanes, r, y, size, X, c, { top, cap, over = [] }) {
  const base = y + size.block + size.curve + 3, high = level => base - Math.min(1, level / top) * size.curve, shape = outlineOf(lanes, r, X, high, base);
  ctx.strokeStyle = c.memory;
  ctx.lineWidth = 1.2;
  ctx.stroke(shape);
  shape.lineTo(X(Math.max(lanes.makespan, live(lanes, r)[0].at(-1))), base);
  shape.closePath();
  ctx.fillStyle = c.memoryTint;
  ctx.fill(shape);
  if (!cap || cap > top) return;
  if (over.includes(r)) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(X(0), base - size.curve - 3, X(lanes.makespan) - X(0), size.curve + 3 - cap / top * size.curve);
    ctx.clip();
    ctx.fillStyle = c.bad;
    ctx.fill(shape);
    ctx.restore();
  }
  ctx.strokeStyle = c.ink;
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(X(0), Math.round(high(cap)) + 0.5);
  ctx.lineTo(X(lanes.makespan), Math.round(high(cap)) + 0.5);
  ctx.stroke();
}

// Most memory of each rank: a number under its row, or a bar beside it where rows are thin.
export function peaks(ctx, size, box, c, { peaks: values, top, unit, over = [] }) {
  ctx.font = `600 10.5px ${c.font}`;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'alphabetic';
  const edge = box.right + box.peaks;
  if (size.curve) {
    values.forEach((value, r) => {
      const bad = over.includes(r);
      ctx.fillStyle = bad ? c.bad : c.ink;
      ctx.fillText(`${bad ? '✕ ' : ''}${amount(value, unit)}`, edge, size.top + r * size.row + size.block + size.curve + 1);
    });
  } else {
    values.forEach((value, r) => {
      const wide = Math.max(1, Math.min(1, value / top) * (box.peaks - 8)), y = size.top + r * size.row, bad = over.includes(r);
      ctx.fillStyle = bad ? c.badTint : c.memoryTint;
      ctx.fillRect(box.right + 8, y, wide, size.block);
      ctx.fillStyle = bad ? c.bad : c.memory;
      ctx.fillRect(box.right + 7 + wide, y, 1.2, size.block);
    });
    ctx.fillStyle = over.length ? c.bad : c.ink;
    ctx.fillText(amount(Math.max(...values), unit), edge, size.top - 2 > 8 ? size.top - 2 : 9);
  }
  ctx.textAlign = 'left';
}
