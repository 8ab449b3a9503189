// Large tables: a filter over their rows, arrow keys from cell to cell, and the note of the cell under the pointer.
'use strict';

for (const section of document.querySelectorAll('section.large')) {
  const table = section.querySelector('table'), filter = section.querySelector('input');
  const count = section.querySelector('output'), note = section.querySelector('.readout');
  const rows = [...table.querySelectorAll('tr.entry')], entry = (element) => element.closest('tr.entry > *');

  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.words.includes(word));
    for (const body of table.tBodies) body.hidden = !body.querySelector('tr.entry:not([hidden])');
    const shown = rows.filter((row) => !row.hidden);
    if (shown.length) stop_at(shown[0].cells[0]);
    count.textContent = `${shown.length} of ${rows.length} rows`;
  }

  function read(cell) {
    const name = cell.parentElement.cells[0].textContent, column = table.tHead.rows[0].cells[cell.cellIndex];
    const figure = `${column.textContent} ${cell.textContent}: ${cell.title || column.title}`;
    note.textContent = cell.cellIndex ? `${name} \u2022 ${figure}` : name;
  }

  // Moves among shown rows only. Vertical moves stay in the column.
  function press(event) {
    const cell = entry(event.target);
    const step = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      PageUp: [-15, 0],
      PageDown: [15, 0],
      Home: [0, -99],
      End: [0, 99]
    }[event.key];
    if (!cell || !step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const shown = rows.filter((row) => !row.hidden), at = shown.indexOf(cell.parentElement) + step[0];
    const row = shown[Math.min(shown.length - 1, Math.max(0, at))];
    focus(row.cells[Math.min(row.cells.length - 1, Math.max(0, cell.cellIndex + step[1]))]);
  }

  // The Tab key reaches only one cell at a time.
  function stop_at(cell) {
    table.querySelector('[tabindex=\'0\']')?.setAttribute('tabindex', -1);
    cell.tabIndex = 0;
  }

  function focus(cell) {
    stop_at(cell);
    cell.focus();
  }

  for (const row of rows) row.dataset.words = (row.cells[0].textContent + ' ' + row.className).toLowerCase();
  for (const event of ['mouseover', 'focusin']) {
    table.addEventListener(event, ({target}) => entry(target) && read(entry(target)));
  }
  table.addEventListener('click', ({target}) => entry(target) && focus(entry(target)));
  table.addEventListener('keydown', press);
  filter.addEventListener('input', apply);
  filter.closest('.bar').hidden = false;
  apply();
}
