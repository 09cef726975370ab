// The states of a run, as text: phase bar while it lasts, who failed and why afterwards.
import { escape } from './format.js';

export const BUSY = ['queued', 'running', 'cancelling'];

export function phases(status) {
  return `<div class="phases" data-pb="phases">${(status.phases || []).map(({ name, part }) => {
    const now = part > 0 && part < 1;
    return `<div class="${now ? 'now' : ''}" role="progressbar" aria-label="${escape(name)}" aria-valuemin="0" aria-valuemax="100" aria-valuenow="${Math.round(part * 100)}">`
      + `<div class="bar"><i style="width:${(part * 100).toFixed(1)}%"></i></div><div class="note">${part >= 1 ? '✓ ' : ''}${escape(name)}</div></div>`;
  }).join('')}</div>`;
}

export function failure({ what, why, remedies = [], log, log_title: title = 'Log' }) {
  const buttons = remedies.map(({ words }, i) => `<button data-remedy="${i}">${escape(words)}</button>`).join('');
  const more = log ? `<details><summary data-pb="log">${escape(title)}</summary><pre>${escape(log)}</pre></details>` : '';
  return `<div class="alert" role="alert" data-pb="failure"><div class="what">✕ &nbsp;${escape(what)}</div><div class="why">${escape(why)}</div>`
    + `<div class="buttons">${buttons}<button class="quiet" data-pb="copy-report">Copy report</button></div>${more}</div>`;
}

// Buttons under the controls. While a run lasts Cancel stands where Run was.
export function buttons(status, actions) {
  if (BUSY.includes(status.state)) {
    return `<button class="danger" data-pb="cancel"${status.state === 'cancelling' ? ' disabled' : ''}>${status.state === 'cancelling' ? 'Cancelling' : 'Cancel'}</button>`
      + `<button disabled>${escape(actions[0].label)}</button>`;
  }
  return actions.map(({ name, label, help = '', off }, i) =>
    `<button class="${i ? '' : 'primary'}" data-pb="${name}" title="${escape(help)}"${off ? ' disabled' : ''}>${escape(i === 0 && status.state === 'failed' ? 'Run again' : label)}</button>`).join('');
}
