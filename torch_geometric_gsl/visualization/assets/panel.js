'use strict';

const MAX_LISTED = 12;

const element = (id) => document.getElementById(id);

function add(parent, tag, text = '', attributes = {}) {
  const child = document.createElement(tag);
  child.textContent = text;  // Never markup: names come from data.
  Object.assign(child, attributes);
  parent.append(child);
  return child;
}

const number = (parent, tag, text) => add(parent, tag, text, { className: 'number' });

const round = (value) => (value === null ? '–' : String(Number(value.toPrecision(3))));

/* A number of a colour, or the date of its seconds since 1970. */
const format = ({ isDate }, value) => (isDate && value !== null
  ? new Date(1000 * value).toISOString().slice(0, 16).replace('T', ' ').replace(' 00:00', '')
  : value === null ? '–' : String(value));

/* A sentence on the edges shown: do they join nodes of one class, or of like numbers? */
function alike(view, { name, kind, values }) {
  const { source, target, weight } = view.edges;
  const pairs = weight.map((w, e) => [w, values[source[e]], values[target[e]], e])
    .filter(([, a, b, e]) => view.keeps(e) && source[e] !== target[e] && a !== null && b !== null);
  const total = pairs.reduce((sum, [w]) => sum + w, 0);
  if (!(total > 0)) return '';
  const mean = (value) => pairs.reduce((sum, pair) => sum + pair[0] * value(pair), 0) / total;
  if (kind === 'class') {
    const share = mean(([, a, b]) => Number(a === b));
    const known = values.filter((value) => value !== null);
    const sizes = new Map();
    known.forEach((value) => sizes.set(value, (sizes.get(value) || 0) + 1));
    const equal = [...sizes.values()].reduce((sum, size) => sum + size * (size - 1), 0);
    const chance = equal / (known.length * (known.length - 1));
    return `Homophily ${share.toFixed(2)}: of the weight of the edges shown, `
      + `${Math.round(100 * share)}% joins nodes of equal ${name}; `
      + `between random nodes it would be ${Math.round(100 * chance)}%.`;
  }
  const [left, right] = [mean(([, a]) => a), mean(([, , b]) => b)];
  const product = mean(([, a, b]) => (a - left) * (b - right));
  const spread = Math.sqrt(mean(([, a]) => (a - left) ** 2) * mean(([, , b]) => (b - right) ** 2));
  return spread > 0 ? `Correlation ${(product / spread).toFixed(2)}: of ${name} at the two ends `
    + 'of the edges shown, by weight; 1 if neighbours agree, 0 between random nodes.' : '';
}

/* The legend, and what is known of one node. */
class Panel {
  constructor(page) { this.page = page; }

  legend() {
    const box = element('legend');
    const { colour, data } = this.page;
    box.replaceChildren();
    this.edges();
    if (!colour) return;
    if (colour.kind === 'class') {
      colour.classes.forEach((name, i) => this.entry(box, name, i, classColour(data.palette[i])));
    } else {
      const stops = [0, 0.25, 0.5, 0.75, 1].map(rampColour).join(',');
      add(box, 'div', '', { className: 'ramp' }).style.background = `linear-gradient(90deg, ${stops})`;
      const ends = add(box, 'div', '', { className: 'ends' });
      [colour.low, colour.high].forEach((value) => number(ends, 'span', format(colour, value)));
    }
    if (colour.values.includes(null)) this.entry(box, 'none', null, theme.unknown);
  }

  /* A class, or what has none: a click leaves only its nodes in colour. */
  entry(box, name, value, color) {
    const { page } = this;
    const button = add(box, 'button', '', { type: 'button' });
    add(button, 'i').style.background = color;
    add(button, 'b', name);
    button.setAttribute('aria-pressed', String(page.only === value));
    button.addEventListener('click', () => {
      page.single(page.only === value ? undefined : value);
      [...box.querySelectorAll('button')].forEach((one) => one.setAttribute('aria-pressed',
        String(one === button && page.only === value)));
    });
  }

  /* What the lines mean, and how alike the nodes are that they join. */
  edges() {
    const box = element('edges');
    const { colour, weights, shownViews, data } = this.page;
    box.replaceChildren();
    if (weights.length) {
      add(box, 'span', 'edge weight');
      [...new Set([weights[0], weights[weights.length - 1]])].forEach((weight, isHigh) => {
        const sample = number(box, 'span', '');
        add(sample, 'i').style.cssText = `height: ${1 + 3 * isHigh}px; opacity: ${0.5 + isHigh / 2}`;
        sample.append(` ${round(weight)}`);
      });
      add(box, 'p', colour && colour.kind === 'class'
        ? 'An edge has a colour where both ends are of one class, and is grey elsewhere.' : '');
    }
    element('homophily').textContent = shownViews.map((view) => {
      const found = colour ? alike(view, colour) : '';
      return found && shownViews.length > 1 ? `${data.graphs[view.index].name}: ${found}` : found;
    }).join(' ');
  }

  describe() {
    const box = element('node');
    const { focus, data } = this.page;
    box.replaceChildren();
    if (focus === null) {
      add(box, 'p', 'Point at a node to see its neighbours; click or tap to keep it.');
      return;
    }
    add(box, 'h2', data.nodes.names[focus], { tabIndex: -1 });
    if (this.page.sprite) this.picture(box, focus);
    this.facts(box, focus, data.colours.filter((colour) => !colour.isFeature));
    const views = this.page.shownViews;
    views.forEach((view) => {
      const name = views.length > 1 ? `${data.graphs[view.index].name}: ` : '';
      this.listed(box, `${name}edges from`, view.neighbours(view.sources, focus));
      this.listed(box, `${name}edges to`, view.neighbours(view.targets, focus));
    });
    const features = data.colours.filter((colour) => colour.isFeature);
    if (features.length) add(box, 'h3', 'features');
    this.facts(box, focus, features);
  }

  facts(box, node, known) {
    const list = add(box, 'dl');
    known.forEach((colour) => {
      const { name, kind, classes, values } = colour;
      const value = values[node];
      add(list, 'dt', name);
      if (kind === 'class' && value !== null) add(list, 'dd', classes[value]);
      else number(list, 'dd', format(colour, value));
    });
  }

  listed(box, title, found) {
    add(box, 'h3', `${title} (${found.length.toLocaleString('en')})`);
    const list = add(box, 'ul');
    found.slice(0, MAX_LISTED).forEach(([node, weight]) => {
      this.button(add(list, 'li'), node, weight).addEventListener('click', () => {
        element('node').querySelector('h2').focus();  // The button is gone.
      });
    });
    if (found.length > MAX_LISTED) add(list, 'li', `… and ${found.length - MAX_LISTED} weaker ones`);
  }

  /* A way to a node. */
  button(item, node, weight = null) {
    const button = add(item, 'button', this.page.data.nodes.names[node], { type: 'button' });
    if (weight !== null) number(button, 'span', round(weight));
    button.addEventListener('click', () => this.page.visit(node));
    return button;
  }

  picture(box, node) {
    const { columns, width, height } = this.page.data.images;
    const canvas = add(box, 'canvas', '', { width, height });
    canvas.getContext('2d').drawImage(this.page.sprite, (node % columns) * width,
      Math.floor(node / columns) * height, width, height, 0, 0, width, height);
  }
}
