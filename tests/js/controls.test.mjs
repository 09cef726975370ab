import assert from 'node:assert/strict';
import test from 'node:test';
import { show } from '../../widgets/views/format.js';
import { folded } from '../../widgets/views/column.js';
import { grouped, put, typed, wire } from '../../widgets/views/controls.js';

// The little of an element that a control touches.
function element(value = '') {
  const listeners = {};
  return {
    value, dataset: {}, ownerDocument: {}, hidden: true, textContent: '',
    addEventListener: (type, work) => { (listeners[type] ??= []).push(work); },
    press(key) { for (const work of listeners.keydown || []) work({ key, preventDefault() {} }); },
  };
}
function control(kind, descriptor, value) {
  const parts = { input: element(), '[type=range]': element('0'), '.field': element(), '.refusal': element() }, sent = [];
  wire[kind](descriptor, { querySelector: name => parts[name] }, (name, given) => sent.push([name, given]), () => value);
  return { field: parts[kind === 'text' ? 'input' : '.field'], line: parts['.refusal'], sent };
}

test('Enter sends a text as it stands, for Python to take or refuse', () => {
  const { field, sent } = control('text', { name: 'costs', label: 'Costs' }, '1 : 1 : 1');
  field.value = '1 : 2';
  field.press('Enter');
  assert.deepEqual(sent, [['costs', '1 : 2']]);
});
test('a number is sent on Enter, a word is refused in words and never sent, an empty field takes the last value back', () => {
  const { field, line, sent } = control('range', { name: 'stages', label: 'Stages p', values: [1, 2, 4] }, 4);
  field.value = 'many';
  field.press('Enter');
  assert.deepEqual([sent, line.hidden, line.textContent], [[], false, '“many” is not a number: use one, such as 4']);
  field.value = ' ';
  field.press('Enter');
  assert.deepEqual([sent, line.hidden, field.value], [[], true, '4']);
  field.value = '2';
  field.press('Enter');
  assert.deepEqual(sent, [['stages', 2]]);
});
test('a number chosen by itself is written as auto and read as 0', () => {
  assert.equal(show.auto(0), 'auto');
  assert.equal(show.auto(16), '16');
  assert.deepEqual(typed('Auto', { show: 'auto' }, 4), { number: 0 });
});
test('a pasted text is sent at once and again when it was changed', async () => {
  const area = element(), sent = [], listeners = {};
  area.addEventListener = (type, work) => { listeners[type] = work; };
  wire.paste({ name: 'config', label: 'config.json' }, { querySelector: () => area }, (name, value) => sent.push([name, value]));
  listeners.paste();
  area.value = '{"model_type":\n"llama"}';
  await new Promise(done => setTimeout(done, 5));
  area.value = '';
  listeners.change();
  assert.deepEqual(sent, [['config', '{"model_type":\n"llama"}'], ['config', '']]);
});
test('a text from outside leaves all of a field selected where all was, and touches nothing where it is there already', () => {
  const field = element('4'), said = [];
  field.ownerDocument = { activeElement: field };
  Object.assign(field, { selectionStart: 0, selectionEnd: 1, select: () => said.push('select') });
  put(field, '4');
  assert.deepEqual([field.value, said], ['4', []]);
  put(field, '16');
  assert.deepEqual([field.value, said], ['16', ['select']]);
  put(field, '8');
  assert.deepEqual([field.value, said], ['8', ['select']]);
});
test('a refused size names one with its unit', () => {
  assert.deepEqual(typed('lots', { show: 'bytes' }, 65536), { refused: '“lots” is not a number: use one, such as 64 KiB' });
});
test('options in a row with one heading stand under it, and those without stand alone', () => {
  const html = grouped([['my.json', 'my.json'], ['a-7b', 'A 7B', 'A & Co'], ['a-70b', 'A 70B', 'A & Co'], ['b-1b', 'B 1B', 'B']]);
  assert.equal(html, '<option value="my.json">my.json</option>'
    + '<optgroup label="A &amp; Co"><option value="a-7b">A 7B</option><option value="a-70b">A 70B</option></optgroup>'
    + '<optgroup label="B"><option value="b-1b">B 1B</option></optgroup>');
});
test('a fold lists what lies in it', () => {
  assert.equal(folded([{ more: 'More', brief: 'recompute' }, { more: 'More', label: 'Stage cut' }]), 'More: recompute, Stage cut');
});
