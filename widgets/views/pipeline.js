// PipelineExplorer: schedules stacked on one clock, memory under each rank, what real ranks did in the blocks.
import { escape, plain } from './format.js';
import { KINDS, hit, neighbour, rankOf, rows, scale, twin, typed, unpack, unscale, zoomed } from './lanes.js';
import { line, rect, svg, text } from './svg.js';
import { colours, draw, prepare } from './timeline.js';

const WORDS = { F: 'forward', B: 'backward', I: 'backward for inputs', W: 'backward for weights' };
const LEFT = 46, END = 36;
const unpacked = new WeakMap();

// Arrays of a picture, unpacked once however often it is drawn.
function lanesOf(schedule) {
  if (!unpacked.has(schedule)) unpacked.set(schedule, unpack(schedule));
  return unpacked.get(schedule);
}

function measuredOf(host, name) {
  const given = (host.get('measured').schedules || {})[name];
  return given ? { ...given, start: typed(given.start, Float32Array), duration: typed(given.duration, Float32Array) } : null;
}

const clock = host => {
  const ends = host.get('picture').schedules.map(s => s.makespan);
  const ran = Object.values(host.get('measured').schedules || {}).map(m => m.now);
  const pinned = (host.get('pinned').schedules || []).map(s => s.makespan);
  return Math.max(...ends, ...ran, ...pinned) * 1.012;
};

function viewOf(host) {
  const end = clock(host), view = host.cursor.view;
  return view && view.to <= end + 1e-9 ? view : { from: 0, to: end };
}

function facts(schedule, measured, pinned) {
  const [overMakespan, overIdeal, span] = schedule.idle, [most, whose] = schedule.peak;
  const run = measured ? `<div><span>${escape(measured.words)}</span><b>${escape(measured.difference)}</b></div>` : '';
  const other = pinned ? `<div><span><b>A</b>: ${escape(pinned.end)} units</span><span>peak ${escape(pinned.peak[0].replace(' A', ''))}</span></div>` : '';
  return `<div class="facts"><div style="justify-content:flex-start;align-items:baseline"><b class="result">${escape(schedule.end)}</b><span>units</span></div>${run}${other}<hr>`
    + `<div><b>${overMakespan}</b><span>idle / makespan</span></div><div><b>${overIdeal}</b><span>idle / ideal</span></div><div><b>${span} units</b><span>inside span</span></div><hr>`
    + `<div><b>${most}</b><span>${whose}</span></div></div>`;
}

function axis(host, width) {
  const view = viewOf(host), picture = host.get('picture'), box = { left: LEFT, right: width - END }, X = scale(view, box);
  const raw = (view.to - view.from) / 11, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 3, 5, 6, 10].map(k => k * power).find(k => k >= raw * (1 - 1e-9));
  let marks = line(box.left, 4, box.right, 4, 'edge');
  for (let t = Math.ceil(view.from / step - 1e-9) * step; t <= view.to + 1e-9; t += step) marks += line(X(t), 4, X(t), 8, 'ink2') + text(X(t), 21, plain(t), 'm s c');
  if (picture.work >= view.from && picture.work <= view.to) marks += line(X(picture.work), -2, X(picture.work), 8, 'ink', { 'stroke-width': 1.5 }) + text(X(picture.work), 34, picture.work_words, 's b c');
  return svg(width, 38, marks);
}

function sentence(host, lanes, found, schedule) {
  if (found.index < 0) return `rank ${found.rank}: idle at ${plain(Math.round(found.time * 100) / 100)}`;
  const i = found.index, kind = KINDS[lanes.kind[i]], measured = measuredOf(host, schedule.name);
  const round = value => plain(Math.round(value * 100) / 100);
  const ran = measured && !Number.isNaN(measured.start[i]) ? `; on real ranks ${round(measured.start[i])} to ${round(measured.start[i] + measured.duration[i])}` : '';
  return `${kind}${lanes.microbatch[i]}: ${WORDS[kind]} of micro-batch ${lanes.microbatch[i]} on rank ${found.rank}${lanes.chunks > 1 ? `, stage ${lanes.stage[i]}` : ''}, ${round(lanes.start[i])} to ${round(lanes.start[i] + lanes.duration[i])}${ran}`;
}

