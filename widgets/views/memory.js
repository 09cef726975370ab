// MemoryExplorer: state under each ZeRO stage, one step over time, and a real step's peak by term.
import { draw as drawArea, outlineOf, pointAt, scaleOf, unpack } from './area.js';
import { draw as drawBars, peaks } from './bars.js';
import { bare, escape } from './format.js';
import { typed } from './lanes.js';
import { draw as drawStages } from './stages.js';
import { data as tableOf } from './table.js';

const PHASES = { F: 'forward', R: 'recompute', B: 'backward', I: 'backward for inputs', W: 'backward for weights', O: 'optimizer step' };
const BLOCKS = { embed_tokens: 'the embedding', lm_head: 'the head', norm: 'the last norm', root: 'the loss' };
const unpacked = new WeakMap();

function dataOf(step) {
  if (!unpacked.has(step)) unpacked.set(step, unpack(step, typed));
  return unpacked.get(step);
}

export function instant(step, data, point) {
  const owner = data.owners[point], name = owner >= 0 ? `layer ${owner}` : BLOCKS[step.names[-1 - owner]] ?? step.names[-1 - owner], phase = step.phases[point];
  return phase === 'O' ? PHASES.O : `${PHASES[phase] ?? phase} of ${name}`;
}

function sentence(host) {
  const { step } = host.get('picture'), data = dataOf(step), point = host.cursor.point;
  return point === null || point === undefined ? '' : `${bare(data.totals[point])}${data.totals[point] < 1e8 ? '' : ' GB'}: ${instant(step, data, point)}`;
}

// The formula's step with its trace, if there is one.
function stepOf(host) {
  const { step } = host.get('picture'), { trace } = host.get('measured');
  return trace ? { ...step, trace: { ...trace, parts: typed(trace.totals, Uint16Array) } } : step;
}

// What stands beside the step: the pipeline's ranks, sentences, and one layer through the passes.
function beside(host, find, wide) {
  const { stages, passes, warnings } = host.get('picture'), list = (warnings || []).map(words => `<li>${escape(words)}</li>`).join('');
  find('stages').hidden = !stages?.rows;
  if (stages?.rows) {
    find('stages-title').textContent = stages.title[0];
    find('stages-words').textContent = stages.title[1];
    host.stage.querySelector('[data-stages]').innerHTML = drawStages(stages, wide);
  }
  if (find('warnings').innerHTML !== list) find('warnings').innerHTML = list;
  find('warnings').hidden = !list;
  find('passes-title').textContent = passes.title.join(': ');
  host.stage.querySelector('[data-passes]').innerHTML = tableOf({ ...passes, caption: '' });
}

function choose(host, point, say) {
  host.cursor.point = point;
  memory.paint(host);
  if (say && point !== null) host.say(sentence(host));
}

