'use strict';

const MAX_MATCHES = 8;

class Page {
  constructor(data) {
    this.data = data;
    this.colour = data.colours[0] || null;
    this.only = undefined;  // The class that alone is in colour; null: nodes without one.
    this.pointed = null;
    this.chosen = null;
    this.views = [];
    this.layout = null;
    this.panel = new Panel(this);
    this.weights = Float64Array.from(data.graphs.flatMap(({ weight }) => weight)).sort();
    this.least = this.weights.length ? this.weights[0] : 0;
  }

  get focus() { return this.pointed === null ? this.chosen : this.pointed; }

  get shownViews() { return element('second').hidden ? this.views.slice(0, 1) : this.views; }

  /* Whether a node is of another class than the one that is singled out. */
  isHidden(node) { return this.only !== undefined && this.colour.values[node] !== this.only; }

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
    element('threshold').disabled = this.weights[0] === this.weights[this.weights.length - 1];
    element('least').value = String(this.least);
    ['first', 'second'].forEach((id, place) => this.fillGraphs(id, place));
    this.views[0].show(0);
    this.listen();
    this.panel.legend();
    this.panel.describe();
    if (this.data.arrange) this.arrange(Math.min(6000, 1500 + this.views[0].graph.order));
    document.body.dataset.ready = 'true';
  }

  fillGraphs(id, place) {
    const select = element(id).querySelector('.graph');
    this.data.graphs.forEach(({ name }, i) => add(select, 'option', name, { value: i }));
    select.value = String(Math.min(place, this.data.graphs.length - 1));
    select.hidden = this.data.graphs.length < 2;
    select.setAttribute('aria-label', 'Graph');
    select.addEventListener('change', () => {
      this.views[place].show(Number(select.value));
      this.panel.describe();
    });
  }

  listen() {
    element('colour').addEventListener('change', (event) => {
      this.colour = this.data.colours[Number(event.target.value)];
      this.single(undefined);
      this.panel.legend();
    });
    element('threshold').addEventListener('input', (event) => {
      // The slider goes through the weights by rank: they may span decades.
      const rank = Math.floor((Number(event.target.value) / 1000) * (this.weights.length - 1));
      this.hideBelow(this.weights[rank]);
      element('least').value = String(this.least);
    });
    element('least').addEventListener('input', (event) => {
      this.hideBelow(event.target.value === '' ? 0 : Number(event.target.value));
      const weaker = this.weights.filter((weight) => weight < this.least).length;
      element('threshold').value = String((1000 * weaker) / Math.max(1, this.weights.length - 1));
    });
    element('arrange').addEventListener('click', () => {
      if (this.layout) this.settle(); else this.arrange(20000);
    });
    element('fit').addEventListener('click', () => {
      this.choose(null);
      this.views.forEach((view) => view.sigma.getCamera().animatedReset({ duration: 300 }));
    });
    element('compare').addEventListener('click', () => this.compare());
    this.listenToSearch();
  }

  listenToSearch() {
    const search = element('search');
    search.addEventListener('input', () => this.match());
    search.addEventListener('focus', () => this.match());
    search.addEventListener('keydown', (event) => {
      const first = element('matches').querySelector('button');
      if (event.key === 'Enter' && first) first.click();
    });
    element('search-box').addEventListener('focusout', (event) => {
      if (!element('search-box').contains(event.relatedTarget)) element('matches').hidden = true;
    });
    document.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      element('matches').hidden = true;
      this.choose(null);
    });
  }

  refresh() {
    this.shownViews.forEach((view) => view.refresh());
  }

  hideBelow(weight) {
    this.least = weight;
    this.refresh();
    this.panel.describe();
  }

  single(value) {
    this.only = value;
    this.refresh();
  }

  point(node) {
    this.pointed = node;
    this.refresh();
    this.panel.describe();
  }

  choose(node) {
    this.chosen = node;
    this.point(null);
  }

  visit(node) {
    element('matches').hidden = true;
    this.choose(node);
    this.views.forEach((view) => view.goTo(node));
  }

  match() {
    const list = element('matches');
    const wanted = element('search').value.trim().toLowerCase();
    list.replaceChildren();
    const { names } = this.data.nodes;
    const found = [];
    // The node of that very name comes first.
    names.forEach((name, i) => {
      if (wanted && name.toLowerCase() === wanted && found.length < MAX_MATCHES) found.push(i);
    });
    for (let i = 0; wanted && i < names.length && found.length < MAX_MATCHES; i += 1) {
      if (names[i].toLowerCase().includes(wanted) && !found.includes(i)) found.push(i);
    }
    found.forEach((node) => this.panel.button(add(list, 'li'), node));
    if (wanted && !found.length) add(list, 'li', 'no such node');
    list.hidden = !wanted;
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
    this.timers = [setTimeout(() => this.settle(), duration), setInterval(() => this.sharePlaces(), 250)];
  }

  settle() {
    if (!this.layout) return;
    this.timers.forEach(clearTimeout);
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
    this.shownViews.forEach((view) => view.sigma.resize(true));
    this.refresh();
    this.panel.describe();
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
}

window.explorer = new Page(JSON.parse(element('data').textContent));
window.explorer.start().catch((error) => {
  // Without WebGL nothing can be drawn.
  element('failure').textContent = `The graph cannot be drawn: ${error.message} (It needs WebGL.)`;
  element('failure').hidden = false;
});
