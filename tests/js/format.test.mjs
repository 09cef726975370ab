import assert from 'node:assert/strict';
import test from 'node:test';
import { binary, escape, gb, parse, percent, plain, seconds, significant, thousands } from '../../widgets/views/format.js';

test('thousands stand apart by a thin space, minus is a true minus', () => {
  assert.equal(thousands(32768), '32\u2009768');
  assert.equal(thousands(-1129.5), '\u22121\u2009129.5');
});

test('three significant figures', () => {
  assert.equal(significant(0.0123456), '0.0123');
  assert.equal(significant(1234.5), '1\u2009235');
});

test('gigabytes have two decimals, one above ten, none from a thousand on', () => {
  assert.deepEqual([gb(4.4096e9), gb(34.437e9), gb(1128.86e9)], ['4.41', '34.4', '1\u2009129']);
});

test('buffers are named in binary units', () => {
  assert.deepEqual([binary(1024), binary(1572864), binary(67108864)], ['1 KiB', '1.5 MiB', '64 MiB']);
});

test('times have the unit that fits', () => {
  assert.deepEqual([seconds(0), seconds(15.5e-6), seconds(0.0032), seconds(1.5)], ['0 s', '15.5 µs', '3.20 ms', '1.50 s']);
});

test('differences are signed, zero is not', () => {
  assert.deepEqual([percent(0.145), percent(-0.127), percent(0), percent(0.00001)], ['+14.5 %', '\u221212.7 %', '0.0 %', '0.0 %']);
});

test('what people type is read, with spaces, thin spaces and units', () => {
  assert.deepEqual([parse('4 096'), parse('4\u2009096'), parse('1 MiB'), parse('64k'), parse('1e3'), parse('lots'), parse('')], [4096, 4096, 1048576, 65536, 1000, null, null]);
});

test('a short number is as short as it is exact', () => assert.equal(plain(0.30000000000000004), '0.3'));

test('text cannot become markup, and a thin space does not break a line', () => {
  assert.equal(escape('<b>&"\u2009'), '&lt;b&gt;&amp;&quot;\u202f');
});
