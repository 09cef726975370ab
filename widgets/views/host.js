// The frame that every explorer shares: top bar, headline, controls, picture, states of a run, footer, errors.
// A view gives { name, stage, paint, key, point, side, tables }; all but name and stage may be left out.
import { column } from './column.js';
import { escape } from './format.js';
import { copy, followTheme, followWidth, keepKeys, leave, offer, whenWide } from './page.js';
import { BUSY, buttons, failure, phases } from './run.js';
import { swatch } from './svg.js';
import { comparison, data } from './table.js';

const FRAME = `<div class="top"><span class="kick"></span><button class="quiet" data-pb="pin">Pin as A</button>
<details class="menu"><summary data-pb="copy" aria-label="Copy as">Copy as ▾</summary><div><button data-pb="copy-python">Python</button><button data-pb="copy-command">Command</button><button data-pb="copy-json">JSON</button></div></details>
<span data-pb="files"></span><button class="quiet" data-pb="table" aria-pressed="false">Table</button></div>
<div class="headline" role="heading" aria-level="3" data-pb="headline"></div>
<div class="body"><div class="controls" data-pb="controls"><div class="wide"><div class="buttons"></div><div class="note" data-pb="note"></div><div class="extra" data-pb="side"></div></div></div>
<div><div class="error" role="alert" data-pb="error" hidden></div><div data-pb="state"></div>
<div class="stage" tabindex="0" role="application" data-pb="picture"></div><div data-pb="tables" hidden></div><div data-pb="compare"></div></div></div>
<div class="foot"><span>${swatch.formula()}formula, simulated</span><span>${swatch.traced()}traced</span><span>${swatch.measured()}measured, emulated</span><span class="end" data-pb="foot"></span></div>
<div class="hidden" aria-live="polite" data-pb="live"></div>`;

const exportMenu = files => `<details class="menu"><summary data-pb="export" aria-label="Export as">Export ▾</summary><div>${files.map(([form, words]) => `<button data-form="${form}" data-pb="export-${form}">${words}</button>`).join('')}</div></details>`;

// Same HTML is not set twice: focus, open menus and selections survive a redraw.
function put(element, html) {
  if (element.pbHtml === html) return false;
  element.pbHtml = html;
  element.innerHTML = html;
  return true;
}

