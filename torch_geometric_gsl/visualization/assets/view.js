'use strict';

/* Colours of numbers from low to high; those of classes come with the data. */
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
/* Mix a colour with the white page: the drawing has no translucent lines. */
function tint(hex, share) {
  const parts = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgb(${parts.map((part) => Math.round(255 + share * (part - 255))).join(',')})`;
}

const FAINT = '#e4e4e4';
const UNKNOWN = '#bbbbbb';

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
  if (colour.kind === 'class') return palette[value % palette.length];
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
    this.size = Math.min(7, Math.max(2, 160 / Math.sqrt(names.length + 1)));
    names.forEach((label, i) => {
      this.graph.addNode(String(i), { label, x: x[i], y: y[i], size: this.size });
    });
    this.sigma = new gsl.Sigma(this.graph, section.querySelector('.stage'), {
      allowInvalidContainer: true,
      labelRenderedSizeThreshold: 7,
      labelDensity: 0.5,
      zIndex: true,
      nodeReducer: (node, attributes) => this.drawnNode(Number(node), attributes),
      edgeReducer: (edge, attributes) => this.drawnEdge(edge, attributes),
    });
    this.sigma.on('enterNode', ({ node }) => page.point(Number(node)));
    this.sigma.on('leaveNode', () => page.point(null));
    this.sigma.on('clickNode', ({ node }) => page.choose(Number(node)));
    this.sigma.on('clickStage', () => page.choose(null));
    if (page.sprite) this.drawImages();
  }

  show(index) {
    this.index = index;
    const { source, target, weight } = this.page.data.graphs[index];
    this.most = weight.reduce((a, b) => Math.max(a, b), 0);
    this.weights = weight;
    this.sources = new Map();
    this.targets = new Map();
    this.graph.clearEdges();
    const list = (map, key, value) => {
      if (!map.has(key)) map.set(key, []);
      map.get(key).push(value);
    };
    source.forEach((from, e) => {
      this.graph.addDirectedEdgeWithKey(String(e), String(from), String(target[e]),
        { weight: weight[e], size: 0.4 + 1.6 * (weight[e] / (this.most || 1)) });
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
      this.near = new Set([focus, ...both.map(([node]) => node)]);
    }
    const graph = this.page.data.graphs[this.index];
    const shown = this.weights.reduce((n, w) => n + (w >= least), 0);
    const total = graph.total;
    this.count.textContent = `${this.graph.order.toLocaleString('en')} nodes, `
      + `${shown.toLocaleString('en')} of ${total.toLocaleString('en')} edges`;
    this.sigma.refresh({ skipIndexation: true });
  }

  drawnNode(node, attributes) {
    const color = nodeColour(this.page.colour, node, this.page.data.palette);
    if (!this.near) return { ...attributes, color };
    if (!this.near.has(node)) return { ...attributes, color: FAINT, label: '', zIndex: 0 };
    const isFocus = node === this.page.focus;
    return { ...attributes, color, zIndex: isFocus ? 2 : 1, highlighted: isFocus,
      size: attributes.size * (isFocus ? 1.6 : 1.2), forceLabel: this.near.size < 30 };
  }

  drawnEdge(edge, attributes) {
    const { focus, least, colour } = this.page;
    if (attributes.weight < least) return { ...attributes, hidden: true };
    const [source, target] = this.graph.extremities(edge).map(Number);
    if (focus !== null && source !== focus && target !== focus) {
      return { ...attributes, hidden: true };
    }
    let color = '#9a9a9a';
    if (colour && colour.kind === 'class' && colour.values[source] !== null
        && colour.values[source] === colour.values[target]) {
      color = nodeColour(colour, source, this.page.data.palette);
    }
    const size = attributes.size * (focus === null ? 1 : 1.6);
    // Edges of a large graph hide each other: they are paler the more there are.
    const crowd = Math.min(1, 2500 / (this.weights.length + 1));
    const share = attributes.weight / (this.most || 1);
    const opacity = focus === null ? (0.15 + 0.5 * share) * (0.25 + 0.75 * crowd) : 0.9;
    return { ...attributes, size, color: tint(color, opacity), zIndex: share };
  }

  goTo(node) {
    const place = this.sigma.getNodeDisplayData(String(node));
    const ratio = Math.min(this.sigma.getCamera().ratio, 0.35);
    if (place) this.sigma.getCamera().animate({ x: place.x, y: place.y, ratio }, { duration: 300 });
  }

  /* Draw the images of nodes over them, as soon as they are large enough to be seen. */
  drawImages() {
    const canvas = this.sigma.createCanvas('images', { beforeLayer: 'labels',
      style: { pointerEvents: 'none' } });
    const context = canvas.getContext('2d');
    const { columns, width, height } = this.page.data.images;
    this.sigma.on('afterRender', () => {
      const ratio = window.devicePixelRatio || 1;
      const area = this.sigma.getDimensions();
      canvas.width = area.width * ratio;
      canvas.height = area.height * ratio;
      canvas.style.width = `${area.width}px`;
      canvas.style.height = `${area.height}px`;
      context.scale(ratio, ratio);
      context.imageSmoothingEnabled = false;
      this.graph.forEachNode((key) => {
        const node = this.sigma.getNodeDisplayData(key);
        const size = 2 * this.sigma.scaleSize(node.size);
        if (size < 9 || (this.near && !this.near.has(Number(key)))) return;
        const { x, y } = this.sigma.framedGraphToViewport(node);
        if (x < -size || y < -size || x > area.width + size || y > area.height + size) return;
        const i = Number(key);
        context.drawImage(this.page.sprite, (i % columns) * width,
          Math.floor(i / columns) * height, width, height, x - size / 2, y - size / 2, size, size);
      });
    });
  }
}
