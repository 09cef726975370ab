import assert from 'node:assert/strict';
import test from 'node:test';
import { draw as drawArea, unpack } from '../../widgets/views/area.js';
import { draw as drawBars, peaks } from '../../widgets/views/bars.js';
import { nearest } from '../../widgets/views/controls.js';
import { draw as drawGrid, hit, layout, members, words, x, y } from '../../widgets/views/grid.js';
import { typed } from '../../widgets/views/lanes.js';
import { draw as drawLines } from '../../widgets/views/lines.js';
import { buttons, failure, phases } from '../../widgets/views/run.js';
import { draw as drawStages } from '../../widgets/views/stages.js';
import { ticks } from '../../widgets/views/svg.js';
import { comparison, data } from '../../widgets/views/table.js';

const sound = markup => { assert.doesNotMatch(markup, /NaN|undefined|Infinity|null/); return markup; };

const grid = { ranks: 2, chunks: 2, masks: true, sums: true, names: null, before: [1, 1, 2, 2], after: [3, 1, 2, 3], moves: [[1, 0, 0], [0, 1, 1]] };
test('the chunk grid draws every cell and names a whole sum', () => {
  assert.match(sound(drawGrid(grid, 480, { rank: 0, chunk: 1 }, true)), /sum of all 2/);
  for (const width of [300, 480, 900]) sound(drawGrid(grid, width, null, false));
});
test('a grid of sixty-four ranks has plain cells', () => {
  const n = 64, many = { ranks: n, chunks: n, masks: false, sums: true, names: null, before: Array(n * n).fill(1), after: Array(n * n).fill(2), moves: [] };
  sound(drawGrid(many, 480, null, false));
  assert.ok(layout(n, n, 480).total < 480);
});
test('a point finds its cell', () => {
  const size = layout(2, 2, 480);
  assert.deepEqual(hit(size, x(size, 1) + 3, y(size, 0) + 3), { rank: 1, chunk: 0 });
  assert.equal(hit(size, 2, 2), null);
});
test('contributors are bits', () => {
  assert.deepEqual(members(0b1011, 4), [0, 1, 3]);
  assert.equal(words(0b011, { ...grid, ranks: 4 }), '0 + 1');
  assert.equal(words(-1, grid), '');
});

const chart = {
  sizes: [1024, 4096, 16384, 65536, 262144, 1048576], crossing: { bytes: 65536, words: 'predicted crossing, 64 KiB', below: 'direct faster', above: 'ring faster' }, chosen: { bytes: 65536, seconds: 2e-3, words: '64 KiB' },
  lines: [{ name: 'ring', words: 'ring', chosen: true, seconds: [1e-3, 1e-3, 1e-3, 2e-3, 3e-3, 9e-3] }, { name: 'direct', words: 'direct', chosen: false, seconds: [1e-4, 1e-4, 1e-3, 2e-3, 6e-3, 2e-2] }],
};
test('lines, points and residuals are drawn', () => {
  sound(drawLines(chart, [], null, 352));
  assert.match(sound(drawLines(chart, [[65536, 2.2e-3, 0.1], [1024, 9e-4, -0.1]], chart.lines[1], 352)), /2\.20 ms, \+10\.0 %/);
  assert.match(sound(drawLines(chart, [[65536, 2.2e-3, null]], null, 352)), /2\.20 ms/);
});

const bars = { capacity: 85e9, capacity_words: 'H100 85.5 GB', chosen: 1, rows: [
  { name: 'no sharding', sub: 'DDP', words: '160', parts: 'copied 160', fits: false, total: 160e9, copied: [['parameters', 40e9, '40.0'], ['optimizer', 120e9, '120.0']], shared: [] },
  { name: 'ZeRO-3', sub: '+ parameters', words: '2.50', parts: 'shared 2.50', fits: true, total: 2.5e9, copied: [], shared: [['parameters', 1.5e9, '1.50'], ['optimizer', 1e9, '1.00']] }] };
test('bars say totals, parts and what fits', () => {
  assert.match(sound(drawBars(bars, 880)), /✓ state fits/);
  assert.match(sound(drawBars(bars, 880, { zoomed: true, pinned: bars })), /›/);
});
test('peaks tell formula, trace and measurement apart by fill', () => {
  const rows = ['formula', 'traced', 'measured'].map(source => ({ source, words: '1.00 MB', difference: source === 'formula' ? '' : '+1.0 %', parts: [['parameters', 1e6, '1.00 MB']] }));
  const markup = sound(peaks({ rows }, 880));
  assert.match(markup, /class="tint"/);
  assert.match(markup, /pattern id=/);
  assert.match(markup, /class="full"/);
});

const step = { terms: ['parameters', 'activations'], highest: 4e9, levels: new DataView(new Uint16Array([65535, 0, 65535, 32768, 65535, 16384]).buffer), owners: new DataView(new Int16Array([0, -1, 0]).buffer), names: ['lm_head'], phases: 'FFB',
  spans: [['forward, layer 0 → 1', 0, 1], ['backward', 2, 2]], peak: 1, peak_words: 'peak 6.00 GB: forward of the head', at_peak: ['4.00', '2.00'], trace: { highest: 5.9e9, peak: 5.9e9, words: 'traced 5.90 GB', parts: new Uint16Array([40000, 65535, 50000]) } };
