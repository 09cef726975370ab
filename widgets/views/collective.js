// CollectiveExplorer: chunks of every rank before and after a step, and time against the size of the buffer.
import { binary, percent, seconds } from './format.js';
import { count, draw as drawGrid, hit, layout, members, words } from './grid.js';
import { draw as drawLines } from './lines.js';
import { circle, line, svg, text } from './svg.js';

const LEFT = 74, RIGHT = 34;
const steps = picture => picture.phases.reduce((sum, phase) => sum + phase[1], 0);

// Dots of the step slider; the native range lies on it, unseen.
function scrubber(picture, width) {
  const all = steps(picture), x = i => LEFT + (all ? i / all : 0) * (width - LEFT - RIGHT), every = Math.max(1, Math.ceil(all / 16));
  let marks = text(0, 24, 'step', 'm'), done = 0;
  for (const [name, length] of picture.phases) {
    const from = done, to = done + length, reached = Math.min(Math.max(picture.step, from), to), gap = all > 16 ? 0 : 4;
    if (reached < to) marks += line(x(reached) + gap, 20, x(to) - gap, 20, 'edge', { 'stroke-width': 4 });
    if (reached > from) marks += line(x(from) + gap, 20, x(reached) - gap, 20, 'line', { style: '--c:var(--pb-communication)', 'stroke-width': 4 });
    if (picture.phases.length > 1) marks += text((x(from) + x(to)) / 2, 10, name, picture.step > from && picture.step <= to ? 'b c' : 'm c');
    done = to;
  }
  for (let i = 0; i <= all; i += 1) {
    const here = i === picture.step;
    if (!here && all > 32) continue;
    marks += circle(x(i), 20, here ? 8 : 4, here ? 'ground select' : i < picture.step ? 'full' : 'rest', { style: '--c:var(--pb-communication)', ...(here ? { 'stroke-width': 3 } : {}) });
  }
  for (let i = 0; i <= all; i += 1) if (i === picture.step || (i % every === 0 && Math.abs(i - picture.step) >= every && all - i >= every * 0.7) || i === all) marks += text(x(i), 42, i, i === picture.step ? 'b c' : 'm c');
  return svg(width, 46, marks);
}

function sentence(host, cell) {
  const { grid } = host.get('picture'), i = cell.rank * grid.chunks + cell.chunk, name = grid.names?.[cell.chunk] ?? `chunk ${cell.chunk}`;
  const into = grid.moves.find(move => move[1] === cell.rank && move[2] === cell.chunk), out = grid.moves.find(move => move[0] === cell.rank && move[2] === cell.chunk);
  const held = grid.after[i] < 0 ? 'nothing' : grid.masks ? grid.sums ? `${words(grid.after[i], grid)}${members(grid.after[i], grid.ranks).length === 1 ? ' alone' : ''}` : words(grid.after[i], grid) : `${count(grid.after[i], false)} of ${grid.ranks}`;
  const value = (host.get('measured').values || [])[i];
  return `rank ${cell.rank}, ${name}: ${held}${into ? `; comes from rank ${into[0]}` : ''}${out ? `; goes to rank ${out[1]}` : ''}${value ? `; holds ${value}` : ''}`;
}

function paintGrid(host, motion) {
  const picture = host.get('picture'), spot = host.stage.querySelector('[data-grid]'), width = spot.clientWidth;
  const grid = { ...picture.grid, values: host.get('measured').values };
  spot.innerHTML = drawGrid(grid, width, host.cursor.cell, motion);
  host.cursor.size = layout(grid.ranks, grid.chunks, width);
}

function choose(host, cell, say) {
  host.cursor.cell = cell;
  const line = host.stage.querySelector('[data-pb=hover]');
  line.textContent = cell ? sentence(host, cell) : line.dataset.rest;
  if (say && cell) host.say(line.textContent);
  paintGrid(host, false);
}