function laneOf(host, element) {
  const lane = element?.closest?.('[data-lane]');
  return lane ? Number(lane.dataset.lane) : -1;
}

function choose(host, lane, found, say) {
  host.cursor.lane = lane;
  host.cursor.found = found;
  const schedule = host.get('picture').schedules[lane], words = found && schedule ? sentence(host, lanesOf(schedule), found, schedule) : '';
  host.stage.querySelectorAll('.hover-line').forEach((spot, i) => { spot.textContent = i === lane ? words : spot.dataset.rest; });
  if (say && words) host.say(words);
  pipeline.paint(host);
}

export const pipeline = {
  name: 'Pipeline',
  keys: 'Arrow keys step through actions and ranks, plus and minus zoom, 0 fits, Space plays.',

  stage(host) {
    const picture = host.get('picture'), pinned = host.get('pinned').schedules || [];
    const lanes = picture.schedules.map((schedule, i) => {
      const measured = (host.get('measured').schedules || {})[schedule.name], other = pinned.find(s => s.name === schedule.name) || pinned[i];
      return `<div class="lane" data-lane="${i}"><div><div class="panel-title">${escape(schedule.title)} <span class="hover-line" data-rest="${escape(schedule.note)}">${escape(schedule.note)}</span></div>`
        + `<canvas data-pb="timeline-${escape(schedule.name)}"></canvas></div>${facts(schedule, measured, other)}</div>`;
    });
    return `${lanes.join('')}<div class="lane"><div data-axis></div><div class="note" style="padding-top:8px;text-align:right">${escape(picture.unit)}</div></div>`;
  },

  paint(host) {
    const picture = host.get('picture'), c = colours(host.root), view = viewOf(host), status = host.get('status') || {};
    const top = Math.max(1, ...picture.schedules.map(s => Math.max(...s.peaks)));
    const pinned = host.get('pinned').schedules || [];
    picture.schedules.forEach((schedule, i) => {
      const canvas = host.stage.querySelectorAll('canvas')[i], lanes = lanesOf(schedule), size = rows(lanes.ranks), width = canvas.parentElement.clientWidth;
      const height = size.top + lanes.ranks * size.row + 2, box = { left: LEFT, right: width - END }, ctx = prepare(canvas, width, height), chosen = host.cursor.found;
      let index = -1;
      if (chosen && chosen.index >= 0) index = i === host.cursor.lane ? chosen.index : twin(lanesOf(picture.schedules[host.cursor.lane] || schedule), lanes, chosen.index);
      const measured = measuredOf(host, schedule.name), other = pinned.find(s => s.name === schedule.name) || pinned[i];
      draw(ctx, lanes, size, box, view, c, {
        index, rank: index >= 0 ? rankOf(lanes, index) : -1, top, measured, peaks: schedule.peaks, gap: schedule.gap, pinned: other ? other.makespan : null,
        now: host.cursor.play ?? (measured && !measured.whole && host.busy() ? measured.now : null), bad: status.state === 'failed' && measured && !measured.whole ? status.failure?.rank : undefined, cause: status.failure?.mark,
      });
    });
    const spot = host.stage.querySelector('[data-axis]');
    spot.innerHTML = axis(host, spot.clientWidth);
  },

  point(host, e) {
    const i = laneOf(host, e.target), picture = host.get('picture');
    if (e.type === 'wheel') {
      if (!e.ctrlKey || i < 0) return;
      e.preventDefault();
      const box = host.stage.querySelectorAll('canvas')[i].getBoundingClientRect(), at = unscale(viewOf(host), { left: LEFT, right: box.width - END })(e.clientX - box.left);
      host.cursor.view = zoomed(viewOf(host), e.deltaY < 0 ? 1.25 : 0.8, at, clock(host));
      pipeline.paint(host);
      return;
    }
    if (e.type === 'pointerleave') { clearTimeout(host.cursor.wait); if (!host.cursor.kept) choose(host, -1, null); return; }
    if (e.type === 'pointermove' && host.cursor.kept) return;
    const canvas = e.target.tagName === 'CANVAS' ? e.target : null;
    const box = canvas?.getBoundingClientRect();
    const found = canvas && i < picture.schedules.length ? hit(lanesOf(picture.schedules[i]), rows(picture.schedules[i].counts.length), { left: LEFT, right: box.width - END }, viewOf(host), e.clientX - box.left, e.clientY - box.top) : null;
    clearTimeout(host.cursor.wait);
    if (e.type === 'click') { host.cursor.kept = Boolean(found && found.index >= 0); choose(host, i, found, true); }
    else host.cursor.wait = setTimeout(() => choose(host, i, found), 80);
  },

  key(host, e) {
    const picture = host.get('picture'), cursor = host.cursor;
    if (e.key === '+' || e.key === '=' || e.key === '-' || e.key === '0') {
      const at = cursor.found?.index >= 0 ? lanesOf(picture.schedules[cursor.lane]).start[cursor.found.index] : (viewOf(host).from + viewOf(host).to) / 2;
      cursor.view = e.key === '0' ? null : zoomed(viewOf(host), e.key === '-' ? 0.5 : 2, at, clock(host));
      pipeline.paint(host);
      return true;
    }
    if (e.key === ' ') { play(host); return true; }
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
    const picture = host.get('picture'), used = new Set(picture.schedules.flatMap(s => [...typed(s.kind, Uint8Array)]));
    const costs = { F: picture.costs[0], B: picture.costs[1] + picture.costs[2], I: picture.costs[1], W: picture.costs[2] };
    const key = KINDS.filter((_, k) => used.has(k)).map(kind => {
      const short = kind === 'W' ? 3.5 : 0, edge = kind === 'B' || kind === 'I' ? rect(0.1, 0.1, 21.8, 2.4, 'full', kind) : '';
      return `<div class="key">${svg(22, 16, rect(0.6, 0.6 + short, 20.8, 14.8 - short, 'tint', kind) + edge + text(11, short ? 13.5 : 12, kind, 'c', { style: 'font-size:9px' }))}<span class="note">${WORDS[kind]}, ${plain(costs[kind])}${kind === 'B' ? ' (= I + W)' : ''}</span></div>`;
    }).join('');
    return `<div class="rule"></div>${key}<p class="note" style="margin:10px 0 0">Digits are micro-batches. B has a thick top. <b>Pale block</b>: simulated. <b>Solid strip</b> in it: real ranks. Curve under a rank: micro-batches it holds; <b>A</b> = activations of one.</p>`
      + '<p class="note" style="margin:12px 0 0"><kbd>Space</kbd> play &nbsp;<kbd>←</kbd> <kbd>→</kbd> step<br><kbd>↑</kbd> <kbd>↓</kbd> rank &nbsp;<kbd>+</kbd> <kbd>−</kbd> zoom</p>';
  },

  tables(host) {
    return host.get('picture').schedules.map(schedule => {
      const lanes = lanesOf(schedule), measured = measuredOf(host, schedule.name), round = value => (Number.isNaN(value) ? '—' : plain(Math.round(value * 100) / 100));
      const list = Array.from(lanes.start, (start, i) => [`rank ${rankOf(lanes, i)}`, lanes.stage[i], WORDS[KINDS[lanes.kind[i]]], lanes.microbatch[i], round(start), round(lanes.duration[i]), ...(measured ? [round(measured.start[i]), round(measured.duration[i])] : [])]);
      return { caption: `${schedule.title}: actions in order`, head: ['rank', 'stage', 'action', 'micro-batch', 'start', 'duration', ...(measured ? ['start, measured', 'duration, measured'] : [])], rows: list };
    });
  },
};

// A line runs over the clock; with reduced motion it steps a tenth at a time instead.
function play(host) {
  const cursor = host.cursor, end = clock(host);
  if (cursor.frame) { cancelAnimationFrame(cursor.frame); cursor.frame = 0; cursor.play = null; pipeline.paint(host); return; }
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
    cursor.play = (cursor.play ?? 0) + end / 10 > end ? null : (cursor.play ?? 0) + end / 10;
    pipeline.paint(host);
    return;
  }
  const begun = performance.now(), length = 6000;
  const frame = now => {
    const part = (now - begun) / length;
    cursor.play = part < 1 ? part * end : null;
    cursor.frame = part < 1 && host.root.isConnected ? requestAnimationFrame(frame) : 0;
    pipeline.paint(host);
  };
  cursor.frame = requestAnimationFrame(frame);
}
