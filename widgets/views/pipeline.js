// PipelineExplorer: schedules stacked on one clock, memory under each rank, what real ranks did in the blocks; or all
// schedules as throughput over memory.
import { colours, prepare } from './canvas.js';
import { escape, plain } from './format.js';
import * as gain from './gain.js';
import * as focus from './heldfocus.js';
import { KINDS, hit, neighbour, rankOf, rows, scale, twin, typed, unpack, unscale, zoomed } from './lanes.js';
import { play } from './play.js';
import * as scatter from './scatter.js';
import { line, rect, svg, text } from './svg.js';
import { WORDS, moment, round, sentence } from './tell.js';
import { draw } from './timeline.js';

const LEFT = 46, unpacked = new WeakMap();

// Arrays of a picture, unpacked once however often it is drawn.
function lanesOf(schedule) {
  if (!unpacked.has(schedule)) unpacked.set(schedule, unpack(schedule));
  return unpacked.get(schedule);
}

function measuredOf(host, name) {
  const given = (host.get('measured').schedules || {})[name];
  return given ? { ...given, start: typed(given.start, Float32Array), duration: typed(given.duration, Float32Array), waited: typed(given.waited, Float32Array) } : null;
}

const isScatter = host => host.get('picture').shown === 'scatter';
const pinnedOf = (host, schedule, i) => { const all = host.get('pinned').schedules || []; return all.find(s => s.name === schedule.name) || all[i]; };
const boxOf = (host, width) => { const peaks = host.get('picture').shown === 'forward' ? 8 : host.get('picture').units.hold === 'GB' ? 66 : 42; return { left: LEFT, right: width - peaks, peaks }; };
const sizeOf = (host, ranks) => rows(ranks, host.get('picture').shown === 'forward');

function clock(host) {
  const ends = host.get('picture').schedules.map(s => s.makespan);
  const ran = Object.values(host.get('measured').schedules || {}).map(m => m.now);
  const pinned = (host.get('pinned').schedules || []).map(s => s.makespan);
  return Math.max(...ends, ...ran, ...pinned) * 1.012;
}

function viewOf(host) {
  const end = clock(host), view = host.cursor.view;
  return view && view.to <= end + 1e-9 ? view : { from: 0, to: end };
}

function facts(schedule, measured, pinned, forward) {
  const [overMakespan, overIdeal, span] = schedule.idle, [most, whose] = schedule.peak, formula = schedule.formula;
  const kinds = measured?.kinds?.length ? `<div class="wrap"><span>${measured.kinds.map(([kind, words]) => `${escape(kind)} <b>${escape(words)}</b>`).join(' · ')}</span></div>` : '';
  const run = measured ? `<div><span>${escape(measured.words)}</span><b>${escape(measured.difference)}</b></div>${kinds}` : '';
  const other = pinned ? `<div><span><b>A</b>: ${escape(pinned.end)} ${escape(pinned.unit)}</span><span>peak ${escape(pinned.peak[0])}</span></div>` : '';
  const said = formula.text ? `<div class="formula" title="${escape(formula.whole)}: ${formula.holds ? 'it holds here' : escape(formula.remark)}"><span>${escape(formula.text)}</span>${formula.holds ? '<b class="good">✓</b>' : '<b class="off">≠</b>'}</div>` : '';
  const rest = forward ? said : `<div><b>${escape(schedule.idle_words)}</b><span>idle</span></div>${said}<div><b>${escape(span)}</b><span>inside span</span></div><hr><div class="${schedule.over.length ? 'bad' : ''}"><b>${schedule.over.length ? '✕ ' : ''}${escape(most)}</b><span>${escape(whose)}</span></div>`;
  return `<div class="facts"><div style="justify-content:flex-start;align-items:baseline"><b class="result">${escape(schedule.end)}</b><span>${escape(schedule.unit)}</span></div>${run}${other}<hr>`
    + `<div><b>${overMakespan}</b><span>idle / makespan</span></div><div><b>${overIdeal}</b><span>idle / ideal</span></div>${rest}</div>`;
}

