// What an explorer needs from the page it lies in: theme, keys of its own, a width, the clipboard.
const MARK = 'data-lm-suppress-shortcuts', MODIFIERS = ['Control', 'Meta', 'Alt'];

export function theme(body = document.body) {
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === 'false' ? 'dark' : 'light';
  if (body.classList.contains('vscode-dark')) return 'dark';
  if (body.classList.contains('vscode-light')) return 'light';
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

// Lab swaps its stylesheets while the body's attribute changes: for a few frames the widget has no width, and a
// canvas drawn then stays blank, since the ResizeObserver sees no change afterwards. So wait for a width.
export function whenWide(root, draw) {
  let tries = 0;
  const attempt = () => {
    if (!root.isConnected) return;
    if (root.clientWidth) { draw(); return; }
    tries += 1;
    if (tries < 30) requestAnimationFrame(attempt); else setTimeout(attempt, 500);
  };
  attempt();
}

export function followTheme(root, draw) {
  const set = () => { root.dataset.theme = theme(); requestAnimationFrame(() => whenWide(root, draw)); };
  const observer = new MutationObserver(set);
  observer.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', 'class'] });
  root.dataset.theme = theme();
  return () => observer.disconnect();
}

export function followWidth(root, draw) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth && root.clientWidth !== last) { last = root.clientWidth; draw(); }
  });
  observer.observe(root);
  return () => observer.disconnect();
}

// Without the mark on the focused element itself, B, A or D D typed in a slider insert and delete cells. Chords with
// a modifier (save, run) stay the page's own.
export function keepKeys(root, escape) {
  root.addEventListener('focusin', e => e.target.setAttribute(MARK, ''));
  root.addEventListener('focusout', e => e.target.removeAttribute(MARK));
  root.addEventListener('keydown', e => {
    if (MODIFIERS.includes(e.key)) e.target.removeAttribute(MARK);
    else if (e.key === 'Escape') { e.stopPropagation(); escape(); }
  }, true);
  root.addEventListener('keyup', e => { if (MODIFIERS.includes(e.key)) e.target.setAttribute(MARK, ''); }, true);
}

export const leave = root => root.closest('.jp-Notebook')?.focus();

export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    const area = document.createElement('textarea');
    area.value = words;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

// A file made in the kernel, offered by the page itself: no address outside is asked for.
export function offer(name, type, bytes) {
  const address = URL.createObjectURL(new Blob([bytes], { type })), link = document.createElement('a');
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
