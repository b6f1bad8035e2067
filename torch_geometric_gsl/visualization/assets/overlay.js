'use strict';

const MAX_LABELS = 30;
const MAX_LABEL_LENGTH = 28;

const short = (name) => (name.length > MAX_LABEL_LENGTH
  ? `${name.slice(0, MAX_LABEL_LENGTH - 1)}…` : name);

const overlap = (a, b) => a.left < b.right && b.left < a.right
  && a.top < b.bottom && b.top < a.bottom;

/* What is drawn over the nodes of a view: their images, as soon as they are large enough
 * to be seen, and the names of the neighbours of a node, none over another. */
class Overlay {
  constructor(view) {
    this.view = view;
    this.canvas = view.sigma.createCanvas('overlay', { beforeLayer: 'labels',
      style: { pointerEvents: 'none' } });
    this.context = this.canvas.getContext('2d');
    view.sigma.on('afterRender', () => this.draw());
  }

  draw() {
    const { sigma, page } = this.view;
    const ratio = window.devicePixelRatio || 1;
    this.area = sigma.getDimensions();
    this.canvas.width = this.area.width * ratio;
    this.canvas.height = this.area.height * ratio;
    this.canvas.style.width = `${this.area.width}px`;
    this.canvas.style.height = `${this.area.height}px`;
    this.context.scale(ratio, ratio);
    const { near } = this.view;
    if (page.sprite) this.images(near);
    this.rings();
    if (near) this.labels(near.slice(0, MAX_LABELS + 1));
  }

  /* Where a node stands on the canvas, or null beyond its edges. */
  place(node) {
    const { sigma } = this.view;
    const shown = sigma.getNodeDisplayData(String(node));
    const half = sigma.scaleSize(shown.size);
    const { x, y } = sigma.framedGraphToViewport(shown);
    if (x < -half || y < -half || x > this.area.width + half || y > this.area.height + half) return null;
    return { x, y, half, color: shown.color };
  }

  images(near) {
    const { page } = this.view;
    const { columns, width, height } = page.data.images;
    const { context } = this;
    context.imageSmoothingEnabled = false;
    // The node in focus comes last, over its neighbours.
    const nodes = near ? [...near].reverse() : page.data.nodes.names.keys();
    for (const i of nodes) {
      if (!near && page.isHidden(i)) continue;
      const at = this.place(i);
      if (!at || at.half < 4.5) continue;
      const frame = Math.max(1, at.half / 8);
      const longer = Math.max(width, height);
      const [w, h] = [(2 * at.half * width) / longer, (2 * at.half * height) / longer];
      context.fillStyle = at.color;
      context.fillRect(at.x - w / 2 - frame, at.y - h / 2 - frame, w + 2 * frame, h + 2 * frame);
      context.drawImage(page.sprite, (i % columns) * width, Math.floor(i / columns) * height,
        width, height, at.x - w / 2, at.y - h / 2, w, h);
    }
  }

  /* New nodes stand out from those of training by a ring. */
  rings() {
    const { context } = this;
    context.save();
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    this.view.isNew.forEach((node) => {
      const at = this.place(node);
      if (!at || at.color === theme.faint) return;
      context.beginPath();
      context.arc(at.x, at.y, at.half + 1, 0, 2 * Math.PI);
      context.stroke();
    });
    context.restore();
  }

  /* Name nodes, the first ones first, to the right of them or where else there is room. */
  labels(nodes) {
    const { context } = this;
    context.font = '13px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const { focus, data } = this.view.page;
    const found = nodes.map((node) => [node, this.place(node)]).filter(([, at]) => at);
    const taken = found.map(([, { x, y, half }]) => (
      { left: x - half, right: x + half, top: y - half, bottom: y + half }));
    this.drawn = [];
    found.forEach(([node, { x, y, half }]) => {
      const isFocus = node === focus;
      const text = short(data.nodes.names[node]);
      const width = context.measureText(text).width + 6;
      const [right, left, above, below] = [x + half + 3, x - half - width - 3, y - half - 21, y + half + 3];
      const boxes = [[right, y - 9], [left, y - 9], [x - width / 2, below], [x - width / 2, above],
        [right, above], [right, below], [left, above], [left, below]].map(([from, top]) => (
        { left: from, top, right: from + width, bottom: top + 18 }));
      const isInside = ({ left: from, right: to, top, bottom }) => (
        from >= 0 && top >= 0 && to <= this.area.width && bottom <= this.area.height);
      const isFree = (box) => isInside(box) && !taken.some((other) => overlap(box, other));
      const box = boxes.find(isFree) || (isFocus ? boxes.find(isInside) || boxes[0] : null);
      if (!box) return;
      taken.push(box);
      this.drawn.push({ text, ...box });
      context.fillStyle = isFocus ? theme.box : theme.veil;
      context.fillRect(box.left, box.top, width, 18);
      context.strokeStyle = theme.frame;
      if (isFocus) context.strokeRect(box.left, box.top, width, 18);
      context.fillStyle = theme.text;
      context.fillText(text, box.left + 3, (box.top + box.bottom) / 2);
    });
  }
}
