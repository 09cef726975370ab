import assert from 'node:assert/strict';
import test from 'node:test';
import { draw as drawGain } from '../../widgets/views/gain.js';
import { draw as drawFocus } from '../../widgets/views/heldfocus.js';
import { density, face, heldAt, hit, live, rows, scale, unpack } from '../../widgets/views/lanes.js';
import { pipeline } from '../../widgets/views/pipeline.js';
import { axis, facts, key } from '../../widgets/views/pipelineparts.js';
import { axes, draw as drawScatter, hit as hitScatter, places } from '../../widgets/views/scatter.js';
import { moment, sentence, waiting } from '../../widgets/views/tell.js';

const bytes = (Type, values) => new DataView(new Type(values).buffer);
const waits = (row, cause, waited, flight) => {
  const raw = new ArrayBuffer(16 * row.length), n = row.length;
  row.forEach((v, i) => { new Uint32Array(raw)[i] = v; new Uint32Array(raw)[n + i] = cause[i]; new Float32Array(raw)[2 * n + i] = waited[i]; new Float32Array(raw)[3 * n + i] = flight[i]; });
  return new DataView(raw);
};
// 1F1B of two stages and two micro-batches with a latency of 0.5, drawn by hand: B0 of rank 0 waits from 2 to 5.
const schedule = {
  title: '1F1B', counts: [4, 4], chunks: 1, depth: 2, makespan: 10, peaks: [2, 1], over: [[0, 1, 7]], end: '10', unit: 'units', idle: ['40 %', '66.7 %', '4 units'], idle_words: '4 units', peak: ['2 A', 'peak, rank 0'], message: '',
  formula: { text: '(p − 1)(F + B) = 3', whole: '(p − 1)(F + B)', holds: false, remark: 'Formula 3, this order 4: it is for no latency.' },
  start: bytes(Float32Array, [0, 1, 5, 8, 1.5, 2.5, 4.5, 5.5]), duration: bytes(Float32Array, [1, 1, 2, 2, 1, 2, 1, 2]),
  kind: bytes(Uint8Array, [0, 0, 1, 1, 0, 1, 0, 1]), stage: bytes(Uint16Array, [0, 0, 0, 0, 1, 1, 1, 1]), microbatch: bytes(Uint16Array, [0, 1, 0, 1, 0, 0, 1, 1]),
  waits: waits([2, 4], [5, 0], [3, 1.5], [0.5, 0.5]),
};
const lanes = unpack(schedule), units = { time: 'units', hold: 'A' };
const sound = markup => { assert.ok(!/NaN|undefined|Infinity|\[object/.test(markup), markup.slice(0, 400)); return markup; };

test('a wait names its cause and the part under way', () => {
  assert.equal(waiting(lanes, 2), 'waited 3 for B0 of rank 1, 0.5 of it on the way');
  assert.equal(waiting(lanes, 1), '');
});
test('a block is told with kind, time, wait and what its rank holds', () => {
  assert.equal(sentence(lanes, { rank: 0, index: 2, time: 5 }, schedule, units, null), 'B0, backward on rank 0, 5 to 7 · waited 3 for B0 of rank 1, 0.5 of it on the way · the rank holds 2 A');
});
test('an idle slot tells what the rank waits for', () => {
  const found = hit(lanes, rows(2), { left: 0, right: 100 }, { from: 0, to: 10 }, 30, rows(2).top + 3);
  assert.equal(sentence(lanes, found, schedule, units, null), 'rank 0 is idle at 3: B0 waits for B0 of rank 1');
});
test('a moment of playback tells what every rank does', () => assert.equal(moment(lanes, 2.2), 'at 2.2: rank 0 idle · rank 1 F0'));

test('memory is counted in A, and a model brings its own', () => {
  assert.deepEqual([heldAt(lanes, 0, 0), heldAt(lanes, 0, 1.5), heldAt(lanes, 0, 7.5)], [1, 2, 1]);
  const given = unpack({ ...schedule, curves: [{ times: bytes(Float32Array, [0, 4]), held: bytes(Float32Array, [30, 40]) }, { times: bytes(Float32Array, [0]), held: bytes(Float32Array, [20]) }] });
  assert.deepEqual([...live(given, 0)[1]], [30, 40]);
  assert.equal(heldAt(given, 0, 5), 40);
});

const pair = unpack({ ...schedule, counts: [2], depth: 1, makespan: 3, start: bytes(Float32Array, [0, 0]), duration: bytes(Float32Array, [3, 3]), kind: bytes(Uint8Array, [0 | 8, 1 | 4]), stage: bytes(Uint16Array, [0, 0]), microbatch: bytes(Uint16Array, [4, 1]), waits: undefined });
test('an overlapped pair is a block in two halves, forward above', () => {
  assert.deepEqual([...pair.kind], [0, 1]);
  assert.deepEqual([face(pair, 0, 20), face(pair, 1, 20)], [[0, 10], [10, 10]]);
  const size = rows(1), box = { left: 0, right: 30 }, view = { from: 0, to: 3 };
  assert.equal(hit(pair, size, box, view, 10, size.top + 4).index, 0);
  assert.equal(hit(pair, size, box, view, 10, size.top + 15).index, 1);
  assert.match(sentence(pair, { rank: 0, index: 1, time: 0 }, schedule, units, null), /^B1, backward on rank 0, 0 to 3 · beside F4/);
});
test('the halves of a pair fill a dense column together', () => {
  const filled = density(pair, 0, { from: 0, to: 3 }, 1);
  assert.deepEqual([filled[0][0], filled[1][0]], [0.5, 0.5]);
});

test('facts put the formula with its number beside the bubble and mark what is over', () => {
  const markup = sound(facts(schedule, { words: 'emulated 10.2', difference: '+2.0 %', kinds: [['F', '+1.0 %'], ['B', '+0.5 %']] }, null, false));
  assert.match(markup, /\(p − 1\)\(F \+ B\) .*= 3/);
  assert.match(markup, /≠/);
  assert.match(markup, /✕ /);
  assert.match(markup, /B <b>\+0\.5 %/);
});
const picture = { shown: 'step', schedules: [schedule], unit: '1 unit = forward of a stage', units, work: 6, work_words: '6 = work of a rank', costs: [1, 1, 1, 0] };
test('the clock marks the work of a rank, and slots of a forward grid are numbered from 1', () => {
  const box = { left: 46, right: 800, peaks: 42 };
  assert.match(sound(axis(picture, { from: 0, to: 10 }, box, 850)), /6 = work of a rank/);
  assert.match(sound(axis({ ...picture, shown: 'forward' }, { from: 0, to: 7.05 }, box, 850)), /slot<\/text>/);
});
test('the key lists only kinds that are there', () => {
  const markup = sound(key(picture, unpack));
  assert.match(markup, /backward, 2 \(= I \+ W\)/);
  assert.ok(!markup.includes('for inputs'));
});

const gain = { lines: [{ title: '1F1B', points: [[4, 42.9], [8, 27.3], [16, 15.8], [32, 8.6]] }, { title: 'ZB-V', points: [[4, 20], [32, 1.5]] }], marks: [[4, 'p'], [8, '2p'], [16, '4p'], [32, '8p']], now: 8 };
test('the curve of more micro-batches has its marks and the chosen point', () => {
  const markup = sound(drawGain(gain, 560));
  for (const words of ['4p', '8p', '1F1B', 'ZB-V']) assert.ok(markup.includes(words), words);
  assert.equal(markup.match(/<circle/g).length, 1);
});

const points = [['a', 4, 0.7], ['b', 4.05, 0.7], ['c', 8, 0.9], ['d', 2, 0.6]].map(([name, x, y]) => ({ name, title: `Schedule ${name}`, x, y, words: '', front: name !== 'b', shown: name === 'a' }));
const scatter = { points, front: ['d', 'a', 'c'], refused: [] };
test('no two names of a scatter lie on each other', () => {
  const spots = [...places(scatter, axes(scatter, 0, 820)).values()];
  for (const [i, [x, y, w, h]] of spots.entries()) for (const [u, v, s, t] of spots.slice(i + 1)) assert.ok(x + w < u || u + s < x || y + h < v || v + t < y);
});
test('the limit is a line, or words where it is off the scale', () => {
  assert.match(sound(drawScatter(scatter, { value: 5, words: 'cap 5 A' }, 'A', 820, 1)), /cap 5 A<\/text>/);
  assert.match(sound(drawScatter(scatter, { value: 500, words: 'H100' }, 'GB', 820, -1)), /beyond the scale/);
});
test('a point is found near the pointer', () => {
  const a = axes(scatter, 0, 820);
  assert.equal(hitScatter(scatter, 0, 820, a.x(8) + 5, a.y(0.9) - 5), 2);
  assert.equal(hitScatter(scatter, 0, 820, a.x(8), a.y(0.9) + 120), -1);
  const [x, y, w, h] = places(scatter, a).get(3);
  assert.equal(hitScatter(scatter, 0, 820, x + w / 2, y + h / 2), 3);
});

test('the memory of a rank is drawn large with its scale, the others dashed and the limit as a line', () => {
  const box = { left: 46, right: 700 }, all = [{ lanes, title: '1F1B', peaks: [2, 1] }, { lanes: pair, title: 'pair', peaks: [1] }];
  const markup = sound(drawFocus(all, 0, 0, box, scale({ from: 0, to: 10 }, box), 'A', { value: 1.5, words: 'cap 1.5 A' }, 850, 5));
  assert.match(markup, /✕ 1F1B 2 A/);
  assert.match(markup, /cap 1\.5 A/);
  assert.match(markup, /stroke-dasharray/);
});

test('the key counts blocks in units of the picture: a stage is as long as its chunks together', () => {
  const two = { ...picture, unit: '1 unit = forward of 1/2 of a rank’s layers', hop: 'A hop takes 1 unit: latency 0.5 × 2.', schedules: [schedule, { ...schedule, chunks: 2 }] };
  const markup = sound(key(two, unpack));
  assert.match(markup, /forward, 2 or 1</);
  assert.match(markup, /backward, 4 or 2 \(= I \+ W\)/);
  assert.match(markup, /A hop takes 1 unit: latency 0\.5 × 2\./);
  assert.match(sound(key({ ...two, schedules: [{ ...schedule, chunks: 2 }] }, unpack)), /forward, 1</);
});
test('the value of a formula and the sign that judges it stay on one line', () => {
  assert.match(facts(schedule, null, null, false), /\(p − 1\)\(F \+ B\) <span class="keep">= 3 <b class="off">≠ 4 units<\/b><\/span>/);
  const whole = facts({ ...schedule, formula: { text: 'p − 1', whole: 'p − 1', holds: true, remark: '' } }, null, null, false);
  assert.match(whole, /<span class="keep">p − 1 <b class="good">✓/);
});
test('after zoom the curves of a rank are cut off at the plot', () => {
  const box = { left: 46, right: 700 }, view = { from: 4, to: 6 };
  const markup = sound(drawFocus([{ lanes, title: '1F1B', peaks: [2, 1] }], 0, 0, box, scale(view, box), 'A', {}, 850, 5));
  const [, cut] = /<svg x="46" y="0" width="654" [^>]*style="overflow:hidden">(.*?)<\/svg>/.exec(markup);
  assert.equal(markup.match(/class="tint"/g).length, 1);
  assert.match(cut, /class="tint"/);
  assert.match(cut, /class="select"/);
});
test('a point that was taken away offers to be shown again', () => {
  const spot = { textContent: '', dataset: { rest: 'rest' } }, area = { clientWidth: 820 };
  const shown = list => ({ shown: 'scatter', scatter: { ...scatter, points: list }, cap: {}, units: { hold: 'A' } });
  let now = shown(points);
  const host = { cursor: { point: 0 }, get: name => (name === 'picture' ? now : {}), stage: { querySelector: () => area, querySelectorAll: () => [spot] } };
  pipeline.paint(host);
  assert.match(spot.textContent, /· shown · click takes it away$/);
  now = shown(points.map(p => ({ ...p, shown: false })));
  pipeline.paint(host);
  assert.match(spot.textContent, /70\.0 %, 4 A · click shows it$/);
});
