// Where each part of the picture is. The report has the horizontal places. Rows, columns and the height of unfolded
// blocks are computed here, since they change with a click.
const BOX = 42, ROW_GAP = 28, COPY_GAP = 18, HEAD = 22, FOOT = 10, COLUMN_GAP = 72;

// Two folds are the same if they have the same frame and the same first kernel: each copy of a block has folds of its
// own.
const foldKey = (item, shift) => `${item.frame}:${item.first + shift}`;

function drawing(picture, unfolded, aspect) {
  const found = { boxes: [], folds: [], lines: [], ports: [], standIn: new Map(), width: 0, height: 0 };
  const measured = measure(picture, picture.frames[0], 0, unfolded);
  const columns = columnsOf(picture.frames[0], measured, aspect);
  const area = placed(picture, picture.frames[0], 0, unfolded, { x: 0, y: 0 }, columns, found);
  return { ...found, ...area };
}

function measure(picture, frame, shift, unfolded) {
  return frame.rows.map((row) => Math.max(0, ...row.map((index) => heightOf(picture, frame.items[index], shift, unfolded))));
}

function heightOf(picture, item, shift, unfolded) {
  if (item.kernel !== undefined) return BOX;
  if (item.port) return 0;
  const copies = unfolded.has(foldKey(item, shift)) ? item.count : 1;
  let height = HEAD + FOOT + (copies - 1) * COPY_GAP;
  for (let copy = 0; copy < copies; copy++) {
    height += stacked(measure(picture, picture.frames[item.frame], shift + copy * item.size, unfolded));
  }
  return height;
}

const stacked = (heights) => heights.reduce((sum, height) => sum + height, 0) + Math.max(heights.length - 1, 0) * ROW_GAP;

// The first row of each column. Their number is the one with which the whole picture can be shown largest in a window
// of this aspect (width over height).
function columnsOf(frame, heights, aspect) {
  const total = stacked(heights), crossing = crossings(frame);
  const scale = (number) => Math.min(aspect / (number * (frame.width + COLUMN_GAP)), 1 / (total / number));
  let number = 1;
  while (number < heights.length && scale(number + 1) > scale(number)) number += 1;
  const ends = [];
  heights.reduce((y, height) => ends[ends.push(y + height) - 1] + ROW_GAP, 0);
  const starts = [0];
  for (let column = 1; column < number; column++) {
    const target = (total * column) / number, slack = Math.max((total / number) * 0.05, 3 * (BOX + ROW_GAP));
    const near = ends.map((end, row) => row).filter((row) => Math.abs(ends[row] - target) <= slack);
    const nearest = ends.findIndex((end) => end >= target);
    // Of the rows nearby, the one after which the fewest lines cross to the next column.
    const best = near.reduce((a, b) => (crossing[b] < crossing[a] ? b : a), nearest);
    if (best >= starts[starts.length - 1] && best + 1 < heights.length) starts.push(best + 1);
  }
  return starts;
}

function crossings(frame) {
  const rowOf = rowsOf(frame), change = new Array(frame.rows.length + 1).fill(0);
  for (const [from, to] of frame.edges) {
    change[rowOf[from]] += 1;
    change[rowOf[to]] -= 1;
  }
  let sum = 0;
  return change.map((step) => (sum += step));
}

function rowsOf(frame) {
  const found = [];
  frame.rows.forEach((row, number) => row.forEach((index) => (found[index] = number)));
  return found;
}

// Places a frame with its upper left corner at `corner`; returns its width and height.
function placed(picture, frame, shift, unfolded, corner, columns, found) {
  const heights = measure(picture, frame, shift, unfolded), rowOf = rowsOf(frame), rows = [];
  let column = -1, y = 0, height = 0;
  heights.forEach((own, row) => {
    if (columns[column + 1] === row) {
      column += 1;
      y = 0;
    }
    rows.push({ column, left: corner.x + column * (frame.width + COLUMN_GAP), top: corner.y + y, bottom: corner.y + y + own });
    y += own + ROW_GAP;
    height = Math.max(height, y - ROW_GAP);
  });
  const ends = frame.items.map((item, index) => {
    const row = rows[rowOf[index]], own = heightOf(picture, item, shift, unfolded);
    const x = row.left + frame.x[index], top = (row.top + row.bottom - own) / 2;
    placeItem(picture, item, shift, unfolded, { x, top, own }, found);
    return { x, top, bottom: top + own, row: rowOf[index], kernel: item.kernel === undefined ? null : item.kernel + shift };
  });
  const gutter = { right: frame.width, top: corner.y, height };
  for (const [from, to, bends, values] of frame.edges) {
    const path = route(ends[from], ends[to], bends, rows, gutter);
    found.lines.push({ path, from: ends[from].kernel, to: ends[to].kernel, values, shift });
  }
  return { width: Math.max(0, columns.length * (frame.width + COLUMN_GAP) - COLUMN_GAP), height };
}

function placeItem(picture, item, shift, unfolded, at, found) {
  if (item.kernel !== undefined) {
    found.boxes.push({ kernel: item.kernel + shift, x: at.x - picture.node / 2, y: at.top, width: picture.node, height: BOX });
    return;
  }
  if (item.port) {
    found.ports.push({ x: at.x, y: at.top });
    return;
  }
  const frame = picture.frames[item.frame], key = foldKey(item, shift), open = unfolded.has(key);
  const left = at.x - frame.width / 2, first = item.first + shift;
  found.folds.push({ key, open, first, size: item.size, count: item.count, x: left - picture.margin, y: at.top, width: frame.width + 2 * picture.margin, height: at.own });
  const port = (kind) => left + frame.x[frame.items.findIndex((one) => one.port === kind)];
  let y = at.top + HEAD;
  for (let copy = 0; copy < (open ? item.count : 1); copy++) {
    if (copy && item.chained) found.lines.push({ path: curve(port("out"), y - COPY_GAP, port("in"), y), from: null, to: null, values: [], shift });
    y += placed(picture, frame, shift + copy * item.size, unfolded, { x: left, y }, [0], found).height + COPY_GAP;
  }
  for (let other = open ? Infinity : item.size; other < item.size * item.count; other++) {
    found.standIn.set(first + other, { kernel: first + (other % item.size), key });
  }
}

const curve = (x, y, toX, toY) => (x === toX ? `M${x} ${y}V${toY}` : `M${x} ${y}C${x} ${(y + toY) / 2} ${toX} ${(y + toY) / 2} ${toX} ${toY}`);

// Lines bend only between rows, so they do not cross boxes. From one column to the next they go through the gap between
// columns.
function route(from, to, bends, rows, gutter) {
  let path = `M${from.x} ${from.bottom}V${rows[from.row].bottom}`, x = from.x;
  const xs = [...bends, null];
  if (to.row - from.row !== xs.length) return `${path}L${to.x} ${to.top}`;
  xs.forEach((bend, step) => {
    const above = rows[from.row + step], row = rows[from.row + step + 1];
    const next = bend === null ? to.x : row.left + bend;
    if (above.column === row.column) {
      if (next === x) path += `V${row.top}`;
      else path += `C${x} ${(above.bottom + row.top) / 2} ${next} ${(above.bottom + row.top) / 2} ${next} ${row.top}`;
    } else {
      const middle = above.left + gutter.right + COLUMN_GAP / 2;
      path += `V${gutter.top + gutter.height + 14}H${middle}V${gutter.top - 14}H${next}V${row.top}`;
    }
    path += `V${bend === null ? to.top : row.bottom}`;
    x = next;
  });
  return `${path}m-3.5 -6l3.5 6l3.5 -6`;
}