function axis(host, width) {
  const view = viewOf(host), picture = host.get('picture'), box = boxOf(host, width), X = scale(view, box), slots = picture.shown === 'forward' && X(1) - X(0) >= 16;
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

function choose(host, lane, found, say) {
  const { cursor } = host;
  cursor.lane = lane;
  cursor.found = found;
  const picture = host.get('picture'), schedule = picture.schedules[lane], words = found && schedule ? sentence(lanesOf(schedule), found, schedule, picture.units, measuredOf(host, schedule.name)) : '';
  told(host, i => (i === lane ? words : ''));
  if (say && words) host.say(words);
  pipeline.paint(host);
}

// The line of each schedule: what is pointed at, or its own note.
function told(host, words) {
  host.stage.querySelectorAll('.hover-line').forEach((spot, i) => { spot.textContent = words(i) || spot.dataset.rest; });
}

function chooseSchedule(host, i) {
  const picture = host.get('picture'), point = picture.scatter.points[i], chosen = picture.scatter.points.filter(p => p.shown).map(p => p.name);
  if (!point) return;
  const next = point.shown ? chosen.filter(name => name !== point.name) : [...chosen.slice(-3), point.name];
  host.set('schedules', next.length ? next : [point.name]);
}

function pointScatter(host, i, say) {
  host.cursor.point = i;
  const picture = host.get('picture'), p = picture.scatter.points[i], words = p ? `${scatter.words(p, picture.units.hold)} · ${p.shown ? 'click takes it away' : 'click shows it'}` : '';
  told(host, () => words);
  if (say && words) host.say(words);
  pipeline.paint(host);
}

export const pipeline = {
  name: 'Pipeline',
  keys: 'Arrow keys step through actions and ranks, plus and minus zoom, 0 fits, Space plays.',
  press: { play: host => start(host) },
  files: [['png', 'Picture, PNG'], ['csv', 'Times, CSV'], ['order', 'Orders, torch’s CSV'], ['trace', 'Chrome trace']],

  stage(host) {
    const picture = host.get('picture');
    if (isScatter(host)) {
      const rest = 'a point is a schedule at these sizes; on the dashed front no other one is better in both';
      const refused = picture.scatter.refused.map(r => `<div><b>${escape(r.title)}</b> ${escape(r.reason)}</div>`).join('');
      return `<div class="panel-title">Throughput over memory <span class="hover-line" data-rest="${rest}">${rest}</span></div><div data-scatter></div>`
        + (refused ? `<div class="note refused"><div class="panel-title">Not in the picture</div>${refused}</div>` : '');
    }
    settle(host, picture);
    const forward = picture.shown === 'forward';
    const lanes = picture.schedules.map((schedule, i) => {
      const measured = (host.get('measured').schedules || {})[schedule.name];
      return `<div class="lane" data-lane="${i}"><div><div class="panel-title">${escape(schedule.title)} <span class="hover-line" data-rest="${escape(schedule.note)}">${escape(schedule.note)}</span></div>`
        + `<canvas data-pb="timeline-${escape(schedule.name)}"></canvas>${schedule.remark ? `<div class="note remark">${escape(schedule.remark)}</div>` : ''}</div>${facts(schedule, measured, pinnedOf(host, schedule, i), forward)}</div>`;
    });
    const more = picture.gain.lines ? `<div class="gain"><div class="panel-title">What more micro-batches buy <span>idle / makespan against m; rule of thumb m ≥ 4p</span></div><div class="beside"><div data-gain></div><div class="note">${escape(picture.gain.words)}</div></div></div>` : '';
    return `${lanes.join('')}<div class="lane"><div data-axis></div><div class="note" style="padding-top:8px;text-align:right">${escape(picture.unit)}</div></div><div data-held></div>${more}`;
  },

  paint(host) {
    const picture = host.get('picture');
    if (isScatter(host)) {
      const spot = host.stage.querySelector('[data-scatter]'), pinned = host.get('pinned').scatter?.points;
      spot.innerHTML = scatter.draw(picture.scatter, picture.cap, picture.units.hold, spot.clientWidth, host.cursor.point ?? -1, pinned);
      return;
    }
    const c = colours(host.root), view = viewOf(host), status = host.get('status') || {}, { cursor } = host, cap = picture.cap.value || 0;
    const most = Math.max(1e-9, ...picture.schedules.map(s => Math.max(...s.peaks))), top = cap && cap < most * 1.6 ? Math.max(most, cap) * 1.04 : most;
    picture.schedules.forEach((schedule, i) => {
      const canvas = host.stage.querySelectorAll('canvas')[i], lanes = lanesOf(schedule), size = sizeOf(host, lanes.ranks), width = canvas.parentElement.clientWidth;
      const height = size.top + lanes.ranks * size.row + 2, box = boxOf(host, width), ctx = prepare(canvas, width, height), chosen = cursor.found;
      let index = -1;
      if (chosen && chosen.index >= 0) index = i === cursor.lane ? chosen.index : twin(lanesOf(picture.schedules[cursor.lane] || schedule), lanes, chosen.index);
      const measured = measuredOf(host, schedule.name), other = pinnedOf(host, schedule, i);
      draw(ctx, lanes, size, box, view, c, {
        index, rank: index >= 0 ? rankOf(lanes, index) : -1, top, cap, over: [...new Set(schedule.over.map(span => span[0]))], unit: picture.units.hold, measured, peaks: schedule.peaks, gap: schedule.gap, pinned: other ? other.makespan : null, play: cursor.play ?? null,
        now: measured && !measured.whole && host.busy() ? measured.now : null, bad: status.state === 'failed' && measured && !measured.whole ? status.failure?.rank : undefined, cause: status.failure?.mark,
      });
    });
    const spot = host.stage.querySelector('[data-axis]');
    spot.innerHTML = axis(host, spot.clientWidth);
    pipeline.below(host, view);
  },

  // Under the clock: the memory of the rank in focus, and what more micro-batches buy.
  below(host, view) {
    const picture = host.get('picture'), { cursor } = host, held = host.stage.querySelector('[data-held]'), curve = host.stage.querySelector('[data-gain]');
    const own = picture.schedules[cursor.lane], rank = cursor.kept && cursor.found && own && picture.shown !== 'forward' ? cursor.found.rank : -1, width = host.stage.querySelector('[data-axis]').clientWidth;
    if (rank < 0) held.innerHTML = '';
    else {
      const all = picture.schedules.map(s => ({ lanes: lanesOf(s), title: s.title, peaks: s.peaks })), box = boxOf(host, width), now = cursor.found.index >= 0 ? lanesOf(own).start[cursor.found.index] : cursor.found.time;
      held.innerHTML = focus.draw(all, cursor.lane, rank, box, scale(view, box), picture.units.hold, picture.cap, host.stage.clientWidth, now);
    }
    if (curve && curve.clientWidth) curve.innerHTML = gain.draw(picture.gain, curve.clientWidth);
  },

  point(host, e) {
    if (isScatter(host)) { pointed(host, e); return; }
    const lane = e.target?.closest?.('[data-lane]'), i = lane ? Number(lane.dataset.lane) : -1, picture = host.get('picture'), { cursor } = host;
    if (e.type === 'wheel') {
      if (!e.ctrlKey || i < 0) return;
      e.preventDefault();
      const area = host.stage.querySelectorAll('canvas')[i].getBoundingClientRect(), at = unscale(viewOf(host), boxOf(host, area.width))(e.clientX - area.left);
      cursor.view = zoomed(viewOf(host), e.deltaY < 0 ? 1.25 : 0.8, at, clock(host));
      pipeline.paint(host);
      return;
    }
    if (e.type === 'pointerleave') { clearTimeout(cursor.wait); if (!cursor.kept) choose(host, -1, null); return; }
    if (e.type === 'pointermove' && (cursor.kept || cursor.frame)) return;
    const canvas = e.target.tagName === 'CANVAS' ? e.target : null, area = canvas?.getBoundingClientRect();
    const found = canvas && i >= 0 ? hit(lanesOf(picture.schedules[i]), sizeOf(host, picture.schedules[i].counts.length), boxOf(host, area.width), viewOf(host), e.clientX - area.left, e.clientY - area.top) : null;
    clearTimeout(cursor.wait);
    if (e.type === 'click') { cursor.kept = Boolean(found); choose(host, i, found, true); }
    else cursor.wait = setTimeout(() => choose(host, i, found), 80);
  },

  key(host, e) {
    const picture = host.get('picture'), { cursor } = host;
    if (isScatter(host)) return stepped(host, e);
    if (e.key === '+' || e.key === '=' || e.key === '-' || e.key === '0') {
      const at = cursor.found?.index >= 0 ? lanesOf(picture.schedules[cursor.lane]).start[cursor.found.index] : (viewOf(host).from + viewOf(host).to) / 2;
      cursor.view = e.key === '0' ? null : zoomed(viewOf(host), e.key === '-' ? 0.5 : 2, at, clock(host));
      pipeline.paint(host);
      return true;
    }
    if (e.key === ' ') { start(host); return true; }
    if (!['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End'].includes(e.key)) return false;
    let lane = Math.min(Math.max(0, cursor.lane ?? 0), picture.schedules.length - 1);
    const lanes = lanesOf(picture.schedules[lane]), from = cursor.found ? cursor.found.index : -1, rank = from >= 0 ? rankOf(lanes, from) : 0;
    let index = neighbour(lanes, from, e.key);
    // Past the last row the next schedule begins, so that one stop reaches them all.
    if (index === from && e.key === 'ArrowDown' && rank === lanes.ranks - 1 && lane + 1 < picture.schedules.length) { lane += 1; index = 0; }
    else if (index === from && e.key === 'ArrowUp' && rank === 0 && lane > 0) { lane -= 1; index = lanesOf(picture.schedules[lane]).offsets.at(-2); }
    const into = lanesOf(picture.schedules[lane]);
    cursor.kept = true;
    choose(host, lane, { rank: rankOf(into, index), index, time: into.start[index] }, true);
    return true;
  },

  side(host) {
    const picture = host.get('picture');
    if (isScatter(host)) return '<div class="rule"></div><p class="note" style="margin:0"><b>Throughput</b>: the part of the step in which a rank computes. <b>A</b> = activations of one micro-batch on one rank.</p><p class="note" style="margin:12px 0 0"><kbd>←</kbd> <kbd>→</kbd> point &nbsp;<kbd>Space</kbd> show</p>';
    const used = new Set(picture.schedules.flatMap(s => [...lanesOf(s).kind])), paired = picture.schedules.some(s => lanesOf(s).pair.some(Boolean));
    const costs = { F: picture.costs[0], B: picture.costs[1] + picture.costs[2], I: picture.costs[1], W: picture.costs[2] }, priced = picture.units.time === 'units';
    const key = KINDS.filter((_, k) => used.has(k)).map(kind => {
      const short = kind === 'W' ? 3.5 : 0, edge = kind === 'B' || kind === 'I' ? rect(0.1, 0.1, 21.8, 2.4, 'full', kind) : '';
      return `<div class="key">${svg(22, 16, rect(0.6, 0.6 + short, 20.8, 14.8 - short, 'tint', kind) + edge + text(11, short ? 13.5 : 12, kind, 'c', { style: 'font-size:9px' }))}<span class="note">${WORDS[kind]}${priced ? `, ${plain(costs[kind])}${kind === 'B' ? ' (= I + W)' : ''}` : ''}</span></div>`;
    }).join('') + (paired ? `<div class="key">${svg(22, 16, rect(0.6, 0.6, 20.8, 7.2, 'tint', 'F') + rect(0.6, 8.2, 20.8, 7.2, 'tint', 'B') + rect(0.1, 7.8, 21.8, 1.6, 'full', 'B'))}<span class="note">both at the same time</span></div>` : '');
    const hold = picture.units.hold === 'A' ? 'Curve under a rank: micro-batches it holds; <b>A</b> = activations of one.' : 'Curve under a rank: GB it holds; the line is the GPU’s memory.';
    const words = picture.shown === 'forward' ? 'Digits are micro-batches. <b>Dashed</b>: a slot in which the rank waits.' : `Digits are micro-batches. B has a thick top. <b>Pale block</b>: simulated. <b>Solid strip</b> in it: real ranks; thin line: they waited. ${hold} Click a rank to see it large.`;
    return `<div class="rule"></div>${key}<p class="note" style="margin:10px 0 0">${words}</p>`
      + '<p class="note" style="margin:12px 0 0"><kbd>Space</kbd> play &nbsp;<kbd>←</kbd> <kbd>→</kbd> step<br><kbd>↑</kbd> <kbd>↓</kbd> rank &nbsp;<kbd>+</kbd> <kbd>−</kbd> zoom</p>';
  },

  tables(host) {
    const picture = host.get('picture');
    if (isScatter(host)) {
      const list = picture.scatter.points.map(p => [p.title, `${round(p.y * 100)} %`, round(p.x), p.front ? 'yes' : 'no']);
      return [{ caption: 'Schedules: throughput and memory', head: ['schedule', 'work / makespan', `most of a rank, ${picture.units.hold}`, 'on the front'], rows: list }];
    }
    return picture.schedules.map(schedule => {
      const lanes = lanesOf(schedule), measured = measuredOf(host, schedule.name), exact = value => (Number.isNaN(value) ? '—' : plain(Math.round(value * 100) / 100));
      const list = Array.from(lanes.start, (begun, i) => [`rank ${rankOf(lanes, i)}`, lanes.stage[i] % lanes.depth, WORDS[KINDS[lanes.kind[i]]], lanes.microbatch[i], exact(begun), exact(lanes.duration[i]), exact(lanes.waits.get(i)?.waited ?? 0), ...(measured ? [exact(measured.start[i]), exact(measured.duration[i])] : [])]);
      return { caption: `${schedule.title}: actions in order`, head: ['rank', 'stage', 'action', 'micro-batch', 'start', 'duration', 'waited', ...(measured ? ['start, measured', 'duration, measured'] : [])], rows: list };
    });
  },
};

// Another picture may not have the block that was chosen: its rank stays in focus if it is there.
function settle(host, picture) {
  const { cursor } = host, schedule = picture.schedules[cursor.lane];
  if (cursor.picture === picture || !cursor.found) { cursor.picture = picture; return; }
  cursor.picture = picture;
  if (!schedule || cursor.found.rank >= schedule.counts.length) Object.assign(cursor, { lane: -1, found: null, kept: false });
  else if (cursor.found.index >= lanesOf(schedule).start.length) cursor.found = { rank: cursor.found.rank, index: -1, time: 0 };
}

function pointed(host, e) {
  const { cursor } = host, spot = host.stage.querySelector('[data-scatter]');
  if (e.type === 'wheel') return;
  if (e.type === 'pointerleave') { clearTimeout(cursor.wait); pointScatter(host, -1); return; }
  const picture = host.get('picture'), area = spot.getBoundingClientRect(), i = scatter.hit(picture.scatter, picture.cap.value, area.width, e.clientX - area.left, e.clientY - area.top);
  clearTimeout(cursor.wait);
  if (e.type === 'click') { pointScatter(host, i, true); if (i >= 0) chooseSchedule(host, i); }
  else if (i !== cursor.point) cursor.wait = setTimeout(() => pointScatter(host, i), 80);
}

function stepped(host, e) {
  const list = host.get('picture').scatter.points, order = list.map((_, i) => i).sort((a, b) => list[a].x - list[b].x || list[a].y - list[b].y), at = order.indexOf(host.cursor.point ?? -1);
  if (e.key === ' ') { chooseSchedule(host, host.cursor.point ?? -1); return true; }
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: Math.max(0, at - 1), ArrowUp: Math.max(0, at - 1), Home: 0, End: order.length - 1 }[e.key];
  if (to === undefined) return false;
  pointScatter(host, order[Math.min(to, order.length - 1)], true);
  return true;
}

function start(host) {
  const schedules = host.get('picture').schedules;
  if (!schedules.length) return;
  const shortest = Math.min(...schedules.map(s => lanesOf(s).duration.reduce((a, b) => Math.min(a, b), Infinity)));
  play(host, Math.max(...schedules.map(s => s.makespan)), shortest, () => {
    const time = host.cursor.play;
    told(host, i => (time === null ? '' : moment(lanesOf(schedules[i]), time)));
    pipeline.paint(host);
  });
}
