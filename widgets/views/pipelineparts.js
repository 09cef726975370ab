// What stands beside the blocks of a pipeline: facts of a schedule, the clock under all of them, the key. Pure.
import { escape, plain } from './format.js';
import { KINDS, scale } from './lanes.js';
import { line, rect, svg, text } from './svg.js';
import { WORDS } from './tell.js';

// A formula may break before its value, never between the value and the sign that judges it.
function held(formula, sign) {
  const at = formula.lastIndexOf(' = ');
  return `${escape(at < 0 ? '' : formula.slice(0, at))} <span class="keep">${escape(at < 0 ? formula : formula.slice(at + 1))} ${sign}</span>`;
}

// What a kind of block costs in units of the picture: a schedule with fewer chunks has longer ones.
export function blockCosts(picture, cost) {
  const most = Math.max(...picture.schedules.map(s => s.chunks)), scales = [...new Set(picture.schedules.map(s => most / s.chunks))].sort((a, b) => b - a);
  return [...new Set(scales.map(scale => plain(cost * scale)))].join(' or ');
}

export function facts(schedule, measured, pinned, forward) {
  const [overMakespan, overIdeal, span] = schedule.idle, [most, whose] = schedule.peak, formula = schedule.formula;
  const kinds = measured?.kinds?.length ? `<div class="wrap"><span>${measured.kinds.map(([kind, words]) => `${escape(kind)} <b>${escape(words)}</b>`).join(' · ')}</span></div>` : '';
  const run = measured ? `<div><span>${escape(measured.words)}</span><b>${escape(measured.difference)}</b></div>${kinds}` : '';
  const other = pinned ? `<div><span><b>A</b>: ${escape(pinned.end)} ${escape(pinned.unit)}</span><span>peak ${escape(pinned.peak[0])}</span></div>` : '';
  const said = formula.text ? `<div class="formula" title="${escape(formula.whole)}: ${formula.holds ? 'it holds here' : escape(formula.remark)}">${held(formula.text, formula.holds ? '<b class="good">✓</b>' : `<b class="off">≠ ${escape(schedule.idle_words)}</b>`)}</div>` : '';
  const rest = forward ? said : `<div><b>${escape(schedule.idle_words)}</b><span>idle</span></div>${said}<div><b>${escape(span)}</b><span>inside span</span></div><hr><div class="${schedule.over.length ? 'over' : ''}"><b>${schedule.over.length ? '✕ ' : ''}${escape(most)}</b><span>${escape(whose)}</span></div>`;
  return `<div class="facts"><div style="justify-content:flex-start;align-items:baseline"><b class="result">${escape(schedule.end)}</b><span>${escape(schedule.unit)}</span></div>${run}${other}<hr>`
    + `<div><b>${overMakespan}</b><span>idle / makespan</span></div><div><b>${overIdeal}</b><span>idle / ideal</span></div>${rest}</div>`;
}

export function axis(picture, view, box, width) {
  const X = scale(view, box), slots = picture.shown === 'forward' && X(1) - X(0) >= 16;
  const raw = (view.to - view.from) / 11, power = 10 ** Math.floor(Math.log10(raw)), step = slots ? 1 : [1, 2, 3, 5, 6, 10].map(k => k * power).find(k => k >= raw * (1 - 1e-9));
  let marks = line(box.left, 4, box.right, 4, 'edge');
  for (let t = Math.ceil(view.from / step - 1e-9) * step; t <= view.to + 1e-9; t += step) {
    marks += line(X(t), 4, X(t), 8, 'ink2') + (slots ? (t + 1 <= view.to + 1e-9 ? text(X(t + 0.5), 19, plain(t + 1), 'm s c') : '') : text(X(t), 21, plain(Number(t.toPrecision(6))), 'm s c'));
  }
  if (slots) return svg(width, 38, marks + text(0, 19, 'slot', 'm s'));
  if (picture.work >= view.from && picture.work <= view.to) marks += line(X(picture.work), -2, X(picture.work), 8, 'ink', { 'stroke-width': 1.5 }) + text(X(picture.work), 34, picture.work_words, 's b c');
  if (picture.units.time !== 'units' && picture.units.time !== 'slots') marks += text(0, 21, picture.units.time, 'm s');
  return svg(width, 38, marks);
}

export const scatterKey = () => '<div class="rule"></div><p class="note" style="margin:0"><b>Throughput</b>: the part of the step in which a rank computes. <b>A</b> = activations of one micro-batch on one rank.</p><p class="note" style="margin:12px 0 0"><kbd>←</kbd> <kbd>→</kbd> point &nbsp;<kbd>Space</kbd> show</p>';

// What the blocks are, under the controls.
export function key(picture, lanesOf) {
  const used = new Set(picture.schedules.flatMap(s => [...lanesOf(s).kind])), paired = picture.schedules.some(s => lanesOf(s).pair.some(Boolean));
  const again = picture.costs[3] || 0, costs = { F: picture.costs[0], B: picture.costs[1] + picture.costs[2] + again, I: picture.costs[1] + again, W: picture.costs[2] }, priced = picture.units.time === 'units';
  const shown = KINDS.filter((_, k) => used.has(k)).map(kind => {
    const short = kind === 'W' ? 3.5 : 0, edge = kind === 'B' || kind === 'I' ? rect(0.1, 0.1, 21.8, 2.4, 'full', kind) : '';
    return `<div class="key">${svg(22, 16, rect(0.6, 0.6 + short, 20.8, 14.8 - short, 'tint', kind) + edge + text(11, short ? 13.5 : 12, kind, 'c', { style: 'font-size:9px' }))}<span class="note">${WORDS[kind]}${priced ? `, ${blockCosts(picture, costs[kind])}${kind === 'B' ? ` (= ${again ? 'F + ' : ''}I + W)` : ''}` : ''}</span></div>`;
  }).join('') + (paired ? `<div class="key">${svg(22, 16, rect(0.6, 0.6, 20.8, 7.2, 'tint', 'F') + rect(0.6, 8.2, 20.8, 7.2, 'tint', 'B') + rect(0.1, 7.8, 21.8, 1.6, 'full', 'B'))}<span class="note">both at the same time</span></div>` : '');
  const hold = picture.units.hold === 'A' ? 'Curve under a rank: micro-batches it holds; <b>A</b> = activations of one.' : 'Curve under a rank: GB it holds; the line is the GPU’s memory.';
  const units = priced ? `<p class="note" style="margin:10px 0 0">Units: ${escape(picture.unit)}.${blockCosts(picture, 1).includes('or') ? ' A block of fewer chunks is longer.' : ''}${picture.hop ? ` ${escape(picture.hop)}` : ''}</p>` : '';
  const words = picture.shown === 'forward' ? 'Digits are micro-batches. <b>Dashed</b>: a slot in which the rank waits.' : `Digits are micro-batches. B has a thick top. <b>Pale block</b>: simulated. <b>Solid strip</b> in it: real ranks; thin line: they waited. ${hold} Click a rank to see it large.`;
  return `<div class="rule"></div>${shown}${units}<p class="note" style="margin:10px 0 0">${words}</p>`
    + '<p class="note" style="margin:12px 0 0"><kbd>Space</kbd> play &nbsp;<kbd>←</kbd> <kbd>→</kbd> step<br><kbd>↑</kbd> <kbd>↓</kbd> rank &nbsp;<kbd>+</kbd> <kbd>−</kbd> zoom</p>';
}
