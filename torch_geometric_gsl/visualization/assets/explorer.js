'use strict';

const element = (id) => document.getElementById(id);
const MAX_LISTED = 12;
const MAX_MATCHES = 8;

function add(parent, tag, text = '', attributes = {}) {
  const child = document.createElement(tag);
  child.textContent = text;  // Never markup: names come from data.
  Object.assign(child, attributes);
  parent.append(child);
  return child;
}

const round = (value) => (value === null ? '–' : String(Number(value.toPrecision(3))));

class Page {
  constructor(data) {
    this.data = data;
    this.colour = data.colours[0] || null;
    this.least = 0;
    this.pointed = null;
    this.chosen = null;
    this.views = [];
    this.layout = null;
    this.most = Math.max(0, ...data.graphs.map(
      (graph) => graph.weight.reduce((a, b) => Math.max(a, b), 0)));
  }

  get focus() { return this.pointed === null ? this.chosen : this.pointed; }

  async start() {
    if (this.data.images) {
      this.sprite = new Image();
      this.sprite.src = this.data.images.uri;
      await this.sprite.decode();
    }
    this.views.push(new View(element('first'), this));
    this.data.colours.forEach(({ name }, i) => add(element('colour'), 'option', name, { value: i }));
    element('colour').closest('label').hidden = this.data.colours.length === 0;
    element('compare').hidden = this.data.graphs.length < 2;
    ['first', 'second'].forEach((id, place) => this.fillGraphs(id, place));
    this.views[0].show(0);
    this.listen();
    this.refresh();
    this.legend();
    this.describe();
    if (this.data.arrange) this.arrange(Math.min(6000, 1500 + this.views[0].graph.order));
    document.body.dataset.ready = 'true';
  }

  fillGraphs(id, place) {
    const select = element(id).querySelector('.graph');
    this.data.graphs.forEach(({ name }, i) => add(select, 'option', name, { value: i }));
    select.value = String(Math.min(place, this.data.graphs.length - 1));
    select.hidden = this.data.graphs.length < 2;
    select.setAttribute('aria-label', 'Graph');
    select.addEventListener('change', () => this.views[place].show(Number(select.value)));
  }

  listen() {
    element('colour').addEventListener('change', (event) => {
      this.colour = this.data.colours[Number(event.target.value)];
      this.legend();
      this.refresh();
    });
    element('threshold').addEventListener('input', (event) => {
      this.least = (Number(event.target.value) / 1000) * this.most;
      this.refresh();
      this.describe();
    });
    element('arrange').addEventListener('click', () => {
      if (this.layout) this.settle(); else this.arrange(20000);
    });
    element('fit').addEventListener('click', () => {
      this.choose(null);
      this.views.forEach((view) => view.sigma.getCamera().animatedReset({ duration: 300 }));
    });
    element('compare').addEventListener('click', () => this.compare());
    const search = element('search');
    search.addEventListener('input', () => this.match());
    search.addEventListener('keydown', (event) => {
      const first = element('matches').querySelector('button');
      if (event.key === 'Enter' && first) first.click();
      if (event.key === 'Escape') this.match('');
    });
  }

  refresh() {
    element('least').textContent = round(this.least);
    this.views.forEach((view) => view.refresh());
  }

  point(node) {
    this.pointed = node;
    this.refresh();
    this.describe();
  }

  choose(node) {
    this.chosen = node;
    this.point(null);
  }

  match(text = element('search').value) {
    const list = element('matches');
    const wanted = text.trim().toLowerCase();
    list.replaceChildren();
    const { names } = this.data.nodes;
    const found = [];
    // The node of that very name comes first.
    names.forEach((name, i) => { if (wanted && name.toLowerCase() === wanted) found.push(i); });
    for (let i = 0; wanted && i < names.length && found.length < MAX_MATCHES; i += 1) {
      if (names[i].toLowerCase().includes(wanted) && !found.includes(i)) found.push(i);
    }
    found.forEach((node) => this.button(add(list, 'li'), node));
    if (wanted && !found.length) add(list, 'li', 'no such node');
    list.hidden = !wanted;
  }

  button(item, node, weight = null) {
    const button = add(item, 'button', this.data.nodes.names[node], { type: 'button' });
    if (weight !== null) add(button, 'span', round(weight));
    button.addEventListener('click', () => {
      element('matches').hidden = true;
      this.choose(node);
      this.views.forEach((view) => view.goTo(node));
    });
  }

