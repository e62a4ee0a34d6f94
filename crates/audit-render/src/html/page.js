'use strict';
// Tables are sorted by a click on a head. The rows of the file are in the order of the report.
for (const table of document.querySelectorAll('table.sort')) {
  const [heads, body] = [[...table.tHead.rows[0].cells], table.tBodies[0]];
  const order = new Intl.Collator('en', { numeric: true });
  heads.forEach((head, i) => {
    const key = row => row.cells[i].dataset.key;
    const text = row => row.cells[i].textContent;
    const compare = (a, b) => key(a) ? key(a) - key(b) : order.compare(text(a), text(b));
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.ariaSort === 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.ariaSort = down ? 'descending' : 'ascending';
      const rows = [...body.rows].sort(compare);
      body.append(...down ? rows.reverse() : rows);
    });
  });
}
// A click on a picture shows it large, with what is written beneath it.
const dialog = document.createElement('dialog');
dialog.addEventListener('click', () => dialog.close());
document.body.append(dialog);
for (const picture of document.querySelectorAll('.example img')) {
  const open = () => {
    const caption = document.createElement('p');
    caption.textContent = picture.alt;
    const large = new Image();
    large.src = picture.src;
    dialog.replaceChildren(large, caption);
    dialog.showModal();
  };
  [picture.tabIndex, picture.role] = [0, 'button'];
  picture.addEventListener('click', open);
  picture.addEventListener('keydown', e => {
    if (e.key !== 'Enter' && e.key !== ' ') return;
    e.preventDefault();
    open();
  });
}
// What is folded is printed too.
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(d => { d.open = true; }));
