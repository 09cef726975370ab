// Playback: a line runs over the clock, what has not begun is faint, and each schedule says what its ranks do.
export function play(host, end, shortest, paint) {
  const cursor = host.cursor;
  const stop = () => { cancelAnimationFrame(cursor.frame); cursor.frame = 0; cursor.play = null; mark(host, false); paint(); };
  if (cursor.frame) { stop(); return; }
  // With reduced motion one press is one step.
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
    const next = (cursor.play ?? 0) + Math.max(shortest, end / 40);
    cursor.play = next > end ? null : next;
    paint();
    return;
  }
  const begun = performance.now() - 0, length = Math.min(14000, Math.max(4000, 600 * end / Math.max(shortest, 1e-9)));
  const frame = now => {
    const part = (now - begun) / length;
    if (part >= 1 || !host.root.isConnected) { stop(); return; }
    cursor.play = Math.max(0, part) * end;
    cursor.frame = requestAnimationFrame(frame);
    paint();
  };
  mark(host, true);
  cursor.frame = requestAnimationFrame(frame);
}

function mark(host, playing) {
  const button = host.root.querySelector('[data-pb=play]');
  if (button) button.textContent = playing ? '■ Stop' : '▶ Play';
}
