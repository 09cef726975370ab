// One line about one action or one idle slot: what it is, why it waited, what its rank holds then. Pure.
import { amount } from './held.js';
import { plain } from './format.js';
import { KINDS, heldAt, rankOf } from './lanes.js';

export const WORDS = { F: 'forward', B: 'backward', I: 'backward for inputs', W: 'backward for weights' };
export const round = value => plain(Math.abs(value) >= 100 ? Math.round(value * 10) / 10 : Number(value.toPrecision(3)));

const named = (lanes, i) => `${KINDS[lanes.kind[i]]}${lanes.microbatch[i]}`;
const stageOf = (lanes, i) => (lanes.depth !== lanes.ranks || lanes.stage[i] >= lanes.depth ? `, stage ${lanes.stage[i] % lanes.depth}` : '');

// "waited 2 for B0 of rank 1, 0.3 of it on the way"
export function waiting(lanes, i) {
  const wait = lanes.waits.get(lanes.pair[i] === 1 ? i - 1 : i);
  if (!wait) return '';
  const whose = `${named(lanes, wait.cause)} of rank ${rankOf(lanes, wait.cause)}`;
  const flight = wait.flight <= 1e-6 ? '' : wait.flight >= wait.waited * 0.999 ? ', all of it on the way' : `, ${round(wait.flight)} of it on the way`;
  return `waited ${round(wait.waited)} for ${whose}${flight}`;
}

function about(lanes, i, rank, schedule, units, measured) {
  const end = lanes.start[i] + lanes.duration[i], other = lanes.pair[i] === 2 ? i + 1 : lanes.pair[i] === 1 ? i - 1 : -1;
  const parts = [`${named(lanes, i)}, ${WORDS[KINDS[lanes.kind[i]]]} on rank ${rank}${stageOf(lanes, i)}, ${round(lanes.start[i])} to ${round(end)}${units.time === 'units' || units.time === 'slots' ? '' : ` ${units.time}`}`];
  if (other >= 0) parts.push(`beside ${named(lanes, other)}`);
  parts.push(waiting(lanes, i));
  if (units.hold) parts.push(`the rank holds ${amount(heldAt(lanes, rank, lanes.start[i]), units.hold)}`);
  if (lanes.sends[i]) parts.push(schedule.message);
  if (measured && !Number.isNaN(measured.start[i])) parts.push(`on real ranks ${round(measured.start[i])} to ${round(measured.start[i] + measured.duration[i])}`);
  return parts.filter(Boolean).join(' · ');
}

function idle(lanes, found) {
  const next = found.next ?? -1, wait = next >= 0 ? lanes.waits.get(next) : null;
  const why = wait ? `: ${named(lanes, next)} waits for ${named(lanes, wait.cause)} of rank ${rankOf(lanes, wait.cause)}` : next < 0 ? ': its work is done' : '';
  return `rank ${found.rank} is idle at ${round(found.time)}${why}`;
}

export function sentence(lanes, found, schedule, units, measured) {
  return found.index < 0 ? idle(lanes, found) : about(lanes, found.index, found.rank, schedule, units, measured);
}

// What every rank does at a time, for playback: "rank 0 B0 · rank 1 waits · …", for so many ranks.
export function moment(lanes, time, most = 4) {
  const doing = [];
  for (let r = 0; r < Math.min(most, lanes.ranks); r += 1) {
    let now = '–';
    for (let i = lanes.offsets[r]; i < lanes.offsets[r + 1] && lanes.start[i] <= time; i += 1) if (lanes.start[i] + lanes.duration[i] > time) now = lanes.pair[i] === 1 ? `${now} & ${named(lanes, i)}` : named(lanes, i);
    doing.push(`rank ${r} ${now === '–' ? 'idle' : now}`);
  }
  return `at ${round(time)}: ${doing.join(' · ')}${lanes.ranks > most ? ' · …' : ''}`;
}