export function mount(view, { model, el }) {
  const root = document.createElement('div');
  root.className = 'pb';
  root.dataset.pb = 'explorer';
  root.dataset.view = model.get('view');
  root.innerHTML = FRAME;
  const part = name => root.querySelector(`[data-pb="${name}"]`);
  const stage = part('picture');
  const host = { model, root, stage, cursor: {}, get: name => model.get(name) };
  if (view.files) part('files').innerHTML = exportMenu(view.files);
  let answer = null, started = false, showTable = false;

  const guard = work => (...given) => {
    try { return work(...given); } catch (error) {
      console.error(error);
      part('error').hidden = false;
      part('error').textContent = `This picture could not be drawn: ${String(error.stack || error).split('\n').slice(0, 3).join('\n')}`;
      return undefined;
    }
  };
  host.busy = () => BUSY.includes((model.get('status') || {}).state);
  host.say = words => { part('live').textContent = words; };
  host.send = message => model.send(message);
  host.set = (name, value) => {
    // Enter, and then leaving the field, commit the same text twice: nothing is sent, so nothing answers.
    if (Object.is(model.get(name), value)) { host.draw(); return; }
    model.set(name, value);
    model.save_changes();
    clearTimeout(answer);
    answer = setTimeout(() => note('No answer from the kernel. Run the cell to change it.'), 2000);
  };

  const note = words => put(part('note'), words ? escape(words) : '');
  const drawControls = column(part('controls'), name => (name === 'busy' ? host.busy() : model.get(name)), guard(host.set));

  function drawButtons(status) {
    const row = root.querySelector('.buttons'), held = row.contains(document.activeElement);
    if (!put(row, buttons(status, model.get('actions')))) return;
    if (host.busy() && (started || held)) row.querySelector('[data-pb=cancel]')?.focus();
    else if (held) row.querySelector('button:not(:disabled)')?.focus();
    if (!host.busy()) started = false;
  }

  function drawState(status, error) {
    put(part('state'), host.busy() ? phases(status) : status.state === 'failed' ? failure(status.failure) : '');
    part('error').hidden = !error;
    part('error').textContent = error;
    note(status.note || model.get('note'));
  }

  function drawWords(picture, status) {
    const [finding, rest = ''] = status.headline || picture.headline;
    put(part('headline'), `${escape(finding)}${rest ? ` <em>${escape(rest)}</em>` : ''}`);
    put(root.querySelector('.kick'), `<b>${escape(view.name)}</b>${escape(picture.kick)}${status.word ? ` · ${escape(status.word)}` : ''}`);
    stage.setAttribute('aria-label', `${finding} ${rest} ${view.keys || ''}`.trim());
    put(part('foot'), escape(picture.foot || ''));
    part('pin').textContent = Object.keys(model.get('pinned')).length ? 'Unpin A' : 'Pin as A';
  }

  host.draw = guard(() => {
    if (!root.isConnected || !root.clientWidth) return;
    const picture = model.get('picture'), status = model.get('status') || {}, refusal = model.get('refusal') || {};
    drawControls();
    drawButtons(status);
    drawState(status, model.get('error'));
    drawWords(picture, status);
    put(part('side'), view.side ? view.side(host) : '');
    stage.hidden = showTable;
    part('tables').hidden = !showTable;
    if (showTable) put(part('tables'), view.tables(host).map(table => data(table)).join(''));
    else { host.width = stage.clientWidth; put(stage, view.stage(host)); view.paint?.(host); }
    put(part('compare'), comparison(picture.table, host.busy() || Boolean(model.get('actions')[0]?.off)));
    for (const name of ['picture', 'tables', 'compare']) part(name).classList.toggle('stale', Boolean(refusal.text));
  });

  const press = {
    pin: () => host.send({ kind: 'pin' }),
    table: button => { showTable = !showTable; button.setAttribute('aria-pressed', showTable); host.draw(); },
    'run-from-table': () => press.run(),
    'copy-report': () => { copy(part('failure').innerText); host.say('report copied'); },
    run: () => { started = true; host.send({ kind: 'run' }); },
  };
  for (const form of ['python', 'command', 'json']) {
    press[`copy-${form}`] = () => { root.querySelector('details.menu').open = false; host.send({ kind: 'copy', form }); };
  }
  root.addEventListener('click', guard(e => {
    const button = e.target.closest('button');
    for (const menu of root.querySelectorAll('details.menu[open], details.picks[open]')) if (!menu.contains(e.target) || (menu.matches('.menu') && button)) menu.open = false;
    if (!button) return;
    if (button.dataset.remedy) host.send({ kind: 'remedy', index: Number(button.dataset.remedy) });
    else if (button.dataset.form) host.send({ kind: 'export', form: button.dataset.form });
    else if (view.press?.[button.dataset.pb]) view.press[button.dataset.pb](host, button);
    else if (press[button.dataset.pb]) press[button.dataset.pb](button);
    else if (model.get('actions').some(action => action.name === button.dataset.pb) || button.dataset.pb === 'cancel') {
      started = button.dataset.pb !== 'cancel';
      host.send({ kind: button.dataset.pb });
    }
  }));
  stage.addEventListener('keydown', guard(e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 't' || e.key === 'T') { part('table').click(); part('table').focus(); }
    else if (e.key === 'Enter') press.pin();
    else if (!view.key?.(host, e)) return;
    e.preventDefault();
  }));
  for (const type of ['pointermove', 'pointerleave', 'click', 'wheel']) {
    stage.addEventListener(type, guard(e => view.point?.(host, e)), { passive: type !== 'wheel' });
  }
  keepKeys(root, () => {
    if (host.busy()) host.send({ kind: 'cancel' });
    else if (root.querySelector('details.menu[open], details.picks[open]')) { const menu = root.querySelector('details.menu[open], details.picks[open]'); menu.open = false; menu.querySelector('summary').focus(); }
    else leave(root);
  });

  el.append(root);
  // What a change of one's own has led to is also said, not only drawn.
  const onVersion = () => {
    clearTimeout(answer);
    const before = part('headline').textContent;
    host.draw();
    const after = part('headline').textContent;
    if (after !== before && part('controls').contains(document.activeElement)) host.say(after);
  };
  const onMessage = guard((message, buffers) => {
    if (message.kind === 'file') { offer(message.name, message.type, buffers[0]); host.say(`${message.name} is offered as a file`); }
    if (message.kind !== 'copied') return;
    copy(message.text).then(() => { host.say(`copied as ${message.form}`); part('copy').textContent = 'Copied ✓'; setTimeout(() => { part('copy').textContent = 'Copy as ▾'; }, 1600); });
  });
  model.on('change:version', onVersion);
  model.on('msg:custom', onMessage);
  const stop = [followTheme(root, () => host.draw()), followWidth(root, () => host.draw())];
  whenWide(root, host.draw);
  return () => { clearTimeout(answer); model.off('change:version', onVersion); model.off('msg:custom', onMessage); stop.forEach(end => end()); };
}
