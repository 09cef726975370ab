// PipelineExplorer: schedules stacked on one clock, memory under each rank, what real ranks did in the blocks; or all
// schedules as throughput over memory.
import { colours, prepare } from './canvas.js';
import { escape, plain } from './format.js';
import * as gain from './gain.js';
import * as focus from './heldfocus.js';
import { KINDS, hit, neighbour, rankOf, rows, scale, twin, typed, unpack, unscale, zoomed } from './lanes.js';
import { axis, facts, key, scatterKey } from './pipelineparts.js';
import { play } from './play.js';
import * as scatter from './scatter.js';
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

// The point in focus as the picture of now has it: a press may have shown it or taken it away.
function offered(host) {
  const picture = host.get('picture'), p = picture.scatter.points[host.cursor.point ?? -1];
  return p ? scatter.offer(p, picture.units.hold) : '';
}

function pointScatter(host, i, say) {
  host.cursor.point = i;
  const words = offered(host);
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
      told(host, () => offered(host));
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
    spot.innerHTML = axis(picture, view, boxOf(host, spot.clientWidth), spot.clientWidth);
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

  side: host => (isScatter(host) ? scatterKey() : key(host.get('picture'), lanesOf)),

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