export const collective = {
  name: 'Collectives',
  keys: 'Left and right step through the algorithm, Home and End go to its ends, up and down choose a rank.',

  stage: () => '<div class="pair"><div><div class="panel-title"><b data-pb="step-title"></b> <span class="hover-line" data-pb="hover"></span></div><div data-grid></div>'
    + '<div class="scrub"><div data-scrub></div><input type="range" min="0" step="1" tabindex="-1" data-pb="control-step" aria-label="Step"></div>'
    + '<div class="note" style="margin:4px 0 0 70px"><kbd>←</kbd> <kbd>→</kbd> step &nbsp; <kbd>Home</kbd> <kbd>End</kbd> ends &nbsp;·&nbsp; <b data-pb="sent"></b></div></div>'
    + '<div><div class="panel-title">Time against buffer size <span data-pb="chart-title"></span></div><div data-chart></div></div></div>',

  paint(host) {
    const picture = host.get('picture'), pinned = host.get('pinned'), find = name => host.stage.querySelector(`[data-pb="${name}"]`);
    const key = `${picture.kick} ${picture.step}`, motion = host.cursor.drawn !== undefined && host.cursor.drawn !== key;
    host.cursor.drawn = key;
    if (host.cursor.cell && (host.cursor.cell.rank >= picture.grid.ranks || host.cursor.cell.chunk >= picture.grid.chunks)) host.cursor.cell = null;
    find('step-title').textContent = picture.title[0];
    find('hover').dataset.rest = picture.title[1];
    find('hover').textContent = host.cursor.cell ? sentence(host, host.cursor.cell) : picture.title[1];
    find('sent').textContent = picture.sent;
    find('chart-title').textContent = picture.chart.title;
    paintGrid(host, motion);
    const scrub = host.stage.querySelector('[data-scrub]'), range = find('control-step');
    scrub.innerHTML = scrubber(picture, scrub.clientWidth);
    range.max = steps(picture);
    range.value = picture.step;
    range.disabled = host.busy();
    range.setAttribute('aria-valuetext', `step ${picture.step} of ${steps(picture)}`);
    range.oninput = () => host.set('step', Number(range.value));
    const chart = host.stage.querySelector('[data-chart]'), a = pinned.chart ? pinned.chart.lines.find(l => l.chosen) : null;
    const points = host.get('measured').points || [];
    chart.innerHTML = drawLines(picture.chart, points, a, chart.clientWidth);
  },

  point(host, e) {
    if (e.type === 'wheel') return;
    const spot = e.target.closest?.('[data-grid]');
    clearTimeout(host.cursor.wait);
    if (!spot || e.type === 'pointerleave') { if (host.cursor.cell && !host.cursor.kept) choose(host, null); return; }
    const box = spot.getBoundingClientRect(), cell = hit(host.cursor.size, e.clientX - box.left, e.clientY - box.top);
    if (e.type === 'click') { host.cursor.kept = Boolean(cell); choose(host, cell, true); return; }
    const now = host.cursor.cell;
    if (!host.cursor.kept && (cell?.rank !== now?.rank || cell?.chunk !== now?.chunk)) host.cursor.wait = setTimeout(() => choose(host, cell), 80);
  },

  key(host, e) {
    const picture = host.get('picture'), last = steps(picture), now = picture.step;
    const to = { ArrowLeft: Math.max(0, now - 1), ArrowRight: Math.min(last, now + 1), Home: 0, End: last, ' ': now < last ? now + 1 : 0 }[e.key];
    if (to !== undefined) {
      if (host.busy()) return true;
      if (e.key === ' ' && !matchMedia('(prefers-reduced-motion: reduce)').matches) play(host); else if (to !== now) host.set('step', to);
      return true;
    }
    if (e.key !== 'ArrowUp' && e.key !== 'ArrowDown') return false;
    const cell = host.cursor.cell || { rank: 0, chunk: -1 }, all = picture.grid.ranks * picture.grid.chunks;
    const at = cell.chunk < 0 ? 0 : (cell.rank * picture.grid.chunks + cell.chunk + (e.key === 'ArrowUp' ? all - 1 : 1)) % all;
    host.cursor.kept = true;
    choose(host, { rank: Math.floor(at / picture.grid.chunks), chunk: at % picture.grid.chunks }, true);
    return true;
  },

  side(host) {
    const sums = host.get('picture').grid.sums, masks = host.get('picture').grid.masks;
    const crowded = host.get('picture').grid.moves.length > 1.5 * host.get('picture').grid.ranks * host.get('picture').grid.chunks;
    const mine = crowded ? 'Every rank sends to every other: choose a cell to see its messages. Small squares say <b>whose numbers</b> are in it.' : masks ? `Column: a rank. Row: a chunk. Small squares say <b>whose numbers</b> ${sums ? 'are summed in it' : 'it has'}; pale ones arrive in this step.` : 'Column: a rank. Row: a chunk. Fill: how many ranks are summed in it.';
    return `<div class="rule"></div><p class="note" style="margin:0">${mine}</p><p class="note" style="margin:12px 0 0"><kbd>Space</kbd> play &nbsp;<kbd>↑</kbd> <kbd>↓</kbd> cell<br><kbd>T</kbd> table &nbsp;<kbd>Enter</kbd> pin</p>`;
  },

  tables(host) {
    const picture = host.get('picture'), { grid, chart } = picture, values = host.get('measured').values, name = k => grid.names?.[k] ?? `chunk ${k}`;
    const cells = Array.from({ length: grid.ranks }, (_, r) => Array.from({ length: grid.chunks }, (_, k) => {
      const i = r * grid.chunks + k, move = grid.moves.find(m => m[1] === r && m[2] === k), said = value => (grid.masks ? words(value, grid) : value < 0 ? '' : `${value} ranks`) || '—';
      return [`rank ${r}`, name(k), said(grid.before[i]), move ? `from rank ${move[0]}` : '—', said(grid.after[i]), ...(values ? [values[i] || '—'] : [])];
    })).flat();
    const points = Object.fromEntries((host.get('measured').points || []).map(p => [p[0], p]));
    const rows = chart.sizes.map((bytes, i) => [binary(bytes), ...chart.lines.map(l => seconds(l.seconds[i])), points[bytes] ? seconds(points[bytes][1]) : '—', points[bytes]?.[2] != null ? percent(points[bytes][2]) : '—']);
    return [
      { caption: `${picture.title[0]}: ${picture.title[1]}`, head: ['rank', 'chunk', 'before', 'arrives', 'after', ...(values ? ['value'] : [])], rows: cells },
      { caption: `Time against buffer size, ${chart.title}`, head: ['buffer', ...chart.lines.map(l => `${l.words}, formula`), 'measured', 'difference'], rows },
    ];
  },
};

// One step each 600 ms until the last; a second Space stops it.
function play(host) {
  if (host.cursor.timer) { clearInterval(host.cursor.timer); host.cursor.timer = 0; return; }
  const advance = () => {
    const picture = host.get('picture');
    if (!host.root.isConnected || host.busy() || picture.step >= steps(picture)) { clearInterval(host.cursor.timer); host.cursor.timer = 0; return; }
    host.set('step', picture.step + 1);
  };
  if (host.get('picture').step >= steps(host.get('picture'))) host.set('step', 0); else advance();
  host.cursor.timer = setInterval(advance, 600);
}
