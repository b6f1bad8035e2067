'use strict';

/* Colours of the drawing, and of numbers from low to high. */
const THEMES = {
  light: { page: [255, 255, 255], text: '#222', box: '#fff', veil: '#ffffffcc', frame: '#999',
    faint: '#e4e4e4', unknown: '#bbbbbb', edge: '#9a9a9a',
    ramp: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]] },
  dark: { page: [22, 24, 28], text: '#e3e5e8', box: '#16181c', veil: '#16181ccc', frame: '#7d848c',
    faint: '#2c3036', unknown: '#6b7178', edge: '#a2a8ae',
    ramp: [[128, 96, 190], [88, 130, 196], [38, 162, 156], [104, 206, 104], [253, 231, 37]] },
};
let theme = THEMES.light;
/* A finger does not hit a dot: it takes the nearest node within so many pixels. */
const REACH = 24;
/* Of more edges than these all are as thin as a pixel. */
const THIN = 20000;

const parts = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));

function mix(from, to, share) {
  return `rgb(${from.map((part, c) => Math.round(part + share * (to[c] - part))).join(',')})`;
}

/* Mix a colour with the page: the drawing has no translucent lines. */
const tint = (hex, share) => mix(theme.page, parts(hex), share);

/* The colour of a class: a dark one is lighter on a dark page. */
function classColour(hex) {
  const [red, green, blue] = parts(hex);
  const light = (0.21 * red + 0.72 * green + 0.07 * blue) / 255;
  if (theme !== THEMES.dark || light > 0.35) return hex;
  const lift = 0.85 * (1 - light / 0.35);
  return `#${[red, green, blue].map((part) => (
    Math.round(part + lift * (255 - part)).toString(16).padStart(2, '0'))).join('')}`;
}

function rampColour(share) {
  const { ramp } = theme;
  const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  return mix(ramp[low], ramp[low + 1], place - low);
}

function nodeColour(colour, node, palette) {
  const value = colour ? colour.values[node] : 0;
  if (value === null) return theme.unknown;
  if (!colour) return classColour(palette[0]);
  if (colour.kind === 'class') return classColour(palette[value]);
  const span = colour.high - colour.low;
  return rampColour(span > 0 ? (value - colour.low) / span : 0.5);
}

/* The places of edges among those into their targets, heaviest first. A loop, which is
 * not seen, takes the place of no other edge: it comes after all of them. */
function ranks({ source, target }) {
  const into = new Map();
  return target.map((to, e) => {
    if (source[e] === to) return Number.MAX_VALUE;
    into.set(to, (into.get(to) || 0) + 1);
    return into.get(to) - 1;
  });
}

/* Write the name of a node so that it can be read over other nodes. */
function drawName(context, { label, x, y, size }) {
  if (!label) return;
  context.font = '13px system-ui, sans-serif';
  context.lineJoin = 'round';
  context.lineWidth = 4;
  context.strokeStyle = theme.box;
  context.strokeText(label, x + size + 3, y + 4);
  context.fillStyle = theme.text;
  context.fillText(label, x + size + 3, y + 4);
}

/* One drawing of one graph. `page` holds what both drawings share: places, colour,
 * threshold, and the node that is pointed at or chosen. */
class View {
  constructor(section, page) {
    this.page = page;
    this.isNew = new Set(page.data.nodes.new);
    this.count = section.querySelector('.count');
    this.graph = new gsl.Graph({ type: 'directed', multi: true });
    const { names, x, y } = page.data.nodes;
    names.forEach((name, i) => {
      this.graph.addNode(String(i), { label: short(name), x: x[i], y: y[i] });
    });
    const stage = section.querySelector('.stage');
    this.sigma = new gsl.Sigma(this.graph, stage, {
      allowInvalidContainer: true,
      labelRenderedSizeThreshold: 7,
      labelDensity: 0.5,
      zIndex: true,
      edgeProgramClasses: { thin: gsl.EdgeLineProgram },
      defaultDrawNodeLabel: drawName,
      defaultDrawNodeHover: () => {},  // The overlay names it.
      nodeReducer: (node, attributes) => this.drawnNode(Number(node), attributes),
      edgeReducer: (edge, attributes) => this.drawnEdge(Number(edge), attributes),
    });
    // A node would be drawn over its own image.
    this.sigma.getCanvases().hoverNodes.style.display = 'none';
    this.sigma.on('enterNode', ({ node }) => page.point(Number(node)));
    this.sigma.on('leaveNode', () => page.point(null));
    this.sigma.on('clickNode', ({ node }) => page.choose(Number(node)));
    this.sigma.on('clickStage', ({ event }) => {
      const isTouch = event.original.type.startsWith('touch');
      page.choose(isTouch ? this.nearest(event.x, event.y) : null);
    });
    stage.addEventListener('keydown', (event) => this.move(event));
    this.overlay = new Overlay(this);
    this.fit();
    this.sigma.on('resize', () => {
      this.fit();
      this.sigma.scheduleRefresh();
    });
  }

  /* Nodes are smaller where many of them share a small drawing. */
  fit() {
    const { width, height } = this.sigma.getDimensions();
    this.size = Math.min(7, Math.max(2, 0.19 * Math.sqrt((width * height) / (this.graph.order + 1))));
  }

