// Numbers into text, for axes and hover lines; sentences and tables come ready from Python (playbook/units.py).
const THIN = '\u2009', MINUS = '\u2212';
// Thin spaces become narrow no-break ones: a number stays with its unit.
export const escape = text => String(text).replaceAll(THIN, '\u202f').replace(/[&<>"]/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }[c]));
export const signed = text => String(text).replace(/^-/, MINUS);

export function thousands(value) {
  const [whole, part] = String(value).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
  return signed(part === undefined ? grouped : `${grouped}.${part}`);
}

export function significant(value, digits = 3) {
  if (value === 0) return '0';
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return thousands(value.toFixed(Math.min(places, 12)));
}

// A tick or a slider value: as short as it is exact to six figures.
export const plain = value => thousands(Number(value.toPrecision(6)));

export function gb(bytes) {
  const value = bytes / 1e9, size = Math.abs(value);
  return thousands(value.toFixed(size >= 1000 ? 0 : size > 10 ? 1 : 2));
}

// Gigabytes, or megabytes and kilobytes with their unit where there is less than a tenth of one.
export function bare(bytes) {
  if (!(bytes > 0 && bytes < 1e8)) return gb(bytes);
  const [scale, unit] = bytes >= 1e6 ? [1e6, 'MB'] : bytes >= 1e3 ? [1e3, 'kB'] : [1, 'B'];
  return `${significant(bytes / scale)} ${unit}`;
}

const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function binary(bytes) {
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit < BINARY.length - 1) { value /= 1024; unit += 1; }
  return `${plain(Number(value.toPrecision(4)))} ${BINARY[unit]}`;
}

export function seconds(value) {
  if (value === 0) return '0 s';
  const size = Math.abs(value);
  const [scale, unit] = size < 0.9995e-3 ? [1e6, 'µs'] : size < 0.9995 ? [1e3, 'ms'] : [1, 's'];
  return `${significant(value * scale)} ${unit}`;
}

export function percent(part, digits = 1) {
  const value = (part * 100).toFixed(digits);
  return `${part > 0 && Number(value) !== 0 ? '+' : ''}${signed(Number(value) === 0 ? (0).toFixed(digits) : value)} %`;
}

const SIZES = { b: 1, kb: 1e3, mb: 1e6, gb: 1e9, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, k: 1024, m: 1024 ** 2, g: 1024 ** 3 };
// What a person typed: "4 096", "1 MiB", "64k"; null when it is no number.
export function parse(text) {
  const match = /^([-+]?[\d.]+(?:e[-+]?\d+)?)([a-z]*)$/i.exec(String(text).replace(/[\s\u2009\u202f_,']/g, '').replace(MINUS, '-'));
  if (!match || (match[2] && !(match[2].toLowerCase() in SIZES))) return null;
  const value = Number(match[1]) * (match[2] ? SIZES[match[2].toLowerCase()] : 1);
  return Number.isFinite(value) ? value : null;
}

// Why a text that is no number is not taken, and what would be.
export const noNumber = (text, works) => `“${text.trim()}” is not a number: use one, such as ${works}`;

// Zero leaves the choice to Python.
export const AUTO = 'auto';
export const show = { auto: value => (value === 0 ? AUTO : plain(value)), count: plain, bytes: binary, seconds, plain };