test('levels come back in bytes and the peak is the highest', () => {
  const got = unpack(step, typed);
  assert.equal(got.count, 3);
  assert.equal(got.totals[0], 4e9);
  assert.ok(Math.abs(got.totals[1] - 6e9) < 1e5);
});
test('the step is drawn with its limit inside or beyond the scale', () => {
  assert.match(sound(drawArea(step, unpack(step, typed), 880, { limit: 85e9, limitWords: 'H100 85.5 GB', point: null })), /× the peak ↑/);
  assert.match(drawArea(step, unpack(step, typed), 880, { limit: 85e9, limitWords: 'x', point: null }), /traced 5\.90 GB/);
  assert.match(sound(drawArea(step, unpack(step, typed), 880, { limit: 6.2e9, limitWords: 'small 6.2 GB', point: 2 })), /small 6\.2 GB<\/text>/);
});

test('the comparison offers a run once, and a difference that is equal is good', () => {
  const rows = [{ label: 'bytes', formula: '1', measured: 'not run' }, { label: 'time', formula: '2', measured: 'not run', traced: 'no clock' }, { label: 'all', difference: '0 ✓' }];
  const markup = sound(comparison({ head: 'h', rows }));
  assert.equal(markup.match(/run-from-table/g).length, 1);
  assert.match(markup, /class="good">0 ✓/);
  assert.equal(comparison({ head: 'h', rows }, true).includes('run-from-table'), false);
});
test('a long table says how many rows it leaves out', () => {
  assert.match(data({ caption: 'c', head: ['a'], rows: Array(500).fill(['1']) }), /400 of 500 rows/);
});

test('a run has phases, a failure names its rank and remedies', () => {
  assert.match(sound(phases({ phases: [{ name: 'ranks up', part: 1 }, { name: 'steps', part: 0.4 }] })), /✓ ranks up/);
  assert.match(sound(failure({ what: 'Rank 3 of 4: SIGKILL', why: 'memory ran out', remedies: [{ words: 'Run on 2 ranks' }], log: 'a < b' })), /a &lt; b/);
});
test('cancel stands where run was', () => {
  const actions = [{ name: 'run', label: 'Run' }];
  assert.match(buttons({ state: 'running' }, actions), /data-pb="cancel">Cancel/);
  assert.match(buttons({ state: 'failed' }, actions), /Run again/);
  assert.match(buttons({ state: 'idle' }, actions), /data-pb="run"/);
});

test('a slider stands at the nearest of its values', () => assert.equal(nearest([1, 2, 4, 8], 7), 3));
test('ticks are round numbers from zero', () => assert.deepEqual(ticks(1134, 6), [0, 200, 400, 600, 800, 1000]));

const stages = {
  title: ['Peak of each pipeline rank', 'rank 0 is the worst'], worst: 0, capacity: 85e9,
  rows: [0, 1].map(rank => ({ rank, name: `rank ${rank}`, sub: '10 layers', parts: [['parameters', 20e9, '20.0'], ['logits', 1e9, '1.00']], total: 21e9, words: '21.0' })),
};
test('a recorded twin is a solid point that says what it is, and short stretches are told together', () => {
  const twin = { ...step, twin: { peak: 6.2e9, words: 'twin 6.20 GB' }, spans: [], turns: 'forward and backward of 64 micro-batches in turn' };
  const markup = sound(drawArea(twin, unpack(twin, typed), 880, { limit: 85e9, limitWords: 'x', point: null }));
  assert.match(markup, /class="point"/);
  assert.match(markup, /twin 6\.20 GB/);
  assert.match(markup, />forward and backward of 64 micro-batches in turn</);
  const [, middle] = drawArea(twin, unpack(twin, typed), 320, { limit: 85e9, limitWords: 'x', point: null }).match(/<text x="([\d.]+)"[^>]*>forward and/);
  assert.ok(Number(middle) >= 48 * 5.25 / 2, 'words of 48 letters begin inside a narrow picture');
  assert.match(comparison({ head: 'h', rows: [{ label: 'peak', measured: '6.20', by: 'twin', source: 'an H200' }] }), /title="an H200"><span class="soft">twin<\/span> 6\.20/);
});
test('words beside a bar leave out the parts where there is no room', () => {
  const full = { ...bars, rows: [{ ...bars.rows[0], parts: 'copied 40.0 + shared 20.0', fits: true, total: 60e9, copied: [['parameters', 60e9, '60.0']] }] };
  assert.match(sound(drawBars(full, 1100)), />copied 40/);
  assert.doesNotMatch(sound(drawBars(full, 420)), />copied 40/);
});
test('pipeline ranks are bars of which one is the worst', () => {
  for (const width of [320, 900]) assert.equal(sound(drawStages(stages, width)).match(/>worst</g).length, 1);
  assert.match(drawStages({ ...stages, capacity: 40e9 }, 900), /the GPU</);
});
test('the first bar starts behind the longest words of a rank, which may hold both ends', () => {
  const both = { ...stages, rows: stages.rows.map(row => ({ ...row, sub: '20 layers, embedding, head' })) };
  // 26 letters of 5.25 px in the page's small type, from 52 px on
  const [, from] = drawStages(both, 900).match(/<rect x="([\d.]+)"/);
  assert.ok(Number(from) > 52 + 26 * 5.25);
});