export const memory = {
  name: 'Memory',
  keys: 'Left and right step through the instants, Home goes to the first, End to the peak, plus and minus zoom the bars.',

  stage: () => '<div class="panel-title"><b data-pb="bars-title"></b> <span data-pb="bars-rule"></span></div><div data-bars></div>'
    + '<div class="panel-title" style="margin-top:14px"><b data-pb="step-title"></b> <span class="hover-line" data-pb="hover"></span></div><div data-area></div>'
    + '<div data-pb="stages" hidden><div class="panel-title" style="margin-top:14px"><b data-pb="stages-title"></b> <span data-pb="stages-words"></span></div><div data-stages></div></div>'
    + '<ul class="warnings note" data-pb="warnings"></ul>'
    + '<details class="passes"><summary data-pb="passes-title"></summary><div data-passes></div></details>'
    + '<div data-pb="real" hidden><div class="panel-title" style="margin-top:14px"><b data-pb="real-title"></b> <span data-pb="real-words"></span></div><div data-peaks></div></div>',

  paint(host) {
    const { bars, step } = host.get('picture'), pinned = host.get('pinned'), find = name => host.stage.querySelector(`[data-pb="${name}"]`), data = dataOf(step);
    if (host.cursor.point >= data.count) host.cursor.point = null;
    find('bars-title').textContent = bars.title[0];
    find('bars-rule').textContent = bars.title[1] + (host.cursor.zoomed ? ' · zoomed to the GPU' : '');
    find('step-title').textContent = step.title[0];
    find('hover').textContent = sentence(host) || step.title[1];
    const wide = host.stage.clientWidth;
    host.stage.querySelector('[data-bars]').innerHTML = drawBars(bars, wide, { zoomed: host.cursor.zoomed, pinned: pinned.bars });
    host.stage.querySelector('[data-area]').innerHTML = drawArea(stepOf(host), data, wide, {
      limit: bars.capacity, limitWords: bars.capacity_words, point: host.cursor.point ?? null, pinned: pinned.step ? outlineOf(dataOf(pinned.step)) : null,
    });
    beside(host, find, wide);
    const real = host.get('measured');
    find('real').hidden = !real.rows;
    if (!real.rows) return;
    find('real-title').textContent = real.title[0];
    find('real-words').textContent = real.title[1];
    host.stage.querySelector('[data-peaks]').innerHTML = peaks(real, wide);
  },

  point(host, e) {
    const spot = e.target.closest?.('[data-area]');
    clearTimeout(host.cursor.wait);
    if (!spot || e.type === 'pointerleave') { if (host.cursor.point != null && !host.cursor.kept) choose(host, null); return; }
    if (e.type === 'wheel') return;
    const { bars, step } = host.get('picture'), data = dataOf(step), s = scaleOf(stepOf(host), data, host.stage.clientWidth, bars.capacity), px = e.clientX - spot.getBoundingClientRect().left;
    const point = px > s.right + 4 ? null : pointAt(s, data, px);
    if (e.type === 'click') { host.cursor.kept = point !== null && !(host.cursor.kept && host.cursor.point === point); choose(host, host.cursor.kept ? point : null, true); }
    else if (!host.cursor.kept && point !== host.cursor.point) host.cursor.wait = setTimeout(() => choose(host, point), host.cursor.point == null ? 80 : 0);
  },

  key(host, e) {
    const { step } = host.get('picture'), data = dataOf(step), now = host.cursor.point ?? step.peak;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: step.peak }[e.key];
    if (to !== undefined) { host.cursor.kept = true; choose(host, Math.max(0, Math.min(data.count - 1, to)), true); return true; }
    if (e.key !== '+' && e.key !== '=' && e.key !== '-' && e.key !== '0') return false;
    host.cursor.zoomed = e.key === '+' || e.key === '=';
    memory.paint(host);
    return true;
  },

  side: host => `<div class="rule"></div><p class="note" style="margin:0"><b>Tall</b>: every rank keeps a copy.<br><b>Low</b>: a rank keeps its share.<br>Upright line: memory the driver reports.</p>`
    + '<p class="note" style="margin:12px 0 0"><kbd>←</kbd> <kbd>→</kbd> instant &nbsp;<kbd>End</kbd> peak<br><kbd>+</kbd> <kbd>−</kbd> zoom the bars</p>',

  tables(host) {
    const { bars, step } = host.get('picture'), data = dataOf(step), real = host.get('measured');
    const list = [
      { caption: bars.title.join(': '), head: ['stage', 'copied, GB', 'shared, GB', 'in all, GB', bars.capacity_words], rows: bars.rows.map(row => [row.name, bare(row.copied.reduce((s, p) => s + p[1], 0)), bare(row.shared.reduce((s, p) => s + p[1], 0)), row.words, row.fits ? '✓ state fits' : '✕ too much']) },
      { caption: `${step.title[0]}, GB`, head: ['instant', ...step.terms, 'in all'], rows: data.totals.map((total, i) => [instant(step, data, i) + (i === step.peak ? ' (peak)' : ''), ...step.terms.map((_, t) => bare(data.at(i, t))), bare(total)]) },
    ];
    const { stages, passes, terms } = host.get('picture');
    list.splice(1, 0, { caption: terms.title, head: terms.head, rows: terms.rows });
    if (stages?.rows) list.push({ caption: `${stages.title.join(': ')}, GB`, head: ['rank', 'holds', ...stages.rows[0].parts.map(part => part[0]), 'in all'], rows: stages.rows.map(row => [row.name, row.sub, ...stages.rows[0].parts.map(part => row.parts.find(other => other[0] === part[0])?.[2] ?? '0'), row.words]) });
    list.push({ caption: passes.title.join(': '), head: passes.head, rows: passes.rows });
    if (real.rows) list.push({ caption: real.title.join(': '), head: ['source', 'term', 'bytes'], rows: real.rows.flatMap(row => row.parts.map(part => [row.source, part[0], part[2]])) });
    return list.map(table => ({ ...table, rows: table.rows.map(row => row.map(value => (value === undefined ? '' : value))) }));
  },
};

