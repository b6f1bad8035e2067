// Sort the rows of a table by a click on a column; say where a table can be scrolled.
const NUMBER = /^[^\d\w]*?([-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)/i;

function numberIn(cell) {
  const found = cell.textContent.trim().match(NUMBER);
  return found ? Number(found[1].replace(/,/g, '').replace('−', '-')) : NaN;
}

function sortBy(table, column, isUp) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, cell: row.cells[column] }));
  const known = rows.filter(({ cell }) => !Number.isNaN(numberIn(cell)));
  const isNumeric = 2 * known.length >= rows.length;
  const order = (a, b) => {
    if (!isNumeric) return a.cell.textContent.localeCompare(b.cell.textContent, 'en');
    return numberIn(a.cell) - numberIn(b.cell);
  };
  const isLast = ({ cell }) => isNumeric && Number.isNaN(numberIn(cell));
  rows.sort((a, b) => isLast(a) - isLast(b) || (isUp ? order(a, b) : order(b, a)) || 0);
  body.append(...rows.map(({ row }) => row));
}

function makeSortable(table) {
  const cells = [...table.tHead.rows[0].cells];
  cells.forEach((cell, column) => {
    if (!cell.textContent.trim()) return;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'sort';
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener('click', () => {
      const isUp = cell.getAttribute('aria-sort') !== 'ascending';
      cells.forEach((one) => one.removeAttribute('aria-sort'));
      cell.setAttribute('aria-sort', isUp ? 'ascending' : 'descending');
      sortBy(table, column, isUp);
    });
  });
}

function hint(box) {
  const isWide = box.scrollWidth > box.clientWidth + 1;
  box.classList.toggle('scrolls', isWide);
  const marks = { tabindex: '0', role: 'region', 'aria-label': 'Table that scrolls sideways' };
  Object.entries(marks).forEach(([name, value]) => {
    if (isWide) box.setAttribute(name, value); else box.removeAttribute(name);
  });
}

document.querySelectorAll('article table.docutils:not(.options)').forEach((table) => {
  const isPlain = !table.querySelector('[rowspan], [colspan]');
  const hasHead = table.tHead && table.tHead.rows.length === 1 && table.tBodies.length === 1;
  if (hasHead && isPlain && table.tBodies[0].rows.length > 2) makeSortable(table);
});
const boxes = document.querySelectorAll('article .table-wrapper');
const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => hint(target)));
boxes.forEach((box) => watch.observe(box));
