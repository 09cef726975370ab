import assert from 'node:assert/strict';
import test from 'node:test';
import { after, density, detail, hit, live, neighbour, rankOf, rows, twin, typed, unpack, zoomed } from '../../widgets/views/lanes.js';

const bytes = (Type, values) => new DataView(new Type(values).buffer);
// 1F1B of two stages and two micro-batches, forward 1, backward 2, drawn by hand.
const schedule = {
  counts: [4, 4], chunks: 1, makespan: 9,
  start: bytes(Float32Array, [0, 1, 4, 7, 1, 2, 4, 5]), duration: bytes(Float32Array, [1, 1, 2, 2, 1, 2, 1, 2]),
  kind: bytes(Uint8Array, [0, 0, 1, 1, 0, 1, 0, 1]), stage: bytes(Uint16Array, [0, 0, 0, 0, 1, 1, 1, 1]), microbatch: bytes(Uint16Array, [0, 1, 0, 1, 0, 0, 1, 1]),
};
const lanes = unpack(schedule), box = { left: 0, right: 90 }, view = { from: 0, to: 9 };

test('a buffer at an odd offset is copied before it is read', () => {
  const raw = new Uint8Array(9);
  raw.set(new Uint8Array(new Float32Array([1.5, 2]).buffer), 1);
  assert.deepEqual([...typed(new DataView(raw.buffer, 1, 8), Float32Array)], [1.5, 2]);
});

test('ranks begin where the counts say', () => assert.deepEqual(lanes.offsets, [0, 4, 8]));

test('memory rises with a forward and falls with a backward', () => {
  assert.deepEqual(live(lanes, 0), [[0, 1, 6, 9], [1, 2, 1, 0]]);
  assert.deepEqual(live(lanes, 1), [[0, 1, 4, 7], [0, 1, 1, 0]]);
});

test('a point finds its block, an idle slot its rank', () => {
  const size = rows(2);
  assert.deepEqual(hit(lanes, size, box, view, 45, size.top + 4), { rank: 0, index: 2, time: 4.5 });
  assert.equal(hit(lanes, size, box, view, 25, size.top + 4).index, -1);
  assert.equal(hit(lanes, size, box, view, 25, size.top + 200), null);
});

test('the first block after a time is found by halving', () => {
  assert.equal(after(lanes, 0, 2.5), 2);
  assert.equal(after(lanes, 1, 99), -1);
});

test('arrows step along a rank and change it near the same time', () => {
  assert.equal(neighbour(lanes, 0, 'ArrowRight'), 1);
  assert.equal(neighbour(lanes, 0, 'ArrowLeft'), 0);
  assert.equal(neighbour(lanes, 2, 'ArrowDown'), 6);
  assert.equal(neighbour(lanes, 6, 'ArrowUp'), 2);
  assert.equal(neighbour(lanes, 5, 'End'), 7);
  assert.equal(rankOf(lanes, 5), 1);
});

test('density is the share of each column that a kind fills', () => {
  const [forward, backward] = density(lanes, 0, view, 3);
  assert.deepEqual([...forward].map(v => +v.toFixed(4)), [0.6667, 0, 0]);
  assert.deepEqual([...backward].map(v => +v.toFixed(4)), [0, 0.6667, 0.6667]);
});

test('detail falls with the width of a block', () => {
  assert.deepEqual([30, 10, 4, 1].map(pixels => detail(pixels, 20)), ['words', 'digits', 'blocks', 'density']);
  assert.equal(detail(30, 8), 'blocks');
});

test('rows get thinner with more ranks and stay in bounds', () => {
  for (const ranks of [1, 8, 16, 32, 64]) assert.ok(rows(ranks).row * ranks <= 460, String(ranks));
});

test('the same action is found in another schedule', () => {
  const other = unpack({ ...schedule, microbatch: bytes(Uint16Array, [1, 0, 1, 0, 1, 1, 0, 0]) });
  assert.equal(twin(lanes, other, 0), 1);
});

test('zoom keeps the time under the pointer and stays inside', () => {
  assert.deepEqual(zoomed(view, 3, 4.5, 9), { from: 3, to: 6 });
  assert.deepEqual(zoomed(view, 2, 0, 9), { from: 0, to: 4.5 });
  assert.deepEqual(zoomed({ from: 3, to: 6 }, 0.1, 4, 9), { from: 0, to: 9 });
});
