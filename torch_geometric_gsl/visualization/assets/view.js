'use strict';

/* Colours of numbers from low to high; those of classes come with the data. */
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const FAINT = '#e4e4e4';
const UNKNOWN = '#bbbbbb';
/* A finger does not hit a dot: it takes the nearest node within so many pixels. */
const REACH = 24;
/* Of more edges than these all are as thin as a pixel. */
const THIN = 20000;

/* Mix a colour with the white page: the drawing has no translucent lines. */
function tint(hex, share) {
  const parts = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgb(${parts.map((part) => Math.round(255 + share * (part - 255))).join(',')})`;
}

function rampColour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(place), RAMP.length - 2);
  const mixed = RAMP[low].map((a, c) => a + (place - low) * (RAMP[low + 1][c] - a));
  return `rgb(${mixed.map(Math.round).join(',')})`;
}

function nodeColour(colour, node, palette) {
  const value = colour ? colour.values[node] : 0;
  if (value === null) return UNKNOWN;
  if (!colour) return palette[0];
  if (colour.kind === 'class') return palette[value];
  const span = colour.high - colour.low;
  return rampColour(span > 0 ? (value - colour.low) / span : 0.5);
}

/* One drawing of one graph. `page` holds what both drawings share: places, colour,
 * threshold, and the node that is pointed at or chosen. */
class View {
  constructor(section, page) {
    this.page = page;
    this.count = section.querySelector('.count');
    this.graph = new gsl.Graph({ type: 'directed', multi: true });
    const { names, x, y } = page.data.nodes;
    const size = Math.min(7, Math.max(2, 160 / Math.sqrt(names.length + 1)));
    names.forEach((name, i) => {
      this.graph.addNode(String(i), { label: short(name), x: x[i], y: y[i], size });
    });
    const stage = section.querySelector('.stage');
    this.sigma = new gsl.Sigma(this.graph, stage, {
      allowInvalidContainer: true,
      labelRenderedSizeThreshold: 7,
      labelDensity: 0.5,
      zIndex: true,
      edgeProgramClasses: { thin: gsl.EdgeLineProgram },
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

  /* The neighbours of a node by weight, strongest first, above the threshold. */
  neighbours(map, node) {
    return (map.get(node) || []).filter(([, weight]) => weight >= this.page.least);
  }

  refresh() {
    const { focus, least } = this.page;
    this.near = null;
    if (focus !== null) {
      const both = [this.sources, this.targets].flatMap((m) => this.neighbours(m, focus));
      both.sort((a, b) => b[1] - a[1]);
      this.isNear = new Set([focus, ...both.map(([node]) => node)]);
      this.near = [...this.isNear];
    }
    const { weight, total } = this.edges;
    const count = (number) => number.toLocaleString('en');
    const shown = weight.reduce((n, w) => n + (w >= least), 0);
    this.count.textContent = `${count(this.graph.order)} nodes, ${count(shown)} of `
      + `${count(weight.length)} edges`
      + (total > weight.length ? `, the strongest of ${count(total)}` : '');
    this.sigma.refresh({ skipIndexation: true });
  }

  drawnNode(node, attributes) {
    const color = nodeColour(this.page.colour, node, this.page.data.palette);
    if (!this.near) {
      if (this.page.isHidden(node)) return { ...attributes, color: FAINT, label: '', zIndex: 0 };
      return { ...attributes, color, zIndex: 1 };
    }
    if (!this.isNear.has(node)) return { ...attributes, color: FAINT, label: '', zIndex: 0 };
    const isFocus = node === this.page.focus;
    return { ...attributes, color, label: '', zIndex: isFocus ? 2 : 1,
      size: attributes.size * (isFocus ? 1.8 : 1.2) };
  }

  drawnEdge(edge, attributes) {
    const { focus, least, colour } = this.page;
    if (attributes.weight < least) return { ...attributes, hidden: true };
    const source = this.edges.source[edge];
    const target = this.edges.target[edge];
    const isSeen = focus === null ? !(this.page.isHidden(source) && this.page.isHidden(target))
      : source === focus || target === focus;
    if (!isSeen) return { ...attributes, hidden: true };
    let color = '#9a9a9a';
    if (colour && colour.kind === 'class' && colour.values[source] !== null
        && colour.values[source] === colour.values[target]) {
      color = nodeColour(colour, source, this.page.data.palette);
    }
    const size = attributes.size * (focus === null ? 1 : 1.6);
    // Edges of a large graph hide each other: they are paler the more there are.
    const crowd = Math.min(1, 2500 / (this.edges.weight.length + 1));
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
