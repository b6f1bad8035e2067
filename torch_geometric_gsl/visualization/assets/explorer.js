'use strict';

const MAX_MATCHES = 8;
/* Choices of the number of edges into a node; Infinity shows all. */
const LEVELS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100];
/* With more edges than these for each node, a page opens with so many of the heaviest. */
const FEW = 2;

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
    const number = Math.max(...data.graphs.map(({ weight }) => weight.length));
    this.perNode = number > FEW * data.nodes.names.length ? FEW : Infinity;
  }

  get focus() { return this.pointed === null ? this.chosen : this.pointed; }

  get shownViews() { return element('second').hidden ? this.views.slice(0, 1) : this.views; }

  /* Whether a node is of another class than the one that is singled out. */
  isHidden(node) { return this.only !== undefined && this.colour.values[node] !== this.only; }

  async start() {
    const preferred = window.matchMedia('(prefers-color-scheme: dark)');
    this.paint(preferred.matches);
    preferred.addEventListener('change', () => this.paint(preferred.matches));
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
    this.fillLevels();
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
      this.panel.edges();
      this.panel.describe();
    });
  }

  /* As many choices as the node of most edges needs, its loops apart. */
  fillLevels() {
    const into = new Map();
    this.data.graphs.forEach(({ source, target }, i) => target.forEach((to, e) => {
      if (source[e] !== to) into.set(`${i} ${to}`, (into.get(`${i} ${to}`) || 0) + 1);
    }));
    const largest = Math.max(1, ...new Set(into.values()));
    this.levels = [...LEVELS.filter((level) => level < largest), Infinity];
    const place = this.levels.indexOf(this.perNode);
    const slider = element('keep');
    slider.max = String(this.levels.length - 1);
    slider.value = slider.max;
    slider.disabled = this.levels.length === 1;
    this.keep(place < 0 ? Infinity : this.perNode);
  }

  listen() {
    element('keep').addEventListener('input', (event) => this.keep(this.levels[Number(event.target.value)]));
    element('dark').addEventListener('click', () => this.paint(theme !== THEMES.dark));
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
    this.panel.edges();
    this.panel.describe();
  }

  /* Show at most so many edges into each node, the heaviest. */
  keep(most) {
    this.perNode = most;
    const text = most === Infinity ? 'all' : String(most);
    element('keep').value = String(this.levels.indexOf(most));
    element('keep').setAttribute('aria-valuetext', text);
    element('kept').textContent = text;
    this.refresh();
    this.panel.edges();
  }

  paint(isDark) {
    theme = isDark ? THEMES.dark : THEMES.light;
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    element('dark').setAttribute('aria-pressed', String(isDark));
    this.refresh();
    this.panel.legend();
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
    const view = this.views[0];
    // Edges that are not shown do not pull, so that the picture is that of those shown.
    const getEdgeWeight = (edge, { weight }) => (view.keeps(Number(edge)) ? weight / view.most : 0);
    this.layout = new gsl.ForceAtlas2Worker(graph, { settings, getEdgeWeight });
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
    this.panel.edges();
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