  show(index) {
    this.index = index;
    const { source, target, weight } = this.page.data.graphs[index];
    this.most = weight.reduce((a, b) => Math.max(a, b), 0) || 1;
    this.edges = this.page.data.graphs[index];
    this.sources = new Map();
    this.targets = new Map();
    this.graph.clearEdges();
    // Of many edges nobody sees the widths, which take most of the time to draw.
    const type = weight.length > THIN ? 'thin' : 'line';
    const list = (map, key, value) => {
      if (!map.has(key)) map.set(key, []);
      map.get(key).push(value);
    };
    this.ranks = ranks(this.edges);
    source.forEach((from, e) => {
      this.graph.addDirectedEdgeWithKey(String(e), String(from), String(target[e]),
        { type, weight: weight[e], size: 0.4 + 1.6 * (weight[e] / this.most) });
      list(this.sources, target[e], [from, weight[e]]);
      list(this.targets, from, [target[e], weight[e]]);
    });
    for (const map of [this.sources, this.targets]) {
      for (const found of map.values()) found.sort((a, b) => b[1] - a[1]);
    }
    this.refresh();
  }

  /* Whether an edge is drawn while no node is in focus. */
  keeps(edge) {
    return this.edges.weight[edge] >= this.page.least && this.ranks[edge] < this.page.perNode;
  }

  /* The neighbours of a node by weight, strongest first, above the threshold. */
  neighbours(map, node) {
    return (map.get(node) || []).filter(([, weight]) => weight >= this.page.least);
  }

  refresh() {
    const { focus } = this.page;
    this.near = null;
    if (focus !== null) {
      const both = [this.sources, this.targets].flatMap((m) => this.neighbours(m, focus));
      both.sort((a, b) => b[1] - a[1]);
      this.isNear = new Set([focus, ...both.map(([node]) => node)]);
      this.near = [...this.isNear];
    }
    const { weight, total } = this.edges;
    const count = (number) => number.toLocaleString('en');
    this.shown = weight.reduce((n, _, e) => n + this.keeps(e), 0);
    this.count.textContent = `${count(this.graph.order)} nodes, ${count(this.shown)} of `
      + `${count(weight.length)} edges`
      + (total > weight.length ? `, the strongest of ${count(total)}` : '');
    this.sigma.refresh({ skipIndexation: true });
  }

  drawnNode(node, given) {
    const isNew = this.isNew.has(node);
    const attributes = { ...given, size: this.size * (isNew ? 1.3 : 1),
      forceLabel: isNew && this.isNew.size <= MAX_LABELS };
    const color = nodeColour(this.page.colour, node, this.page.data.palette);
    if (!this.near) {
      if (this.page.isHidden(node)) return { ...attributes, color: theme.faint, label: '', zIndex: 0 };
      return { ...attributes, color, zIndex: 1 };
    }
    if (!this.isNear.has(node)) return { ...attributes, color: theme.faint, label: '', zIndex: 0 };
    const isFocus = node === this.page.focus;
    return { ...attributes, color, label: '', zIndex: isFocus ? 2 : 1,
      size: attributes.size * (isFocus ? 1.8 : 1.2) };
  }

  drawnEdge(edge, attributes) {
    const { focus, least, colour } = this.page;
    if (attributes.weight < least) return { ...attributes, hidden: true };
    const source = this.edges.source[edge];
    const target = this.edges.target[edge];
    const isSeen = focus === null ? this.keeps(edge) && !(this.page.isHidden(source)
      && this.page.isHidden(target)) : source === focus || target === focus;
    if (!isSeen) return { ...attributes, hidden: true };
    let color = theme.edge;
    if (colour && colour.kind === 'class' && colour.values[source] !== null
        && colour.values[source] === colour.values[target]) {
      color = nodeColour(colour, source, this.page.data.palette);
    }
    const size = attributes.size * (focus === null ? 1 : 1.6);
    // Edges of a large graph hide each other: they are paler the more there are.
    const crowd = Math.min(1, 2500 / (this.shown + 1));
    const share = attributes.weight / this.most;
    const opacity = focus === null ? (0.15 + 0.5 * share) * (0.25 + 0.75 * crowd) : 0.9;
    return { ...attributes, size, color: tint(color, opacity), zIndex: share };
  }

  /* The node next to a place of the canvas, or null if none is within reach. */
  nearest(x, y) {
    let [found, least] = [null, REACH];
    this.graph.forEachNode((key) => {
      const at = this.sigma.framedGraphToViewport(this.sigma.getNodeDisplayData(key));
      const distance = Math.hypot(at.x - x, at.y - y);
      if (distance < least) [found, least] = [Number(key), distance];
    });
    return found;
  }

  goTo(node) {
    const place = this.sigma.getNodeDisplayData(String(node));
    const ratio = Math.min(this.sigma.getCamera().ratio, 0.35);
    if (place) this.sigma.getCamera().animate({ x: place.x, y: place.y, ratio }, { duration: 300 });
  }

  /* Move and zoom by keys. */
  move(event) {
    const camera = this.sigma.getCamera();
    const { x, y, ratio } = camera.getState();
    const step = 0.1 * ratio;
    const next = {
      ArrowLeft: { x: x - step }, ArrowRight: { x: x + step },
      ArrowUp: { y: y + step }, ArrowDown: { y: y - step },
      '+': { ratio: ratio / 1.25 }, '=': { ratio: ratio / 1.25 }, '-': { ratio: ratio * 1.25 },
    }[event.key];
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    camera.setState(next);
  }
}