  /* Let edges pull their nodes together (ForceAtlas2) for so many milliseconds. */
  arrange(duration) {
    this.settle();
    const { graph } = this.views[0];
    if (graph.order < 2) return;
    const settings = { ...gsl.forceAtlas2.inferSettings(graph), barnesHutOptimize: graph.order > 300 };
    this.layout = new gsl.ForceAtlas2Worker(graph, { settings, getEdgeWeight: 'weight' });
    this.layout.start();
    element('arrange').textContent = 'Stop';
    this.timer = setTimeout(() => this.settle(), duration);
  }

  settle() {
    if (!this.layout) return;
    clearTimeout(this.timer);
    this.layout.kill();
    this.layout = null;
    element('arrange').textContent = 'Arrange';
    this.sharePlaces();
  }

  sharePlaces() {
    const [first, second] = this.views;
    if (!second) return;
    first.graph.forEachNode((node, { x, y }) => second.graph.mergeNodeAttributes(node, { x, y }));
  }

  compare() {
    const isOpen = element('second').hidden;
    element('second').hidden = !isOpen;
    element('compare').setAttribute('aria-pressed', String(isOpen));
    if (isOpen && this.views.length < 2) this.open();
    this.views.forEach((view) => view.sigma.resize(true));
    this.refresh();
  }

  open() {
    const view = new View(element('second'), this);
    this.views.push(view);
    this.sharePlaces();
    view.show(Number(element('second').querySelector('.graph').value));
    // Both look at the same nodes.
    const cameras = this.views.map(({ sigma }) => sigma.getCamera());
    cameras.forEach((camera, i) => camera.on('updated', (state) => {
      if (this.isFollowing) return;
      this.isFollowing = true;
      cameras[1 - i].setState(state);
      this.isFollowing = false;
    }));
    cameras[1].setState(cameras[0].getState());
  }

  legend() {
    const box = element('legend');
    box.replaceChildren();
    if (!this.colour) return;
    if (this.colour.kind === 'class') {
      this.colour.classes.forEach((name, i) => {
        const entry = add(box, 'span');
        add(entry, 'i').style.background = this.data.palette[i % this.data.palette.length];
        add(entry, 'b', name);
      });
      return;
    }
    const stops = [0, 0.25, 0.5, 0.75, 1].map(rampColour).join(',');
    add(box, 'div', '', { className: 'ramp' }).style.background = `linear-gradient(90deg, ${stops})`;
    const ends = add(box, 'div', '', { className: 'ends' });
    [this.colour.low, this.colour.high].forEach((value) => add(ends, 'span', round(value)));
  }

  describe() {
    const box = element('node');
    const node = this.focus;
    box.replaceChildren();
    if (node === null) {
      add(box, 'p', 'Point at a node to see its neighbours; click to keep it.');
      return;
    }
    add(box, 'h2', this.data.nodes.names[node]);
    if (this.sprite) this.picture(box, node);
    const { colours } = this.data;
    this.facts(box, node, colours.filter((colour) => !colour.isFeature));
    this.views.forEach((view, place) => {
      if (place && element('second').hidden) return;
      const name = this.views.length > 1 ? `${this.data.graphs[view.index].name}: ` : '';
      this.listed(box, `${name}draws from`, view.neighbours(view.sources, node));
      this.listed(box, `${name}is drawn by`, view.neighbours(view.targets, node));
    });
    const features = colours.filter((colour) => colour.isFeature);
    if (features.length) add(box, 'h3', 'features');
    this.facts(box, node, features);
  }

  facts(box, node, known) {
    const list = add(box, 'dl');
    known.forEach(({ name, kind, classes, values }) => {
      const value = values[node];
      add(list, 'dt', name);
      add(list, 'dd', kind === 'class' && value !== null ? classes[value] : round(value));
    });
  }

  listed(box, title, found) {
    add(box, 'h3', `${title} (${found.length.toLocaleString('en')})`);
    const list = add(box, 'ul');
    found.slice(0, MAX_LISTED).forEach(([node, weight]) => this.button(add(list, 'li'), node, weight));
    if (found.length > MAX_LISTED) add(list, 'li', `… and ${found.length - MAX_LISTED} weaker ones`);
  }

  picture(box, node) {
    const { columns, width, height } = this.data.images;
    const canvas = add(box, 'canvas', '', { width, height });
    canvas.getContext('2d').drawImage(this.sprite, (node % columns) * width,
      Math.floor(node / columns) * height, width, height, 0, 0, width, height);
  }
}

window.explorer = new Page(JSON.parse(element('data').textContent));
window.explorer.start();
