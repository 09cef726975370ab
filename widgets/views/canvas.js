// A canvas as sharp as its screen, and the colours that it cannot follow by itself.
import { KINDS } from './lanes.js';

export const DPR = () => Math.min(3, window.devicePixelRatio || 1);

export function prepare(canvas, width, height) {
  const ratio = DPR();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

function mixed(colour, ground, part) {
  const read = text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
  const [a, b] = [read(colour), read(ground)];
  return `rgb(${a.map((v, i) => Math.round(v * part + b[i] * (1 - part))).join(',')})`;
}

function hex(words, fallback) {
  const text = words.trim();
  if (/^#[0-9a-f]{6}$/i.test(text)) return text;
  if (/^#[0-9a-f]{3}$/i.test(text)) return `#${[...text.slice(1)].map(c => c + c).join('')}`;
  const numbers = /rgba?\((\d+)[, ]+(\d+)[, ]+(\d+)/.exec(text);
  return numbers ? `#${numbers.slice(1).map(v => Number(v).toString(16).padStart(2, '0')).join('')}` : text === 'white' ? '#ffffff' : fallback;
}

// Colours as they are now: a canvas cannot follow CSS variables.
export function colours(root) {
  const style = getComputedStyle(root), dark = root.dataset.theme === 'dark';
  const value = name => hex(style.getPropertyValue(`--pb-${name}`), '#888888');
  const ground = hex(style.getPropertyValue('--pb-background'), dark ? '#111111' : '#ffffff'), tint = parseFloat(style.getPropertyValue('--pb-tint')) / 100;
  const kinds = KINDS.map(value);
  return {
    kinds, tints: kinds.map(colour => mixed(colour, ground, tint)), dense: kinds.map(colour => mixed(colour, ground, 0.6)), ground, ink: value('ink'), ink2: value('ink2'), idle: value('idle'), accent: value('accent'), bad: value('bad'), line: value('line'), grid: value('grid'),
    memory: value('activations'), memoryTint: mixed(value('activations'), ground, tint), badTint: mixed(value('bad'), ground, 0.45), font: style.fontFamily,
  };
}

// A colour as one number in the byte order of ImageData.
export function packed(colour) {
  const [r, g, b] = colour.startsWith('#') ? [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)) : colour.match(/\d+/g).map(Number);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
